"""The handle of a PUT that is like no other of this node's life (spec wire-lnet.md §3: peers only echo it).

After 8 bytes that only the peer is told come: the number of the memory descriptor (5 bytes, highest
first), the tag of the life of the node that it is for (2), and whether it was sent before (1). The last
byte of kernel handles is 0, or ends in the bits of their type; that of "no handle" is 255.
"""

from __future__ import annotations

from typing import Final, Protocol

__all__ = ["AGAIN", "FIRST", "MARKS", "MAX_NUMBER", "Guarded", "again", "identity", "is_identity", "tag_of"]

FIRST: Final = 0x40
AGAIN: Final = 0x80
MARKS: Final = (FIRST, AGAIN)
MAX_NUMBER: Final = 1 << 40
_FIRST_END: Final = bytes((FIRST,))
_AGAIN_END: Final = bytes((AGAIN,))
_GOLDEN: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1


class Guarded(Protocol):
    """A peer that keeps identities, by the tag of its life, where it has one."""

    guard: bytes
    prefix: bytes  # of the identities that it is told; b"": not made yet


def tag_of(cookie: int) -> bytes:
    """Two bytes that tell one life of a node from its others, nearly always."""
    return ((cookie * _GOLDEN & _MASK) >> 48).to_bytes(2, "big")


def identity(prefix: bytes, number: int, tag: bytes) -> bytes:
    """The handle of the PUT from descriptor `number` to the life `tag`; number is below MAX_NUMBER."""
    return prefix + number.to_bytes(5, "big") + tag + _FIRST_END


def again(wmd: bytes) -> bytes:
    """The identity of a PUT that was sent before."""
    return wmd[:15] + _AGAIN_END


def is_identity(wmd: bytes) -> bool:
    """Whether a handle was made here."""
    return wmd[15] in MARKS
