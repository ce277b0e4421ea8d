"""Handlers that run one after the other in one generator: one that ends raises nothing in the runner.

This module is not compiled: StopIteration that goes through compiled code costs a sixth of a short call.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ulnet.rpc.call import Call

__all__ = ["Outcome", "Steps", "steps_of"]

Steps = Generator[Any, Any, None]


class Outcome:
    """What a handler has returned, or what it has raised. Who takes it clears it."""

    __slots__ = ("failed", "result")

    def __init__(self) -> None:
        self.result: Any = None
        self.failed: BaseException | None = None


def steps_of(begin: Callable[[Call], Any], outcome: Outcome) -> Steps:
    """A generator that takes one call after another by `send`, and runs what `begin` makes of each.

    It yields what that waits for and, as soon as it has ended, `outcome`; it ends where a handler has failed.
    """
    steps = _steps(begin, outcome)
    next(steps)
    return steps


@types.coroutine
def _steps(begin: Callable[[Call], Any], outcome: Outcome) -> Steps:
    call: Call | None = yield None
    while True:
        assert call is not None
        try:
            handler = begin(call)
            if type(handler) is not types.CoroutineType:
                handler = _awaited(handler)
            call = None  # its data may be large
            outcome.result = yield from handler
        except GeneratorExit:  # the loop is gone
            raise
        except BaseException as failed:
            outcome.failed = failed
            return  # perhaps the loop is gone, and this is being closed: then nothing may be yielded
        handler = call = None
        call = yield outcome


async def _awaited(handler: Any) -> Any:
    return await handler
