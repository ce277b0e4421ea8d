"""Routes, and the nets that they lead over, come and go while messages pass two routers: nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.ports import free_port
from ulnet import Node
from ulnet.core.md import MdOption
from ulnet.dlc import model
from ulnet.lnd.tcp import TcpParams
from ulnet.node.admin import Admin

PORTAL, BITS, SIZE = 30, 7, 20_000
CLIENT, SERVER = "127.0.0.1@tcp", "127.0.1.1@tcp1"
ROUTERS = (("127.0.0.8@tcp", "127.0.1.8@tcp1"), ("127.0.0.9@tcp", "127.0.1.9@tcp1"))


def new_node(port: int) -> Node:
    return Node(tcp=TcpParams(accept="all", accept_port=port, reserved_ports=False))


def settled(node: Node, count: int) -> bool:
    """Whether that many gateways of it were found to route."""
    gateways = node.core.gateways
    return sum(route.single_hop and not gateways.why_down(route) for route in gateways.table) == count


async def until_settled(nodes: list[Node], count: int) -> None:
    async with asyncio.timeout(60):
        while not all(settled(node, count) for node in nodes):
            await asyncio.sleep(0.02)


@pytest.fixture
async def ends() -> AsyncIterator[list[Node]]:
    """Client and server, with two routers between them; the routes are up."""
    port = free_port()
    async with (
        new_node(port) as client,
        new_node(port) as server,
        new_node(port) as one,
        new_node(port) as two,
    ):
        client.add_ni(CLIENT)
        server.add_ni(SERVER)
        for router, nids in zip((one, two), ROUTERS, strict=True):
            for nid in nids:
                router.add_ni(nid)
        for node in (client, server, one, two):
            node.core.gateways.set({"alive_router_check_interval": 1, "router_ping_timeout": 0})
        for router in (one, two):
            router.core.router.enable(True)
            router.core.gateways.set({"router_ping_timeout": 3})  # once it starts: checks may be late
        for node, at, net in ((client, 0, "tcp1"), (server, 1, "tcp")):
            for nids in ROUTERS:
                await Admin(node).handle(model.RouteAdd(net, nids[at]))
        async with asyncio.timeout(60):
            while not (one.core.router.announced and two.core.router.announced):
                await asyncio.sleep(0.02)
        await until_settled([client, server], 2)
        yield [client, server]


@pytest.mark.requirement("HLD-dyn", "RTR")
async def test_routes_go_and_come_back(ends: list[Node]) -> None:
    client, server = ends
    options = MdOption.OP_PUT | MdOption.OP_GET | MdOption.MANAGE_REMOTE
    server.attach(PORTAL, BITS, bytearray(SIZE), options=options, handler=lambda event: None)
    admins = [Admin(client), Admin(server)]
    done = 0
    stop = False

    async def exchange() -> None:
        nonlocal done
        memory = bytearray(SIZE)
        while not stop:
            assert await client.put(SERVER, PORTAL, BITS, bytes(SIZE)) == SIZE
            assert await client.get(SERVER, PORTAL, BITS, memory) == SIZE
            done += 2

    async def change() -> None:
        nonlocal stop
        try:
            for router in (0, 1, 0, 1):
                for at, net in ((0, "tcp1"), (1, "tcp")):
                    await admins[at].handle(model.RouteDel(net, ROUTERS[router][at]))
                    seen = done
                    while done < seen + 20:
                        await asyncio.sleep(0.005)
                    await admins[at].handle(model.RouteAdd(net, ROUTERS[router][at]))
                    await until_settled(ends, 2)
        finally:
            stop = True

    async with asyncio.timeout(90), asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(exchange())
        group.create_task(change())
    assert client.core.stats.response_timeout_count == 0
