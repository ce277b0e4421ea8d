"""What upper layers call, on real sockets: `Node.name_peer`, `Node.primary_nid`, `Node.peer_discovered`."""

from __future__ import annotations

import asyncio
import errno

import pytest

from support.ports import free_port
from ulnet import Node
from ulnet.core.status import LNetError
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import ANY_NID, Nid

A, B, C = (tuple(f"127.0.{rail}.{host}@tcp{rail or ''}" for rail in (0, 1)) for host in (64, 65, 66))
PORTAL = 30


def nodes(count: int) -> list[Node]:
    params = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    return [Node(tcp=params) for _ in range(count)]


def add(node: Node, *nids: str) -> None:
    for nid in nids:
        node.add_ni(nid)


async def test_events_tell_the_name_that_was_given() -> None:
    client, server = nodes(2)
    async with client, server:
        add(client, *A)
        add(server, *B)
        assert str(client.name_peer([B[1], B[0]])) == B[1]
        inbox = client.attach(PORTAL, 1, bytearray(100))
        for source in B:
            await server.put(A[0], PORTAL, 1, b"from either", source=source if source == B[0] else None)
            assert str((await inbox.next_event()).initiator) == B[1]
        assert [str(await client.primary_nid(nid)) for nid in B] == [B[1], B[1]]
        assert str(await server.primary_nid(A[1])) == A[0]
        peer = await client.discover(B[0], timeout=10)
        assert [str(nid) for nid in peer.nids()] == [B[1], B[0]]


async def test_a_primary_nid_that_is_locked_outlives_its_ni() -> None:
    client, server = nodes(2)
    async with client, server:
        add(client, *A)
        add(server, *B)
        assert str(await client.primary_nid(B[1], lock=True)) == B[0]
        server.del_ni(B[0])
        peer = await client.discover(B[1], timeout=10)
        assert str(peer.primary_nid) == B[0]
        inbox = server.attach(PORTAL, 1, bytearray(100))
        assert await client.put(B[0], PORTAL, 1, b"to the name") == 11
        assert str((await inbox.next_event()).target) == B[1]


async def test_who_is_not_there_is_called_as_asked() -> None:
    (client,) = nodes(1)
    async with client:
        add(client, *A)
        assert str(await client.primary_nid(C[1], timeout=10)) == C[1]
        assert str(await client.primary_nid(C[0], lock=True, timeout=0)) == C[0]
        assert client.core.peers.find(Nid.parse(C[0])).flags & 0x100000  # type: ignore[union-attr]
        with pytest.raises(LNetError, match="no NID of the peer is given") as refused:
            client.name_peer([])
        assert refused.value.errno == errno.EINVAL
        with pytest.raises(LNetError, match="give the NID of one interface"):
            await client.primary_nid(ANY_NID)
    with pytest.raises(LNetError) as refused:
        client.name_peer([C[0]])
    assert refused.value.errno == errno.ENETDOWN


@pytest.mark.parametrize("discovery", [0, 1])
async def test_whether_a_node_was_discovered(discovery: int) -> None:
    client, server = nodes(2)
    async with client, server:
        add(client, *A)
        add(server, *B)
        client.set_discovery(discovery)
        assert client.core.peers.find(Nid.parse(B[1])) is None
        assert await client.peer_discovered(B[1], timeout=10)
        peer = client.core.peers.find(Nid.parse(B[1]))
        assert peer is not None and peer.settled
        assert sorted(map(str, peer.nids())) == (sorted(B) if discovery else [B[1]])
        sent = client.core.stats.send_count
        assert await client.peer_discovered(B[1]), "it is known: nobody is asked"
        assert client.core.stats.send_count == sent
        assert not await client.peer_discovered(C[0], timeout=10)
        assert not await client.peer_discovered(C[1], timeout=0)
        with pytest.raises(LNetError, match=r"."):
            await client.peer_discovered(ANY_NID)


async def test_nobody_waits_for_the_discovery_of_a_node_whose_name_is_locked() -> None:
    client, server = nodes(2)
    async with client, server:
        add(client, *A)
        add(server, *B)
        client.name_peer(B[:1])
        assert not await client.peer_discovered(B[0]), "its discovery has begun, no more"
        for _ in range(1000):
            if await client.peer_discovered(B[0]):
                break
            await asyncio.sleep(0.01)
        assert await client.peer_discovered(B[1])
