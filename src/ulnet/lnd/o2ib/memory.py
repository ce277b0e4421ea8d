"""Registered memory: what a peer writes to, for one transfer alone, and what is written to peers.

All of it is registered for one connection, whose peer alone may use the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ulnet.core.md import Md
from ulnet.core.status import LNetError
from ulnet.lnd.o2ib.verbs import Piece, QueuePair, Region, Write
from ulnet.wire.o2ib import RdmaTarget

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MOST_PIECES", "Mapped", "Registrations", "writes_to"]

MOST_PIECES: Final = 16  # of memory that is sent in place: what has more is copied together
# Bytes that stay registered, of one descriptor and of all, once for each connection that sends them:
# registering blocks the loop, and pins memory.
_KEPT_EACH: Final = 16 << 20
_KEPT: Final = 256 << 20


class Mapped:
    """The memory of one transfer, registered: its pieces, and the copy that stands for it, if one does."""

    __slots__ = ("_bounce", "_release", "_views", "length", "pieces")

    def __init__(self, pieces: list[Piece], release: Callable[[], None]) -> None:
        self.pieces: list[Piece] = pieces
        self.length: int = sum(piece.length for piece in pieces)
        self._release = release
        self._bounce: bytearray | None = None
        self._views: list[memoryview] = []

    def stands_for(self, views: list[memoryview], bounce: bytearray) -> Mapped:
        """What is written to `bounce`, the registered memory, belongs into these views."""
        self._views, self._bounce = views, bounce
        return self

    @property
    def target(self) -> RdmaTarget:
        """The descriptor for the other side."""
        (piece,) = self.pieces
        return RdmaTarget(piece.region.key, ((piece.length, piece.region.address + piece.offset),))

    def filled(self, length: int) -> None:
        """So many bytes were written to it."""
        if self._bounce is None:
            return
        at = 0
        for view in self._views:
            take = min(view.nbytes, length - at)
            view[:take] = memoryview(self._bounce)[at : at + take]
            at += take

    def release(self) -> None:
        """The transfer is over: no peer writes there any more."""
        release, self._release = self._release, _nothing
        release()


class _Kept:
    """The registration of a descriptor's memory for a connection, to send from."""

    __slots__ = ("region", "size", "stale", "users")

    def __init__(self, region: Region, size: int) -> None:
        self.region = region
        self.size = size
        self.users = 0
        self.stale = False


class Registrations:
    """Of one NI. Memory of a descriptor that is sent from more than once stays registered for connections."""

    def __init__(self) -> None:
        self._kept: dict[Md, dict[QueuePair, _Kept]] = {}
        self.kept: int = 0  # bytes of all these
        self.count: int = 0  # transfers that are under way

    def map_sink(self, pair: QueuePair, views: list[memoryview]) -> Mapped:
        """Register memory for one transfer that the peer of that connection writes there.

        The key is for these bytes, and void after `release`. A peer gets one for all it may write: memory
        in several pieces has a copy. Raises LNetError(ENOMEM).
        """
        if len(views) == 1:
            return self._register(pair, views, True)
        bounce = bytearray(sum(view.nbytes for view in views))
        return self._register(pair, [memoryview(bounce)], True).stands_for(views, bounce)

    def map_source(self, pair: QueuePair, views: list[memoryview], md: Md | None, offset: int) -> Mapped:
        """Register memory to send from by that connection, `offset` bytes behind the beginning of that of md.

        Raises LNetError(ENOMEM).
        """
        if md is not None and len(views) == len(md.fragments) == 1 and (md.me is not None or md.threshold):
            kept = self._of(pair, md)
            if kept is not None:
                return self._use(kept, offset, views[0].nbytes)
        if len(views) > MOST_PIECES:
            views = [memoryview(b"".join(views))]
        return self._register(pair, views, False)

    def _register(self, pair: QueuePair, views: list[memoryview], remote: bool) -> Mapped:
        regions: list[Region] = []
        try:
            for view in views:
                regions.append(pair.register(view, remote))
        except BaseException:
            for region in regions:
                region.release()
            raise
        self.count += 1

        def release() -> None:
            self.count -= 1
            for region in regions:
                region.release()

        pieces = [Piece(region, 0, view.nbytes) for region, view in zip(regions, views, strict=True)]
        return Mapped(pieces, release)

    def _of(self, pair: QueuePair, md: Md) -> _Kept | None:
        """The registration that stays, if there is room for it."""
        found = self._kept.get(md, {}).get(pair)
        size = md.fragments[0].nbytes
        if found is not None or size > _KEPT_EACH or self.kept + size > _KEPT:
            return found
        try:
            region = pair.register(md.fragments[0], False)
        except LNetError:  # there may be room for what is sent now
            return None
        found = _Kept(region, size)
        self.kept += size
        self._kept.setdefault(md, {})[pair] = found
        md.keep(self._forget)
        return found

    def _use(self, kept: _Kept, offset: int, length: int) -> Mapped:
        kept.users += 1
        self.count += 1

        def release() -> None:
            self.count -= 1
            kept.users -= 1
            self._release_unused(kept)

        return Mapped([Piece(kept.region, offset, length)], release)

    def _forget(self, md: Md) -> None:
        """md is gone, or has other memory."""
        for kept in self._kept.pop(md, {}).values():
            kept.stale = True
            self._release_unused(kept)

    def _release_unused(self, kept: _Kept) -> None:
        if kept.stale and not kept.users:
            self.kept -= kept.size
            kept.region.release()

    def end(self, pair: QueuePair | None) -> None:
        """That connection has ended, and nothing is under way on it: release all that is kept for it."""
        if pair is None:
            return
        for md, pairs in list(self._kept.items()):
            kept = pairs.pop(pair, None)
            if kept is not None:
                kept.stale = True
                self._release_unused(kept)
            if not pairs:
                del self._kept[md]
                md.let_go(self._forget)


def writes_to(target: RdmaTarget, pieces: Sequence[Piece], length: int, most: int) -> list[Write]:
    """RDMA writes of the first `length` bytes of these pieces, `most` pieces by each at most."""
    found: list[Write] = []
    rest = list(reversed(pieces))
    for room, address in target.fragments:
        room = min(room, length)
        length -= room
        while room:
            some: list[Piece] = []
            start = address
            while room and len(some) < most:
                piece = rest.pop()
                take = min(piece.length, room)
                some.append(Piece(piece.region, piece.offset, take))
                if take < piece.length:
                    rest.append(Piece(piece.region, piece.offset + take, piece.length - take))
                room -= take
                address += take
            found.append(Write(some, target.key, start))
    return found


def _nothing() -> None:
    """It was released."""
