"""What a piece of code leaves to Python's collector: objects that only a search for cycles takes back."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["left_in_cycles"]


@contextmanager
def left_in_cycles() -> Iterator[list[str]]:
    """The classes of these objects in the list, when the block has ended."""
    found: list[str] = []
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        found += [type(one).__qualname__ for one in gc.garbage]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
