"""Virtual time: one queue of events.

They happen in order of time, those of one moment in the order they were planned; nothing else decides.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import Any, TypeAlias

__all__ = ["Clock", "Scheduler"]

_Event: TypeAlias = tuple[float, int, Callable[..., Any], tuple[Any, ...]]


class Scheduler:
    """All events, which the simulation takes out one by one, and the time (seconds since it began)."""

    __slots__ = ("_seq", "events", "heap", "now")

    def __init__(self) -> None:
        self.now: float = 0.0
        self.events: int = 0  # that have happened
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
