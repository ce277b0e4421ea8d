"""For each node an asyncio event loop on virtual time.

It runs its callbacks a random moment late, in their order, as a busy machine would. Once its node is dead,
nothing that was planned on it happens any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from inspect import CORO_CREATED, getcoroutinestate
from random import Random
from types import CoroutineType
from typing import Any, TypeVar, TypeVarTuple, Unpack

from ulnet.sim.scheduler import Clock, Scheduler

__all__ = ["NodeLoop"]

_get_running_loop, _set_running_loop = asyncio._get_running_loop, asyncio._set_running_loop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class _Handle(asyncio.TimerHandle):
    """What asyncio gets for a planned callback."""

    __slots__ = ("_call", "_owner")

    def __init__(
        self,
        owner: NodeLoop,
        when: float,
        call: Callable[..., Any],
        args: tuple[Any, ...],
        context: Context | None,
    ) -> None:
        self._owner = owner
        self._when = when
        self._call = call if context is None else context.run
        self._args = args if context is None else (call, *args)
        self._cancelled = False

    def __repr__(self) -> str:
        return f"<handle of {self._owner.name} at {self._when}>"

    def cancel(self) -> None:
        """The call is cancelled."""
        self._cancelled = True
        self._args = ()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._cancelled

    def when(self) -> float:
        """When it happens, in the loop's time."""
        return self._when

    def happen(self) -> None:
        """Call it, unless it was cancelled or its node died."""
        owner = self._owner
        if owner.sleeps:
            owner.put_off(self.happen)
        elif not self._cancelled and owner.alive:
            owner.enter(self._call, *self._args)


class NodeLoop(asyncio.AbstractEventLoop):
    """The event loop of one life of one node: asyncio's own tasks, futures and locks run on it.

    Its clock began `offset` seconds before the simulation. `lateness` is the most that a callback is late.
    `ran` is called after each; `failed` gets what asyncio could not tell anybody.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        name: str,
        rng: Random,
        *,
        offset: float = 0.0,
        lateness: float = 0.0,
        ran: Callable[[], None] = lambda: None,
        failed: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.name = name
        self.alive: bool = True
        self._scheduler = scheduler
        self._random = rng.random
        self._offset = offset
        self.time = Clock(scheduler, offset)  # type: ignore[method-assign]
        self._lateness = lateness
        self._soonest = 0.0
        self.awake_at: float = 0.0  # until then its process is kept from running
        self._tasks: dict[asyncio.Task[Any], Coroutine[Any, Any, Any]] = {}  # that are not done
        self._ran = ran
        self._failed = failed

    def enter(self, call: Callable[..., T], *args: Any) -> T:
        """Call inside the loop: for `call` it is the running one."""
        outer = _get_running_loop()
        _set_running_loop(self)
        try:
            return call(*args)
        finally:
            _set_running_loop(outer)
            self._ran()

    @property
    def sleeps(self) -> bool:
        """Whether its process does not run now."""
        return self._scheduler.now < self.awake_at

    def put_off(self, call: Callable[[], object]) -> None:
        """Call when the process runs again."""
        self._scheduler.at(self.awake_at, call)

    def kill(self) -> None:
        """Nothing happens here any more, not even the end of what is under way: that stays as it is."""
        self.alive = False
        for coro in self._tasks.values():
            if isinstance(coro, CoroutineType) and getcoroutinestate(coro) == CORO_CREATED:  # Python's own
                coro.close()

    # What asyncio asks for ------------------------------------------------------------------------

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """In a moment, after what was planned so before."""
        scheduler = self._scheduler
        when = scheduler.now
        if self._lateness:
            when = self._soonest = max(self._soonest, when + self._random() * self._lateness)
        handle = _Handle(self, when + self._offset, callback, args, context)
        scheduler.at(when, handle.happen)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """In `delay` seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """At a time of this node's clock, never too early."""
        handle = _Handle(self, when, callback, args, context)
        self._scheduler.at(when - self._offset + 1e-9, handle.happen)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, T] | Any, *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        """A task of this loop."""
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks[task] = coro
        task.add_done_callback(self._tasks.pop)
        return task

    def get_debug(self) -> bool:
        """Never."""
        return False

    def is_running(self) -> bool:
        """Whether its node lives."""
        return self.alive

    def is_closed(self) -> bool:
        """Whether its node is dead."""
        return not self.alive

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A failure that nobody waits for."""
        if self.alive:
            self._failed(f"{context.get('message')}: {context.get('exception')!r}")
