"""Python's garbage collector in a process with simulations.

A cluster is hundreds of objects a node that stay, and of what comes and goes next to nothing needs a
collector: left alone, it goes through all of them again and again, for half of the time of large clusters.
"""

from __future__ import annotations

import gc
from typing import ClassVar, Final

__all__ = ["SeldomCollected"]

_SELDOM: Final = (100_000, 10, 20)  # objects more than before, and collections of younger ones


class SeldomCollected:
    """As long as one of these lives, Python looks seldom for garbage; then as it did before."""

    __slots__ = ()
    _living: ClassVar[int] = 0
    _before: ClassVar[tuple[int, int, int]] = (0, 0, 0)

    def __init__(self) -> None:
        if SeldomCollected._living and gc.get_count()[2]:
            gc.collect()  # an earlier simulation may be garbage, and be in nobody's way for long
        if not SeldomCollected._living:
            before = SeldomCollected._before = gc.get_threshold()
            if 0 < before[0] < _SELDOM[0]:
                gc.set_threshold(*_SELDOM)
        SeldomCollected._living += 1

    def __del__(self) -> None:
        SeldomCollected._living -= 1
        if not SeldomCollected._living and gc.get_threshold() == _SELDOM:
            gc.set_threshold(*SeldomCollected._before)
