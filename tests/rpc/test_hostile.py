"""A scripted client and a scripted server: lost replies, repetitions, forged frames, lies."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rpc.conftest import SERVER
from support.examples import examples
from ulnet import Node
from ulnet.rpc import Call, Client, RpcError, Server, Service
from ulnet.rpc.service import bits_of
from ulnet.wire.rpc import (
    BODY,
    CHECK,
    MAX_BULK,
    REPLY_PORTAL,
    REQUEST_PORTAL,
    STREAM,
    XXH3,
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
INBOX = 77
CLIENT = "127.4.0.1@tcp"


class Wired:
    """A client that says what it is told to."""

    def __init__(self, node: Node, bits: int = INBOX) -> None:
        self.node = node
        self.inbox = node.inbox(REPLY_PORTAL, bits, size=16384)
        self.session = 0

    async def say(self, frame: Connect | CallFrame | Note) -> None:
        frame.answer_to = INBOX
        await self.node.put(SERVER, REQUEST_PORTAL, bits_of("tested"), frame.pack())

    async def hear(self) -> Frame:
        return unpack(bytes((await self.inbox.receive()).data))

    async def connect(self) -> Connected:
        await self.say(Connect(slots=4, largest=4096, token=9))
        answer = await self.hear()
        assert isinstance(answer, Connected)
        assert answer.token == 9
        self.session = answer.session
        return answer

    def call(self, method: str = "count", number: int = 1, **more: object) -> CallFrame:
        more = {"slot": 0, "attempt": 1, "patience": 10_000, "data": b"x", **more}
        return CallFrame(session=self.session, number=number, method=method, **more)  # type: ignore[arg-type]


class Counting:
    def __init__(self) -> None:
        self.service = Service("tested")
        self.times = 0
        self.gate = asyncio.Event()
        service = self.service

        @service.method("count")
        async def count(call: Call) -> bytes:
            self.times += 1
            return b"reply %d" % self.times

        @service.method("wait")
        async def wait(call: Call) -> bytes:
            self.times += 1
            await self.gate.wait()
            return b"done"

        @service.stream("news")
        async def news(call: Call) -> AsyncIterator[bytes]:
            self.times += 1
            yield b"new"


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
async def server(nodes: Nodes, counting: Counting) -> AsyncIterator[Server]:
    async with Server(counting.service, nodes[1], concurrency=1, queue=2, slots=8) as server:
        yield server


@pytest.fixture
async def wired(nodes: Nodes, server: Server) -> AsyncIterator[Wired]:
    wired = Wired(nodes[0])
    await wired.connect()
    yield wired
    wired.inbox.close()


async def test_credit_for_a_session_that_the_server_does_not_know_is_refused(wired: Wired) -> None:
    await wired.say(Note(wired.session + 1, 0, 1, kind=Kind.CREDIT, value=9))
    answer = await wired.hear()
    assert isinstance(answer, Refused)
    assert (answer.errno, answer.slot, answer.number) == (errno.ESTALE, 0, 1)
    for kind in (Kind.CANCEL, Kind.CLOSE):  # which need no answer
        await wired.say(Note(wired.session + 1, 0, 1, kind=kind))
    await wired.say(wired.call())
    assert isinstance(await wired.hear(), Reply)


async def test_a_repetition_is_answered_from_memory(wired: Wired, server: Server, counting: Counting) -> None:
    for attempt in (1, 2, 3):
        await wired.say(wired.call(attempt=attempt))
        reply = await wired.hear()
        assert isinstance(reply, Reply)
        assert (bytes(reply.data), reply.attempt) == (b"reply 1", attempt)
    assert counting.times == 1
    assert server.method_counters["count"].repeated == 2
    await wired.say(wired.call(number=2))
    assert bytes((await wired.hear()).data) == b"reply 2"  # type: ignore[attr-defined]
    await wired.say(wired.call(number=1, attempt=4))
    while not server.counters.old:
        await asyncio.sleep(0.01)
    assert counting.times == 2, "what is too old is not executed, and not answered"


async def test_a_repetition_of_what_runs_is_told_so(wired: Wired, server: Server, counting: Counting) -> None:
    await wired.say(wired.call("wait"))
    await wired.say(wired.call("wait", attempt=2))
    note = await wired.hear()
    assert isinstance(note, Note)
    assert (note.kind, note.attempt) == (Kind.WORKING, 2)
    assert note.value > 0
    counting.gate.set()
    reply = await wired.hear()
    assert isinstance(reply, Reply)
    assert (bytes(reply.data), counting.times) == (b"done", 1)
    counters = server.method_counters["wait"]
    assert (counters.calls, counters.resent, counters.repeated) == (1, 1, 0)


async def test_an_impatient_client_is_told_before_it_asks(wired: Wired, counting: Counting) -> None:
    await wired.say(wired.call("wait", patience=100))
    for _ in range(3):
        note = await wired.hear()
        assert isinstance(note, Note)
        assert note.kind is Kind.WORKING
    counting.gate.set()


async def test_who_is_gone_is_not_worked_for(nodes: Nodes, wired: Wired, server: Server) -> None:
    await wired.say(wired.call("wait", patience=100))
    while not server.running:
        await asyncio.sleep(0.01)
    wired.inbox.close()
    while server.running:
        await asyncio.sleep(0.01)
    assert server.method_counters["wait"].given_up == 1


async def test_another_life_executes_nothing_of_a_former_one(nodes: Nodes, counting: Counting) -> None:
    wired = Wired(nodes[0])
    async with Server(counting.service, nodes[1]) as server:
        first = await wired.connect()
        assert first.incarnation == server.incarnation
    async with Server(counting.service, nodes[1]):
        await wired.say(wired.call())
        refused = await wired.hear()
        assert isinstance(refused, Refused)
        assert (refused.errno, counting.times) == (errno.ESTALE, 0)
        second = await wired.connect()
        assert second.incarnation != first.incarnation
        assert second.session != first.session
    wired.inbox.close()


async def test_who_has_seen_a_frame_gets_nothing_of_its_session(
    nodes: Nodes, wired: Wired, server: Server, counting: Counting
) -> None:
    await wired.say(wired.call("wait"))
    seen = wired.call("wait", attempt=2, answer_to=INBOX).pack()
    thief = Wired(nodes[1])
    await nodes[1].put(SERVER, REQUEST_PORTAL, bits_of("tested"), seen)
    await nodes[1].put(SERVER, REQUEST_PORTAL, bits_of("tested"), Note(wired.session, 0, 1).pack())
    refused = await thief.hear()
    assert isinstance(refused, Refused)
    assert refused.errno == errno.ESTALE
    counting.gate.set()
    reply = await wired.hear()
    assert isinstance(reply, Reply)
    assert bytes(reply.data) == b"done", "it was not cancelled"
    thief.inbox.close()


async def test_a_notice_that_overtakes_its_request(wired: Wired, server: Server, counting: Counting) -> None:
    await wired.say(Note(wired.session, 0, 1, kind=Kind.CANCEL))
    await wired.say(wired.call())
    while not server.counters.old:
        await asyncio.sleep(0.01)
    assert counting.times == 0


async def test_a_busy_server_says_when(wired: Wired, server: Server, counting: Counting) -> None:
    for slot in range(3):
        await wired.say(wired.call("wait", slot=slot))
    await wired.say(wired.call("wait", slot=3))
    note = await wired.hear()
    assert isinstance(note, Note)
    assert (note.kind, note.slot) == (Kind.BUSY, 3)
    assert (server.running, server.waiting, server.counters.busy) == (1, 2, 1)
    counting.gate.set()
    for _ in range(3):
        assert isinstance(await wired.hear(), Reply)
    await wired.say(wired.call("wait", slot=3, attempt=2))
    assert isinstance(await wired.hear(), Reply), "under the same number it is new"
    assert counting.times == 4


async def test_a_busy_server_takes_turns(nodes: Nodes, wired: Wired, server: Server) -> None:
    """Clients have turns, however many sessions each has."""
    first = wired.session
    await wired.say(wired.call("wait", slot=0))
    await wired.say(wired.call("wait", slot=1))
    await wired.connect()
    await wired.say(wired.call("wait", slot=2))
    second = wired.session
    await wired.connect()
    await wired.say(wired.call("wait", slot=3))  # its third session changes nothing: it has had its turn
    note = await wired.hear()
    assert isinstance(note, Note)
    assert (note.kind, note.session, note.slot) == (Kind.BUSY, wired.session, 3)
    other = Wired(nodes[1])
    await other.connect()
    await other.say(other.call("wait"))
    note = await wired.hear()
    assert isinstance(note, Note)
    assert (note.kind, note.session, note.slot) == (Kind.BUSY, second, 2)
    assert len({first, second, wired.session, other.session}) == 4
    other.inbox.close()


async def test_what_is_overdue_is_not_begun(wired: Wired, server: Server, counting: Counting) -> None:
    await wired.say(wired.call("wait", slot=0))
    await wired.say(wired.call("count", slot=1, left=1))
    while not server.method_counters.get("count") or not server.method_counters["count"].overdue:
        await asyncio.sleep(0.01)
    counting.gate.set()
    assert (await wired.hear()).slot == 0
    assert counting.times == 1


async def test_lies_are_refused(wired: Wired, server: Server, counting: Counting) -> None:
    async def refusal(frame: CallFrame) -> int:
        await wired.say(frame)
        refused = await wired.hear()
        assert isinstance(refused, Refused)
        return refused.errno

    assert await refusal(wired.call(slot=4)) == errno.EPROTO
    assert await refusal(wired.call(number=0)) == errno.EPROTO
    for number in range(100):
        assert await refusal(wired.call(f"method {number}")) == errno.ENOSYS
    assert len(server.method_counters) == 0, "names that a client makes up are not kept"
    assert await refusal(wired.call(flags=BODY, source=Bulk(1 << 16, MAX_BULK))) == errno.EMSGSIZE
    assert (
        await refusal(wired.call("news", number=2, flags=BODY | STREAM, source=Bulk(1 << 16, 9)))
        == errno.EMSGSIZE
    )
    wired.session ^= 1
    assert await refusal(wired.call()) == errno.ESTALE
    assert counting.times == 0


async def test_bulk_that_is_not_there_is_an_error(wired: Wired, counting: Counting) -> None:
    await wired.say(wired.call(flags=BODY, source=Bulk(5 << 16, 5000)))
    refused = await wired.hear()
    assert isinstance(refused, Refused), "its handler was not called"
    assert (refused.errno, counting.times) == (errno.ENOENT, 0)


@pytest.mark.parametrize(("here", "there", "both"), [(0, True, 0), (0xFFFF, True, 3), (1, False, 0)])
async def test_checksums_are_those_that_both_know(
    wired: Wired, here: int, there: bool, both: int, counting: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ulnet.rpc.checksum._has_xxh3", there)
    await wired.say(Connect(slots=4, largest=4096, token=9, knows=here))
    answer = await wired.hear()
    assert isinstance(answer, Connected)
    assert answer.knows == both
    await wired.say(wired.call(flags=CHECK | XXH3))
    answer = await wired.hear()
    if there:
        assert isinstance(answer, Reply)
    else:
        assert isinstance(answer, Refused)
        assert (answer.errno, counting.times) == (errno.EPROTO, 0)


async def test_another_version_is_refused(nodes: Nodes, wired: Wired) -> None:
    raw = bytearray(wired.call().pack())
    raw[2] = 200
    raw[24:32] = INBOX.to_bytes(8, "little")
    await nodes[0].put(SERVER, REQUEST_PORTAL, bits_of("tested"), raw)
    refused = await wired.hear()
    assert isinstance(refused, Refused)
    assert refused.errno == errno.EPROTONOSUPPORT


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frames=st.lists(st.binary(min_size=1, max_size=120), max_size=10), prefix=st.booleans())
async def test_a_server_bears_any_bytes(nodes: Nodes, frames: list[bytes], prefix: bool) -> None:
    client = nodes[0]
    service = Service("tested")
    async with Server(service, nodes[1]) as server:
        for frame in frames:
            raw = (b"Ur\x01" + frame) if prefix else frame
            await client.put(SERVER, REQUEST_PORTAL, bits_of("tested"), raw)
        assert (server.running, server.waiting) == (0, 0)
        assert server.sessions <= len(frames)


async def test_forged_answers_change_nothing(nodes: Nodes, server: Server, counting: Counting) -> None:
    counters = 0
    async with Client(nodes[0], SERVER, "tested", random=lambda bits: 12345) as client:
        task = asyncio.create_task(client.call("wait"))
        while not server.running:
            await asyncio.sleep(0.01)
        session = next(iter(client._connections))
        for guess in (session + 1, session):
            for forged in (
                Reply(guess, 0, 2, 1, data=b"forged"),
                Reply(guess, 1, 1, 1, data=b"forged"),
                Chunk(guess, 0, 1, 1, 0, 0, b"forged"),
                Connected(guess, 0, 0, 1, 0, 9, 9, 9, 9),
                CallFrame(guess, 0, 1, 1, method="x"),
            ):
                await nodes[1].put(CLIENT, REPLY_PORTAL, 12345, forged.pack())
            if guess != session:
                await nodes[1].put(CLIENT, REPLY_PORTAL, 12345, Reply(guess, 0, 1, 1).pack())
        await nodes[1].put(CLIENT, REPLY_PORTAL, 12345, b"no frame")
        counters = client.counters.malformed
        assert not task.done()
        counting.gate.set()
        assert (await task).data == b"done"
    assert counters >= 6


async def test_a_client_without_a_server_that_answers(nodes: Nodes) -> None:
    """Somebody takes the frames, and says nothing."""
    mute = nodes[1].inbox(REQUEST_PORTAL, bits_of("mute"), size=16384)
    async with Client(nodes[0], SERVER, "mute", silence=0.5) as client:
        with pytest.raises(RpcError, match="no session") as late:
            await client.call("x", timeout=0.2)
        assert (late.value.errno, late.value.executed) == (errno.ETIMEDOUT, "no")
        with pytest.raises(RpcError, match="no session with 'mute'") as late:
            await client.call("x")
        assert late.value.errno == errno.ETIMEDOUT
    mute.close()


async def test_a_call_to_where_nobody_listens_says_so(nodes: Nodes) -> None:
    async with Client(nodes[0], "127.4.0.3@tcp", "mute") as client:
        with pytest.raises(RpcError, match=r"in time: .*connection refused: nothing listens") as late:
            await client.call("x", timeout=3)
        assert (late.value.errno, late.value.executed) == (errno.ETIMEDOUT, "no")


async def test_a_client_hears_nothing_after_it_was_connected(nodes: Nodes) -> None:
    inbox = nodes[1].inbox(REQUEST_PORTAL, bits_of("mute"), size=16384)

    async def connect_only() -> list[int]:
        attempts = []
        async for message in inbox:
            frame = unpack(bytes(message.data))
            if isinstance(frame, Connect):
                answer = Connected(5, 0, 0, frame.attempt, 0, 4, 4096, 1, frame.token)
                await nodes[1].put(message.source, REPLY_PORTAL, frame.answer_to, answer.pack())
            elif isinstance(frame, CallFrame):
                attempts.append(frame.attempt)
        return attempts

    mute = asyncio.create_task(connect_only())
    async with Client(nodes[0], SERVER, "mute", silence=1.0) as client:
        client.network.observe(0.1)
        with pytest.raises(RpcError, match="nothing was heard of the server for 1 s") as late:
            await client.call("x")
        assert (late.value.errno, late.value.executed) == (errno.ETIMEDOUT, "unknown")
    inbox.close()
    assert await mute == [1, 2]


@pytest.mark.parametrize("kind", [Kind.WORKING, Kind.BUSY])
async def test_who_promises_much_and_is_gone_is_not_waited_for(nodes: Nodes, kind: Kind) -> None:
    inbox = nodes[1].inbox(REQUEST_PORTAL, bits_of("mute"), size=16384)

    async def say_it_once() -> int:
        attempts = 0
        async for message in inbox:
            frame = unpack(bytes(message.data))
            answer: Connected | Note
            if isinstance(frame, Connect):
                answer = Connected(5, 0, 0, frame.attempt, 0, 4, 4096, 1, frame.token)
            else:
                attempts += 1
                answer = Note(5, frame.slot, frame.number, 1, 0, kind, 0xFFFFFFFF)
            if attempts < 2:
                await nodes[1].put(message.source, REPLY_PORTAL, frame.answer_to, answer.pack())
        return attempts

    mute = asyncio.create_task(say_it_once())
    async with Client(nodes[0], SERVER, "mute", silence=1.0) as client, asyncio.timeout(10):
        with pytest.raises(RpcError, match="nothing was heard of the server for 1 s") as late:
            await client.call("x")
        assert (late.value.errno, late.value.executed) == (errno.ETIMEDOUT, "unknown")
    inbox.close()
    assert await mute > 1, "it was asked once more"


async def test_what_may_have_been_executed_in_a_former_session_is_not_denied(nodes: Nodes) -> None:
    """An idempotent call is made again in another session, for which the time does not suffice."""
    inbox = nodes[1].inbox(REQUEST_PORTAL, bits_of("mute"), size=16384)

    async def one_session_only() -> None:
        sessions = 0
        async for message in inbox:
            frame = unpack(bytes(message.data))
            answer: Connected | Refused | None = None
            if isinstance(frame, Connect) and not sessions:
                sessions += 1
                answer = Connected(5, 0, 0, frame.attempt, 0, 4, 4096, 1, frame.token)
            elif isinstance(frame, CallFrame) and frame.attempt == 2:
                answer = Refused(5, frame.slot, frame.number, 2, 0, errno.ESTALE)
            if answer is not None:
                await nodes[1].put(message.source, REPLY_PORTAL, frame.answer_to, answer.pack())

    mute = asyncio.create_task(one_session_only())
    async with Client(nodes[0], SERVER, "mute") as client:
        client.network.observe(0.01)
        with pytest.raises(RpcError, match="no slot in it, in time") as late:
            await client.call("x", timeout=2, idempotent=True)
        assert (late.value.errno, late.value.executed) == (errno.ETIMEDOUT, "unknown")
    inbox.close()
    await mute


@pytest.mark.pure  # a method that the compiled build calls without looking it up
async def test_a_stream_goes_on_after_a_notice_of_credit_was_lost(nodes: Nodes) -> None:
    service = Service("tested")

    @service.stream("count")
    async def count(call: Call) -> AsyncIterator[bytes]:
        for number in range(20):
            yield bytes([number])

    lost = 0
    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "tested", credit=4) as client:
        send = client.send

        def loses(frame: bytes, *rest: object, **more: object) -> None:
            nonlocal lost
            if isinstance(read := unpack(frame), Note) and read.kind is Kind.CREDIT and lost < 3:
                lost += 1
            else:
                send(frame, *rest, **more)  # type: ignore[arg-type]

        client.send = loses  # type: ignore[method-assign]
        assert [chunk[0] async for chunk in client.stream("count")] == list(range(20))
    assert lost == 3
