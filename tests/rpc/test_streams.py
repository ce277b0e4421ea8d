"""Streams and topics: order, back-pressure, ends."""

from __future__ import annotations

import asyncio
import errno
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import cast

import pytest

from rpc.conftest import SERVER
from ulnet import Node
from ulnet.node import Message
from ulnet.node.turns import Turns
from ulnet.rpc import Call, Client, RpcError, Server, Service
from ulnet.rpc.incoming import Incoming
from ulnet.rpc.topic import Topic
from ulnet.wire.rpc import Kind, kind_of

pytestmark = pytest.mark.requirement("ULP")

Nodes = tuple[Node, Node]


class Source:
    """A service that counts."""

    def __init__(self) -> None:
        self.service = Service("source")
        self.made = 0
        self.ended = asyncio.Event()
        service = self.service

        @service.stream("count")
        async def count(call: Call, text: bytes) -> AsyncIterator[bytes]:
            try:
                for number in range(int(text)):
                    self.made += 1
                    yield str(number).encode()
            finally:
                self.ended.set()

        @service.stream("break")
        async def breaks(call: Call) -> AsyncIterator[bytes]:
            yield b"one"
            raise ValueError("no more")

        @service.stream("too long")
        async def too_long(call: Call) -> AsyncIterator[bytes]:
            yield bytes(100_000)

        @service.method("echo")
        async def echo(call: Call) -> bytes:
            return bytes(call.data)


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
async def server(nodes: Nodes, source: Source) -> AsyncIterator[Server]:
    async with Server(source.service, nodes[1], concurrency=1) as server:
        yield server


@pytest.fixture
async def client(nodes: Nodes, server: Server) -> AsyncIterator[Client]:
    async with Client(nodes[0], SERVER, "source") as client:
        yield client


async def quiet(server: Server) -> None:
    while server.running:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("count", [0, 1, 64, 1000])
async def test_chunks_come_in_order_and_none_is_missing(client: Client, server: Server, count: int) -> None:
    chunks = [chunk async for chunk in client.stream("count", str(count).encode())]
    assert chunks == [str(number).encode() for number in range(count)]
    await quiet(server)
    assert client.under_way == 0


async def test_a_reader_that_stops_stops_the_handler(client: Client, server: Server, source: Source) -> None:
    stream = client.stream("count", b"100000")
    for number in range(10):
        assert await anext(stream) == str(number).encode()
    while source.made < 64:
        await asyncio.sleep(0.01)
    for _ in range(20):  # the client has room for no more
        await client.call("echo", b"in between")
    assert source.made <= 10 + 64 + 1
    async with stream:
        pass
    await source.ended.wait()
    await quiet(server)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


async def test_a_stream_that_nobody_holds_is_ended(client: Client, server: Server, source: Source) -> None:
    async for chunk in client.stream("count", b"100000"):
        assert chunk == b"0"
        break
    await source.ended.wait()
    await quiet(server)
    assert client.under_way == 0


async def test_nothing_of_a_handler_that_was_cancelled_waits_for_the_collector(nodes: Nodes) -> None:
    """Thousands of them would, and the loop would stop for as long as all are looked through."""
    service = Service("held")
    held: weakref.WeakSet[asyncio.Event] = weakref.WeakSet()

    @service.stream("wait")
    async def wait(call: Call) -> AsyncIterator[bytes]:
        yield b"begun"
        never = asyncio.Event()
        held.add(never)
        await never.wait()

    gc.collect()
    gc.disable()
    try:
        async with Server(service, nodes[1]) as server, Client(nodes[0], SERVER, "held") as client:
            stream = client.stream("wait")
            await anext(stream)
            while not held:
                await asyncio.sleep(0.01)
            stream.close()
            await quiet(server)
        assert not held
    finally:
        gc.enable()


@pytest.mark.pure  # it replaces a method
@pytest.mark.parametrize("kind", ["stream", "call"])
async def test_who_is_not_told_that_nobody_waits_is_told_at_its_next_notice(
    nodes: Nodes, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server drops what comes of a client of which much waits; the handler lived as long as the client."""
    arrived = Incoming.arrived
    lost: list[Message] = []
    service, begun, ended = Service("held"), asyncio.Event(), asyncio.Event()

    def lose_one(incoming: Incoming, message: Message) -> None:
        if not lost and kind_of(message.data) is Kind.CANCEL:
            lost.append(message)
        else:
            arrived(incoming, message)

    async def hold() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    @service.stream("stream")
    async def stream(call: Call) -> AsyncIterator[bytes]:
        yield b"begun"
        await hold()

    @service.method("call")
    async def call(call: Call) -> None:
        await hold()

    monkeypatch.setattr(Incoming, "arrived", lose_one)
    async with Server(service, nodes[1]) as server, Client(nodes[0], SERVER, "held") as client:
        if kind == "stream":
            chunks = client.stream("stream")
            await anext(chunks)
            await begun.wait()
            chunks.close()
        else:
            task = asyncio.ensure_future(client.call("call"))
            await begun.wait()
            task.cancel()
        async with asyncio.timeout(60):
            await ended.wait()
        await quiet(server)
        assert lost
        assert client.counters.malformed == 0
        await until_sent(client)


async def until_sent(client: Client) -> None:
    """What a client has told is on its way no more."""
    async with asyncio.timeout(60):
        while client._farewells:
            await asyncio.sleep(0.01)


async def test_what_the_handler_raises_comes_behind_its_chunks(client: Client) -> None:
    stream = client.stream("break")
    assert await anext(stream) == b"one"
    with pytest.raises(RpcError, match="ValueError: no more") as raised:
        await anext(stream)
    assert raised.value.errno == errno.EREMOTEIO
    with pytest.raises(RpcError, match="do not fit") as raised:
        await anext(client.stream("too long"))
    assert raised.value.errno == errno.EMSGSIZE
    with pytest.raises(RpcError, match="no method"):
        await anext(client.stream("banana"))


async def test_streams_have_deadlines(client: Client, source: Source, server: Server) -> None:
    service = source.service
    topic = service.topic("silent")
    with pytest.raises(RpcError, match="no reply in time"):
        await anext(client.stream("silent", timeout=0.3))
    while topic.subscribers:
        await asyncio.sleep(0.01)
    await quiet(server)


@pytest.mark.parametrize("subscribers", [50, pytest.param(1000, marks=pytest.mark.long)])
async def test_notifications_reach_all_who_subscribe(nodes: Nodes, subscribers: int) -> None:
    service = Service("news")
    topic = service.topic("ticks", backlog=1000)

    async def listen(client: Client) -> list[bytes]:
        got = []
        async with client.stream("ticks") as stream:
            async for chunk in stream:
                got.append(chunk)
                if len(got) == 100:
                    break
        return got

    async with AsyncExitStack() as stack:
        await stack.enter_async_context(Server(service, nodes[1]))
        clients = [
            await stack.enter_async_context(Client(nodes[0], SERVER, "news")) for _ in range(subscribers)
        ]
        tasks = [asyncio.create_task(listen(client)) for client in clients]
        while topic.subscribers < subscribers:
            await asyncio.sleep(0.01)
        told = [number.to_bytes(64, "little") for number in range(100)]
        for tick in told:
            topic.publish(tick)
        assert await asyncio.gather(*tasks) == [told] * subscribers
        while topic.subscribers:
            await asyncio.sleep(0.01)


async def test_a_subscriber_that_does_not_read_loses_its_subscription(nodes: Nodes) -> None:
    service = Service("news")
    topic = service.topic("ticks", backlog=8)
    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "news", credit=4) as client:
        stream = client.stream("ticks")
        first = asyncio.create_task(anext(stream))
        while not topic.subscribers:
            await asyncio.sleep(0.01)
        topic.publish(b"0")
        got = [await first]
        for number in range(1, 100):
            topic.publish(b"%d" % number)

        async def read() -> None:
            async for chunk in stream:
                got.append(chunk)

        with pytest.raises(RpcError, match="notifications were lost") as lost:
            await read()
        assert lost.value.errno == errno.ENOBUFS
        assert got == [b"%d" % number for number in range(len(got))] and len(got) <= 4


async def test_what_waits_for_a_subscriber_that_reads_nothing_is_not_kept(nodes: Nodes) -> None:
    """It gives no credit, and its stream ends all the same: it keeps no place, nor what was published."""
    service = Service("news")
    topic = service.topic("ticks", backlog=8)

    class News(bytearray):
        """May be looked for."""

    async with Server(service, nodes[1]) as server, Client(nodes[0], SERVER, "news", credit=1) as client:
        stream = client.stream("ticks", timeout=60)
        first = asyncio.create_task(anext(stream))
        while not topic.subscribers:
            await asyncio.sleep(0.01)
        kept: list[weakref.ref[News]] = []
        for number in range(20):
            news = News(b"%d" % number)
            kept.append(weakref.ref(news))
            topic.publish(news)
            await asyncio.sleep(0.01)
        del news
        await asyncio.wait_for(quiet(server), 5)
        assert topic.subscribers == 0
        while server.kept()["bytes to clients"]:
            await asyncio.sleep(0.01)
        assert [ref for ref in kept if ref() is not None] == []
        got = [await first]

        async def read() -> None:
            async for chunk in stream:
                got.append(chunk)

        with pytest.raises(RpcError, match="notifications were lost"):
            await read()
        assert got == [b"%d" % number for number in range(len(got))] and len(got) <= 3


async def test_a_subscriber_that_lost_some_gets_none_that_came_later() -> None:
    """Chunks have no numbers of their topic: it could not see that some are missing."""
    topic, turns = Topic("ticks", 4), Turns(asyncio.get_running_loop())
    news, session = asyncio.Event(), SimpleNamespace(owner="c")
    feed = topic.feed(cast(Call, SimpleNamespace(turns=turns, session=session, news=news, lost="")))
    first = asyncio.ensure_future(anext(feed))
    await asyncio.sleep(0)
    for number in range(4):
        topic.publish(number)
    got = [await first, await anext(feed)]
    for number in range(4, 11):
        topic.publish(number)
    with pytest.raises(RpcError, match="notifications were lost"):
        await anext(feed)
    assert got == [0, 1] and not topic.subscribers


async def test_data_that_are_too_long_for_a_stream_are_refused(nodes: Nodes, server: Server) -> None:
    async with Client(nodes[0], SERVER, "source") as client:
        with pytest.raises(RpcError, match="100000 bytes do not fit a frame of 16384") as refused:
            await anext(client.stream("count", bytes(100_000)))
        assert (refused.value.errno, refused.value.executed) == (errno.EMSGSIZE, "no")
        assert client.under_way == 0
    portal = nodes[0].core.memory.portals[42]
    assert portal is None or not portal.entries(), "no memory is lent any more"


async def test_a_topic_without_a_backlog_loses_who_waits(nodes: Nodes) -> None:
    service = Service("news")
    topic = service.topic("ticks", backlog=0)
    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "news") as client:
        stream = client.stream("ticks", timeout=60)
        first = asyncio.create_task(anext(stream))
        while not topic.subscribers:
            await asyncio.sleep(0.01)
        topic.publish(b"0")
        with pytest.raises(RpcError, match="notifications were lost"):
            await asyncio.wait_for(first, 5)
        assert topic.subscribers == 0
