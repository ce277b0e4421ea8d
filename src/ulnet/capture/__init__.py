"""Captured packets read as LNet conversation; needs only nid and wire."""

from ulnet.capture.decoder import LNET_PORT, Decoder
from ulnet.capture.errors import CaptureError
from ulnet.capture.event import Event, Saying
from ulnet.capture.packet import Endpoint
from ulnet.capture.pcap import Packet, read_packets

__all__ = [
    "LNET_PORT",
    "CaptureError",
    "Decoder",
    "Endpoint",
    "Event",
    "Packet",
    "Saying",
    "read_packets",
]
