"""Three nodes in one process over real TCP: what goes over a router arrives whole, in every size."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from random import Random

import pytest

from lnd.kit import hello_bytes, lnet_frame, until
from support.ports import free_port
from ulnet import Node
from ulnet.core.md import MANAGE_REMOTE, OP_GET, OP_PUT
from ulnet.core.routing import UNDEFINED_HOPS
from ulnet.core.states import PeerNiState
from ulnet.core.status import LNetError
from ulnet.lnd.tcp import TcpLnd, TcpParams
from ulnet.nid import LNET_PID, Net, Nid
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.lnet import Header, MsgType

PORTAL, BITS = 30, 7
SIZES = (0, 1, 1000, 4096, 4097, 65536, (1 << 20) - 1, 1 << 20)
SERVER, ROUTER = "127.0.1.1@tcp1", ("127.0.0.9@tcp", "127.0.1.9@tcp1")


def new_node(port: int, buffer: int = 0) -> Node:
    return Node(
        tcp=TcpParams(
            accept="all",
            accept_port=port,
            reserved_ports=False,
            tx_buffer_size=buffer,
            rx_buffer_size=buffer,
        )
    )


def pace(node: Node) -> None:
    node.core.gateways.set({"alive_router_check_interval": 1, "router_ping_timeout": 0})


def settled(node: Node) -> bool:
    """Whether its gateways were found to route."""
    gateways = node.core.gateways
    return all(route.single_hop and not gateways.why_down(route) for route in gateways.table)


@pytest.fixture
async def world() -> AsyncIterator[tuple[Node, Node, Node]]:
    """Client, router, server; the routes are up."""
    port = free_port()
    async with new_node(port) as client, new_node(port) as router, new_node(port) as server:
        client.add_ni("127.0.0.1@tcp")
        server.add_ni(SERVER)
        for nid in ROUTER:
            router.add_ni(nid)
        for node in (client, router, server):
            pace(node)
        router.core.router.enable(True)
        router.core.gateways.set({"router_ping_timeout": 3})  # once it starts: checks may be late
        client.core.gateways.add(Net.parse("tcp1"), Nid.parse(ROUTER[0]), UNDEFINED_HOPS, 0)
        server.core.gateways.add(Net.parse("tcp"), Nid.parse(ROUTER[1]), UNDEFINED_HOPS, 0)
        async with asyncio.timeout(60):
            while not router.core.router.announced or not (settled(client) and settled(server)):
                await asyncio.sleep(0.05)
        yield client, router, server


@pytest.mark.requirement("RTR")
async def test_bytes_of_every_size_arrive_whole(world: tuple[Node, Node, Node]) -> None:
    client, router, server = world
    rng = Random(1)
    target = bytearray(1 << 20)
    inbox = server.attach(PORTAL, BITS, target)
    for size in SIZES:
        data = rng.randbytes(size)
        assert await client.put(SERVER, PORTAL, BITS, data, timeout=20) == size
        event = await inbox.next_event()
        assert bytes(event.data) == data
        inbox.close()
        inbox = server.attach(PORTAL, BITS, target)
        back = bytearray(size)
        target[:size] = data
        assert await client.get(SERVER, PORTAL, BITS, back, timeout=20) == size
        assert back == data
        inbox.close()
        inbox = server.attach(PORTAL, BITS, target)
    stats = router.core.stats
    assert stats.route_count >= 4 * len(SIZES)
    assert not stats.drops
    assert router.core.router.gate.pools.in_use == 0


async def test_many_at_once_keep_within_the_buffers(world: tuple[Node, Node, Node]) -> None:
    client, router, server = world
    router.core.router.set_buffers(large=4)
    options = OP_PUT | MANAGE_REMOTE
    server.attach(PORTAL, BITS, bytearray(1 << 20), options=options, handler=lambda event: None)
    data = bytes(1 << 20)
    await asyncio.gather(*(client.put(SERVER, PORTAL, BITS, data, timeout=30) for _ in range(64)))
    pool = router.core.router.gate.pools.by_cpt[0][2]
    assert (pool.in_use, pool.waiting) == (0, 0)
    assert len(pool._free) <= 4
    assert pool.min_credits < 4


async def test_messages_to_pids_of_nobody_leave_the_health_of_their_destination(
    world: tuple[Node, Node, Node],
) -> None:
    client, router, server = world
    server.attach(PORTAL, BITS, bytearray(8), options=OP_PUT | MANAGE_REMOTE, handler=lambda event: None)
    await client.put(SERVER, PORTAL, BITS, b"x", timeout=20)
    drops = router.core.stats.drops
    memory, to = client.core.memory, Nid.parse(SERVER)
    while sum(drops.values()) < 3:
        before = sum(drops.values())
        client.core.put(memory.md_bind(b"x", None, threshold=1), to, PORTAL, 9, ack=False, pid=777)
        async with asyncio.timeout(10):
            while sum(drops.values()) == before:
                await asyncio.sleep(0.01)
    assert dict(drops) == {"the next hop could not be reached": 3}
    pni = router.core.peers.find_ni(Nid.parse(SERVER))
    assert pni is not None
    assert (pni.health, pni.state) == (1000, PeerNiState.CONNECTED)
    await client.put(SERVER, PORTAL, BITS, b"x", timeout=20)


@pytest.mark.parametrize("kind", [MsgType.PUT, MsgType.GET])
async def test_requests_in_anothers_name_from_pids_of_nobody_leave_its_health(
    world: tuple[Node, Node, Node], kind: MsgType
) -> None:
    """The answer goes to that pid: neither the gateway nor, at the router, the one named is charged."""
    client, router, server = world
    server.attach(
        PORTAL, BITS, bytearray(8), options=OP_PUT | OP_GET | MANAGE_REMOTE, handler=lambda event: None
    )
    await client.put(SERVER, PORTAL, BITS, b"x", timeout=20)
    loop = asyncio.get_running_loop()
    foe, named = Nid.parse("127.0.0.66@tcp"), Nid.parse("127.0.0.1@tcp")
    near = Nid.parse(ROUTER[0])
    driver = router.core.nis[near].lnd
    assert isinstance(driver, TcpLnd)
    with socket.socket() as sock:
        sock.setblocking(False)
        sock.bind((foe.ip, 0))
        await loop.sock_connect(sock, (near.ip, driver.params.accept_port))
        await loop.sock_sendall(sock, ConnRequest(1, near).pack() + hello_bytes(foe, near))
        assert await loop.sock_recv(sock, 56)
        hdr = Header(
            int(kind), Nid.parse(SERVER), named, LNET_PID, 777, 0, b"\1" * 16, match_bits=BITS, portal=PORTAL
        )
        await loop.sock_sendall(sock, lnet_frame(hdr))
        drops = router.core.stats.drops
        await until(lambda: bool(drops))
    assert dict(drops) == {"the next hop could not be reached": 1}
    for node, nid in ((router, named), (router, Nid.parse(SERVER)), (server, Nid.parse(ROUTER[1]))):
        pni = node.core.peers.find_ni(nid)
        assert pni is not None
        assert (pni.health, pni.state) == (1000, PeerNiState.CONNECTED)
    await client.put(SERVER, PORTAL, BITS, b"x", timeout=20)


async def test_no_route_is_told_at_once(world: tuple[Node, Node, Node]) -> None:
    client, router, _ = world
    client.core.gateways.clear()
    with pytest.raises(LNetError, match="add a net on tcp1 or a route to it"):
        await client.put(SERVER, PORTAL, BITS, b"x")
    assert router.core.state.forwards


async def answers(node: Node, nid: str) -> bool:
    """Whether a ping comes back."""
    try:
        await node.ping(nid, timeout=5)
    except LNetError:
        return False
    return True


@pytest.mark.requirement("RTR")
async def test_two_routers_in_a_row_take_each_others_messages() -> None:
    """Both ends send more than the routers have buffers for, at the same time."""
    port = free_port()
    nids = [
        ["127.0.0.1@tcp"],
        ["127.0.0.9@tcp", "127.0.1.8@tcp1"],
        ["127.0.1.9@tcp1", "127.0.2.8@tcp2"],
        ["127.0.2.1@tcp2"],
    ]
    ways = {0: [("tcp1", 1), ("tcp2", 1)], 1: [("tcp2", 2)], 2: [("tcp", 1)], 3: [("tcp", 2), ("tcp1", 2)]}
    one, r1, r2, other = nodes = [new_node(port, buffer=65536) for _ in range(4)]
    async with one, r1, r2, other:
        for node, mine in zip(nodes, nids, strict=True):
            for nid in mine:
                node.add_ni(nid)
            pace(node)
        for router in (r1, r2):
            router.core.router.enable(True)
            router.core.gateways.set({"router_ping_timeout": 3})
        for at, routes in ways.items():
            shared = {nid.partition("@")[2] for nid in nids[at]}
            for net, gateway in routes:
                near = next(nid for nid in nids[gateway] if nid.partition("@")[2] in shared)
                nodes[at].core.gateways.add(Net.parse(net), Nid.parse(near), UNDEFINED_HOPS, 0)
        targets = [(one, nids[3][0]), (other, nids[0][0])]
        async with asyncio.timeout(60):
            while not (r1.core.router.announced and r2.core.router.announced):
                await asyncio.sleep(0.05)
            for node, nid in targets:  # on a busy machine they hear later that their gateway may be used
                while not await answers(node, nid):
                    await asyncio.sleep(0.05)
        for router in (r1, r2):
            router.core.router.set_buffers(large=1)
        data = bytes(1 << 20)
        for node, _ in targets:
            node.attach(
                PORTAL, BITS, bytearray(1 << 20), options=OP_PUT | MANAGE_REMOTE, handler=lambda event: None
            )
        puts = [node.put(nid, PORTAL, BITS, data, timeout=60) for node, nid in targets for _ in range(24)]
        await asyncio.gather(*puts)
