"""A service whose handlers are plain functions, each call of which runs in a thread of a bounded pool."""

from __future__ import annotations

import asyncio
import errno
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Final

import ulnet.rpc
from ulnet.core.md import Buffer
from ulnet.core.status import LNetError
from ulnet.nid import Nid
from ulnet.rpc import RpcError, Service
from ulnet.rpc.bulk import Progress
from ulnet.rpc.counters import MethodCounters, ServerCounters
from ulnet.rpc.service import Method
from ulnet.sync.node import Node, Part
from ulnet.sync.thread import Wait
from ulnet.sync.workers import Workers

__all__ = ["Call", "Server"]

_FAREWELL: Final = 5.0  # seconds that handlers get to end when their server is closed
_END: Final = object()


class Call:
    """A call under way, for the thread of its handler. `data` are the client's, `client` is its primary NID.

    `cancelled` tells that nobody waits for the handler any more: the client gave up, the deadline is over, or
    the server was closed. A thread cannot be stopped: who takes long should look. `push` and `pull` fail
    then.
    """

    def __init__(self, call: ulnet.rpc.Call, node: Node) -> None:
        self.data: bytes | bytearray = call.data
        self.client: Nid = call.client
        self.cancelled: bool = False
        self._call = call
        self._thread = node.thread
        self._moving: set[asyncio.Task[Any]] = set()

    def __repr__(self) -> str:
        return repr(self._call)

    @property
    def into_size(self) -> int:
        """The bytes of memory that the client gave for `push`."""
        return self._call.into_size

    @property
    def bulk_size(self) -> int:
        """The bytes of memory that the client gave for `pull`."""
        return self._call.bulk_size

    def time_left(self) -> float | None:
        """Seconds until the client gives up; None: it does not."""
        return self._call.time_left()

    def push(self, memory: Buffer, *, offset: int | None = None, progress: Progress | None = None) -> None:
        """Write memory into the client's (`into`). See `ulnet.rpc.Call.push`.

        `progress(moved, total)` is called in this thread. Raises LNetError.
        """
        self._move(lambda told: self._call.push(memory, offset=offset, progress=told), progress)

    def pull(
        self,
        into: bytearray | memoryview | None = None,
        *,
        offset: int = 0,
        most: int = 256 << 20,
        progress: Progress | None = None,
    ) -> bytearray | memoryview:
        """Read the client's bulk. See `ulnet.rpc.Call.pull`.

        `progress(moved, total)` is called in this thread. Raises LNetError.
        """
        memory: bytearray | memoryview = self._move(
            lambda told: self._call.pull(into, offset=offset, most=most, progress=told), progress
        )
        return memory

    def _move(
        self, make: Callable[[Progress | None], Coroutine[Any, Any, Any]], progress: Progress | None
    ) -> Any:
        wait = Wait()
        told = None if progress is None else lambda *at: wait.tell(partial(progress, *at))

        async def move() -> Any:
            task = asyncio.current_task()
            assert task is not None
            self._moving.add(task)
            try:
                if not self.cancelled:
                    return await make(told)
            except asyncio.CancelledError:
                if not self.cancelled:
                    raise
            finally:
                self._moving.discard(task)
            raise RpcError(errno.ECANCELED, f"{self._call.method.name}: nobody waits for this call any more")

        return self._thread.run(move, wait=wait)

    def cancel(self) -> None:
        """In the loop: nobody waits for it any more."""
        self.cancelled = True
        for task in self._moving:
            task.cancel()


class Server(Part):
    """Serves a service: `with Server(service, node):`. Options are those of `ulnet.rpc.Server`.

    Plain functions run in `threads` threads; as many calls run at once, unless `concurrency` is given, and
    others wait. A stream is a generator function, which has a thread while it makes its next chunk: streams
    have half of the threads at most, and a client no more of these than it leaves to others.
    Coroutine functions and topics run in the node's thread.
    """

    def __init__(self, service: Service, node: Node, *, threads: int = 16, **options: Any) -> None:
        if threads < 1:
            raise LNetError(errno.EINVAL, f"threads {threads}: a server has one or more")
        super().__init__(node)
        options.setdefault("concurrency", threads)
        self._service = service
        self._served = served = Service(service.name)
        self._workers: Workers

        async def start() -> ulnet.rpc.Server:
            self._workers = Workers(threads, f"ulnet {service.name}")
            server = ulnet.rpc.Server(served, node.node, **options)
            server.start()
            return server

        service.followed_by(served, self._method)
        try:
            self._server = node.run(start)
        except BaseException:
            service.let_go(served)
            raise
        node.parts[self] = None

    @property
    def counters(self) -> ServerCounters:
        """What it counts."""
        return self._server.counters

    @property
    def method_counters(self) -> dict[str, MethodCounters]:
        """What it counts of each method."""
        return self._server.method_counters

    def _method(self, method: Method) -> Method:
        handler = inspect.unwrap(method.run)
        if inspect.iscoroutinefunction(handler) or inspect.isasyncgenfunction(handler):
            return method
        run = self._stream if method.kind == "stream" else self._execute
        # fmt: off
        return Method(method.name, partial(run, method.run), method.kind, method.takes, method.gives,
                      method.decode, method.most, method.body)
        # fmt: on

    async def _execute(self, handler: Callable[..., Any], call: ulnet.rpc.Call, *data: Any) -> Any:
        mine = Call(call, self._node)
        try:
            return await self._workers.run(handler, mine, *data)
        except asyncio.CancelledError:
            mine.cancel()
            raise

    async def _stream(
        self, handler: Callable[..., Any], call: ulnet.rpc.Call, *data: Any
    ) -> AsyncIterator[Any]:
        mine = Call(call, self._node)
        chunks = _Chunks(partial(handler, mine, *data))
        owner = call.session.owner
        ended = False
        try:
            while (value := await self._workers.run(chunks.next, stream_of=owner)) is not _END:
                yield value
            ended = True
        finally:
            if not ended:
                mine.cancel()
                chunks.over = True
                if chunks.begun:
                    self._workers.start(chunks.close, stream_of=owner)  # nobody waits for it

    async def _end(self) -> None:
        self._service.let_go(self._served)
        await self._server.close()

    def close(self) -> None:
        """Take nothing new; clients of what runs are told. Handlers get a few seconds to end."""
        super().close()
        if not self._thread.elsewhere:  # their threads are the other process's
            self._workers.close(_FAREWELL)


class _Chunks:
    """What a generator yields; it is closed by a thread in which it does not run."""

    def __init__(self, make: Callable[[], Iterator[Any]]) -> None:
        self.over = False
        self._make: Callable[[], Iterator[Any]] | None = make
        self._values: Iterator[Any] = iter(())
        self._running = threading.Lock()

    @property
    def begun(self) -> bool:
        """Whether the generator was made."""
        return self._make is None

    def next(self) -> Any:
        """The next one, or _END."""
        with self._running:
            if self._make is not None:
                make, self._make = self._make, None
                self._values = iter(make())
            value = next(self._values, _END)
        if self.over:
            self.close()
        return value

    def close(self) -> None:
        """Nobody wants another one. Where a thread still makes one, that thread closes it."""
        if self._running.acquire(blocking=False):
            try:
                self._make = None
                close = getattr(self._values, "close", None)
                if close is not None:
                    close()
            finally:
                self._running.release()
