"""Registered memory: what a peer writes to, for one transfer alone, and what is written to peers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ulnet.core.md import Md
from ulnet.lnd.o2ib.verbs import Device, Piece, Region, Write
from ulnet.wire.o2ib import RdmaTarget

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MOST_PIECES", "Mapped", "Registrations", "writes_to"]

MOST_PIECES: Final = 16  # of memory that is sent in place: what has more is copied together


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
    """The registration of a descriptor's memory, to send from."""

    __slots__ = ("region", "stale", "users")

    def __init__(self, region: Region) -> None:
        self.region = region
        self.users = 0
        self.stale = False


class Registrations:
    """Of one device. Memory of a descriptor that is sent from more than once stays registered with it."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._kept: dict[Md, _Kept] = {}
        self.count: int = 0  # transfers that are under way

    def map_sink(self, views: list[memoryview]) -> Mapped:
        """Register memory for one transfer that a peer writes there. Raises LNetError(ENOMEM).

        The key is for these bytes, and void after `release`: devices do not ask which peer uses it. A peer
        gets one for all it may write: memory in several pieces has a copy.
        """
        if len(views) == 1:
            return self._register(views, True)
        bounce = bytearray(sum(view.nbytes for view in views))
        return self._register([memoryview(bounce)], True).stands_for(views, bounce)

    def map_source(self, views: list[memoryview], md: Md | None, offset: int) -> Mapped:
        """Register memory to send from, `offset` bytes behind the beginning of that of md.

        Raises LNetError(ENOMEM).
        """
        if md is not None and len(views) == len(md.fragments) == 1 and (md.me is not None or md.threshold):
            return self._of(md, offset, views[0].nbytes)
        if len(views) > MOST_PIECES:
            views = [memoryview(b"".join(views))]
        return self._register(views, False)

    def _register(self, views: list[memoryview], remote: bool) -> Mapped:
        regions: list[Region] = []
        try:
            for view in views:
                regions.append(self._device.register(view, remote))
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

    def _of(self, md: Md, offset: int, length: int) -> Mapped:
        kept = self._kept.get(md)
        if kept is None:
            kept = self._kept[md] = _Kept(self._device.register(md.fragments[0], False))
            md.keep(self._forget)
        kept.users += 1
        self.count += 1

        def release() -> None:
            self.count -= 1
            kept.users -= 1
            if kept.stale and not kept.users:
                kept.region.release()

        return Mapped([Piece(kept.region, offset, length)], release)

    def _forget(self, md: Md) -> None:
        """md is gone, or has other memory."""
        kept = self._kept.pop(md, None)
        if kept is not None:
            kept.stale = True
            if not kept.users:
                kept.region.release()

    def close(self) -> None:
        """Release all that is kept; nothing is under way."""
        for md in list(self._kept):
            md.let_go(self._forget)
            self._forget(md)


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
