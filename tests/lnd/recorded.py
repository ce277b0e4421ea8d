"""Captures of kernel nodes as scripts: what one end said, what the other answered, how it ended."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from ulnet.capture.packet import TCP, ip_payload
from ulnet.capture.pcap import read_packets

VECTORS = Path(__file__).resolve().parents[1] / "data" / "vectors"

_FIN, _SYN, _RST, _ACK = 1, 2, 4, 16


class Act(Enum):
    """Something that happened on a connection."""

    OPEN = auto()  # the client connects
    SAYS = auto()  # the client sends
    ANSWERS = auto()  # the server sends
    HANGS_UP = auto()  # the client closes
    ENDS = auto()  # the server closes
    RESETS = auto()  # the server resets


@dataclass(frozen=True, slots=True)
class Event:
    """One act on one connection, numbered in order of appearance."""

    stream: int
    act: Act
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Recording:
    """All connections of a capture that begin in it, in one order of time."""

    events: tuple[Event, ...]

    def only(self, streams: set[int]) -> Recording:
        """The events of some connections."""
        return Recording(tuple(event for event in self.events if event.stream in streams))

    def mapped(self, change: Callable[[bytes], bytes]) -> Recording:
        """With all bytes changed in a way that keeps their number."""
        return Recording(tuple(Event(e.stream, e.act, change(e.data)) for e in self.events))

    def said(self, stream: int, act: Act = Act.SAYS) -> bytes:
        """Everything that one end of a connection sent."""
        return b"".join(e.data for e in self.events if e.stream == stream and e.act is act)

    @property
    def streams(self) -> list[int]:
        """The connections, in order."""
        return sorted({event.stream for event in self.events})


def recording(name: str, client: str | None = None) -> Recording:
    """The capture of that name; only what the client of that address began, if given."""
    wanted = _address(client) if client is not None else None
    streams: dict[tuple[bytes, int, bytes, int], int] = {}
    over: set[int] = set()
    events: list[Event] = []
    with (VECTORS / f"{name}.pcap").open("rb") as file:
        for packet in read_packets(file):
            ip = ip_payload(packet.link_type, packet.data, packet.cut)
            if ip is None or ip.protocol != TCP:
                continue
            source, target = struct.unpack_from(">HH", ip.data)
            flags, data = ip.data[13], ip.data[4 * (ip.data[12] >> 4) :]
            key = (ip.src, source, ip.dst, target)
            if flags & _SYN and not flags & _ACK:
                if wanted is None or ip.src == wanted:
                    streams[key] = len(set(streams.values()))
                    events.append(Event(streams[key], Act.OPEN))
                continue
            back = (ip.dst, target, ip.src, source)
            stream = streams.get(key, streams.get(back))
            if stream is None or stream in over:
                continue
            client_speaks = key in streams
            if data:
                events.append(Event(stream, Act.SAYS if client_speaks else Act.ANSWERS, data))
            if flags & (_FIN | _RST):
                over.add(stream)
                act = Act.HANGS_UP if client_speaks else Act.RESETS if flags & _RST else Act.ENDS
                events.append(Event(stream, act))
    return Recording(tuple(events))


def _address(text: str) -> bytes:
    return bytes(int(part) for part in text.split("."))
