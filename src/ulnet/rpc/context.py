"""What calls find around them: the clock, and the deadline of the call that is being served."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

__all__ = ["DEADLINE", "clock_of"]

# What a handler calls in turn has no more time than its own call.
DEADLINE: Final[ContextVar[float | None]] = ContextVar("ulnet.rpc deadline", default=None)


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """The clock of a loop: the system's itself, where the loop would only pass it on."""
    return time.monotonic if type(loop).time is asyncio.BaseEventLoop.time else loop.time
