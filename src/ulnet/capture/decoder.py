"""A capture file to LNet events."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import BinaryIO, Final

from ulnet.capture.describe import Requests
from ulnet.capture.errors import CaptureError
from ulnet.capture.event import Event, Saying
from ulnet.capture.packet import TCP, UDP, Endpoint, ip_payload, knows_link
from ulnet.capture.pcap import read_packets
from ulnet.capture.roce import Roce
from ulnet.capture.tcp import TcpConnections

__all__ = ["LNET_PORT", "Decoder"]

LNET_PORT: Final = 988


class Decoder:
    """Gives the events of one capture in order of time."""

    def __init__(self, ports: Collection[int] = (LNET_PORT,)) -> None:
        self.packets: int = 0
        self.cut_packets: int = 0  # captured only in part
        self.start_ns: int = 0  # of the first packet
        self._now = 0
        self._events: list[Event] = []
        requests = Requests()
        self._tcp = TcpConnections(self._say, requests, ports)
        self._roce = Roce(self._say, requests)

    def events(self, file: BinaryIO) -> Iterator[Event]:
        """Every event of the capture; CaptureError where the file is damaged, after what came before it."""
        unknown_links: set[int] = set()
        readable = 0
        try:
            for packet in read_packets(file):
                if not self.packets:
                    self.start_ns = packet.time_ns
                self.packets += 1
                self.cut_packets += packet.cut > 0
                self._now = packet.time_ns
                if not knows_link(packet.link_type):
                    unknown_links.add(packet.link_type)
                    continue
                readable += 1
                self._packet(packet.link_type, packet.data, packet.cut)
                if self._events:
                    yield from self._take()
        except CaptureError:
            self._tcp.finish()
            yield from self._take()
            raise
        self._tcp.finish()
        yield from self._take()
        if unknown_links and not readable:
            raise CaptureError(
                f"link type {min(unknown_links)} is not one that is read here; "
                "capture on an Ethernet, loopback or InfiniBand-over-Ethernet interface, or on any"
            )

    def _packet(self, link_type: int, data: bytes, cut: int) -> None:
        carried = ip_payload(link_type, data, cut)
        if carried is None:
            return
        if carried.protocol == TCP:
            self._tcp.segment(carried)
        elif carried.protocol == UDP:
            self._roce.datagram(carried)

    def _say(self, src: Endpoint, dst: Endpoint, saying: Saying) -> None:
        self._events.append(Event(self._now, src, dst, saying))

    def _take(self) -> list[Event]:
        taken, self._events = self._events, []
        return taken
