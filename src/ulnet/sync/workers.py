"""Threads for the handlers of a server: at most so many, made when they are wanted."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any

from ulnet.sync.jobs import Job, Jobs

__all__ = ["Workers"]


class Workers:
    """The threads are daemons: a handler that does not end keeps no program from ending."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._ready: SimpleQueue[Job | None] = SimpleQueue()  # no more than there are threads; None: closed
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()  # of what follows
        self._jobs = Jobs(most)
        self._busy = 0  # threads that have a job
        self._closed = False
        self._loop = asyncio.get_running_loop()

    async def run(self, function: Callable[..., Any], *args: Any, stream_of: Hashable | None = None) -> Any:
        """In the loop: the result of a function that runs in one of the threads.

        Cancelled, it is not begun, or goes on with nobody to wait for it.
        """
        job = self.start(function, *args, stream_of=stream_of)
        try:
            return await job.done
        except asyncio.CancelledError:
            with self._lock:
                self._jobs.remove(job)
            raise

    def start(self, function: Callable[..., Any], *args: Any, stream_of: Hashable | None = None) -> Job:
        """In the loop: run a function in one of the threads; `stream_of`: for a stream of that client."""
        job = Job(self._loop.create_future(), copy_context(), partial(function, *args), stream_of)
        with self._lock:
            self._jobs.add(job)
            self._give()
            wanted = self._busy > len(self._threads)
        if wanted:
            name = f"{self._name} {len(self._threads) + 1}"
            thread = threading.Thread(target=self._work, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return job

    def _give(self) -> None:
        """With the lock: threads that are free get what is next."""
        while self._busy < self._most and not self._closed and (job := self._jobs.next()) is not None:
            self._busy += 1
            self._ready.put(job)

    def _next(self) -> Job | None:
        """What a thread does next, once there is something; None: nothing any more."""
        job = self._ready.get()
        if job is None:
            with self._lock:
                job = self._jobs.next()  # that waited when the server was closed
                self._busy += job is not None
            if job is not None:
                self._ready.put(None)  # for when it has ended
        return job

    def _work(self) -> None:
        while (job := self._next()) is not None:
            value = None
            failure: Exception | None = None
            if not job.done.done():
                try:
                    value = job.context.run(job.function)
                except StopIteration as failed:  # no future can hold it
                    failure = RuntimeError(f"StopIteration: {failed}")
                except Exception as failed:
                    failure = failed
                except BaseException as failed:  # SystemExit ends no server
                    failure = RuntimeError(f"{type(failed).__name__}: {failed}")
            with self._lock:
                self._busy -= 1
                self._jobs.ended(job)
                self._give()
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(_ended, job.done, value, failure)
            del job, value, failure

    def close(self, timeout: float) -> None:
        """Take nothing new, and wait so many seconds for what runs."""
        give_up = time.monotonic() + timeout
        with self._lock:
            self._closed = True
        for _ in self._threads:
            self._ready.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(give_up - time.monotonic(), 0))


def _ended(done: asyncio.Future[Any], value: Any, failure: Exception | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(value)
    else:
        done.set_exception(failure)
