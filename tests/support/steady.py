"""An event loop whose clock leaves out what a busy machine takes from it.

Both ends of what most tests connect live in one process: where that stood still for a second, neither
a time-out nor a keepalive is due.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, TypeVar

import pytest

TURN = 0.01  # seconds: no turn of the loop takes more of its clock, however long the machine took for it

_Result = TypeVar("_Result")


class _Waiting(selectors.DefaultSelector):
    """Tells the loop what it waited for, and no more than that."""

    def __init__(self, tell: Callable[[float], None]) -> None:
        super().__init__()
        self._tell = tell

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._tell(0.0)
        if found := super().select(0):
            return found  # it was there already, however late we see it
        if timeout is not None and timeout <= 0:
            return found
        began = monotonic()
        found = super().select(timeout)
        waited = monotonic() - began
        self._tell(waited if timeout is None else min(waited, timeout))
        return found


class SteadyLoop(asyncio.SelectorEventLoop):
    """Its time is that which it waited for, and a bounded part of that in which it worked."""

    def __init__(self) -> None:
        self._seen = self._told = monotonic()
        super().__init__(_Waiting(self._waited))

    def time(self) -> float:
        """Seconds; they go by no faster than those of the machine."""
        return self._told + min(monotonic() - self._seen, TURN)

    def _waited(self, seconds: float) -> None:
        told = self.time() if not seconds else self._told + seconds
        self._told, self._seen = told, monotonic()


def run(body: Coroutine[Any, Any, _Result]) -> _Result:
    """As `asyncio.run`, in such a loop."""
    with asyncio.Runner(loop_factory=SteadyLoop) as runner:
        return runner.run(body)


@pytest.hookimpl(optionalhook=True)
def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Of every async test."""
    return {"steady": SteadyLoop}
