"""Virtual time: one queue of events.

They happen in order of time, those of one moment in the order they were planned; nothing else decides.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from heapq import heappush
from typing import Any, Final, TypeAlias

__all__ = ["Clock", "Scheduler", "SeldomCollected"]

_Event: TypeAlias = tuple[float, int, Callable[..., Any], tuple[Any, ...]]
_SELDOM: Final = (100_000, 20, 100)  # objects more than before, and collections of younger ones


class Scheduler:
    """All events, which the simulation takes out one by one, and the time (seconds since it began)."""

    __slots__ = ("_seq", "events", "heap", "now")

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0  # that have happened
        self.heap: list[_Event] = []  # what is planned; the next is the first
        self._seq = 0

    def at(self, when: float, call: Callable[..., Any], *args: Any) -> None:
        """Plan call(*args); what should have been before now happens now."""
        self._seq = seq = self._seq + 1
        heappush(self.heap, (when if when > self.now else self.now, seq, call, args))

    def after(self, delay: float, call: Callable[..., Any], *args: Any) -> None:
        """Plan call(*args) in `delay` seconds."""
        self._seq = seq = self._seq + 1
        heappush(self.heap, (self.now + delay, seq, call, args))


class Clock:
    """A node's clock, which began `offset` seconds before the simulation: read several times a message."""

    __slots__ = ("_offset", "_scheduler")

    def __init__(self, scheduler: Scheduler, offset: float) -> None:
        self._scheduler = scheduler
        self._offset = offset

    def __call__(self) -> float:
        return self._scheduler.now + self._offset


class SeldomCollected:
    """While it lasts, Python looks seldom for garbage.

    A cluster is a lot of objects that stay, and of what comes and goes next to nothing needs a collector.
    """

    __slots__ = ("_before",)

    def __init__(self) -> None:
        self._before = (0, 0, 0)

    def __enter__(self) -> None:
        before = self._before = gc.get_threshold()
        if 0 < before[0] < _SELDOM[0]:
            gc.set_threshold(*_SELDOM)

    def __exit__(self, *exc_info: object) -> None:
        gc.set_threshold(*self._before)
