"""Finding ksock frames in a stream whose beginning is unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ulnet.nid.net import NetType
from ulnet.wire.errors import ByteOrder
from ulnet.wire.lnet import HEADER_SIZE, LARGE_HEADER_SIZE, LNET_MTU
from ulnet.wire.socklnd import FRAME_HEADER_SIZE

__all__ = ["SCAN_KEEP", "Found", "find_frame", "is_large_header", "is_small_header"]

# A frame may begin in the last bytes of what was searched, and show itself only with more.
SCAN_KEEP: Final = FRAME_HEADER_SIZE + LARGE_HEADER_SIZE - 1

_LNET: Final = 0xC1
_NOOP: Final = 0xC0
_TYPES: Final = frozenset(NetType)
_NO_PAYLOAD: Final = (0, 2)  # ACK, GET
_WIDEST_ACK: Final = 1 << 16
_ORDERS: Final[tuple[ByteOrder, ByteOrder]] = ("little", "big")


@dataclass(frozen=True, slots=True)
class Found:
    """A frame begins at `at`; `large` is None while only a NOOP was seen."""

    at: int
    byteorder: ByteOrder
    large: bool | None


def find_frame(data: bytes, starts_segment: bool) -> Found | None:
    """The first frame in data; a lone NOOP counts only where a segment starts."""
    if starts_segment:
        for byteorder in _ORDERS:
            if _is_noop(data, byteorder):
                return Found(0, byteorder, None)
    found = [hit for byteorder in _ORDERS if (hit := _find_lnet(data, byteorder))]
    return min(found, key=lambda hit: hit.at, default=None)


def _find_lnet(data: bytes, byteorder: ByteOrder) -> Found | None:
    mark = _LNET.to_bytes(4, byteorder)
    at = data.find(mark)
    while at >= 0:
        header = data[at + FRAME_HEADER_SIZE : at + FRAME_HEADER_SIZE + LARGE_HEADER_SIZE]
        if is_small_header(header):
            return Found(at, byteorder, False)
        if is_large_header(header):
            return Found(at, byteorder, True)
        at = data.find(mark, at + 1)
    return None


def _is_noop(data: bytes, byteorder: ByteOrder) -> bool:
    if len(data) < FRAME_HEADER_SIZE or int.from_bytes(data[:4], byteorder) != _NOOP or any(data[4:8]):
        return False
    follows = data[FRAME_HEADER_SIZE : FRAME_HEADER_SIZE + 4]
    if len(follows) == 4 and int.from_bytes(follows, byteorder) not in (_NOOP, _LNET):
        return False
    first = int.from_bytes(data[8:16], byteorder)
    second = int.from_bytes(data[16:24], byteorder)
    return second > 0 and (first == 0 or abs(second - first) < _WIDEST_ACK)


def is_small_header(data: bytes) -> bool:
    """Whether data begins with a sensible 72-byte LNet header."""
    if len(data) < HEADER_SIZE or not _sensible_type(data, 24):
        return False
    return all(
        data[at + 7] == 0
        and data[at + 6] in _TYPES
        and (any(data[at : at + 4]) or data[at + 6] == NetType.LO)
        for at in (0, 8)
    )


def is_large_header(data: bytes) -> bool:
    """Whether data begins with a sensible 96-byte LNet header."""
    if len(data) < LARGE_HEADER_SIZE or not _sensible_type(data, 48):
        return False
    return all(
        data[at] in (0, 12) and data[at + 1] in _TYPES and not any(data[at + 8 + data[at] : at + 20])
        for at in (0, 20)
    )


def _sensible_type(data: bytes, at: int) -> bool:
    kind = int.from_bytes(data[at : at + 4], "little")
    size = int.from_bytes(data[at + 4 : at + 8], "little")
    return kind <= 3 and size <= (0 if kind in _NO_PAYLOAD else LNET_MTU)
