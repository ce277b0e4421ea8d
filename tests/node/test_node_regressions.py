"""Each of these once went wrong on a Node: closing, cancelling, readers that lag, peers that lie."""

from __future__ import annotations

import asyncio
import errno
import gc
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from support.ports import free_port
from ulnet import Node
from ulnet.core.event import Event, EventKind
from ulnet.core.md import OP_GET, OP_PUT, TRUNCATE
from ulnet.core.status import LNetError
from ulnet.lnd.tcp import TcpLnd, TcpParams
from ulnet.nid import LO_NID
from ulnet.node import attachment as attachment_module
from ulnet.wire.lnet import PING_MATCH_BITS, PING_PORTAL
from ulnet.wire.ping import NiEntry, PingInfo

A, B = "127.0.3.1@tcp", "127.0.3.2@tcp"
MakeNode = Callable[..., "asyncio.Future[Node]"]


@pytest.fixture
async def make_node() -> AsyncIterator[Callable[..., object]]:
    """Nodes that share a port."""
    port = free_port()
    async with AsyncExitStack() as stack:

        async def make(*nids: str) -> Node:
            node = Node(tcp=TcpParams(accept="all", accept_port=port))
            stack.push_async_callback(node.close, 0)
            await node.start()
            for nid in nids:
                node.add_ni(nid)
            return node

        yield make


def port_of(node: Node) -> int:
    return node.driver(TcpLnd).params.accept_port


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


# Closing -----------------------------------------------------------------------------------------


async def test_a_cancelled_close_has_closed_the_node(make_node: MakeNode) -> None:
    a = await make_node(A)
    a.core.memory.set_lazy(20)
    put = asyncio.create_task(a.put(LO_NID, 20, 1, b"waits"))
    await until(lambda: a.core.memory.portal(20).delayed)
    core = a.core
    closing = asyncio.create_task(a.close(drain=60))
    await asyncio.sleep(0.02)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not a.running
    assert not core.nis
    with pytest.raises(LNetError):
        await put


async def test_a_slow_close_leaves_a_node_alone_that_was_started_again(make_node: MakeNode) -> None:
    a = await make_node(A)
    a.core.memory.set_lazy(20)
    put = asyncio.create_task(a.put(LO_NID, 20, 1, b"waits"))
    await until(lambda: a.core.memory.portal(20).delayed)
    slow = asyncio.create_task(a.close(drain=60))
    await asyncio.sleep(0.01)
    await a.close(drain=0)
    await a.start()
    a.add_ni(A)
    await asyncio.wait_for(slow, 60)
    assert a.running
    assert (await a.ping(LO_NID)).primary_nid == a.core.nis[list(a.core.nis)[1]].nid
    with pytest.raises(LNetError):
        await put


async def test_closing_lets_answers_arrive(make_node: MakeNode) -> None:
    a, b = await make_node(A), await make_node(B)
    b.core.memory.set_lazy(20)
    put = asyncio.create_task(a.put(B, 20, 1, b""))
    await until(lambda: b.core.memory.portal(20).delayed)
    await until(lambda: not a.core.stats.msgs_alloc)
    closing = asyncio.create_task(a.close())
    await asyncio.sleep(0.02)
    b.attach(20, 1, bytearray(8))
    assert await put == 0
    await asyncio.wait_for(closing, 60)


async def test_nobody_waits_for_a_closed_node(make_node: MakeNode) -> None:
    a, b = await make_node(A), await make_node(B)
    b.core.memory.set_lazy(20)
    opened = a.attach(21, 1, bytearray(8))
    with socket.create_server(("127.0.3.9", port_of(a))):  # accepts, and says nothing
        silent = "127.0.3.9@tcp"
        waiting = [
            asyncio.create_task(call)
            for call in (
                a.put(B, 20, 1, b""),
                a.put(B, 20, 1, bytes(1 << 20)),
                a.put(silent, 20, 1, b"x"),
                a.put(silent, 20, 1, b"x", ack=False),
                a.get(silent, 20, 1, bytearray(8)),
                a.ping(silent, timeout=60),
                opened.next_event(),
                opened.next_event(),
            )
        ]
        await asyncio.sleep(0.1)
        await a.close(drain=0)
        results = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 60)
    assert all(isinstance(one, LNetError) for one in results[:6])
    last = results[6:]
    assert sum(isinstance(one, Event) and one.kind is EventKind.UNLINK for one in last) == 1
    assert sum(isinstance(one, StopAsyncIteration) for one in last) == 1


# Requests ----------------------------------------------------------------------------------------


async def test_a_refused_request_leaves_nothing_behind(make_node: MakeNode) -> None:
    a = await make_node(A)
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    before = len(a.core.memory.mds)
    for call in (
        a.put(B, 20, 1, b"x", offset=-1),
        a.put(B, 20, 1, b"x", hdr_data=1 << 64),
        a.get(B, 20, 1, bytearray(8), offset=1 << 32),
        a.get(B, 20, 1, memoryview(b"read-only")),
        a.put(B, 20, 1, b"x", timeout=-1),
    ):
        with pytest.raises(LNetError) as refused:
            await call
        assert refused.value.errno == errno.EINVAL
    with pytest.raises(TypeError):
        await a.put(B, 20, 1, b"x", offset="here")  # type: ignore[arg-type]
    assert len(a.core.memory.mds) == before
    gc.collect()
    await asyncio.sleep(0)
    assert not complaints


async def test_a_put_without_ack_times_out_as_asked(make_node: MakeNode) -> None:
    a = await make_node(A)
    with socket.create_server(("127.0.3.9", port_of(a))):
        with pytest.raises(LNetError, match="did not leave in time") as refused:
            await asyncio.wait_for(a.put("127.0.3.9@tcp", 20, 1, b"x", ack=False, timeout=0.2), 60)
        assert refused.value.errno == errno.ETIMEDOUT
        await a.close(drain=0)


# Pings -------------------------------------------------------------------------------------------


class Liar:
    """Answers every ping with info that claims to be one entry longer than what it sends."""

    def __init__(self, node: Node, *, grows: bool) -> None:
        memory = node.core.memory
        memory.me_unlink(memory.portal(PING_PORTAL).entries()[0])
        self.pings = 0
        self._grows = grows
        self._extra = 0
        self._md = memory.md_attach(
            memory.me_attach(PING_PORTAL, match_bits=PING_MATCH_BITS, at_head=True),
            self._info(),
            self._asked,
            options=OP_GET | TRUNCATE | 4,
        )

    def _info(self) -> bytearray:
        nids = [NiEntry(LO_NID.of(LO_NID.net, 1))] * (16 + self._extra)
        info = bytearray(PingInfo(0x1E, 12345, 1, nids).pack())
        if not self._grows:
            info[12:16] = (4096).to_bytes(4, "little")
        return info

    def _asked(self, event: Event) -> None:
        if event.kind is EventKind.GET:
            self.pings += 1
            self._extra += 1
            if self._grows:
                data = memoryview(self._info())
                self._md.fragments, self._md.length = [data], data.nbytes


@pytest.mark.parametrize("grows", [True, False])
async def test_info_that_never_fits_is_given_up(make_node: MakeNode, grows: bool) -> None:
    a, b = await make_node(A), await make_node(B)
    liar = Liar(b, grows=grows)
    with pytest.raises(LNetError, match="ping info") as refused:
        await asyncio.wait_for(a.ping(B, timeout=30), 60)
    assert refused.value.errno == errno.EPROTO
    assert liar.pings <= 3


async def test_a_ping_asks_again_for_info_that_is_longer_than_expected(make_node: MakeNode) -> None:
    a, b = await make_node(A), await make_node(*(f"127.0.3.2@tcp{n}" for n in range(20)))
    assert len((await a.ping("127.0.3.2@tcp")).nids) == 20
    assert b.core.stats.recv_count == 2


# Attachments -------------------------------------------------------------------------------------


async def test_two_readers_of_one_attachment_both_get_on(make_node: MakeNode) -> None:
    a = await make_node(A)
    opened = a.attach(20, 1, bytearray(8), threshold=3)
    readers = [asyncio.create_task(opened.next_event()) for _ in range(4)]
    await asyncio.sleep(0)
    readers.pop().cancel()
    await asyncio.sleep(0)
    for _ in range(3):
        await a.put(LO_NID, 20, 1, b"")
    events = await asyncio.wait_for(asyncio.gather(*readers), 60)
    assert [event.kind for event in events] == [EventKind.PUT] * 3
    assert [event async for event in opened] == []


async def test_events_that_nobody_reads_are_bounded_and_the_loss_is_told(
    make_node: MakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachment_module, "MAX_EVENTS", 5)
    a = await make_node(A)
    opened = a.attach(20, 1, bytearray(8), options=OP_PUT | TRUNCATE)
    for number in range(20):
        await a.put(LO_NID, 20, 1, b"", hdr_data=number)
    assert [(await opened.next_event()).hdr_data for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(LNetError, match="lost") as told:
        await opened.next_event()
    assert told.value.errno == errno.ENOBUFS
    await a.put(LO_NID, 20, 1, b"", hdr_data=99)
    assert (await opened.next_event()).hdr_data == 99
    for _ in range(20):
        await a.put(LO_NID, 20, 1, b"")
    opened.close()
    for _ in range(5):
        await opened.next_event()
    with pytest.raises(LNetError, match="lost"):
        await opened.next_event()
    assert (await opened.next_event()).unlinked
    with pytest.raises(StopAsyncIteration):
        await opened.next_event()
