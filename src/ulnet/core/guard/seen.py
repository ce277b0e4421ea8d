"""Which PUTs were taken: a bit for each number of each life, as long as there is room.

When not sure, `taken` says so (None): a filter keeps the pages that were given up while resends may come.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from hashlib import blake2b
from itertools import islice
from typing import Final

from ulnet.nid import Nid

__all__ = ["NO_ACK", "STALE", "Seen"]

MAX_BYTES: Final = 8 << 20  # of all pages
MAX_LENGTHS: Final = 65536  # outcomes other than "all of it was taken"
NO_ACK: Final = -1
STALE: Final = 600.0  # seconds after which a PUT is not sent again
_PAGE: Final = 8192  # bytes of a whole page: 65,536 numbers
_FIRST: Final = 64  # of a new one: most peers send little, and their numbers begin at 0
_AROUND: Final = 256  # bytes that a page takes besides
_CANDIDATES: Final = 16  # hops that are looked at for one with more than its share
_FILTER: Final = 2 << 20  # bytes
_NUMBERS: Final = struct.Struct(">11sH3x")  # an identity: page and place there


class _Share:
    """The pages that PUTs by one hop began, oldest first, and their bytes."""

    __slots__ = ("bytes", "pages")

    def __init__(self) -> None:
        self.pages: dict[bytes, None] = {}
        self.bytes: int = 0


class Seen:
    """Pages of bits, by the bytes of an identity up to the last two of its number; they grow as needed.

    Where all have too many bytes, a hop that has more than its share gives up its oldest page. `secret` keeps
    peers from choosing lives that the filter of pages takes for others'.
    """

    __slots__ = ("_bytes", "_clock", "_forgotten", "_pages", "_secret", "_shares", "_since", "lengths")

    def __init__(self, clock: Callable[[], float], secret: bytes) -> None:
        self._clock = clock
        self._secret = secret
        self._pages: dict[bytes, tuple[bytearray, Nid]] = {}
        self._shares: dict[Nid, _Share] = {}
        self._bytes = 0  # of all pages
        self._forgotten = [bytearray(), bytearray()]  # filters of pages: of now, and of the time before
        self._since = 0.0  # of the filter of now
        self.lengths: dict[bytes, int] = {}

    def note(self, wmds: list[bytes], hop: Nid) -> None:
        """These PUTs were taken, and came by that hop."""
        known, page = b"", bytearray()
        for key, number in _NUMBERS.iter_unpack(b"".join(wmds)):
            at = number >> 3
            if key != known or at >= len(page):
                known, page = key, self._room(key, at, hop)
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
        self._turn()
        place, bit = self._place(wmd[:11])
        if any(page and page[place] & bit for page in self._forgotten):
            return None
        page, _ = self._pages.get(wmd[:11], (b"", None))
        at = wmd[11] << 5 | wmd[12] >> 3
        return at < len(page) and bool(page[at] & 1 << (wmd[12] & 7))

    def _room(self, key: bytes, at: int, hop: Nid) -> bytearray:
        """The page of a life's numbers, long enough for its byte `at`."""
        found = self._pages.get(key)
        if found is None:
            found = self._pages[key] = bytearray(), hop
            share = self._shares.setdefault(hop, _Share())
            share.pages[key] = None
            self._grow(share, _AROUND)
        page, owner = found
        if at >= len(page):
            more = min(max(_FIRST, 1 << at.bit_length()), _PAGE) - len(page)
            page.extend(bytes(more))
            self._grow(self._shares[owner], more)
            while self._bytes > MAX_BYTES and len(self._pages) > 1:
                self._make_room(key, owner)
        return page

    def _grow(self, share: _Share, more: int) -> None:
        share.bytes += more
        self._bytes += more

    def _make_room(self, key: bytes, hop: Nid) -> None:
        """Give up the oldest page, not that of key, of a hop with more than its share, if one is found."""
        fair = MAX_BYTES // len(self._shares)
        share = self._shares[hop]
        for _ in range(_CANDIDATES):
            if share.bytes > fair and len(share.pages) > 1:
                break
            other = next(iter(self._shares))
            share = self._shares[other] = self._shares.pop(other)
        self._forget(next(page for page in (*islice(share.pages, 2), *islice(self._pages, 2)) if page != key))

    def _forget(self, key: bytes) -> None:
        found = self._pages.pop(key, None)
        if found is not None:
            page, hop = found
            share = self._shares[hop]
            del share.pages[key]
            self._grow(share, -len(page) - _AROUND)
            if not share.pages:
                del self._shares[hop]
        self._turn()
        place, bit = self._place(key)
        if not self._forgotten[0]:
            self._forgotten[0] = bytearray(_FILTER)
        self._forgotten[0][place] |= bit

    def _turn(self) -> None:
        """Forget what was forgotten so long ago that it is not sent again."""
        now = self._clock()
        while self._forgotten[0] or self._forgotten[1]:
            if now - self._since < STALE:
                return
            self._forgotten = [bytearray(), self._forgotten[0]]
            self._since += STALE
        self._since = now

    def _place(self, key: bytes) -> tuple[int, int]:
        """The place of a page in the filters: a byte and a bit."""
        number = int.from_bytes(blake2b(key, digest_size=4, key=self._secret).digest())
        return number % _FILTER, 1 << (number >> 29)
