"""Who of those that wait for a thread is next. No I/O, no threads, no clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from contextvars import Context
from typing import Any

from ulnet.node.shares import Shares

__all__ = ["Job", "Jobs"]


class Job:
    """A function to run in a context; `done` gets its result. `stream_of`: a step of a client's stream."""

    __slots__ = ("context", "done", "function", "stream_of")

    def __init__(
        self,
        done: asyncio.Future[Any],
        context: Context,
        function: Callable[[], Any],
        stream_of: Hashable | None,
    ) -> None:
        self.done = done
        self.context = context
        self.function = function
        self.stream_of = stream_of


class Jobs:
    """Steps of streams, which may wait for whatever they like, have half of the threads at most.

    A client has as many of these as it leaves to others, at most, and clients are served in turn. Calls have
    the other half for sure, and any that is free. Of one thread alone both have every other turn.
    """

    def __init__(self, threads: int) -> None:
        self._streams = Shares(max(threads // 2, 1))
        self._calls: dict[Job, None] = {}  # the oldest is first
        self._steps: dict[Hashable, dict[Job, None]] = {}  # by client; who is next is first
        self._was_step = False  # the last one that was next

    @property
    def waiting(self) -> bool:
        """Whether any waits."""
        return bool(self._calls or self._steps)

    def add(self, job: Job) -> None:
        """One more waits."""
        queue = self._calls if job.stream_of is None else self._steps.setdefault(job.stream_of, {})
        queue[job] = None

    def remove(self, job: Job) -> bool:
        """One is not to be begun any more; False if it does not wait."""
        queue = self._calls if job.stream_of is None else self._steps.get(job.stream_of, {})
        if job not in queue:
            return False
        del queue[job]
        if not queue and job.stream_of is not None:
            del self._steps[job.stream_of]
        return True

    def next(self) -> Job | None:
        """Who runs now, to be handed to `ended`. None: nobody waits that may."""
        first, second = (self._call, self._step) if self._was_step else (self._step, self._call)
        job = first() or second()
        if job is not None:
            self._was_step = job.stream_of is not None
        return job

    def _call(self) -> Job | None:
        job = next(iter(self._calls), None)
        if job is not None:
            del self._calls[job]
        return job

    def _step(self) -> Job | None:
        for client in self._steps:  # those that are passed over have a thread
            if self._streams.take(client):
                break
        else:
            return None
        queue = self._steps.pop(client)
        job = next(iter(queue))
        del queue[job]
        if queue:
            self._steps[client] = queue  # behind the others
        return job

    def ended(self, job: Job) -> None:
        """One that ran has ended."""
        if job.stream_of is not None:
            self._streams.give(job.stream_of)
