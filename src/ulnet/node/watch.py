"""Times at which something is due, of very many items: one timer of the loop serves them all."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import Final, Generic, Protocol, TypeVar

__all__ = ["Due", "Watch"]

_NEVER: Final = float("inf")
_MOST: Final = 64  # items in a turn of the loop: for each a message may be sent
_PAUSE: Final = (
    2e-6  # seconds for each item between two looks at all: a twentieth of what a look takes, or less
)


class Due(Protocol):
    """An item: when it is due; 0 while it is not watched."""

    due_at: float


T = TypeVar("T", bound=Due)
_due_at: Final = attrgetter("due_at")


class Watch(Generic[T]):
    """Calls `due(item)` when the time of an item has come, or a little later where there are thousands.

    To add and to discard an item is one operation of a dictionary each. When one is due all are looked at.
    Of thousands that are due at once 64 are called in a turn of the loop.
    """

    __slots__ = ("_at", "_due", "_items", "_loop", "_ready", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, due: Callable[[T], None]) -> None:
        self._loop = loop
        self._due = due
        self._items: dict[T, None] = {}  # in the order in which they came: runs of the simulator are alike
        self._ready: deque[T] = deque()  # that were due at the last look, and have not had their turn
        self._timer: asyncio.Handle | None = None
        self._at = _NEVER  # when the timer is due

    def add(self, item: T, when: float) -> None:
        """Have it called at that time, instead of any earlier one."""
        item.due_at = when
        self._items[item] = None
        if when < self._at:
            self._arm(when)

    def discard(self, item: T) -> None:
        """Have it not called. One that is not there is ignored."""
        item.due_at = 0.0
        self._items.pop(item, None)

    def __len__(self) -> int:
        return len(self._items)

    def items(self) -> list[T]:
        """Those that are watched."""
        return list(self._items)

    def close(self) -> None:
        """Call nothing any more."""
        self._items.clear()
        self._ready.clear()
        self._disarm()

    def _arm(self, when: float) -> None:
        self._disarm()
        self._at = when
        self._timer = self._loop.call_at(when, self._fire)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._at = _NEVER

    def _fire(self) -> None:
        now = max(self._loop.time(), self._at)  # a loop's timer may be a little early
        self._timer = None
        self._at = _NEVER
        items, ready = self._items, self._ready
        if not ready:
            ready.extend(sorted([item for item in items if item.due_at <= now], key=_due_at))
        if len(ready) > _MOST:
            self._at = 0.0  # no timer comes before the next turn
        called = 0
        try:
            while ready and called < _MOST:
                called += 1
                item = ready.popleft()
                if 0.0 < item.due_at <= now:  # no other one's end has taken it out, or put it off
                    self.discard(item)
                    self._due(item)
        finally:
            if ready:
                self._disarm()
                self._at = 0.0
                self._timer = self._loop.call_soon(self._fire)
            elif items:
                following = max(min(map(_due_at, items)), now + _PAUSE * len(items))
                if following < self._at:
                    self._arm(following)
