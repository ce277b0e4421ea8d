"""Tasks that run handlers: one runs those of a turn of the loop one after the other, while none waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextvars import Context
from typing import Any, Final

from ulnet.nid import Nid
from ulnet.rpc.call import Call
from ulnet.rpc.handlers import Outcome, Steps, steps_of

__all__ = ["Runner"]

_MOST: Final = 64  # handlers that a task runs before others have a turn …
_FEW: Final = 16  # … where no request waits for a place: the clients go on while others run
_DECODED: Final = 1 << 16  # bytes of data, after which others have a turn: they may become large objects
_SPARE: Final = 4  # generators that are kept for further tasks


class _Rest:
    """What is left of a handler that waits for `awaited`: each step of it runs in its own context."""

    __slots__ = ("_awaited", "_context", "_outcome", "_steps")

    def __init__(self, steps: Steps, outcome: Outcome, context: Context, awaited: object) -> None:
        self._steps = steps
        self._outcome = outcome
        self._context = context
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, None]:
        steps, outcome, run, awaited = self._steps, self._outcome, self._context.run, self._awaited
        value: Any = None
        while awaited is not outcome:
            step: Callable[[Any], Any] = steps.send
            value = None
            try:
                value = yield awaited
            except GeneratorExit:  # the loop is gone
                run(steps.close)
                outcome.failed = None  # the handler may have ended by an exception of its own
                raise
            except BaseException as thrown:
                step, value = steps.throw, thrown
            try:
                awaited = run(step, value)
            except StopIteration:
                break
            except GeneratorExit as raised:  # by the handler itself
                outcome.failed = raised
                break
        value = None  # what was thrown holds this frame, by its traceback


def _decoded(call: Call) -> int:
    """Bytes of its data that are made objects before its handler runs."""
    return call.size if call.method.most is not None else 0


def _begun(call: Call, steps: Steps, outcome: Outcome, context: Context) -> object:
    """What the handler of a call waits for; `outcome`: it has ended."""
    try:
        return context.run(steps.send, call)
    except StopIteration:
        return outcome
    except GeneratorExit as raised:  # by the handler itself
        outcome.failed = raised
        return outcome


class Runner:
    """Runs calls that `begin` makes handlers of, those of each client in turn, each in a context of its own;
    `end` gets the result.

    `failed` gets what a handler raised instead. A handler that waits keeps its task: others go on in
    another one. A task that was cancelled, for the call that it ran, runs no further one.
    """

    __slots__ = (
        "_begin",
        "_context",
        "_end",
        "_failed",
        "_idle",
        "_loop",
        "_ready",
        "_starting",
        "_tasks",
        "_waits",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: Context,
        begin: Callable[[Call], Any],
        end: Callable[[Call, Any], None],
        failed: Callable[[Call, BaseException], None],
        waits: Callable[[], bool],
    ) -> None:
        self._loop = loop
        self._context = context
        self._begin = begin
        self._end = end
        self._failed = failed
        self._waits = waits
        self._ready: dict[Nid, dict[Call, None]] = {}  # those of each client, in order; who is next is first
        self._idle: list[tuple[Steps, Outcome]] = []  # that run no handler
        self._starting = False  # a task for them will run soon
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, call: Call) -> None:
        """Run it behind what is ready of its client."""
        mine = self._ready.get(call.session.owner)
        if mine is None:
            self._ready[call.session.owner] = {call: None}
        else:
            mine[call] = None
        if not self._starting:
            self._start()

    def remove(self, call: Call) -> bool:
        """Take out one that has not begun; False if it is not there."""
        mine = self._ready.get(call.session.owner)
        if mine is None or call not in mine:
            return False
        del mine[call]
        if not mine:
            del self._ready[call.session.owner]
        return True

    def _next(self) -> Call:
        """Take out the first one of the client whose turn it is."""
        ready = self._ready
        client = next(iter(ready))
        mine = ready[client]
        call = next(iter(mine))
        del mine[call]
        if not mine:
            del ready[client]
        elif len(ready) > 1:
            del ready[client]
            ready[client] = mine  # behind the others
        return call

    async def ended(self) -> None:
        """Wait until all tasks have ended."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self) -> None:
        self._starting = True
        task = self._loop.create_task(self._work(), context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _another(self) -> tuple[Steps, Outcome]:
        outcome = Outcome()
        return steps_of(self._begin, outcome), outcome

    async def _work(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._starting = False
        ready = self._ready
        decoded = 0
        last: BaseException | None = None  # that ends the program
        waited = False  # very many may go on in one turn: those that are ready have a task of their own
        steps, outcome = self._idle.pop() if self._idle else self._another()
        for _ in range(_MOST if self._waits() else _FEW):
            if not ready or waited or decoded >= _DECODED or task.cancelling():
                break
            call = self._next()
            decoded += _decoded(call)
            context = self._context.copy()
            call.task = task
            awaited = _begun(call, steps, outcome, context)
            if awaited is not outcome:
                if ready and not self._starting:
                    self._start()
                waited = True
                await _Rest(steps, outcome, context, awaited)
            call.task = None
            result, failed = outcome.result, outcome.failed
            outcome.result = outcome.failed = None
            if failed is None:
                try:
                    self._end(call, result)
                except Exception as refused:
                    failed = refused
            else:
                steps = steps_of(self._begin, outcome)  # the former one has ended
            if failed is not None:
                self._failed(call, failed)
                if isinstance(failed, KeyboardInterrupt | SystemExit):
                    last = failed
                    break
        if len(self._idle) < _SPARE:
            self._idle.append((steps, outcome))
        if ready and not self._starting:
            self._start()
        if last is not None:
            raise last
