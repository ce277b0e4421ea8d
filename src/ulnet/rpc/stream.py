"""A stream, as its client reads it."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final, Self

from ulnet.core.md import Buffer
from ulnet.rpc.errors import RpcError, raised

if TYPE_CHECKING:
    from ulnet.rpc.client import Client
    from ulnet.rpc.pending import Pending

__all__ = ["Stream"]


class Stream:
    """Chunks in order: `async for chunk in stream`. Close it, or let go of it, and the server is told.

    What ends it is raised by `__anext__`, behind all chunks that came: an RpcError, or StopAsyncIteration.
    """

    def __init__(
        self, client: Client, method: str, data: Buffer, deadline: float | None, credit: int
    ) -> None:
        self._client = client
        self._asked = (method, data, deadline)
        self._credit: Final = credit
        self._pending: Pending | None = None
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._closed:
            raise StopAsyncIteration
        pending = self._pending
        if pending is None:
            pending = self._pending = await self._client.begin_stream(*self._asked, self._credit)
        news = pending.news
        assert news is not None
        while pending.read not in pending.chunks:
            if pending.done.done() and self._is_over(pending):
                raise StopAsyncIteration
            news.clear()
            await news.wait()
        chunk = pending.chunks.pop(pending.read)
        pending.read += 1
        frame = pending.frame
        if frame.credit - pending.read <= self._credit // 2:
            frame.credit = pending.read + self._credit
            pending.send_credit()
        return chunk

    def _is_over(self, pending: Pending) -> bool:
        """Whether all was read; a failure is raised."""
        self.close()
        failed = pending.done.exception()
        if failed is not None:
            raise failed
        reply = pending.done.result()
        if reply.status:
            raise raised(f"{self._client.target}: {self._asked[0]}", reply)
        if reply.chunks != pending.read:
            words = f"{pending.read} of its {reply.chunks} chunks came in order before its end"
            raise RpcError(errno.EPROTO, f"{self._client.target}: {self._asked[0]}: {words}", "yes")
        return True

    def close(self) -> None:
        """End it. The server stops sending."""
        self._closed = True
        if self._pending is not None:
            self._pending.release()

    async def aclose(self) -> None:
        """As `close`, for `contextlib.aclosing`."""
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._closed and self._pending is not None and not self._client.loop.is_closed():
            self.close()
