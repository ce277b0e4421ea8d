"""When a daemon's Python looks for cycles of objects: nobody is answered meanwhile."""

from __future__ import annotations

import asyncio
import gc
from time import perf_counter
from typing import Final

__all__ = ["Searches", "collect_seldom"]

_AIM: Final = 3e-4  # seconds that a search among new objects is to take; it takes longer after a longer wait
_OFTEN: Final = 0.01  # seconds between two of them, at least …
_SELDOM: Final = 1.0  # … and at most
_MANY: Final = 10_000  # new objects that stayed, until these are searched: a few milliseconds
_SEARCHES: Final = 100_000  # searches among new objects, until all objects are searched …
_OLD: Final = 2_000_000  # … or objects that stayed since then; more where more were left then


def collect_seldom() -> None:
    """Have Python look for cycles among all objects seldom, and never among those that are there now.

    Hardly any are made here. With thousands of peers and connections a full search takes 0.1 s, in which
    nobody is answered. Searches among new objects are as short as they can be, for the same reason.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_500, 1_000, 10_000)


class Searches:
    """Looks for cycles among new objects, and again later: the sooner, the more there are.

    Python's own searches begin by how many more objects there are. Where old ones go as new ones come, as
    with pings of NIDs that nobody has, that is at tens of thousands of new ones, which takes 7 ms. Where new
    ones stay, as peers do that others name, its search among these begins at a million, which takes 0.3 s.
    """

    __slots__ = ("_alive", "_loop", "_made", "_old", "_stayed", "_wait", "_young")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wait = _SELDOM
        self._young = 0  # Python's count of searches since the last one that went further, when this looked
        self._stayed = 0  # objects that stayed since that one, about
        self._made = 0  # searches since the last one among all objects
        self._old = 0  # objects that stayed since that one, about
        self._alive = 0  # objects that it left

    def search(self) -> None:
        """Look now, and again later."""
        new, young, _ = gc.get_count()
        at_each, many_young, _ = gc.get_threshold()
        self._stayed += new + at_each * max(young - self._young, 0)
        if young > many_young or self._stayed > _MANY:
            self._search_older(young)
            wait = self._wait * min(_MANY / max(self._stayed, 1), 1)
            self._stayed = 0
        else:
            began = perf_counter()
            gc.collect(0)
            took = perf_counter() - began
            wait = self._wait * min(_AIM / max(took, 1e-9), 2)
        self._wait = min(max(wait, _OFTEN), _SELDOM)
        self._young = gc.get_count()[1]
        self._loop.call_later(self._wait, self.search)

    def _search_older(self, young: int) -> None:
        """Look among all that came since the last such search, seldom among all objects.

        `young` searches among new ones were made since.
        """
        self._made += young
        self._old += self._stayed
        if self._made <= _SEARCHES and self._old <= max(_OLD, self._alive):
            self._old = max(self._old - gc.collect(1), 0)
            return
        gc.collect(2)
        self._made = self._old = 0
        self._alive = len(gc.get_objects())
