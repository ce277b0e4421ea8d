"""The long steps of TLS handshakes: threads of their own take them, while the loop goes on."""

from __future__ import annotations

import _thread
import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import thread_time
from typing import Final, Protocol

__all__ = ["GoOn", "Shakes", "Worker"]

_THREADS: Final = 8  # at the same time
_BATCH: Final = 4  # handshakes of one address that a thread serves at a time
_TURN: Final = 16  # handshakes that go on in one turn of the loop
_LONG: Final = 0.5  # seconds of a CPU that honest peers do not take for a batch
_REST: Final = 20  # times as long the address has to wait behind such a one …
_MOST_REST: Final = 60.0  # … or so many seconds: others may have the same address
_SHORT: Final = 0.05  # seconds: a thread whose steps take longer …
_NICE: Final = 10  # … has at least that priority from then on
_AGAIN: Final = 0.1  # seconds until a thread is asked for again where the system gives none


class Worker(Protocol):
    """A socket whose handshake has a long step to take."""

    def work(self) -> None:
        """Take the step, in whatever thread."""


GoOn = Callable[[], "Worker | None"]  # goes on with a handshake in the loop, up to the next long step


class Shakes:
    """Handshakes that can go on, and wait for their turn. Addresses take turns, and have one thread each.

    OpenSSL reads the certificates that it is sent before it knows whose they are, and those of 32 KiB can be
    made such that this takes half a minute.
    """

    __slots__ = ("_loop", "_queues", "_ready", "_running", "_scheduled")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._running: dict[str, asyncio.TimerHandle] = {}  # those addresses have a thread
        self._scheduled = False
        # Of each address that waits for its turn, has a thread, or has to wait for a while.
        self._queues: dict[str, deque[GoOn]] = {}
        self._ready: deque[str] = deque()  # addresses that wait for their turn

    def later(self, address: str, go_on: GoOn) -> None:
        """Go on with a handshake of that address in its turn, and again behind each long step."""
        queue = self._queues.get(address)
        if queue is None:
            queue = self._queues[address] = deque()
            self._ready.append(address)
        queue.append(go_on)
        self._schedule()

    def forget(self, address: str, go_on: GoOn) -> None:
        """That handshake is over."""
        queue = self._queues.get(address)
        if queue:
            with suppress(ValueError):
                queue.remove(go_on)

    def close(self) -> None:
        """There are no handshakes any more."""
        for timer in self._running.values():
            timer.cancel()

    def _schedule(self) -> None:
        if self._ready and len(self._running) < _THREADS and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        left = _TURN
        try:
            while left > 0 and self._ready and len(self._running) < _THREADS:
                left -= self._serve(self._ready.popleft())
        finally:
            self._schedule()

    def _serve(self, address: str) -> int:
        """Go on with some of an address: with how many."""
        queue = self._queues[address]
        batch: list[tuple[Worker, GoOn]] = []
        count = 0
        try:
            while queue and count < _BATCH:
                count += 1
                go_on = queue.popleft()
                worker = go_on()
                if worker is not None:
                    batch.append((worker, go_on))
        finally:
            if batch:
                self._start(address, batch)
            else:
                self._next(address)
        return count

    def _start(self, address: str, batch: list[tuple[Worker, GoOn]]) -> None:
        own: list[int] = []
        try:  # a `Thread` would keep the loop waiting until it has begun
            _thread.start_new_thread(self._work, (address, batch, own))
        except RuntimeError:  # there is none
            self._queues[address].extendleft(go_on for _, go_on in reversed(batch))
            self._loop.call_later(_AGAIN, self._next, address)
        else:
            self._running[address] = self._loop.call_later(_SHORT, self._leave_cpus, address, own)

    def _work(self, address: str, batch: list[tuple[Worker, GoOn]], own: list[int]) -> None:
        """In a thread: its number is in `own` as long as it has steps to take."""
        own.append(_thread.get_native_id())
        try:
            for worker, _ in batch:
                worker.work()
        finally:
            own.clear()
            with suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(self._worked, address, thread_time(), batch)

    def _leave_cpus(self, address: str, threads: list[int]) -> None:
        """To the loop: the thread of that address takes long, or has not begun yet.

        One with short steps keeps its priority: on a busy machine it would get no CPU, nor the loop the GIL.
        """
        for own in threads:
            with suppress(OSError):  # it may not, or is over
                os.setpriority(os.PRIO_PROCESS, own, max(os.getpriority(os.PRIO_PROCESS, own), _NICE))
        if not threads:
            self._running[address] = self._loop.call_later(_SHORT, self._leave_cpus, address, threads)

    def _worked(self, address: str, took: float, batch: list[tuple[Worker, GoOn]]) -> None:
        self._running.pop(address).cancel()
        if took < _LONG:
            self._loop.call_soon(self._next, address)
        else:
            self._loop.call_later(min(_REST * took, _MOST_REST), self._next, address)
        queue = self._queues[address]
        try:
            while batch:
                go_on = batch.pop(0)[1]
                if go_on() is not None:
                    queue.append(go_on)
        finally:
            queue.extend(go_on for _, go_on in batch)  # that of another one has failed
            self._schedule()

    def _next(self, address: str) -> None:
        """The address may have a turn again."""
        if self._queues[address]:
            self._ready.append(address)
        else:
            del self._queues[address]
        self._schedule()
