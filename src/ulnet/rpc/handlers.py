"""A generator that runs the handlers of calls, one after the other, and yields the outcome of each.

So the end of a handler raises no StopIteration in the runner, which is compiled: there it would cost a sixth
of a short call. This module is not compiled.
"""

from __future__ import annotations

import types
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from ulnet.rpc.kinds import ASYNC_METHOD, ASYNC_STREAM

if TYPE_CHECKING:
    from ulnet.rpc.call import Call

__all__ = ["Closing", "Outcome", "Steps", "steps_of"]

Steps = Generator[Any, Any, None]


class Closing(aclosing[AsyncGenerator[Any, None]]):
    """Closes the generator of a stream when its handler ends; not where the loop is gone.

    Nothing can be awaited then, and a generator that waits counts as running, which is an error to close.
    Raises TypeError for what yields nothing that can be awaited.
    """

    def __init__(self, values: AsyncGenerator[Any, None]) -> None:
        if not hasattr(values, "__aiter__"):
            raise TypeError(f"a stream's handler gave {type(values).__name__}: {ASYNC_STREAM}")
        super().__init__(values)
        self._closes = hasattr(values, "aclose")

    async def __aexit__(self, *exc_info: object) -> None:
        if exc_info[0] is not GeneratorExit and self._closes:
            await super().__aexit__(*exc_info)


class Outcome:
    """What a handler has returned, or what it has raised. Who takes it clears it."""

    __slots__ = ("failed", "result")

    def __init__(self) -> None:
        self.result: Any = None
        self.failed: BaseException | None = None


def steps_of(begin: Callable[[Call], Any], outcome: Outcome) -> Steps:
    """A generator that takes one call after another by `send`, and runs what `begin` makes of each.

    The generator yields what a handler waits for and, once the handler has returned, `outcome`. Where a
    handler raises, `outcome` has that and the generator ends.
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
    if not isawaitable(handler):
        raise TypeError(f"a handler gave {type(handler).__name__}, not a coroutine: {ASYNC_METHOD}")
    return await handler
