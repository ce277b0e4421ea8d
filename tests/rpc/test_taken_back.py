"""Memory that is lent for a call, or moved to: nothing comes into it once the call has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from rpc.conftest import assert_conserved
from support.ports import free_port
from ulnet import Node, TcpParams
from ulnet.rpc import Call, Client, RpcError, Server, Service

pytestmark = pytest.mark.requirement("ULP")

HERE, THERE = "127.4.9.2", "127.4.9.1"
SIZE, STOP = 1 << 20, 300_000


class Wire:
    """Between both: each connection stops behind STOP bytes that come from one of them, until `go`."""

    def __init__(self, stops: str) -> None:
        self.go = asyncio.Event()
        self.moved = 0  # bytes that way
        self._stops = stops
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def between(self, front: int, back: int) -> AsyncIterator[None]:
        async def called(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            theirs, ours = await asyncio.open_connection(THERE, back, local_addr=(HERE, 0))
            self._tasks.add(asyncio.ensure_future(self._pass(reader, ours, HERE)))
            self._tasks.add(asyncio.ensure_future(self._pass(theirs, writer, THERE)))

        server = await asyncio.start_server(called, THERE, front)
        try:
            yield
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, come_from: str) -> None:
        passed = 0
        try:
            while data := await reader.read(16384):
                writer.write(data)
                await writer.drain()
                passed += len(data)
                if come_from == self._stops:
                    self.moved += len(data)
                    if passed > STOP:
                        await self.go.wait()
        except OSError:
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def all_has_come(self) -> None:
        """Let the rest pass, and wait until it has been read."""
        self.go.set()
        while self.moved < SIZE:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)


@asynccontextmanager
async def nodes(stops: str) -> AsyncIterator[tuple[Node, Node, Wire]]:
    """One at HERE, which calls through a wire, one at THERE, and the wire."""
    front, back, wire = free_port(), free_port(), Wire(stops)

    def made(port: int) -> Node:
        return Node(tcp=TcpParams(accept="all", accept_port=port, reserved_ports=False))

    async with made(front) as here, made(back) as there:
        there.add_ni(f"{THERE}@tcp")
        async with wire.between(front, back):
            here.add_ni(f"{HERE}@tcp")
            yield here, there, wire


async def test_what_a_server_puts_behind_its_reply_does_not_come_into_the_memory() -> None:
    service = Service("tested")
    pushes: list[asyncio.Task[None]] = []

    @service.method("get")
    async def get(call: Call) -> bytes:
        pushes.append(asyncio.ensure_future(call.push(b"E" * SIZE)))
        while wire.moved <= STOP:
            await asyncio.sleep(0.01)
        return b"done"

    async with nodes(THERE) as (here, there, wire):
        async with Server(service, there), Client(here, f"{THERE}@tcp", "tested") as client:
            into = bytearray(SIZE)
            assert (await client.call("get", into=into, timeout=20)).data == b"done"
            assert 0 < into.count(b"E") < SIZE
            into[:] = bytes(SIZE)
            await wire.all_has_come()
            assert not into.count(b"E")
            for push in pushes:
                push.cancel()
        assert_conserved(here)


async def test_what_comes_behind_the_end_of_a_pull_does_not_come_into_the_memory() -> None:
    service, memory = Service("tested"), bytearray(SIZE)
    ended = asyncio.Event()

    @service.method("put")
    async def put(call: Call) -> None:
        try:
            await call.pull(memory)
        finally:
            memory[:] = bytes(SIZE)
            ended.set()

    async with nodes(HERE) as (here, there, wire):
        async with Server(service, there), Client(here, f"{THERE}@tcp", "tested") as client:
            with pytest.raises(RpcError):
                await client.call("put", bulk=b"E" * SIZE, timeout=1.0)
            await ended.wait()
            assert wire.moved > STOP
            await wire.all_has_come()
            assert not memory.count(b"E")
        assert_conserved(there)
