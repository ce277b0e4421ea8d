"""ulnet.rpc: a service, and clients with a net a rail.

Player `gets` fetches the same memory by plain `get`s.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from calls_job import Ask, Job, Outcome, ask_for
from ulnet import Node, new_event_loop
from ulnet.core.md import MANAGE_REMOTE, OP_GET
from ulnet.core.tunables import NetTunables
from ulnet.lnd.tcp import TcpParams
from ulnet.rpc import Call, Client, Server, Service
from work import CONGESTION, payload_of

_PORTAL, _NAME = 30, "bench"
_PIECE = 1 << 20
_CREDITS = 256  # peer_credits, as for other small messages
_SLOTS = 1024


def _run(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


@asynccontextmanager
async def open_node(port: int, addresses: list[str], *, small: bool) -> AsyncIterator[Node]:
    """A node with a net for each address; for small messages or for bulk."""
    tcp = TcpParams(accept="all", accept_port=port, reserved_ports=False, congestion=CONGESTION.decode())
    tunables = NetTunables(peer_credits=_CREDITS) if small else None
    async with Node(tcp=tcp) as node:
        for rail, address in enumerate(addresses):
            node.add_ni(f"{address}@tcp{rail}", tunables=tunables)
        yield node


def _node(job: Job, addresses: list[str]) -> AbstractAsyncContextManager[Node]:
    return open_node(job.port, addresses, small=job.kind == "echo")


def serve(job: Job, announce: Callable[[], None]) -> None:
    """Serve until the standard input ends."""
    _run(_serve(job, announce))


async def _serve(job: Job, announce: Callable[[], None]) -> None:
    service = Service(_NAME)
    memory = payload_of(job.size)

    @service.method("echo")
    async def echo(call: Call) -> bytes | bytearray:
        return call.data

    @service.method("fetch")
    async def fetch(call: Call) -> None:
        await call.push(memory)

    async with _node(job, job.remote) as node:
        options = OP_GET | MANAGE_REMOTE
        node.attach(_PORTAL, 1, memory, options=options, handler=lambda event: None)
        async with Server(service, node, slots=_SLOTS):
            announce()
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def drive(job: Job, server: int) -> Outcome:
    """Call."""
    outcome: Outcome = _run(_drive(job, server))
    return outcome


async def _drive(job: Job, server: int) -> Outcome:
    async with AsyncExitStack() as stack:
        if job.clients:
            return await ask_for(job, await _crowd(job, stack), server)
        node = await stack.enter_async_context(_node(job, job.local))
        if len(job.remote) > 1:
            await node.discover(f"{job.remote[0]}@tcp")
        if job.player == "gets":
            asks = [partial(_get_all, node, job, bytearray(job.size)) for _ in range(job.tasks)]
            return await ask_for(job, asks, server)
        client = await stack.enter_async_context(_client(node, job))
        return await ask_for(job, [_ask(client, job) for _ in range(job.tasks)], server)


def _client(node: Node, job: Job) -> Client:
    return Client(node, f"{job.remote[0]}@tcp", _NAME, slots=max(64, job.tasks))


def _ask(client: Client, job: Job) -> Ask:
    if job.kind == "echo":
        return partial(client.call, "echo", payload_of(job.size))
    return partial(client.call, "fetch", into=bytearray(job.size))


async def _crowd(job: Job, stack: AsyncExitStack) -> list[Ask]:
    """Each client has a node."""
    asks: list[Ask] = []
    for number in range(job.first, job.first + job.clients):
        address = f"127.0.{2 + number // 250}.{1 + number % 250}"
        node = await stack.enter_async_context(_node(job, [address]))
        client = await stack.enter_async_context(Client(node, f"{job.remote[0]}@tcp", _NAME))
        asks.append(_ask(client, job))
    return asks


async def _get_all(node: Node, job: Job, into: bytearray) -> None:
    """All of the memory, by a `get` for each MiB."""
    target, view = f"{job.remote[0]}@tcp", memoryview(into)
    pieces = range(0, job.size, _PIECE)
    await asyncio.gather(*(node.get(target, _PORTAL, 1, view[at : at + _PIECE], offset=at) for at in pieces))
