"""One deadline structure for everything that can time out: a coarse wheel of buckets.

Adding and discarding are one dictionary operation each, so that a message that is answered in time
costs nearly nothing and leaves nothing behind.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Final, Generic, TypeVar

__all__ = ["DeadlineWheel", "end_of", "slot_of"]

T = TypeVar("T")
_PER_SECOND: Final = 10


def slot_of(deadline: float) -> int:
    """The slot of a time in seconds."""
    return int(deadline * _PER_SECOND) + 1


def end_of(slot: int) -> float:
    """Deadlines from then on have a later slot."""
    return slot / _PER_SECOND


class DeadlineWheel(Generic[T]):
    """Items by the time (seconds) at which they are due, to the next tenth of a second.

    `on_earlier` is called when an item is due before all others: the owner's timer must be set anew.
    """

    __slots__ = ("_buckets", "_due", "_on_earlier")

    def __init__(self, on_earlier: Callable[[], None] = lambda: None) -> None:
        self._on_earlier = on_earlier
        self._buckets: dict[int, dict[int, T]] = {}
        self._due: list[int] = []  # heap of the buckets' numbers

    def add(self, key: int, deadline: float, item: T) -> int:
        """Enter item under key; the slot number that comes back is needed to discard it."""
        slot = slot_of(deadline)
        bucket = self._buckets.get(slot)
        if bucket is None:
            bucket = self._buckets[slot] = {}
            heapq.heappush(self._due, slot)
            if self._due[0] == slot:
                self._on_earlier()
        bucket[key] = item
        return slot

    def discard(self, key: int, slot: int) -> None:
        """Take an item out before it is due; unknown ones are ignored."""
        bucket = self._buckets.get(slot)
        if bucket is not None:
            bucket.pop(key, None)

    def expire(self, now: float) -> list[tuple[T, int]]:
        """Take out all that is due at `now`, earliest first, each with its slot."""
        due: list[tuple[T, int]] = []
        limit = int(now * _PER_SECOND)
        while self._due and self._due[0] <= limit:
            slot = heapq.heappop(self._due)
            due.extend((item, slot) for item in self._buckets.pop(slot).values())
        return due

    def next_deadline(self) -> float | None:
        """When `expire` should be called next, or None when nothing waits."""
        while self._due:
            slot = self._due[0]
            if self._buckets[slot]:
                return slot / _PER_SECOND
            heapq.heappop(self._due)
            del self._buckets[slot]
        return None
