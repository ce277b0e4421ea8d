"""Memory of idle clients, each with a node of its own: `calls_memory.py CLIENTS`; answers in JSON.

The program is the server; it starts itself a second time for the clients.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack

from competitors.calls_ulnet import open_node
from ulnet import Node, new_event_loop
from ulnet.rpc import Call, Client, Server, Service

SERVER, PORT, NAME = "127.0.1.2", 9884, "bench"
FIRST = 50  # of which nothing is reckoned: what is made but once is made then


def main() -> int:
    """Measure."""
    clients = int(sys.argv[1])
    role = _clients(clients) if len(sys.argv) > 2 else _server(clients)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(role)
    return 0


async def _server(clients: int) -> None:
    service = Service(NAME)

    @service.method("echo")
    async def echo(call: Call) -> bytes | bytearray:
        return call.data

    pipe = asyncio.subprocess.PIPE
    async with open_node(PORT, [SERVER], small=True) as node, Server(service, node):
        words = [sys.executable, __file__, str(clients), "clients"]
        side = await asyncio.create_subprocess_exec(*words, stdin=pipe, stdout=pipe)
        assert side.stdin is not None and side.stdout is not None
        seen = []
        for _ in range(3):  # the first ones; all are connected; all have called
            there = json.loads(await side.stdout.readline())
            seen.append((_resident(), there))
            side.stdin.write(b"\n")
        await side.wait()
    (here, _), (connected, node_there), (called, client_there) = seen
    counted = clients - FIRST
    print(
        json.dumps(
            {
                "at the server": (called - here) / counted,
                "at the server, of its peer and connections": (connected - here) / counted,
                "at the client, beside its node": (client_there - node_there) / counted,
            }
        )
    )


async def _clients(count: int) -> None:
    async with AsyncExitStack() as stack:
        await _make(count, stack)


async def _make(count: int, stack: AsyncExitStack) -> None:
    loop = asyncio.get_running_loop()
    nodes: list[Node] = []
    clients: list[Client] = []

    async def tell() -> None:
        print(json.dumps(_resident()), flush=True)
        await loop.run_in_executor(None, sys.stdin.readline)

    for number in range(count):
        address = f"127.0.{2 + number // 250}.{1 + number % 250}"
        node = await stack.enter_async_context(open_node(PORT, [address], small=True))
        nodes.append(node)
        await node.ping(f"{SERVER}@tcp")
        if number == FIRST - 1:
            clients += [await _call(node) for node in nodes]
            await tell()
    await tell()
    clients += [await _call(node) for node in nodes[FIRST:]]
    await tell()
    for client in clients:
        await client.close()


async def _call(node: Node) -> Client:
    client = Client(node, f"{SERVER}@tcp", NAME)
    await client.call("echo", b"64 bytes")
    return client


def _resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main())
