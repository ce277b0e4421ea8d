"""Another process that this one has comms with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from ulnet.core.status import LNetError
from ulnet.dask.fetch_queue import FetchQueue
from ulnet.nid import Nid
from ulnet.node import Node
from ulnet.rpc import Client

__all__ = ["SERVICE", "SLOTS", "Partner"]

SERVICE: Final = "dask"
SLOTS: Final = 1024  # calls under way to one process
_LONGEST: Final = 0.01  # seconds that an answer for which nobody waits may wait for others
_TOGETHER: Final = 16  # answers: as many as one message has


class Partner:
    """The client of another process's service, and an eye on it: `gone(partner, why)` is called once."""

    def __init__(self, node: Node, nid: Nid, gone: Callable[[Partner, str], None]) -> None:
        self.nid = nid
        self.queue: FetchQueue = FetchQueue()  # of the large frames that it offers
        self.taken: int = 0  # bytes of what came from it and is not read yet
        self.lends: int = 0  # calls under way whose bulk it may fetch
        self.pieces: int = 0  # that it has fetched
        self._enough = asyncio.Event()  # those that wait now may leave
        self._together = 0  # answers that wait for that
        self._gone = gone
        self._client = Client(node, nid, SERVICE, slots=SLOTS)
        self._eye = asyncio.get_running_loop().create_task(self._watch())

    async def call(self, method: str, data: bytes, bulk: memoryview | bytes = b"") -> Any:
        """Call a method there; bulk is memory that it may fetch. Raises LNetError."""
        if not bulk:
            return (await self._client.call(method, data)).data
        self.lends += 1
        try:
            return (await self._client.call(method, data, bulk=bulk, progress=self._fetched)).data
        finally:
            self.lends -= 1

    async def wait_for_others(self) -> None:
        """Wait until 16 answers do, or the first has for 10 ms: they leave in one message."""
        self._together += 1
        if self._together == 1:
            asyncio.get_running_loop().call_later(_LONGEST, self._let_leave, self._enough)
        if self._together == _TOGETHER:
            self._let_leave(self._enough)
        else:
            await self._enough.wait()

    def _let_leave(self, enough: asyncio.Event) -> None:
        if enough is self._enough:
            enough.set()
            self._enough, self._together = asyncio.Event(), 0

    def _fetched(self, moved: int, total: int) -> None:
        self.pieces += 1

    async def close(self) -> None:
        """Watch it no more; calls under way fail."""
        self._eye.cancel()
        with suppress(LNetError):
            await self._client.close()

    async def _watch(self) -> None:
        why = "the other process has closed its node"
        try:
            async for _ in self._client.stream("presence"):
                pass
        except LNetError as failed:
            why = failed.text
        self._gone(self, why)
