"""Python's garbage collector in a process with simulations.

A cluster is hundreds of objects a node that stay, and of what comes and goes next to nothing needs a
collector: left alone, it goes through all of them again and again, for half of the time of large clusters.
"""

from __future__ import annotations

import gc
from typing import ClassVar, Final

__all__ = ["SeldomCollected"]

# Objects more than before, and how many collections of younger ones come before one of older ones. The
# youngest are still in the CPU's caches when they are looked at: that is cheap, as looking at all is not.
_SELDOM: Final = (2_000, 1_000, 20)
_MANY: Final = (50, 500, 6)  # collections since the last of older ones: of the youngest; so many; of those


class SeldomCollected:
    """As long as one of these lives, Python looks seldom for garbage; then as it did before."""

    __slots__ = ()
    _living: ClassVar[int] = 0
    _before: ClassVar[tuple[int, int, int]] = (0, 0, 0)

    def __init__(self) -> None:
        if SeldomCollected._living:
            _collect_earlier()
        if not SeldomCollected._living:
            before = SeldomCollected._before = gc.get_threshold()
            if 0 < before[0] < _SELDOM[0]:
                gc.set_threshold(*_SELDOM)
        SeldomCollected._living += 1

    def __del__(self) -> None:
        SeldomCollected._living -= 1
        if not SeldomCollected._living and gc.get_threshold() == _SELDOM:
            gc.set_threshold(*SeldomCollected._before)


def _collect_earlier() -> None:
    """Simulations before this one may be garbage by now, for which nobody would look for long."""
    _, young, old = gc.get_count()
    some, many, often = _MANY
    if young >= many or old >= often:
        gc.collect()
    elif young >= some:
        gc.collect(1)
