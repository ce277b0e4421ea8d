"""Threads for the handlers of a server: at most so many, made when they are wanted."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any

__all__ = ["Workers"]

_Job = tuple[asyncio.Future[Any], Context, Callable[[], Any]]


class Workers:
    """The threads are daemons: a handler that does not end keeps no program from ending."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._under_way = 0  # jobs that wait or run
        self._loop = asyncio.get_running_loop()

    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """In the loop: the result of a function that runs in one of the threads.

        Cancelled, it is not begun, or goes on with nobody to wait for it.
        """
        return await self.start(function, *args)

    def start(self, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """In the loop: run a function in one of the threads."""
        done: asyncio.Future[Any] = self._loop.create_future()
        self._under_way += 1
        if self._under_way > len(self._threads) < self._most:
            name = f"{self._name} {len(self._threads) + 1}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        self._jobs.put((done, copy_context(), partial(function, *args)))
        return done

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            done, context, function = job
            value = None
            failure: Exception | None = None
            if not done.done():
                try:
                    value = context.run(function)
                except StopIteration as failed:  # no future can hold it
                    failure = RuntimeError(f"StopIteration: {failed}")
                except Exception as failed:
                    failure = failed
                except BaseException as failed:  # SystemExit ends no server
                    failure = RuntimeError(f"{type(failed).__name__}: {failed}")
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._ended, done, value, failure)
            del job, done, context, function, value, failure

    def _ended(self, done: asyncio.Future[Any], value: Any, failure: Exception | None) -> None:
        self._under_way -= 1
        if done.done():
            return
        if failure is None:
            done.set_result(value)
        else:
            done.set_exception(failure)

    def close(self, timeout: float) -> None:
        """Begin nothing more, and wait so many seconds for what runs."""
        give_up = time.monotonic() + timeout
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(give_up - time.monotonic(), 0))
