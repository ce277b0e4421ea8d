"""Ping info: what a node tells of itself in ping replies and pushes (spec wire-lnet.md §5)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Final, NamedTuple

from ulnet.nid.errors import NidError
from ulnet.nid.net import NetType
from ulnet.nid.nid import LO_NID, NID4_BY_NID, NID_BY_NID4, NID_SIZE, Nid
from ulnet.nid.process import LNET_PID
from ulnet.wire.errors import Buffer, ByteOrder, WireError

__all__ = [
    "GUARD",
    "HEADER_SIZE",
    "MAGIC",
    "MAX_INFO_SIZE",
    "MAX_NIS",
    "MIN_INFO_SIZE",
    "PREFIX_SIZE",
    "Feature",
    "NiEntry",
    "NiStatus",
    "PingInfo",
    "info_size",
]

MAGIC: Final = 0x70696E67
GUARD: Final = 0x756C  # "ul": the sender keeps the identities of PUTs
HEADER_SIZE: Final = 16
PREFIX_SIZE: Final = 32  # header and entry 0: enough for info_size
MAX_NIS: Final = 4096
MAX_INFO_SIZE: Final = 1 << 17  # more than MAX_NIS NIs take: no node needs a larger buffer
MIN_INFO_SIZE: Final = 272  # room for 16 NIs: what real nodes offer before they know better

_ENTRY_SIZE: Final = 16
_LARGE_HEAD: Final = 8  # status, and the four bytes that begin a NID
_METADATA_ENTRY: Final = 40
_HEADER: Final = {"little": struct.Struct("<IIII"), "big": struct.Struct(">IIII")}
_ENTRY: Final = {"little": struct.Struct("<QII"), "big": struct.Struct(">QII")}


class Feature(IntFlag):
    """What the sender knows and how the info is laid out."""

    BASE = 0x01
    NI_STATUS = 0x02
    RTE_DISABLED = 0x04
    MULTI_RAIL = 0x08
    DISCOVERY = 0x10
    LARGE_ADDR = 0x20
    PRIMARY_LARGE = 0x40
    METADATA = 0x80


# The same as plain integers: arithmetic with members of an enum is Python.
_NI_STATUS: Final = int(Feature.NI_STATUS)
_LARGE_ADDR: Final = int(Feature.LARGE_ADDR)
_PRIMARY_LARGE: Final = int(Feature.PRIMARY_LARGE)
_METADATA: Final = int(Feature.METADATA)
_EFA: Final = int(NetType.EFA)


class NiStatus:
    """States of an NI, as plain integers: peers may send others."""

    UP: Final = 0x15AAC0DE
    DOWN: Final = 0xDEADFACE
    INVALID: Final = 0


class NiEntry(NamedTuple):
    """One NI of the sender."""

    nid: Nid
    status: int = NiStatus.UP


@dataclass(slots=True)
class PingInfo:
    """A node's NIs with their states. `entries` leaves out the loopback NI, whose place holds `sequence`.

    64-bit NIDs come before large ones, as on the wire. `truncated`: some of the info was missing
    (the buffer was too small for it); ask again with `info_size` bytes. `guard` is what the node wants to
    find in identities of PUTs (two bytes; empty: it keeps none): GUARD and it take the size field of the
    first 64-bit NID, which has no meaning there (docs/design/duplicate-guard.md).
    """

    features: int
    pid: int = LNET_PID
    sequence: int = 1
    entries: list[NiEntry] = field(default_factory=list)
    metadata: bytes = b""  # feature METADATA: count and records, as sent
    truncated: bool = False
    guard: bytes = b""

    @property
    def primary(self) -> Nid | None:
        """The NID by which the sender is known; None if the info names none."""
        large = self.features & _PRIMARY_LARGE != 0
        for entry in self.entries:
            if entry.nid.is_large == large:
                return entry.nid
        return None

    def pack(self, byteorder: ByteOrder = "little") -> bytes:
        """The info as it goes into a ping reply or push."""
        small = [entry for entry in self.entries if not entry.nid.is_large]
        large = [entry for entry in self.entries if entry.nid.is_large]
        has_large = self.features & _LARGE_ADDR != 0
        if large and not has_large:
            raise WireError(f"ping info with {large[0].nid} needs the feature LARGE_ADDR")
        layout = _ENTRY[byteorder]
        mark = GUARD << 16 | int.from_bytes(self.guard, "big") if self.guard else 0
        try:
            tail = b"".join(_pack_large(entry, byteorder) for entry in large)
            size = HEADER_SIZE + _ENTRY_SIZE * (len(small) + 1) + len(tail)
            return b"".join(
                (
                    _HEADER[byteorder].pack(MAGIC, self.features, self.pid, len(small) + 1),
                    layout.pack(LO_NID.nid4, self.sequence, size if has_large else 0),
                    *(
                        layout.pack(NID4_BY_NID[entry.nid], entry.status, 0 if at else mark)
                        for at, entry in enumerate(small)
                    ),
                    tail,
                    self.metadata,
                )
            )
        except (struct.error, OverflowError) as error:
            raise WireError(f"{self!r} does not fit on the wire: {error}") from None

    @classmethod
    def unpack(cls, buf: Buffer, max_nis: int = MAX_NIS) -> PingInfo:
        """The info at the start of buf, in either byte order; WireError if it is none."""
        byteorder, features, pid, nnis = _header(buf)
        if not features & _NI_STATUS:
            raise WireError(f"ping info without NI status (features {features:#x})")
        if not 1 <= nnis <= max_nis:
            raise WireError(f"ping info with {nnis} NIs; 1 to {max_nis} are allowed")
        layout = _ENTRY[byteorder]
        if len(buf) < PREFIX_SIZE:
            raise WireError(f"{len(buf)} bytes are too few for ping info")
        lo, sequence, msg_size = layout.unpack_from(buf, HEADER_SIZE)
        if NID_BY_NID4[lo] != LO_NID:
            raise WireError(f"ping info that begins with NID {NID_BY_NID4[lo]}, not {LO_NID}")
        entries: list[NiEntry] = []
        info = cls(features, pid, sequence, entries)
        small_end = HEADER_SIZE + _ENTRY_SIZE * nnis
        last = min(small_end, len(buf) - len(buf) % _ENTRY_SIZE)
        for at in range(PREFIX_SIZE, last, _ENTRY_SIZE):
            nid4, status, mark = layout.unpack_from(buf, at)
            if at == PREFIX_SIZE and mark >> 16 == GUARD:
                info.guard = (mark & 0xFFFF).to_bytes(2, "big")
            entries.append(NiEntry(NID_BY_NID4[nid4], status))
        end = max(msg_size & ~3, small_end) if features & _LARGE_ADDR else small_end
        info.truncated = end > len(buf)
        if end > small_end and (not info.truncated or small_end < len(buf)):
            _unpack_large(entries, bytes(buf[small_end:end]), byteorder, max_nis)
        if features & _METADATA or _EFA in [entry.nid[1] for entry in entries]:
            info.metadata = _metadata(buf, end, byteorder)
        return info


def info_size(prefix: Buffer) -> int:
    """How long the info is that begins with these PREFIX_SIZE bytes, without metadata."""
    byteorder, features, _, nnis = _header(prefix)
    if len(prefix) < PREFIX_SIZE:
        raise WireError(f"{len(prefix)} bytes are too few to tell the size of ping info")
    size = HEADER_SIZE + _ENTRY_SIZE * nnis
    if not features & _LARGE_ADDR:
        return size
    msg_size: int = _ENTRY[byteorder].unpack_from(prefix, HEADER_SIZE)[2]
    return max(msg_size & ~3, size)


def _header(buf: Buffer) -> tuple[ByteOrder, int, int, int]:
    if len(buf) < HEADER_SIZE:
        raise WireError(f"{len(buf)} bytes are too few for ping info")
    byteorder: ByteOrder = "big" if int.from_bytes(buf[:4], "big") == MAGIC else "little"
    magic, features, pid, nnis = _HEADER[byteorder].unpack_from(buf)
    if magic != MAGIC:
        raise WireError(f"magic {magic:08x} is not that of ping info")
    return byteorder, features, pid, nnis


def _pack_large(entry: NiEntry, byteorder: ByteOrder) -> bytes:
    used = entry.nid[0] + 8
    return entry.status.to_bytes(4, byteorder) + entry.nid[:used] + bytes(-used % 4)


def _unpack_large(entries: list[NiEntry], data: bytes, byteorder: ByteOrder, max_nis: int) -> None:
    """Add the large entries that data holds; one with an impossible NID is passed over."""
    at = 0
    while at + _LARGE_HEAD <= len(data) and len(entries) < max_nis:
        used = data[at + 4] + 8
        raw = data[at + 4 : at + 4 + used]
        if len(raw) == used <= NID_SIZE:
            try:
                nid = Nid(raw.ljust(NID_SIZE, b"\0"))
            except NidError:
                return
            entries.append(NiEntry(nid, int.from_bytes(data[at : at + 4], byteorder)))
        at += 4 + (used + 3) // 4 * 4


def _metadata(buf: Buffer, at: int, byteorder: ByteOrder) -> bytes:
    """The metadata block at `at`, as far as buf holds whole records of it."""
    if at + 4 > len(buf):
        return b""
    count = int.from_bytes(buf[at : at + 4], byteorder)
    records = min(count, (len(buf) - at - 4) // _METADATA_ENTRY)
    return bytes(buf[at : at + 4 + records * _METADATA_ENTRY])
