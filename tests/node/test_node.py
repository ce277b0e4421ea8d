"""Nodes over real sockets on loopback addresses."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Literal

import pytest

from support.ports import free_port
from ulnet import Node
from ulnet.core.event import Event, EventKind
from ulnet.core.md import MdOption
from ulnet.core.status import LNetError
from ulnet.lnd.tcp import TcpLnd, TcpParams
from ulnet.nid import LO_NID, Nid

MakeNode = Callable[..., Awaitable[Node]]


@pytest.fixture
async def make_node() -> AsyncIterator[MakeNode]:
    """Nodes that share a port; when the test ends, credits and references must all be back."""
    port = free_port()
    async with AsyncExitStack() as stack:

        async def make(*nids: str, accept: str = "all", **params: object) -> Node:
            node = Node(tcp=TcpParams(accept=accept, accept_port=port, **params))  # type: ignore[arg-type]
            await stack.enter_async_context(node)
            for nid in nids:
                node.add_ni(nid)
            stack.callback(assert_conserved, node)
            return node

        yield make


def port_of(node: Node) -> int:
    return node.driver(TcpLnd).params.accept_port


def assert_conserved(node: Node) -> None:
    core = node.core
    assert core.stats.msgs_alloc == 0
    assert core.stats.drops["finalized twice"] == 0
    for ni in core.nis.values():
        assert (ni.tx_credits, ni.refs) == (ni.max_tx_credits, 0)
    for peer in core.peers:
        for pni in peer.nis():
            assert (pni.tx_credits, pni.refs, pni.tx_queued_bytes) == (pni.max_tx_credits, 1, 0)
    assert all(md.refs == 0 for md in core.memory.mds.values())


@pytest.mark.requirement("LND-sock", "MD")
async def test_put_get_and_events(make_node: MakeNode) -> None:
    a, b = await make_node("127.0.1.1@tcp"), await make_node("127.0.1.2@tcp")
    memory = bytearray(1 << 20)
    opened = b.attach(20, 0xFEED, memory, options=MdOption.OP_PUT | MdOption.OP_GET | MdOption.MANAGE_REMOTE)
    data = os.urandom(1 << 20)
    assert await a.put("127.0.1.2@tcp", 20, 0xFEED, data, hdr_data=99) == 1 << 20
    assert memory == data
    event = await opened.next_event()
    assert (event.kind, event.mlength, event.hdr_data) == (EventKind.PUT, 1 << 20, 99)
    assert str(event.initiator) == "127.0.1.1@tcp"
    assert event.data == data
    buffer = bytearray(1000)
    assert await a.get("127.0.1.2@tcp", 20, 0xFEED, buffer, offset=500) == 1000
    assert buffer == data[500:1500]
    assert (await opened.next_event()).kind is EventKind.GET
    opened.close()
    assert (await opened.next_event()).kind is EventKind.UNLINK
    with pytest.raises(StopAsyncIteration):
        await opened.next_event()


@pytest.mark.parametrize("size", [0, 1, 71, 1023, 1024, 4095, 4096, 16384, 65535, 65536, 1 << 20])
async def test_every_size_arrives_whole_and_in_order(make_node: MakeNode, size: int) -> None:
    a, b = await make_node("127.0.1.1@tcp"), await make_node("127.0.1.2@tcp")
    count = 12
    memory = bytearray(max(count * size, 1))
    got: list[Event] = []
    b.attach(20, 1, memory, handler=got.append)
    parts = [os.urandom(size) for _ in range(count)]
    sent = await asyncio.gather(*(a.put("127.0.1.2@tcp", 20, 1, part) for part in parts))
    assert sent == [size] * count
    assert sorted(bytes(memory[e.offset : e.offset + size]) for e in got) == sorted(parts)


async def test_two_rails_share_the_work_evenly(make_node: MakeNode) -> None:
    rails = [["127.0.1.1@tcp", "127.0.2.1@tcp"], ["127.0.1.2@tcp", "127.0.2.2@tcp"]]
    a, b = [await make_node(*nids) for nids in rails]
    a.add_peer(rails[1][0], rails[1][1:])
    memory = bytearray(65536)
    targets = []
    b.attach(
        20,
        1,
        memory,
        options=MdOption.OP_PUT | MdOption.MANAGE_REMOTE,
        handler=lambda e: targets.append(e.target),
    )
    await asyncio.gather(*(a.put("127.0.1.2@tcp", 20, 1, bytes(65536)) for _ in range(40)))
    assert sorted(map(str, targets)) == ["127.0.1.2@tcp"] * 20 + ["127.0.2.2@tcp"] * 20


@pytest.mark.requirement("dyn-025", "LND-lo")
async def test_ping_over_tcp_lo_and_oneself(make_node: MakeNode) -> None:
    a = await make_node("127.0.1.1@tcp")
    await make_node("127.0.1.2@tcp", "127.0.2.2@tcp1")
    found = await a.ping("127.0.1.2@tcp")
    assert [str(nid) for nid in found.nids] == ["127.0.1.2@tcp", "127.0.2.2@tcp1"]
    assert (await a.ping(LO_NID)).primary_nid == Nid.parse("127.0.1.1@tcp")
    assert (await a.ping("127.0.1.1@tcp")).primary_nid == Nid.parse("127.0.1.1@tcp")


async def test_ipv6_nodes(make_node: MakeNode) -> None:
    a, b = await make_node("127.0.1.1@tcp", "::1@tcp1"), await make_node("127.0.1.2@tcp")
    assert [str(nid) for nid in (await a.ping("::1@tcp1")).nids] == ["127.0.1.1@tcp", "::1@tcp1"]
    assert len((await b.ping("127.0.1.1@tcp")).nids) == 2


@pytest.mark.parametrize(
    ("target", "code", "words"),
    [
        ("127.0.1.9@tcp", errno.ECONNREFUSED, "127.0.1.9:"),
        ("127.0.1.2@tcp5", errno.EHOSTUNREACH, "no route to 127.0.1.2@tcp5"),
    ],
)
async def test_failures_say_why(make_node: MakeNode, target: str, code: int, words: str) -> None:
    a = await make_node("127.0.1.1@tcp")
    with pytest.raises(LNetError, match=words) as refused:
        await a.put(target, 20, 1, b"x")
    assert refused.value.errno == code
    with pytest.raises(LNetError):
        await a.ping(target)


async def test_a_refused_source_port_and_a_foreign_nid_are_told(make_node: MakeNode) -> None:
    a = await make_node("127.0.1.1@tcp", reserved_ports=False)
    await make_node("127.0.1.2@tcp", accept="secure")
    with pytest.raises(LNetError, match="source port"):
        await a.ping("127.0.1.2@tcp", timeout=5)
    await make_node("127.0.1.3@tcp")
    a.add_ni("127.0.1.1@tcp7")
    with pytest.raises(LNetError, match=r"127\.0\.1\.3@tcp7"):
        await a.ping("127.0.1.3@tcp7", timeout=5)


async def test_a_silent_target_times_out_as_asked(make_node: MakeNode) -> None:
    a = await make_node("127.0.1.1@tcp")
    silent = socket.create_server(("127.0.1.2", port_of(a)))
    with silent, pytest.raises(LNetError, match="the peer is silent") as refused:
        await a.ping("127.0.1.2@tcp", timeout=0.3)
    assert refused.value.errno == errno.ETIMEDOUT


async def test_cancelling_takes_the_memory_back(make_node: MakeNode) -> None:
    a, b = await make_node("127.0.1.1@tcp"), await make_node("127.0.1.2@tcp")
    before = len(a.core.memory.mds)
    b.core.memory.set_lazy(20)
    for _ in range(3):
        task = asyncio.create_task(a.put("127.0.1.2@tcp", 20, 1, bytes(100_000)))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert len(a.core.memory.mds) == before
    b.core.memory.set_lazy(20, False)
    assert (await a.ping("127.0.1.2@tcp")).nids


async def test_an_ni_whose_messages_wait_for_memory_is_busy(make_node: MakeNode) -> None:
    a, b = await make_node("127.0.1.1@tcp"), await make_node("127.0.1.2@tcp")
    nid = "127.0.1.2@tcp"
    b.core.memory.set_lazy(20)
    put = asyncio.create_task(a.put(nid, 20, 1, b"early"))
    while not b.core.leaving.waiting(b.core.nis[Nid.parse(nid)]):
        await asyncio.sleep(0.01)
    with pytest.raises(LNetError, match="is in use: 1 messages that it received wait") as busy:
        b.del_ni(nid)
    assert busy.value.errno == errno.EBUSY
    b.attach(20, 1, bytearray(5))
    assert await put == 5
    b.del_ni(nid)
    assert Nid.parse(nid) not in b.core.nis


async def test_a_lazy_portal_waits_for_memory(make_node: MakeNode) -> None:
    a, b = await make_node("127.0.1.1@tcp"), await make_node("127.0.1.2@tcp")
    b.core.memory.set_lazy(20)
    task = asyncio.create_task(a.put("127.0.1.2@tcp", 20, 1, b"y" * 200_000))
    while not b.core.memory.portal(20).delayed:
        await asyncio.sleep(0.01)
    memory = bytearray(200_000)
    b.attach(20, 1, memory)
    assert await task == 200_000
    assert memory == b"y" * 200_000


async def test_closing_with_traffic_under_way_ends_every_put(make_node: MakeNode) -> None:
    a, b = await make_node("127.0.1.1@tcp"), await make_node("127.0.1.2@tcp")
    memory = bytearray(1 << 20)
    b.attach(20, 1, memory, options=MdOption.OP_PUT | MdOption.MANAGE_REMOTE)
    puts = [asyncio.create_task(a.put("127.0.1.2@tcp", 20, 1, bytes(1 << 20))) for _ in range(30)]
    await asyncio.sleep(0.02)
    await b.close(drain=0)
    await a.close(drain=0)
    results = await asyncio.gather(*puts, return_exceptions=True)
    assert all(isinstance(one, LNetError) or one == 1 << 20 for one in results)
    await a.start()
    await b.start()


async def test_a_closed_node_refuses_work_and_starts_again(make_node: MakeNode) -> None:
    a = await make_node("127.0.1.1@tcp")
    await a.close()
    await a.close()
    with pytest.raises(LNetError) as refused:
        await a.put("127.0.1.2@tcp", 20, 1, b"x")
    assert refused.value.errno == errno.ENETDOWN
    await a.start()
    await a.start()
    assert (await a.ping(LO_NID)).nids == ()


async def test_who_may_do_what_changes_while_a_node_runs_and_holds_beyond_its_end() -> None:
    node = Node(deny=["push=*@tcp"])
    node.set_access(deny=[*node.access.deny, "10.0.0.66@tcp"])
    for bad in (["10.0.0.999@tcp"], ["portal0=eth0"]):
        with pytest.raises(LNetError):
            node.set_access(allow=bad)
    async with node:
        assert node.core.access is node.access
        assert (node.access.allow, node.access.deny) == ((), ("push=*@tcp", "10.0.0.66@tcp"))
        node.set_access(allow=["*@tcp"])
        assert (node.access.allow, node.access.deny) == (("*@tcp",), ())
    async with node:
        assert node.access.allow == ("*@tcp",)
    async with Node() as other:
        assert not other.access


async def test_busy_port_and_foreign_address_change_nothing(make_node: MakeNode) -> None:
    a = await make_node()
    with socket.create_server(("127.0.1.1", port_of(a))):
        with pytest.raises(LNetError, match=r"127\.0\.1\.1") as refused:
            a.add_ni("127.0.1.1@tcp")
        assert refused.value.errno == errno.EADDRINUSE
    with pytest.raises(LNetError, match=r"192\.0\.2\.1"):
        a.add_ni("192.0.2.1@tcp")
    assert len(a.core.nis) == 1
    a.add_ni("127.0.1.1@tcp")
    with pytest.raises(LNetError) as refused:
        a.add_ni("127.0.1.1@tcp")
    assert refused.value.errno == errno.EEXIST


@pytest.mark.requirement("HLD-dyn")
async def test_an_ni_goes_and_comes_back_under_traffic(make_node: MakeNode) -> None:
    a, b = (
        await make_node("127.0.1.1@tcp", "127.0.2.1@tcp"),
        await make_node("127.0.1.2@tcp", "127.0.2.2@tcp"),
    )
    a.add_peer("127.0.1.2@tcp", ["127.0.2.2@tcp"])
    memory = bytearray(1 << 16)
    b.attach(20, 1, memory, options=MdOption.OP_PUT | MdOption.MANAGE_REMOTE)
    for _ in range(3):
        # An ACK that was on its way to the NI that goes is lost: the time-out tells then.
        put = partial(a.put, "127.0.1.2@tcp", 20, 1, bytes(1 << 16), timeout=1.0)
        puts = [asyncio.create_task(put()) for _ in range(40)]
        await asyncio.sleep(0.005)
        a.del_ni("127.0.2.1@tcp")
        results = await asyncio.gather(*puts, return_exceptions=True)
        assert all(isinstance(one, LNetError) or one == 1 << 16 for one in results)
        assert await a.put("127.0.1.2@tcp", 20, 1, bytes(1 << 16)) == 1 << 16
        a.add_ni("127.0.2.1@tcp")
    async with asyncio.timeout(60):
        while not a.core.leaving.announced() or a.core.stats.msgs_alloc or b.core.stats.msgs_alloc:
            await asyncio.sleep(0.01)  # the news of the last one is on its way


@pytest.mark.requirement("HLD-order")
@pytest.mark.parametrize(
    ("balance", "stage"), [("expected", "local NI, by load"), ("documents", "net, by turn")]
)
async def test_how_load_is_weighed_can_be_chosen(
    balance: Literal["expected", "documents"], stage: str
) -> None:
    tcp = TcpParams(accept="all", accept_port=free_port(), reserved_ports=False)
    async with Node(tcp=tcp, balance=balance) as node:
        for nid in ("127.0.0.1@tcp", "127.0.1.1@tcp1"):
            node.add_ni(nid)
        node.add_peer("127.0.0.2@tcp", ["127.0.1.2@tcp1"])
        told = node.explain("127.0.0.2@tcp")
        first = next(one for one in told.stages if one.name.endswith(("load", "turn")))
        assert first.name == stage
