"""Which PUTs were taken: a bit for each number of each life, as long as there is room.

When not sure, `taken` says so (None); what was forgotten is remembered as a limit for each life.
"""

from __future__ import annotations

from typing import Final

__all__ = ["NO_ACK", "Notes"]

MAX_PAGES: Final = 1024  # of 8 KiB, 65,536 numbers each
MAX_LIVES: Final = 65536  # of which something was forgotten
MAX_LENGTHS: Final = 65536  # outcomes other than "all of it was taken"
NO_ACK: Final = -1
_PAGE: Final = 8192


class Notes:
    """Pages of bits, by the bytes of an identity up to the last two of its number."""

    __slots__ = ("_blind", "_limits", "_pages", "lengths")

    def __init__(self) -> None:
        self._pages: dict[bytes, bytearray] = {}
        self._limits: dict[bytes, bytes] = {}  # by life: up to this page, nothing is sure
        self._blind = False
        self.lengths: dict[bytes, int] = {}

    def note(self, wmd: bytes) -> None:
        """This PUT was taken."""
        page = self._pages.get(wmd[:11])
        if page is None:
            page = self._turn(wmd[:11])
        page[wmd[11] << 5 | wmd[12] >> 3] |= 1 << (wmd[12] & 7)

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
        return page is not None and bool(page[wmd[11] << 5 | wmd[12] >> 3] & 1 << (wmd[12] & 7))

    def _turn(self, key: bytes) -> bytearray:
        if len(self._pages) >= MAX_PAGES:
            self._forget(next(iter(self._pages)))
        page = self._pages[key] = bytearray(_PAGE)
        return page

    def _forget(self, key: bytes) -> None:
        self._pages.pop(key, None)
        life = key[:8]
        if life not in self._limits and len(self._limits) >= MAX_LIVES:
            self._blind = True
            return
        self._limits[life] = max(self._limits.get(life, b""), key[8:])
