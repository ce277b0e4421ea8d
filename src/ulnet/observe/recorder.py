"""The loop of `ulnet record`: read a node again and again, and keep what it shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ulnet.observe.changes import Event
from ulnet.observe.history import History
from ulnet.observe.source import Source

__all__ = ["Clock", "record"]

_LEAST_PAUSE: Final = 0.01  # seconds
_FORGET: Final = 60.0  # seconds between two looks for what is too old


class Clock(NamedTuple):
    """`now` in seconds since 1970; `elapsed` in seconds, by a steady clock; `pause` tells the end."""

    now: Callable[[], float]
    elapsed: Callable[[], float]
    pause: Callable[[float], bool]


def record(
    source: Source,
    history: History,
    every: float,
    keep: float,
    clock: Clock,
    told: Callable[[list[Event]], None],
) -> None:
    """Until `pause` ends it; `every`, `keep` in seconds. `told` hears what was kept. Raises HistoryError."""
    ended, forgot = False, 0.0
    while not ended:
        began = clock.elapsed()
        snapshot = source.read(max(every, 1.0))
        now = clock.now()
        events = history.add(snapshot, now)
        if abs(now - forgot) >= _FORGET:
            history.forget(now - keep)
            forgot = now
        told(events)
        ended = clock.pause(max(every - (clock.elapsed() - began), _LEAST_PAUSE))
