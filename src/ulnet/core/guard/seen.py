"""Which PUTs were taken: a bit for each number of each life, as long as there is room.

When not sure, `taken` says so (None): a filter keeps the pages that were given up while resends may come.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from itertools import islice
from typing import Final

from ulnet.nid import Nid

__all__ = ["NO_ACK", "STALE", "Seen"]

MAX_BYTES: Final = 8 << 20  # of all pages, and outcomes other than "all of it was taken"
NO_ACK: Final = -1
STALE: Final = 600.0  # seconds after which a PUT is not sent again
_PAGE: Final = 8192  # bytes of a whole page: 65,536 numbers
_FIRST: Final = 64  # of a new one: most peers send little, and their numbers begin at 0
_AROUND: Final = 256  # bytes that a page takes besides …
_OUTCOME: Final = 96  # … and an outcome: those of one whole page fit
_CANDIDATES: Final = 16  # hops that are looked at for one with more than its share
_FILTER: Final = 2 << 20  # bytes
_NUMBERS: Final = struct.Struct(">11sH3x")  # an identity: page and place there


class _Share:
    """The pages that PUTs by one hop began, oldest first, and their bytes."""

    __slots__ = ("bytes", "pages")

    def __init__(self) -> None:
        self.pages: OrderedDict[bytes, None] = OrderedDict()  # a dict finds its first slowly when others went
        self.bytes: int = 0


class Seen:
    """Pages of bits, by the bytes of an identity up to the last two of its number; they grow as needed.

    Where all have too many bytes, a hop that has more than its share gives up its oldest page. `secret` keeps
    peers from choosing lives that the filter of pages takes for others'.
    """

    __slots__ = ("_bytes", "_clock", "_forgotten", "_pages", "_secret", "_shares", "_since")

    def __init__(self, clock: Callable[[], float], secret: bytes) -> None:
        self._clock = clock
        self._secret = secret
        self._pages: OrderedDict[bytes, tuple[bytearray, Nid, dict[bytes, int]]] = OrderedDict()
        self._shares: OrderedDict[Nid, _Share] = OrderedDict()
        self._bytes = 0  # of all pages
        self._forgotten = [bytearray(), bytearray()]  # filters of pages: of now, and of the time before
        self._since = 0.0  # of the filter of now

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
        _, owner, lengths = self._pages[wmd[:11]]
        self._grow(self._shares[owner], 0 if wmd[11:13] in lengths else _OUTCOME)
        lengths[wmd[11:13]] = length
        if self._bytes > MAX_BYTES:
            self._make_room(b"", owner)

    def length(self, wmd: bytes, whole: int) -> int:
        """What the ACK of that PUT says, which has that length."""
        found = self._pages.get(wmd[:11])
        return whole if found is None else found[2].get(wmd[11:13], whole)

    def taken(self, wmd: bytes) -> bool | None:
        """Whether this PUT was taken; None: not known any more."""
        self._turn()
        place, bit = self._place(wmd[:11])
        if any(page and page[place] & bit for page in self._forgotten):
            return None
        page = self._pages.get(wmd[:11], (b"",))[0]
        at = wmd[11] << 5 | wmd[12] >> 3
        return at < len(page) and bool(page[at] & 1 << (wmd[12] & 7))

    def _room(self, key: bytes, at: int, hop: Nid) -> bytearray:
        """The page of a life's numbers, long enough for its byte `at`."""
        found = self._pages.get(key)
        if found is None:
            found = self._pages[key] = bytearray(), hop, {}
            share = self._shares.setdefault(hop, _Share())
            share.pages[key] = None
            self._grow(share, _AROUND)
        page, owner, _ = found
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
        share = self._shares[hop]
        for _ in range(_CANDIDATES):
            if share.bytes > MAX_BYTES // len(self._shares) and share.pages.keys() != {key}:
                break
            other, share = next(iter(self._shares.items()))
            self._shares.move_to_end(other)
        self._forget(next(page for page in (*islice(share.pages, 2), *islice(self._pages, 2)) if page != key))

    def _forget(self, key: bytes) -> None:
        found = self._pages.pop(key, None)
        if found is not None:
            page, hop, lengths = found
            share = self._shares[hop]
            del share.pages[key]
            self._grow(share, -len(page) - _AROUND - _OUTCOME * len(lengths))
            if not share.pages:
                del self._shares[hop]
        self._turn()
        place, bit = self._place(key)
        self._forgotten[0] = self._forgotten[0] or bytearray(_FILTER)
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
