"""The list of nodes that a console gives to a test's client, as bulk (spec selftest.md §4)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from ulnet.nid import LNET_PID, Nid
from ulnet.wire.errors import ByteOrder
from ulnet.wire.selftest import PAGE
from ulnet.wire.selftest_values import BULK_LEN

__all__ = ["PER_PAGE", "pack_targets", "read_targets", "targets_size"]

_ENTRY: Final = {"little": struct.Struct("<QI"), "big": struct.Struct(">QI")}
_SIZE: Final = 12
PER_PAGE: Final = PAGE // _SIZE


def targets_size(count: int, features: int) -> int:
    """How many bytes the list has: whole pages, or (in one page, with BULK_LEN) its entries."""
    if features & BULK_LEN and count <= PER_PAGE:
        return count * _SIZE
    return -(-count // PER_PAGE) * PAGE


def pack_targets(targets: Sequence[Nid]) -> bytes:
    """The list in whole pages; what is left of each page is 0. Raises NidError for large NIDs."""
    pages = []
    entry = _ENTRY["little"]
    for start in range(0, len(targets), PER_PAGE):
        page = b"".join(entry.pack(nid.nid4, LNET_PID) for nid in targets[start : start + PER_PAGE])
        pages.append(page.ljust(PAGE, b"\0"))
    return b"".join(pages)


def read_targets(data: memoryview, count: int, byteorder: ByteOrder) -> list[Nid]:
    """The list's NIDs. Raises ValueError where it is too short, or holds what is no NID."""
    entry = _ENTRY[byteorder]
    found = []
    for index in range(count):
        at = index // PER_PAGE * PAGE + index % PER_PAGE * _SIZE
        if at + _SIZE > data.nbytes:
            raise ValueError(f"{data.nbytes} bytes hold fewer than {count} nodes")
        nid, _ = entry.unpack_from(data, at)
        target = Nid.from_nid4(nid)
        if target.is_any:
            raise ValueError("one of its nodes is anybody")
        found.append(target)
    return found
