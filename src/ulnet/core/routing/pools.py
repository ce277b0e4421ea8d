"""Buffers for messages that pass through a router (spec routing.md §5).

A pool counts from the start as if all its buffers were there; memory is taken when a buffer is first
needed and kept for the next message, the one used last going first, as it is still in the CPU's cache.

The count is for messages of end nodes. What a gateway sends has buffers beside it, as many as that gateway
has credits here: else two routers, each full of messages for the other, would wait for ever. Those who only
say that they route, as anybody may, have as many beside it in all as it is, then of the count as end nodes.
"""

from __future__ import annotations

import errno
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ulnet.core.status import LNetError

if TYPE_CHECKING:
    from ulnet.core.msg import Transit
    from ulnet.nid import Nid

__all__ = ["DEFAULT_COUNTS", "PAGE", "BufferPool", "Counts", "Pools"]

_LOOKED_AT: Final = 256  # nodes whose messages wait, for each buffer that is free
PAGE: Final = 4096
_PAGES: Final = (0, 1, 256)  # of a tiny, small and large buffer


class Counts(NamedTuple):
    """Buffers over all CPTs."""

    tiny: int
    small: int
    large: int


DEFAULT_COUNTS: Final = Counts(2048, 16384, 1024)


class BufferPool:
    """Buffers of one size, and the messages that wait for one.

    Those for one node have at most as many buffers as are left, and nodes take turns: so some that take
    nothing cannot keep the messages for others back. Messages of gateways never wait here.
    """

    __slots__ = (
        "_beside",
        "_free",
        "_held",
        "_queues",
        "count",
        "in_use",
        "keeps",
        "min_credits",
        "pages",
        "size",
        "waiting",
    )

    def __init__(self, pages: int, count: int) -> None:
        self.pages: int = pages
        self.size: int = pages * PAGE
        self.count: int = count
        self.in_use: int = 0
        self._beside = 0  # of these, buffers that are none of the count
        self.min_credits: int = count
        self.waiting: int = 0
        # By destination; the next one to have its turn is first.
        self._queues: OrderedDict[Nid, deque[Transit]] = OrderedDict()
        self._held: dict[Nid, int] = {}  # buffers by destination
        self._free: list[bytearray] = []
        self.keeps: bool = True  # memory for the next message; not while routing is off

    @property
    def credits(self) -> int:
        """Free buffers less those who wait for one."""
        return max(self.count - self._counted, 0) - self.waiting

    @property
    def _counted(self) -> int:
        """Buffers taken of the count."""
        return self.in_use - self._beside

    def _may_take(self, dest: Nid) -> bool:
        return self._held.get(dest, 0) < self.count - self._counted  # those that take nothing leave some

    def give_or_queue(self, transit: Transit) -> bool:
        """Whether the message has a buffer now; else it waits."""
        transit.beside = transit.beside or (transit.from_router and self._beside < self.count)
        if transit.beside:
            self._beside += 1
            self._take_memory(transit)
            return True
        dest = transit.hdr.dest_nid
        if dest not in self._queues and self._may_take(dest):
            self._give(transit, dest)
            return True
        self._queues.setdefault(dest, deque()).append(transit)
        self.waiting += 1
        self._note_credits()
        return False

    def _give(self, transit: Transit, dest: Nid) -> None:
        self._held[dest] = self._held.get(dest, 0) + 1
        transit.held_for = dest
        self._take_memory(transit)
        self._note_credits()

    def _take_memory(self, transit: Transit) -> None:
        self.in_use += 1
        transit.buffer = self._free.pop() if self._free else bytearray(self.size)

    def serve_next(self) -> Transit | None:
        """Give the message whose turn it is a buffer, and answer it; None if there is none."""
        queues = self._queues
        for _ in range(min(len(queues), _LOOKED_AT) if self._counted < self.count else 0):
            dest, queue = next(iter(queues.items()))
            queues.move_to_end(dest)  # the others have their turns first
            if self._may_take(dest):
                transit = queue.popleft()
                if not queue:
                    del queues[dest]
                self.waiting -= 1
                self._give(transit, dest)
                return transit
        return None

    def leave_queue(self, transit: Transit) -> None:
        """The message waits no more."""
        dest = transit.hdr.dest_nid
        queue = self._queues[dest]
        queue.remove(transit)
        self.waiting -= 1
        if not queue:
            del self._queues[dest]

    def take_back(self, transit: Transit) -> None:
        """The message needs its buffer no more; while there are too many, that goes."""
        buffer, transit.buffer = transit.buffer, None
        assert buffer is not None
        self.in_use -= 1
        if transit.beside:
            self._beside -= 1
        else:
            dest = transit.held_for
            self._held[dest] -= 1
            if not self._held[dest]:
                del self._held[dest]
        if self.keeps and self.in_use + len(self._free) < self.count:
            self._free.append(buffer)

    def queued(self) -> list[Transit]:
        """All that wait."""
        return [transit for queue in self._queues.values() for transit in queue]

    def _note_credits(self) -> None:
        if self.credits < self.min_credits:
            self.min_credits = self.credits

    def resize(self, count: int) -> None:
        """Have more buffers, or fewer as they come back."""
        self.count = count
        self.min_credits = min(count, self.credits)
        del self._free[max(count - self.in_use, 0) :]

    def keep_memory(self, wanted: bool) -> None:
        """Whether memory of free buffers, those to come back included, is kept."""
        self.keeps = wanted
        if not wanted:
            self._free.clear()


class Pools:
    """The pools of each CPT: tiny (no payload), small (a page), large (1 MiB)."""

    __slots__ = ("by_cpt", "counts")

    def __init__(self, cpts: int) -> None:
        self.counts: Counts = DEFAULT_COUNTS
        shares = [max(1, count // cpts) for count in DEFAULT_COUNTS]
        self.by_cpt: list[tuple[BufferPool, ...]] = [
            tuple(BufferPool(pages, share) for pages, share in zip(_PAGES, shares, strict=True))
            for _ in range(cpts)
        ]

    def __iter__(self) -> Iterator[BufferPool]:
        return (pool for pools in self.by_cpt for pool in pools)

    def fitting(self, size: int, cpt: int) -> BufferPool:
        """The pool of the smallest buffers that hold so many bytes."""
        tiny, small, large = self.by_cpt[cpt]
        if not size:
            return tiny
        return small if size <= PAGE else large

    @staticmethod
    def checked(tiny: int | None, small: int | None, large: int | None, now: Counts) -> Counts:
        """The counts to be: None keeps one, 0 is its default. Raises LNetError(EINVAL)."""
        wanted = []
        for name, count, kept, default in zip(
            Counts._fields, (tiny, small, large), now, DEFAULT_COUNTS, strict=True
        ):
            if count is not None and not 0 <= count < 2**31:
                raise LNetError(
                    errno.EINVAL, f"{name}_buffers {count} is out of range: use 1 and more, 0 for the default"
                )
            wanted.append(kept if count is None else count or default)
        return Counts(*wanted)

    def resize(self, counts: Counts) -> None:
        """Have so many buffers over all CPTs."""
        self.counts = counts
        for pools in self.by_cpt:
            for pool, count in zip(pools, counts, strict=True):
                share = max(1, count // len(self.by_cpt))
                if share != pool.count:
                    pool.resize(share)

    def keep_memory(self, wanted: bool) -> None:
        """Whether memory of free buffers, those to come back included, is kept."""
        for pool in self:
            pool.keep_memory(wanted)

    @property
    def in_use(self) -> int:
        """Buffers taken now."""
        return sum(pool.in_use for pool in self)
