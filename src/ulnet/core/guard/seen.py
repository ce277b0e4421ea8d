"""Which PUTs were taken: a bit for each number of each life, as long as there is room.

When not sure, `taken` says so (None); what was forgotten is remembered as a limit for each life.
"""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["NO_ACK", "Seen"]

MAX_BYTES: Final = 8 << 20  # of all pages
MAX_LIVES: Final = 65536  # of which something was forgotten
MAX_LENGTHS: Final = 65536  # outcomes other than "all of it was taken"
NO_ACK: Final = -1
_PAGE: Final = 8192  # bytes of a whole page: 65,536 numbers
_FIRST: Final = 64  # of a new one: most peers send little, and their numbers begin at 0
_AROUND: Final = 256  # bytes that a page takes besides
_NUMBERS: Final = struct.Struct(">11sH3x")  # an identity: page and place there


class Seen:
    """Pages of bits, by the bytes of an identity up to the last two of its number; they grow as needed."""

    __slots__ = ("_blind", "_bytes", "_limits", "_pages", "lengths")

    def __init__(self) -> None:
        self._pages: dict[bytes, bytearray] = {}
        self._limits: dict[bytes, bytes] = {}  # by life: up to this page, nothing is sure
        self._blind = False
        self._bytes = 0  # of all pages
        self.lengths: dict[bytes, int] = {}

    def note(self, wmds: list[bytes]) -> None:
        """These PUTs were taken."""
        known, page = b"", bytearray()
        for key, number in _NUMBERS.iter_unpack(b"".join(wmds)):
            at = number >> 3
            if key != known or at >= len(page):
                known, page = key, self._room(key, at)
            page[at] |= 1 << (number & 7)

    def note_length(self, wmd: bytes, length: int) -> None:
        """What its ACK said, where that was not its whole length."""
        if len(self.lengths) >= MAX_LENGTHS:
            oldest = next(iter(self.lengths))
            del self.lengths[oldest]
            self._forget(oldest[:11])
        self.lengths[wmd[:15]] = length

    def taken(self, wmd: bytes) -> bool | None:
        """Whether this PUT was taken; None: not known any more."""
        limit = self._limits.get(wmd[:8])
        if self._blind or (limit is not None and wmd[8:11] <= limit):
            return None
        page = self._pages.get(wmd[:11])
        at = wmd[11] << 5 | wmd[12] >> 3
        return page is not None and at < len(page) and bool(page[at] & 1 << (wmd[12] & 7))

    def _room(self, key: bytes, at: int) -> bytearray:
        """The page of a life's numbers, long enough for its byte `at`."""
        page = self._pages.get(key)
        if page is None:
            page = self._pages[key] = bytearray()
            self._bytes += _AROUND
        elif at < len(page):
            return page
        more = min(max(_FIRST, 1 << at.bit_length()), _PAGE) - len(page)
        page.extend(bytes(more))
        self._bytes += more
        while self._bytes > MAX_BYTES:
            oldest = next(iter(self._pages))
            if oldest == key:
                break
            self._forget(oldest)
        return page

    def _forget(self, key: bytes) -> None:
        page = self._pages.pop(key, None)
        if page is not None:
            self._bytes -= len(page) + _AROUND
        life = key[:8]
        if life not in self._limits and len(self._limits) >= MAX_LIVES:
            self._blind = True
            return
        self._limits[life] = max(self._limits.get(life, b""), key[8:])
