"""Awaited messages between IPv6 addresses over real sockets: headers of 96 bytes (spec wire-lnet §2.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from support.inside import Inside
from support.netns import Cluster
from support.ports import free_port
from ulnet import Node
from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_GET, OP_PUT, TRUNCATE
from ulnet.core.tunables import NetTunables
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import LNET_PID, Nid

PORTAL, BITS, COUNT = 30, 1, 800
A, B = "fd45::1@tcp1", "fd45::2@tcp1"
FIRST_A, FIRST_B = "127.0.46.1@tcp", "127.0.46.2@tcp"


@pytest.fixture
def inside(make_cluster: Callable[..., Cluster]) -> Iterator[Inside]:
    """A host with two IPv6 addresses on its loopback interface."""
    (host,) = make_cluster(hosts=1, rails=1)
    for nid in (A, B):
        host.run("ip", "address", "add", f"{Nid.parse(nid).ip}/128", "dev", "lo", "nodad")
    home = Inside(host)
    try:
        yield home
    finally:
        home.close()


def handles_alone_differ(node: Node) -> bool:
    """Whether messages are taken over IPv6 whose header is the last one's but for the handle."""
    assert node.tcp is not None
    conns = node.tcp._states[Nid.parse(B)].peers[Nid.parse(A), LNET_PID].conns
    return any(conn.inlet is not None and conn.inlet.named for conn in conns)


async def exchange(nids: list[tuple[str, str]], sizes: list[int]) -> bool:
    """Forty tasks of a node send to another, then fetch; what `handles_alone_differ` says between."""
    tcp = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    came: list[int] = []

    def on_put(event: Event) -> None:
        if event.kind is EventKind.PUT:
            came.append(event.mlength)

    async with asyncio.timeout(100), Node(tcp=tcp) as a, Node(tcp=tcp) as b:
        for pair in nids:
            for node, nid in zip((a, b), pair, strict=True):
                node.add_ni(nid, tunables=NetTunables(peer_credits=32))
        inbox = bytearray(range(256)) * 32
        content = bytes(inbox)
        options = OP_PUT | OP_GET | MANAGE_REMOTE | TRUNCATE
        b.attach(PORTAL, BITS, inbox, options=options, handler=on_put)
        await a.put(B, PORTAL, BITS, content[:5])
        await b.discover(A)
        came.clear()
        wanted = [sizes[number % len(sizes)] for number in range(COUNT)]
        left = iter(wanted)
        told: list[int] = []

        async def sender() -> None:
            for size in left:
                told.append(await a.put(B, PORTAL, BITS, memoryview(content)[:size]))

        await asyncio.gather(*(sender() for _ in range(40)))
        differ = handles_alone_differ(b)
        assert sorted(came) == sorted(told) == sorted(wanted)
        fetched = bytearray(len(inbox))
        await asyncio.gather(*(a.get(B, PORTAL, BITS, fetched) for _ in range(50)))
        assert fetched == inbox == content
        assert a.core.nis[Nid.parse(A)].stats.sent[1] > 10, "over IPv6"
    return differ


@pytest.mark.requirement("LND-sock")
@pytest.mark.parametrize("sizes", [[64], [0, 64, 900, 4097]], ids=["64", "mixed"])
def test_awaited_messages_between_large_nids(inside: Inside, sizes: list[int]) -> None:
    assert not inside.run(exchange([(A, B)], sizes)), "whose first NID is large cannot ask for identities"


@pytest.mark.requirement("LND-sock")
@pytest.mark.parametrize("sizes", [[64], [0, 64, 900, 4097]], ids=["64", "mixed"])
def test_handles_stand_elsewhere_in_large_headers(inside: Inside, sizes: list[int]) -> None:
    differ = inside.run(exchange([(FIRST_A, FIRST_B), (A, B)], sizes))
    assert differ or len(sizes) > 1
