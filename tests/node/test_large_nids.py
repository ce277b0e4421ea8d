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
from ulnet.core.guard.identity import MARKS
from ulnet.core.md import MANAGE_REMOTE, OP_GET, OP_PUT, TRUNCATE
from ulnet.core.tunables import NetTunables
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Nid

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


def taken_together(events: list[Event]) -> bool:
    """Whether most are of messages whose header was the last one's but for the handle: one event for all."""
    return len({id(event) for event in events}) < len(events) // 2


def identified(events: list[Event]) -> bool:
    """Whether the handles of messages are like no others of their sender's life."""
    return any(event.hdr is not None and event.hdr.wmd[15] in MARKS for event in events)


async def exchange(nids: list[tuple[str, str]], sizes: list[int]) -> list[Event]:
    """Forty tasks of a node send to another, then fetch; the events of what was sent."""
    tcp = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    came: list[Event] = []

    def on_put(event: Event) -> None:
        if event.kind is EventKind.PUT:
            came.append(event)

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
        assert sorted(event.mlength for event in came) == sorted(told) == sorted(wanted)
        fetched = bytearray(len(inbox))
        await asyncio.gather(*(a.get(B, PORTAL, BITS, fetched) for _ in range(50)))
        assert fetched == inbox == content
        assert a.core.nis[Nid.parse(A)].stats.sent[1] > 10, "over IPv6"
    return came


@pytest.mark.requirement("LND-sock")
@pytest.mark.parametrize("sizes", [[64], [0, 64, 900, 4097]], ids=["64", "mixed"])
def test_awaited_messages_between_large_nids(inside: Inside, sizes: list[int]) -> None:
    came = inside.run(exchange([(A, B)], sizes))
    assert not identified(came), "whose first NID is large cannot ask for identities"


@pytest.mark.requirement("LND-sock")
@pytest.mark.parametrize("sizes", [[64], [0, 64, 900, 4097]], ids=["64", "mixed"])
def test_handles_stand_elsewhere_in_large_headers(inside: Inside, sizes: list[int]) -> None:
    came = inside.run(exchange([(FIRST_A, FIRST_B), (A, B)], sizes))
    assert identified(came)
    assert taken_together(came) or len(sizes) > 1
