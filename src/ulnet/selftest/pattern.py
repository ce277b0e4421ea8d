"""The data of brw: how they are made, and how they are checked (spec selftest.md §5)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ulnet.core.md import Buffer
from ulnet.wire.errors import ByteOrder
from ulnet.wire.selftest import MAX_BULK, PAGE
from ulnet.wire.selftest_values import Check

__all__ = ["blank", "is_intact", "source_data"]

_MAGIC: Final = 0xEEB0EEB1EEB2EEB3
_WORD: Final = 8
_BLANK: Final = 0xBEEFBEEFBEEFBEEF.to_bytes(_WORD, "little")
_MAGICS: Final[dict[ByteOrder, bytes]] = {
    "little": _MAGIC.to_bytes(_WORD, "little"),
    "big": _MAGIC.to_bytes(_WORD, "big"),
}


@lru_cache(maxsize=3)
def _words(word: bytes) -> memoryview:
    """That word again and again, for the longest bulk: all others are parts of it, and nothing is copied."""
    return memoryview(word * (MAX_BULK // _WORD))


@lru_cache(maxsize=8)
def _ending(magic: bytes, length: int) -> bytes:
    """As many bytes, of which the last ones are the magic, whole."""
    return bytes(_words(magic)[: length - _WORD]) + magic


def source_data(length: int, simple: bool, byteorder: ByteOrder = "little") -> Buffer:
    """Data that any check finds intact: the magic in each word; with `simple` also as the last word.

    There are `MAX_BULK` bytes at most.
    """
    magic = _MAGICS[byteorder]
    if simple and length % _WORD and length > _WORD:  # the end of the last page need not be that of a word
        return _ending(magic, length)
    return _words(magic)[:length]


def blank(buffer: bytearray) -> None:
    """Write what no source sends, so that data that did not come are found."""
    memoryview(buffer)[:] = _words(_BLANK)[: len(buffer)]


def is_intact(buffer: bytearray, check: int, byteorder: ByteOrder, offset: int = 0) -> bool:
    """Whether data that begin `offset` bytes behind the start of a page are what a source sends."""
    if check == Check.FULL:
        whole = len(buffer) // _WORD * _WORD
        expected = source_data(whole, False, byteorder)
        return (buffer if whole == len(buffer) else buffer[:whole]) == expected
    if check == Check.SIMPLE:
        return _ends_are_intact(buffer, _MAGICS[byteorder], offset)
    return True


def _ends_are_intact(buffer: bytearray, magic: bytes, offset: int) -> bool:
    """Whether the first and the last word of each page are the magic; of two that overlap, the last."""
    start, length = 0, len(buffer)
    end = min(PAGE - offset, length)
    while start < length:
        size = end - start
        if size >= _WORD and not buffer.endswith(magic, start, end):
            return False
        if size >= 2 * _WORD and not buffer.startswith(magic, start):
            return False
        start, end = end, min(end + PAGE, length)
    return True
