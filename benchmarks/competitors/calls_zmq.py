"""zmq.asyncio DEALER/ROUTER: requests with a number, futures by number, one task that reads the answers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import zmq
import zmq.asyncio

from calls_job import Job, Outcome, ask_for
from work import payload_of


def serve(job: Job, announce: Callable[[], None]) -> None:
    """Answer until the standard input ends."""
    asyncio.run(_serve(job, announce))


async def _serve(job: Job, announce: Callable[[], None]) -> None:
    with zmq.asyncio.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind(f"tcp://{job.remote[0]}:{job.port}")
        answering = asyncio.create_task(_answer(job, socket))
        announce()
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        answering.cancel()


async def _answer(job: Job, socket: Any) -> None:
    memory = payload_of(job.size)
    while True:
        client, number, data = await socket.recv_multipart()
        if job.kind == "echo":
            await socket.send_multipart([client, number, data])
        else:
            await socket.send_multipart([client, number, memory], copy=False)


def drive(job: Job, server: int) -> Outcome:
    """Call."""
    return asyncio.run(_drive(job, server))


class _Client:
    def __init__(self, socket: Any, plain: bool) -> None:
        self._socket = socket
        self._plain = plain
        self._waiting: dict[bytes, asyncio.Future[Any]] = {}
        self._number = 0
        self._loop = asyncio.get_running_loop()

    async def ask(self, data: bytes) -> Any:
        self._number += 1
        number = self._number.to_bytes(8, "little")
        waiting = self._waiting[number] = self._loop.create_future()
        await self._socket.send_multipart([number, data])
        return await waiting

    async def read(self) -> None:
        while True:
            number, data = await self._socket.recv_multipart(copy=self._plain)
            self._waiting.pop(number if self._plain else number.bytes).set_result(data)


async def _drive(job: Job, server: int) -> Outcome:
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(f"tcp://{job.remote[0]}:{job.port}")
        client = _Client(socket, job.kind == "echo")
        reading = asyncio.create_task(client.read())
        payload = payload_of(job.size) if job.kind == "echo" else b""
        outcome = await ask_for(job, [lambda: client.ask(payload)] * job.tasks, server)
        reading.cancel()
        return outcome
