"""Times at which something is due, of very many items: one timer of the loop serves them all."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from typing import Final, Generic, TypeVar

__all__ = ["Watch"]

T = TypeVar("T")
_PER_SECOND: Final = 100  # buckets
_NEVER: Final = float("inf")


class Watch(Generic[T]):
    """Calls `due(item)` when the time of an item has come.

    Items are in buckets of a hundredth of a second: to add and to discard one is one operation of a
    dictionary each, and an item that is discarded in time costs nothing else.
    """

    __slots__ = ("_at", "_buckets", "_due", "_loop", "_numbers", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, due: Callable[[T], None]) -> None:
        self._loop = loop
        self._due = due
        self._buckets: dict[int, dict[T, float]] = {}
        self._numbers: list[int] = []  # heap of the buckets' numbers
        self._timer: asyncio.TimerHandle | None = None
        self._at = _NEVER  # when the timer is due

    def add(self, item: T, when: float) -> None:
        """Have it called at that time, which the item keeps for `discard`."""
        number = int(when * _PER_SECOND)
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = {}
            heapq.heappush(self._numbers, number)
        bucket[item] = when
        if when < self._at:
            self._arm(when)

    def discard(self, item: T, when: float) -> None:
        """Have it not called. One that is not there is ignored."""
        bucket = self._buckets.get(int(when * _PER_SECOND))
        if bucket is not None:
            bucket.pop(item, None)

    def __len__(self) -> int:
        return sum(map(len, self._buckets.values()))

    def close(self) -> None:
        """Call nothing any more."""
        for bucket in self._buckets.values():
            bucket.clear()
        self._buckets.clear()
        self._numbers.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at = when
        self._timer = self._loop.call_at(when, self._fire)

    def _fire(self) -> None:
        now = max(self._loop.time(), self._at)  # a loop's timer may be a little early
        self._timer = None
        try:
            while self._numbers and self._numbers[0] <= int(now * _PER_SECOND):
                bucket = self._buckets[self._numbers[0]]
                found = sorted((item for item in bucket if bucket[item] <= now), key=bucket.__getitem__)
                for item in found:
                    if bucket.pop(item, None) is not None:  # no other one's end has taken it out
                        self._due(item)
                if bucket and not found:
                    break  # the rest of it is due later
                if not bucket and not found:
                    self._drop_first()
        finally:
            self._at = _NEVER
            while self._numbers and not self._buckets[self._numbers[0]]:
                self._drop_first()
            if self._numbers:
                self._arm(min(self._buckets[self._numbers[0]].values()))

    def _drop_first(self) -> None:
        """Of the buckets: it is empty."""
        del self._buckets[heapq.heappop(self._numbers)]
