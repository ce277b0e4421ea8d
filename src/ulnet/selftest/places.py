"""Places for work of peers: who gets one, who waits, and who is next. No I/O, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from ulnet.nid import Nid
from ulnet.node.shares import Shares

__all__ = ["Places"]

T = TypeVar("T")


class Places(Generic[T]):
    """So much work is under way at once, and so much more waits; peers get places in turn.

    One peer may have half of the `places` that others leave free, and half of the `room` to wait: so there is
    always some left for the next one. `begin` gets work that has a place, whose end `end` is told.
    """

    def __init__(self, places: int, room: int, begin: Callable[[T], None]) -> None:
        self._shares = Shares(places)
        self._room = room
        self._begin = begin
        self._waits = 0
        self._queues: dict[Nid, deque[T]] = {}  # of those that wait; the next one to have its turn is first
        self._beginning = False

    def offer(self, peer: Nid, work: T) -> bool:
        """Whether it begins now, or waits; False: there is no room for it."""
        queue = self._queues.get(peer)
        if queue is None and self._shares.take(peer):
            self._begin(work)
            return True
        if (0 if queue is None else len(queue)) >= self._room - self._waits:
            return False
        if queue is None:
            queue = self._queues[peer] = deque()
        queue.append(work)
        self._waits += 1
        return True

    def end(self, peer: Nid) -> None:
        """Work of that peer that had a place is over."""
        self._shares.give(peer)
        if self._waits and not self._beginning:
            self._begin_next()

    def give_up(self, peer: Nid, work: T) -> None:
        """Work of that peer is over, whether it had a place or still waits."""
        queue = self._queues.get(peer)
        if queue is None or work not in queue:
            self.end(peer)
            return
        queue.remove(work)
        self._waits -= 1
        if not queue:
            del self._queues[peer]

    def clear(self) -> None:
        """Nothing is under way any more, and nothing waits."""
        self._shares.clear()
        self._waits = 0
        self._queues.clear()

    def _begin_next(self) -> None:
        """Begin what may; what ends at once makes room in turn."""
        self._beginning = True
        try:
            while self._shares.left:
                # Who has no place may begin: so no more are passed over than there are places.
                peer = next(filter(self._shares.may_take, self._queues), None)
                if peer is None:
                    break
                queue = self._queues.pop(peer)
                work = queue.popleft()
                if queue:
                    self._queues[peer] = queue  # behind the others
                self._waits -= 1
                self._shares.take(peer)
                self._begin(work)
        finally:
            self._beginning = False
