"""grpc.aio without protobuf: unary calls."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from calls_job import Job, Outcome, ask_for
from work import payload_of

_METHOD = "/bench/Call"
_OPTIONS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class _Service(grpc.GenericRpcHandler):  # type: ignore[misc,unused-ignore]
    def __init__(self, job: Job) -> None:
        self._echo = job.kind == "echo"
        self._memory = payload_of(job.size)

    def service(self, details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._call)

    async def _call(self, message: bytes, context: Any) -> bytes:
        return message if self._echo else self._memory


def serve(job: Job, announce: Callable[[], None]) -> None:
    """Answer until the standard input ends."""
    asyncio.run(_serve(job, announce))


async def _serve(job: Job, announce: Callable[[], None]) -> None:
    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers([_Service(job)])
    server.add_insecure_port(f"{job.remote[0]}:{job.port}")
    await server.start()
    announce()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(0)


def drive(job: Job, server: int) -> Outcome:
    """Call."""
    return asyncio.run(_drive(job, server))


async def _drive(job: Job, server: int) -> Outcome:
    async with grpc.aio.insecure_channel(f"{job.remote[0]}:{job.port}", options=_OPTIONS) as channel:
        call = channel.unary_unary(_METHOD)
        payload = payload_of(job.size) if job.kind == "echo" else b""
        return await ask_for(job, [lambda: call(payload)] * job.tasks, server)
