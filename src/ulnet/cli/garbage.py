"""When a daemon's Python looks for cycles of objects: nobody is answered meanwhile."""

from __future__ import annotations

import asyncio
import gc
from time import perf_counter
from typing import Final

__all__ = ["collect_seldom", "collect_what_is_new"]

_AIM: Final = 3e-4  # seconds that a search among new objects is to take; it takes longer after a longer wait
_OFTEN: Final = 0.01  # seconds between two of them, at least …
_SELDOM: Final = 1.0  # … and at most


def collect_seldom() -> None:
    """Have Python look for cycles among all objects seldom, and never among those that are there now.

    Hardly any are made here. With thousands of peers and connections a full search takes 0.1 s, in which
    nobody is answered. Searches among new objects are as short as they can be, for the same reason.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(1_500, 1_000, 100)


def collect_what_is_new(loop: asyncio.AbstractEventLoop, wait: float = _SELDOM) -> None:
    """Look for cycles among new objects, and again later: the sooner, the more there are.

    Python counts how many more objects there are. Where old ones go as new ones come, as with pings of NIDs
    that nobody has, it does not look until there are tens of thousands of new ones, which takes 7 ms.
    """
    _, young, old = gc.get_count()  # searches since the last one among older objects, as Python counts
    _, many_young, many_old = gc.get_threshold()
    if young > many_young:  # due: our searches reset the count by which Python would see that
        gc.collect(2 if old > many_old else 1)
    else:
        began = perf_counter()
        gc.collect(0)
        took = perf_counter() - began
        wait = min(max(wait * min(_AIM / max(took, 1e-9), 2), _OFTEN), _SELDOM)
    loop.call_later(wait, collect_what_is_new, loop, wait)
