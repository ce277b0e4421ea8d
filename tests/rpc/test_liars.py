"""Clients that lend less than they say, and servers that answer what cannot be."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from lnd.kit import until
from rpc.conftest import SERVER, assert_conserved
from rpc.test_hostile import Wired
from ulnet import Node
from ulnet.core.status import LNetError
from ulnet.rpc import Call, Client, RpcError, Server, Service
from ulnet.rpc.service import bits_of
from ulnet.wire.rpc import (
    BODY,
    BULK_PORTAL,
    REPLY_PORTAL,
    REQUEST_PORTAL,
    Bulk,
    CallFrame,
    Chunk,
    Connect,
    Connected,
    Frame,
    Kind,
    Note,
    Refused,
    Reply,
    unpack,
)

pytestmark = pytest.mark.requirement("ULP")

Nodes = tuple[Node, Node]
LENT = 9 << 16


@pytest.fixture
async def wired(nodes: Nodes) -> AsyncIterator[Wired]:
    service = Service("tested")

    @service.method("write")
    async def write(call: Call) -> None:
        await call.pull()

    @service.method("read")
    async def read(call: Call) -> None:
        await call.push(bytes(call.into_size))

    async with Server(service, nodes[1]):
        wired = Wired(nodes[0])
        await wired.connect()
        yield wired
        wired.inbox.close()
    assert_conserved(nodes[1])


@pytest.mark.parametrize("length", [101, 5000, 3 << 20])
@pytest.mark.parametrize("way", ["read", "write", "body"])
async def test_memory_that_is_shorter_than_was_said(
    nodes: Nodes, wired: Wired, way: str, length: int
) -> None:
    memory = bytearray(100)
    nodes[0].attach(BULK_PORTAL, LENT, memory)
    bulk = Bulk(LENT, length)
    if way == "read":
        await wired.say(wired.call("read", sink=bulk))
    else:
        await wired.say(wired.call("write", source=bulk, flags=BODY if way == "body" else 0))
    reply = await wired.hear()
    if way == "body":
        assert isinstance(reply, Refused) and reply.errno
    else:
        assert isinstance(reply, Reply)
        assert reply.status and reply.pushed == 0
    await wired.say(wired.call("read", number=2, sink=Bulk(LENT, 0)))
    again = await wired.hear()
    assert isinstance(again, Reply) and again.status == 0


async def test_thousands_of_names_are_not_kept(nodes: Nodes, wired: Wired) -> None:
    async with Client(nodes[0], SERVER, "tested") as client:

        async def name_one(number: int) -> int:
            with pytest.raises(RpcError, match="no method") as refused:
                await client.call(f"method {number}")
            return refused.value.errno or 0

        assert set(await asyncio.gather(*map(name_one, range(3000)))) == {errno.ENOSYS}
        for number in range(3000):
            client.learn(f"method {number}", 0.1, 0.1)
        assert len(client._services) <= 1024
        methods = (await client.call("ulnet.methods")).as_type(dict)["methods"]
    assert {method["name"] for method in methods} == {"read", "write"}


@pytest.fixture
async def liar(nodes: Nodes) -> AsyncIterator[dict[str, object]]:
    """A server that makes sessions of so many `slots`, and `answers` each request as it is told to."""
    told: dict[str, object] = {"slots": 4, "answers": lambda frame: []}
    inbox = nodes[1].inbox(REQUEST_PORTAL, bits_of("liar"), size=16384)

    async def serve() -> None:
        async for message in inbox:
            frame = unpack(bytes(message.data))
            answers: list[Frame] = []
            if isinstance(frame, Connect):
                slots = told["slots"]
                assert isinstance(slots, int)
                answers = [Connected(5, 0, 0, frame.attempt, 0, slots, 4096, 1, frame.token)]
                if refuses := told.get("refuses"):
                    assert isinstance(refuses, int)
                    answers = [Refused(0, 0, 0, frame.attempt, 0, refuses, "lies")]
            elif isinstance(frame, CallFrame):
                answers = told["answers"](frame)  # type: ignore[operator]
            for answer in answers:
                assert isinstance(answer, Connected | Reply | Chunk | Note | Refused)
                with suppress(LNetError):  # the client may be closed by now
                    await nodes[1].put(message.source, REPLY_PORTAL, frame.answer_to, answer.pack())

    task = asyncio.create_task(serve())
    yield told
    inbox.close()
    await task


async def test_a_session_without_slots_is_no_session(nodes: Nodes, liar: dict[str, object]) -> None:
    liar["slots"] = 0
    async with Client(nodes[0], SERVER, "liar") as client:
        with pytest.raises(RpcError, match="without slots") as refused:
            await client.call("x")
        assert (refused.value.errno, refused.value.executed) == (errno.EPROTO, "no")


@pytest.mark.parametrize("lent", [None, 10])
async def test_more_was_pushed_than_was_lent(nodes: Nodes, liar: dict[str, object], lent: int | None) -> None:
    liar["answers"] = lambda frame: [Reply(5, frame.slot, frame.number, 1, pushed=11)]
    async with Client(nodes[0], SERVER, "liar") as client:
        with pytest.raises(RpcError, match="more than the call lends") as refused:
            await client.call("x", into=None if lent is None else bytearray(lent))
        assert (refused.value.errno, refused.value.executed) == (errno.EPROTO, "yes")


async def test_chunks_that_are_missing_are_no_end(nodes: Nodes, liar: dict[str, object]) -> None:
    def answers(frame: CallFrame) -> list[Frame]:
        head = (5, frame.slot, frame.number, 1, 0)
        return [
            Chunk(*head, 0, b"first"),
            Chunk(*head, 2, b"third"),
            Chunk(*head, 0xFFFFFFFF, b"never"),
            Reply(*head, chunks=3),
        ]

    liar["answers"] = answers
    async with Client(nodes[0], SERVER, "liar") as client:
        stream = client.stream("x")
        assert await anext(stream) == b"first"
        with pytest.raises(RpcError, match="1 of its 3 chunks came in order") as refused:
            await anext(stream)
        assert (refused.value.errno, refused.value.executed) == (errno.EPROTO, "yes")
        assert client.under_way == 0


async def test_a_request_that_its_own_node_refuses_ends(nodes: Nodes, liar: dict[str, object]) -> None:
    """It was sent again until its deadline."""
    async with Client(nodes[0], SERVER, "liar") as client:
        call = asyncio.create_task(client.call("x"))
        await until(lambda: client.under_way)
        assert client._connection is not None
        client._connection.calls[0].left(errno.EINVAL, "timeout 5e9: must be less")
        with pytest.raises(RpcError, match="x: this node refuses the request: timeout 5e9") as refused:
            await call
        assert (refused.value.errno, refused.value.executed) == (errno.EINVAL, "no")
        assert client.under_way == 0


@pytest.mark.parametrize(("answered", "learnt"), [(1, True), (2, False)])
async def test_a_late_reply_to_a_first_attempt_tells_how_slow_the_network_is(
    nodes: Nodes, liar: dict[str, object], answered: int, learnt: bool
) -> None:
    """Requests of 256 KiB over a slow rail were all sent twice, as what came late was not learnt from.

    A reply names the attempt that it answers: that to a second one tells nothing of the first.
    """

    def answers(frame: CallFrame) -> list[Frame]:
        if frame.data == b"quick" or frame.attempt == 2:
            return [Reply(5, frame.slot, frame.number, 1 if frame.data == b"quick" else answered, 0)]
        return []

    liar["answers"] = answers
    async with Client(nodes[0], SERVER, "liar") as client:
        for _ in range(40):
            await client.call("x", b"quick")
        patience, expected = client.patience_of("x"), client.network.expected
        await client.call("x", b"slow")
        assert client.counters.repeated == 1
        if learnt:
            assert client.network.expected > max(expected, patience / 2)
        else:
            assert client.network.expected == expected


async def test_many_bytes_may_take_longer_than_few(nodes: Nodes, liar: dict[str, object]) -> None:
    async with Client(nodes[0], SERVER, "liar", largest=262144) as client:
        liar["answers"] = lambda frame: [Reply(5, frame.slot, frame.number, 1)]
        await client.call("x")
        assert client.unanswered == 0
        liar["answers"] = lambda frame: []
        calls = [asyncio.create_task(client.call("x", bytes(4000))) for _ in range(4)]
        await until(lambda: client.under_way == 4)
        assert client._connection is not None
        waits = [call.due_at - call.sent_at for call in client._connection.calls.values()]
        assert waits == sorted(waits) and waits[-1] > waits[0] + 3 * 4000 * 0.9e-7
        assert client.unanswered > 4 * 4000
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert client.unanswered == 0


async def test_what_a_server_works_on_makes_no_other_call_wait_longer(
    nodes: Nodes, liar: dict[str, object]
) -> None:
    """60 calls of 1 MB that took long kept one that was lost from being sent again for 6 s."""
    async with Client(nodes[0], SERVER, "liar", largest=262144) as client:
        liar["answers"] = lambda frame: [
            Note(5, frame.slot, frame.number, frame.attempt, kind=Kind.WORKING, value=60_000)
        ]
        calls = [asyncio.create_task(client.call("x", bytes(4000))) for _ in range(4)]
        await until(lambda: client.under_way == 4 and client._connection is not None)
        connection = client._connection
        assert connection is not None
        await until(lambda: all(call.taken for call in connection.calls.values()))
        assert client.unanswered == 0
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        assert client.unanswered == 0


@pytest.mark.parametrize("number", [4096, 1 << 31, 0xFFFFFFFF])
@pytest.mark.parametrize("way", ["reply", "refused", "no session"])
async def test_errors_of_numbers_that_none_has(
    nodes: Nodes, liar: dict[str, object], number: int, way: str
) -> None:
    """os.strerror has no text for 4294967295, but an OverflowError."""

    def answers(frame: CallFrame) -> list[Frame]:
        head = (5, frame.slot, frame.number, frame.attempt, 0)
        return [Reply(*head, number, data=b"lies") if way == "reply" else Refused(*head, number, "lies")]

    liar["answers"] = answers
    liar["refuses"] = number if way == "no session" else 0
    async with Client(nodes[0], SERVER, "liar") as client:
        for call in (client.call("x", timeout=10), anext(client.stream("x", timeout=10))):
            with pytest.raises(RpcError, match="lies") as refused:
                await call
            assert refused.value.errno == errno.EPROTO


async def test_a_stream_that_was_ended_may_not_have_begun(nodes: Nodes, liar: dict[str, object]) -> None:
    """It was told to be executed, where a call was not."""
    liar["answers"] = lambda frame: [Reply(5, frame.slot, frame.number, 1, 0, errno.ECANCELED)]
    async with Client(nodes[0], SERVER, "liar") as client:
        for call in (client.call("x"), anext(client.stream("x"))):
            with pytest.raises(RpcError) as ended:
                await call
            assert (ended.value.errno, ended.value.executed) == (errno.ECANCELED, "unknown")


@pytest.mark.parametrize("lie", ["no call", "stale", "an error of number 0"])
async def test_refusals_that_cannot_be(nodes: Nodes, liar: dict[str, object], lie: str) -> None:
    number = {"no call": 99, "stale": errno.ESTALE, "an error of number 0": 0}[lie]
    slot = 9 if lie == "no call" else 0

    def answers(frame: CallFrame) -> list[Frame]:
        return [Refused(5, slot, frame.number, frame.attempt, 0, number, "lies")]

    liar["answers"] = answers
    async with Client(nodes[0], SERVER, "liar") as client:
        with pytest.raises(RpcError) as refused:
            await client.call("x", timeout=1.0)
        wanted = {"no call": errno.ETIMEDOUT, "stale": errno.ETIMEDOUT, "an error of number 0": errno.EPROTO}
        assert refused.value.errno == wanted[lie]
        assert client.under_way == 0
        assert client.counters.sessions < 10
