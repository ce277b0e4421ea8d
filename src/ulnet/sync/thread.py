"""An event loop in a thread of its own, and how other threads wait for what runs in it.

A process that was forked has no such thread: it is told so, and has nothing of the loop's files.
"""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from ulnet.core.status import LNetError
from ulnet.lnd.forks import forked, in_forks, let_go
from ulnet.lnd.loop import Loop

__all__ = ["LoopThread", "Wait"]

T = TypeVar("T")
_AFTERMATH: Final = 5.0  # seconds that a cancelled task gets to end
_JOIN: Final = 5.0  # and the thread


class Wait:
    """One thread that waits for one task. Others have it call functions meanwhile (`tell`)."""

    __slots__ = ("_given_up", "_news", "_task")

    def __init__(self) -> None:
        self._news: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._task: asyncio.Task[Any] | None = None
        self._given_up = False

    def tell(self, function: Callable[[], object]) -> None:
        """Call a function in the thread that waits."""
        self._news.put(function)

    def begin(self, loop: asyncio.AbstractEventLoop, make: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """In the loop: start the task."""
        if self._given_up:
            self._news.put(None)
            return
        self._task = loop.create_task(_awaited(make))
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # who has given up does not fetch it
        self._news.put(None)

    def cancel(self) -> None:
        """In the loop: nobody wants it any more."""
        self._given_up = True
        if self._task is not None:
            self._task.cancel()

    @property
    def over(self) -> bool:
        """Whether the task has ended."""
        return self._task is not None and self._task.done()

    def result(self, patience: float | None) -> Any:
        """What the task ends with. Raises TimeoutError, and LNetError(ESHUTDOWN) if it was cancelled."""
        try:
            while (function := self._news.get(timeout=patience)) is not None:
                function()
        except Empty:
            raise TimeoutError from None
        task = self._task
        assert task is not None
        if task.cancelled():
            raise LNetError(errno.ESHUTDOWN, "the node was closed meanwhile")
        return task.result()

    def until_ended(self) -> None:
        """After `cancel`: until the task has ended, but not for ever."""
        try:
            while self._news.get(timeout=_AFTERMATH) is not None:
                pass
        except Empty:
            pass


class LoopThread:
    """The thread is a daemon: it keeps no program from ending."""

    def __init__(self, name: str) -> None:
        self._loop = Loop()
        self._lock = threading.Lock()
        self._stopped = False
        self._elsewhere = False  # it runs in the process of which this is a fork
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        in_forks(self)
        self._thread.start()

    def _serve(self) -> None:
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(_end_all())
        finally:
            self._loop.close()

    @property
    def elsewhere(self) -> bool:
        """Whether this process is a fork of the one that has the thread: then nothing can be done with it."""
        return self._elsewhere

    def forked(self) -> None:
        """In a child of the process: let go of it, the parent's files included."""
        self._elsewhere = True
        self._loop.set_exception_handler(_ignored)  # tasks that are the parent's end here, too
        let_go(self._loop)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop. All but `call_soon_threadsafe` is for its own thread."""
        return self._loop

    def check(self) -> None:
        """Raises LNetError: EDEADLK in its own thread, which cannot wait for itself; ENETDOWN in a fork."""
        if self._elsewhere:
            raise forked(self._thread.name)
        if threading.current_thread() is self._thread:
            raise LNetError(
                errno.EDEADLK,
                f"{self._thread.name}: its own thread cannot wait for it; "
                "in coroutine functions use the classes for asyncio (ulnet.Node, ulnet.rpc)",
            )

    def run(
        self,
        make: Callable[[], Coroutine[Any, Any, T]],
        *,
        wait: Wait | None = None,
        patience: float | None = None,
    ) -> T:
        """Run a coroutine in the loop, and wait for its result.

        What interrupts the waiting (KeyboardInterrupt, an exception of a function that it was told to call,
        or `patience` seconds without news) cancels the coroutine. Raises LNetError: ENETDOWN (it was stopped
        before), ESHUTDOWN (it was stopped meanwhile), EDEADLK.
        """
        self.check()
        wait = wait or Wait()
        try:
            self.soon(wait.begin, self._loop, make)
            result: T = wait.result(patience)
        except BaseException:
            if not wait.over:
                self._give_up(wait)
            raise
        return result

    def _give_up(self, wait: Wait) -> None:
        """Cancel what nobody waits for any more."""
        try:
            self.soon(wait.cancel)
        except LNetError:  # it is being stopped: all tasks end
            return
        wait.until_ended()

    def soon(self, function: Callable[..., object], *args: object) -> None:
        """Call it in the loop, with the context of this thread. Raises LNetError(ENETDOWN)."""
        if self._elsewhere:  # the lock may be another thread's, which this process does not have
            raise forked(self._thread.name)
        with self._lock:
            if not self._stopped:
                self._loop.call_soon_threadsafe(function, *args)
                return
        raise LNetError(errno.ENETDOWN, f"{self._thread.name} was closed: LNet is not configured on it")

    def stop(self) -> None:
        """End it: what still runs is cancelled. In a fork this changes nothing."""
        if self._elsewhere:
            return
        with self._lock:
            if not self._stopped:
                self._stopped = True
                self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN)


async def _awaited(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What `make` raises itself is the task's exception, too."""
    return await make()


async def _end_all() -> None:
    """Cancel all tasks but this one, those included that are begun by now."""
    await asyncio.sleep(0)
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=_AFTERMATH)
        await asyncio.sleep(0)
    await asyncio.get_running_loop().shutdown_asyncgens()


def _ignored(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What a loop tells that runs elsewhere."""
