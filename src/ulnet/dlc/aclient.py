"""The control socket from the client's side, on asyncio."""

from __future__ import annotations

import asyncio
import errno
from types import TracebackType
from typing import Self, TypeVar

from ulnet.dlc.call import Call
from ulnet.dlc.caller import check_daemon
from ulnet.dlc.client import DEADLINE, no_daemon, not_sent
from ulnet.dlc.hangup import has_gone
from ulnet.dlc.model import Request
from ulnet.dlc.paths import default_socket
from ulnet.dlc.protocol import (
    HEADER_SIZE,
    MAX_REPLY,
    ProtocolError,
    Reply,
    decode_reply,
    encode_request,
    payload_size,
)

__all__ = ["AsyncClient"]

T = TypeVar("T")


class AsyncClient:
    """One connection; requests made at once wait for each other."""

    def __init__(self, path: str | None = None) -> None:
        self.path: str = path or default_socket()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()

    async def request(self, request: Request, deadline: float = DEADLINE) -> Reply:
        """As Client.request."""
        async with self._turn:
            done = False
            try:
                async with asyncio.timeout(deadline):
                    reply = await self._exchange(encode_request(request))
                done = True
                return reply
            except TimeoutError:
                text = f"no answer from {self.path} in {deadline:g} s"
                raise not_sent(request, errno.ETIMEDOUT, text) from None
            except (asyncio.IncompleteReadError, OSError) as error:
                broken = error if isinstance(error, OSError) else OSError(errno.ECONNRESET, "closed")
                raise no_daemon(request, self.path, broken) from None
            except ProtocolError as bad:
                raise not_sent(request, bad.errno, bad.text) from None
            finally:
                if not done:  # a late answer must not be taken for that of the next request
                    self._drop()

    async def call(self, call: Call[T]) -> T:
        """As Client.call."""
        return call.result(await self.request(call.request, call.deadline or DEADLINE))

    async def _exchange(self, frame: bytes) -> Reply:
        if self._streams is not None and self._has_gone(*self._streams):
            self._drop()  # the node hangs up after a while of silence
        if self._streams is None:
            self._streams = await asyncio.open_unix_connection(self.path)
            check_daemon(self.path, self._streams[1].get_extra_info("socket"))
        reader, writer = self._streams
        writer.write(frame)
        await writer.drain()
        size = payload_size(await reader.readexactly(HEADER_SIZE), MAX_REPLY)
        return decode_reply(await reader.readexactly(size))

    @staticmethod
    def _has_gone(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        return reader.at_eof() or writer.is_closing() or has_gone(writer.get_extra_info("socket"))

    def _drop(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def close(self) -> None:
        """Hang up."""
        if self._streams is not None:
            writer = self._streams[1]
            self._streams = None
            writer.close()
            try:
                await writer.wait_closed()
            except OSError:
                pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
