"""Capture files as tcpdump and Wireshark write them: pcap (any byte order, µs or ns) and pcapng."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Final

from ulnet.capture.errors import CaptureError

__all__ = ["Packet", "read_packets"]

_MAX_RECORD: Final = 16 << 20  # no link has packets as long; a longer one means damage
_PCAP_HEADER: Final = 24
_MAGICS: Final = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
_NG_SECTION: Final = 0x0A0D0D0A
_NG_INTERFACE: Final = 1
_NG_SIMPLE: Final = 3
_NG_ENHANCED: Final = 6
_NG_OPTION_TSRESOL: Final = 9
_SECOND: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Packet:
    """One packet: when, on which kind of link, its bytes, and how many more were on the wire."""

    number: int
    time_ns: int
    link_type: int
    data: bytes
    cut: int


def read_packets(file: BinaryIO) -> Iterator[Packet]:
    """Every packet of a capture, one at a time; CaptureError where the file is damaged."""
    start = file.read(4)
    if not start:
        raise CaptureError("the file is empty; give a capture that tcpdump -w wrote")
    if start in _MAGICS:
        yield from _read_pcap(file, start)
    elif start == _NG_SECTION.to_bytes(4, "big"):
        yield from _read_pcapng(file)
    else:
        raise CaptureError(
            f"the file is no capture (it begins with {start.hex(' ')}); give one that tcpdump -w wrote"
        )


def _exactly(file: BinaryIO, size: int, what: str) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise CaptureError(f"the file ends in the middle of {what}; what was decoded before is complete")
    return data


def _read_pcap(file: BinaryIO, magic: bytes) -> Iterator[Packet]:
    order, unit = _MAGICS[magic]
    (link_type,) = struct.unpack(order + "16xI", _exactly(file, _PCAP_HEADER - 4, "its first header"))
    link_type &= 0x0FFFFFFF  # above: how many checksum bytes trail each packet
    layout = struct.Struct(order + "IIII")
    number = 0
    while head := file.read(layout.size):
        number += 1
        if len(head) < layout.size:
            raise CaptureError(
                f"the file ends in the middle of packet {number}; the ones before are complete"
            )
        seconds, fraction, size, wire_size = layout.unpack(head)
        if size > _MAX_RECORD:
            raise CaptureError(f"packet {number} claims {size} bytes; the file is damaged from here on")
        data = _exactly(file, size, f"packet {number}")
        yield Packet(number, seconds * _SECOND + fraction * unit, link_type, data, max(wire_size - size, 0))


@dataclass(slots=True)
class _Interface:
    link_type: int
    snap_length: int
    ticks_per_second: int = 1_000_000


@dataclass(slots=True)
class _Section:
    order: str
    interfaces: list[_Interface] = field(default_factory=list)


def _read_pcapng(file: BinaryIO) -> Iterator[Packet]:
    section = _Section(_section_order(file))
    number = 0
    while head := file.read(8):
        if len(head) < 8:
            raise CaptureError(f"the file ends in the middle of a block after packet {number}")
        kind, size = struct.unpack(section.order + "II", head)
        if kind == _NG_SECTION:
            file_head = head[4:]
            section = _Section(_section_order(file, file_head))
            continue
        body = _block_body(file, size, number)
        if kind == _NG_INTERFACE:
            section.interfaces.append(_interface(body, section.order, number))
        elif kind in (_NG_ENHANCED, _NG_SIMPLE):
            number += 1
            yield _ng_packet(kind, body, section, number)


def _block_body(file: BinaryIO, size: int, number: int) -> bytes:
    if size % 4 or not 12 <= size <= _MAX_RECORD:
        raise CaptureError(
            f"a block after packet {number} claims {size} bytes; the file is damaged from here on"
        )
    return _exactly(file, size - 8, f"a block after packet {number}")[:-4]


def _section_order(file: BinaryIO, size_field: bytes = b"") -> str:
    """Read the rest of a section header; its byte order."""
    size_field = size_field or _exactly(file, 4, "its first header")
    magic = _exactly(file, 4, "a section header")
    order = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}.get(magic)
    if order is None:
        raise CaptureError("a section header has no byte order; the file is damaged")
    (size,) = struct.unpack(order + "I", size_field)
    if size % 4 or not 28 <= size <= _MAX_RECORD:
        raise CaptureError(f"a section header claims {size} bytes; the file is damaged")
    _exactly(file, size - 12, "a section header")
    return order


def _interface(body: bytes, order: str, number: int) -> _Interface:
    if len(body) < 8:
        raise CaptureError(f"an interface block after packet {number} is too short; the file is damaged")
    link_type, snap_length = struct.unpack_from(order + "HxxI", body)
    interface = _Interface(link_type, snap_length)
    at = 8
    while at + 4 <= len(body):
        option, size = struct.unpack_from(order + "HH", body, at)
        if option == _NG_OPTION_TSRESOL and size == 1 and at + 4 < len(body):
            resolution = body[at + 4]
            base = 2 if resolution & 0x80 else 10
            interface.ticks_per_second = base ** min(resolution & 0x7F, 63)
        at += 4 + (size + 3) // 4 * 4
    return interface


def _ng_packet(kind: int, body: bytes, section: _Section, number: int) -> Packet:
    damaged = CaptureError(f"packet {number} does not fit its block; the file is damaged from here on")
    try:
        if kind == _NG_ENHANCED:
            which, high, low, size, wire_size = struct.unpack_from(section.order + "IIIII", body)
            at = 20
        else:
            which, high, low, at = 0, 0, 0, 4
            (wire_size,) = struct.unpack_from(section.order + "I", body)
            size = min(wire_size, len(body) - at, section.interfaces[0].snap_length or wire_size)
        interface = section.interfaces[which]
    except (struct.error, IndexError):
        raise damaged from None
    if at + size > len(body):
        raise damaged
    time_ns = (high << 32 | low) * _SECOND // interface.ticks_per_second
    return Packet(number, time_ns, interface.link_type, body[at : at + size], max(wire_size - size, 0))
