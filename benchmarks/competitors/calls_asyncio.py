"""An asyncio protocol by hand: frames with length and number, answered in place. What asyncio can reach.

Both sides write once a turn of the loop, whatever was asked or answered in it.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import Callable
from typing import cast

from calls_job import Job, Outcome, ask_for
from work import payload_of

_HEAD = struct.Struct("<II")  # bytes behind the head, number of the request


class _Framed(asyncio.Protocol):
    """Takes frames apart; `take` gets each number and its bytes."""

    def __init__(self) -> None:
        self._kept = b""
        self._out: list[bytes] = []
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._kept:
            data = self._kept + data
        at, end = 0, len(data)
        unpack, take = _HEAD.unpack_from, self.take
        while end - at >= _HEAD.size:
            size, number = unpack(data, at)
            begin = at + _HEAD.size
            if end - begin < size:
                break
            at = begin + size
            take(number, data[begin:at])
        self._kept = data[at:]

    def take(self, number: int, data: bytes) -> None:
        raise NotImplementedError

    def send(self, number: int, data: bytes) -> None:
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out += (_HEAD.pack(len(data), number), data)

    def _flush(self) -> None:
        assert self._transport is not None
        self._transport.write(b"".join(self._out))
        self._out.clear()


class _Server(_Framed):
    def take(self, number: int, data: bytes) -> None:
        self.send(number, data)


class _Client(_Framed):
    def __init__(self) -> None:
        super().__init__()
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._number = 0

    def ask(self, data: bytes) -> asyncio.Future[bytes]:
        self._number = number = self._number + 1 & 0xFFFFFFFF
        waiting = self._waiting[number] = self._loop.create_future()
        self.send(number, data)
        return waiting

    def take(self, number: int, data: bytes) -> None:
        self._waiting.pop(number).set_result(data)


def serve(job: Job, announce: Callable[[], None]) -> None:
    """Answer until the standard input ends."""
    asyncio.run(_serve(job, announce))


async def _serve(job: Job, announce: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    async with await loop.create_server(_Server, job.remote[0], job.port):
        announce()
        await loop.run_in_executor(None, sys.stdin.read)


def drive(job: Job, server: int) -> Outcome:
    """Call."""
    return asyncio.run(_drive(job, server))


async def _drive(job: Job, server: int) -> Outcome:
    loop = asyncio.get_running_loop()
    transport, client = await loop.create_connection(_Client, job.remote[0], job.port)
    payload = payload_of(job.size)
    outcome = await ask_for(job, [lambda: client.ask(payload)] * job.tasks, server)
    transport.close()
    return outcome
