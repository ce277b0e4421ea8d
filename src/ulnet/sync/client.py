"""A client of one service, whose calls wait for their reply."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar

import ulnet.rpc
from ulnet.core.md import Buffer
from ulnet.core.status import LNetError
from ulnet.nid import Nid
from ulnet.rpc import Answer, RpcError
from ulnet.rpc.bulk import Progress
from ulnet.rpc.counters import ClientCounters
from ulnet.sync.node import Node, Part
from ulnet.sync.thread import Wait

__all__ = ["Client", "Stream"]

T = TypeVar("T")


class Client(Part):
    """Calls a service at a node: `with Client(node, "10.0.0.2@tcp", "files") as client:`.

    Options are those of `ulnet.rpc.Client`. Many threads may call at once: `slots` calls are under
    way, others wait.
    """

    def __init__(
        self,
        node: Node,
        target: Nid | str,
        service: str,
        *,
        slots: int = 64,
        silence: float = 60.0,
        largest: int = 16384,
        credit: int = 64,
        tracebacks: bool = False,
    ) -> None:
        super().__init__(node)
        self.streams: set[ulnet.rpc.Stream] = set()  # they end in the loop's thread only
        self._client = node.do(
            lambda: ulnet.rpc.Client(
                node.node,
                target,
                service,
                slots=slots,
                silence=silence,
                largest=largest,
                credit=credit,
                tracebacks=tracebacks,
            )
        )
        node.parts[self] = None

    @property
    def counters(self) -> ClientCounters:
        """What it counts."""
        return self._client.counters

    @property
    def under_way(self) -> int:
        """How many calls are under way."""
        return self._client.under_way

    def call(
        self,
        method: str,
        data: Any = None,
        *,
        into: bytearray | memoryview | None = None,
        bulk: Buffer | None = None,
        timeout: float | None = None,
        idempotent: bool = False,
        check: bool = False,
        progress: Progress | None = None,
    ) -> Answer:
        """Call a method, and wait for its reply. See `ulnet.rpc.Client.call`. Raises RpcError.

        `progress(moved, total)` is called in this thread.

        What interrupts it (KeyboardInterrupt) cancels the call: the server is told.
        """
        wait = Wait()
        told = None if progress is None else lambda *at: wait.tell(partial(progress, *at))
        more: dict[str, Any] = {"idempotent": idempotent, "check": check, "progress": told}
        return self.run(
            lambda: self._client.call(method, data, into=into, bulk=bulk, timeout=timeout, **more), wait
        )

    def stream(self, method: str, data: Any = None, *, timeout: float | None = None) -> Stream:
        """Call a stream: `for chunk in client.stream("watch"):`. It is cancelled when it is closed."""

        async def begin() -> ulnet.rpc.Stream:
            stream = self._client.stream(method, data, timeout=timeout)
            self.streams.add(stream)
            return stream

        return Stream(self, self.run(begin))

    def run(self, make: Callable[[], Coroutine[Any, Any, T]], wait: Wait | None = None) -> T:
        """Run a coroutine in the node's loop. Raises RpcError(ESHUTDOWN) where that was closed."""
        try:
            return self._thread.run(make, wait=wait)
        except RpcError:
            raise
        except LNetError as failed:
            raise _as_rpc(failed) from None

    def check(self) -> None:
        """Raises RpcError where its thread cannot be waited for."""
        try:
            self._thread.check()
        except LNetError as failed:
            raise _as_rpc(failed) from None

    async def _end(self) -> None:
        for stream in list(self.streams):
            self.end_stream(stream)
        await self._client.close()

    def end_stream(self, stream: ulnet.rpc.Stream) -> None:
        """In the loop: nobody reads it any more."""
        self.streams.discard(stream)
        stream.close()

    def let_go(self, stream: ulnet.rpc.Stream) -> None:
        """From any thread, and without waiting: nobody reads it any more."""
        self._thread.soon(self.end_stream, stream)


def _as_rpc(failed: LNetError) -> RpcError:
    return RpcError(failed.errno, str(failed), "no" if failed.errno == errno.ENETDOWN else "unknown")


class Stream:
    """Chunks in order: `for chunk in stream`. Close it (`with`), or let go of it, and the server is told.

    Several threads may read it: each chunk goes to one of them.
    """

    def __init__(self, client: Client, stream: ulnet.rpc.Stream) -> None:
        self._client = client
        self._stream = stream
        self._turn = threading.Lock()  # of reading
        self._closed = False
        self._reader: asyncio.Task[Any] | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        self._client.check()
        with self._turn:
            chunk = None if self._closed else self._client.run(self._next)
        if chunk is None:
            raise StopIteration
        return chunk

    async def _next(self) -> bytes | None:
        self._reader = asyncio.current_task()
        try:
            return await anext(self._stream)
        except StopAsyncIteration:
            return None
        except asyncio.CancelledError:
            if self._closed:
                return None
            raise
        finally:
            self._reader = None

    async def _end(self) -> None:
        self._client.end_stream(self._stream)
        if self._reader is not None:
            self._reader.cancel()

    def close(self) -> None:
        """End it. The server stops sending, and who waits for a chunk gets none."""
        if not self._closed:
            self._closed = True
            with suppress(RpcError):  # its node was closed
                self._client.run(self._end)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._closed:
            with suppress(LNetError):
                self._client.let_go(self._stream)
