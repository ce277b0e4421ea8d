"""Frames that leave together: several calls or replies in one message, and what becomes of them."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Generator
from contextvars import ContextVar, copy_context

import pytest

from rpc.conftest import SERVER
from rpc.test_hostile import INBOX, Nodes, Wired
from ulnet import Node
from ulnet.nid import Nid
from ulnet.node.port import Port
from ulnet.rpc import Call, Client, RpcError, Server, Service
from ulnet.rpc.handlers import Outcome, steps_of
from ulnet.rpc.lane import Lane, Lanes
from ulnet.rpc.runner import _Rest
from ulnet.rpc.service import bits_of
from ulnet.sim import Simulation
from ulnet.wire.rpc import (
    KNOWS_BATCH,
    REPLY_PORTAL,
    REQUEST_PORTAL,
    CallFrame,
    Connect,
    Connected,
    Reply,
    batch,
    frames_in,
    is_batch,
    unpack,
)

pytestmark = pytest.mark.requirement("ULP")

MOST = 16
THERE = Nid.parse(SERVER)


class Taker:
    """What comes to a portal, as it comes."""

    def __init__(self, node: Node, portal: int, bits: int) -> None:
        self.came: list[bytes] = []
        self.inbox = node.inbox(
            portal, bits, size=1 << 18, handler=lambda message: self.came.append(bytes(message.data))
        )

    async def until(self, count: int) -> list[bytes]:
        while len(self.came) < count:
            await asyncio.sleep(0.001)
        return self.came


async def test_what_is_sent_in_a_turn_of_the_loop_is_one_message(nodes: Nodes) -> None:
    taker = Taker(nodes[1], REPLY_PORTAL, 5)
    lane = Lane(Lanes(Port(nodes[0].core)), 9, THERE, REPLY_PORTAL, 5, None, 16384, lambda *failed: None)
    frames = [Reply(9, slot, 1, 1, data=b"x" * slot).pack() for slot in range(3 * MOST + 2)]
    for frame in frames:
        lane.add(frame, None, "m")
    came = await taker.until(4)
    assert sorted(len(frames_in(message)) for message in came) == [2, MOST, MOST, MOST]  # over two rails
    assert {bytes(frame) for message in came for frame in frames_in(message)} == set(frames)
    lane.add(frames[0], None, "m")
    assert (await taker.until(5))[4] == frames[0], "one alone is in no batch"
    taker.inbox.close()


async def test_a_batch_is_no_larger_than_there_is_room_and_there_is_none_for_who_knows_no_batches(
    nodes: Nodes,
) -> None:
    taker = Taker(nodes[1], REPLY_PORTAL, 5)
    lanes = Lanes(Port(nodes[0].core))
    small, none = (
        Lane(lanes, 9, THERE, REPLY_PORTAL, 5, None, room, lambda *failed: None) for room in (300, 0)
    )
    frame = Reply(9, 1, 1, 1, data=bytes(40)).pack()
    for _ in range(5):
        small.add(frame, None, "m")
    came = await taker.until(3)
    assert sorted(len(frames_in(message)) for message in came) == [1, 2, 2]
    assert max(map(len, came)) <= 300
    for _ in range(3):
        none.add(frame, None, "m")
    assert (await taker.until(6))[3:] == [frame] * 3
    taker.inbox.close()


async def test_what_is_small_never_travels_with_what_is_large(nodes: Nodes) -> None:
    """A message of much goes over the connection of bulk: what is small would wait there for its turn."""
    taker = Taker(nodes[1], REPLY_PORTAL, 5)
    lane = Lane(Lanes(Port(nodes[0].core)), 9, THERE, REPLY_PORTAL, 5, None, 1 << 18, lambda *failed: None)
    large, small = (Reply(9, 1, 1, 1, data=bytes(size)).pack() for size in (16000, 400))
    for frame in (small, large, small, small):
        lane.add(frame, None, "m")
    came = taker.came
    while sum(len(frames_in(message)) for message in came) < 4:
        await asyncio.sleep(0.001)
    assert max(map(len, came)) == len(large), "it is in no batch"
    assert sorted(len(frames_in(message)) for message in came) == [1, 1, 2]
    taker.inbox.close()


async def test_each_owner_hears_that_a_message_failed(nodes: Nodes) -> None:
    failed: list[tuple[object, int]] = []
    lane = Lane(
        Lanes(Port(nodes[0].core)),
        9,
        Nid.parse("127.4.0.77@tcp7"),
        REPLY_PORTAL,
        5,
        None,
        16384,
        lambda owner, error, text: failed.append((owner, error)),
    )
    lane.add(b"one", "first", "m")
    lane.add(b"two", "second", "m")
    while len(failed) < 2:
        await asyncio.sleep(0.001)
    assert [owner for owner, _ in failed] == ["first", "second"]
    assert all(error for _, error in failed)


class Echoing:
    """Counts what it executes."""

    def __init__(self) -> None:
        self.service = Service("tested")
        self.executed: list[bytes] = []

        @self.service.method("echo")
        async def echo(call: Call) -> bytes:
            self.executed.append(bytes(call.data))
            return bytes(call.data)

        @self.service.method("wait")
        async def wait(call: Call) -> bytes:
            await asyncio.sleep(0)
            return b"waited"


@pytest.fixture
def echoing() -> Echoing:
    return Echoing()


@pytest.fixture
async def server(nodes: Nodes, echoing: Echoing) -> AsyncIterator[Server]:
    async with Server(echoing.service, nodes[1]) as server:
        yield server


async def test_calls_at_once_travel_together_there_and_back(
    nodes: Nodes, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Client(nodes[0], SERVER, "tested") as client:
        await client.call("echo", b"0")
        before = [sum(ni.stats.sent) for node in nodes for ni in node.core.nis.values()]
        asked = [str(number).encode() for number in range(64)]
        answers = await asyncio.gather(*(client.call("echo", data) for data in asked))
        after = [sum(ni.stats.sent) for node in nodes for ni in node.core.nis.values()]
    assert [answer.data for answer in answers] == asked
    assert sum(after) - sum(before) < 64, "fewer messages than calls, of requests and replies together"


async def test_a_batch_from_a_client_that_says_what_it_is_told_to(
    nodes: Nodes, server: Server, echoing: Echoing
) -> None:
    wired = Wired(nodes[0])
    await wired.say(Connect(slots=4, largest=4096, token=9, knows=KNOWS_BATCH))
    answer = await wired.hear()
    assert isinstance(answer, Connected) and answer.knows == KNOWS_BATCH
    wired.session = answer.session
    frames = [wired.call("echo", 1, slot=slot, data=b"%d" % slot) for slot in (0, 1, 2)]
    frames.append(wired.call("echo", 1, slot=1, data=b"1", attempt=2))  # a repetition in the same message
    for frame in frames:
        frame.answer_to = INBOX
    raw = [frame.pack() for frame in frames]
    raw.insert(1, b"no frame")
    await nodes[0].put(SERVER, REQUEST_PORTAL, bits_of("tested"), batch(wired.session, raw))
    told: list[object] = []
    while len(told) < 4:
        told += [unpack(one) for one in frames_in((await wired.inbox.receive()).data)]
    replies = {frame.slot: bytes(frame.data) for frame in told if isinstance(frame, Reply)}
    assert replies == {0: b"0", 1: b"1", 2: b"2"}
    assert sorted(echoing.executed) == [b"0", b"1", b"2"], "each once"
    assert server.counters.malformed == 1, "the others of its message are taken"
    wired.inbox.close()


async def test_who_knows_no_batches_gets_none(nodes: Nodes, server: Server) -> None:
    wired = Wired(nodes[0])
    await wired.connect()
    for slot in range(4):
        await wired.say(wired.call("echo", slot=slot))
    for _ in range(4):
        assert not is_batch(bytes((await wired.inbox.receive()).data))
    wired.inbox.close()


async def test_a_client_sends_no_batch_to_a_server_that_knows_none(nodes: Nodes) -> None:
    taker = nodes[1].inbox(REQUEST_PORTAL, bits_of("old"), size=16384)
    came: list[bytes] = []

    async def answer() -> None:
        async for message in taker:
            came.append(bytes(message.data))
            frame = unpack(message.data)
            if isinstance(frame, Connect):
                told: Connected | Reply = Connected(5, 0, 0, 1, 0, 8, 4096, 1, frame.token)
            elif isinstance(frame, CallFrame):
                told = Reply(5, frame.slot, frame.number, frame.attempt, 0, data=frame.data)
            else:
                continue
            await nodes[1].put(message.source, REPLY_PORTAL, frame.answer_to, told.pack())

    old = asyncio.create_task(answer())
    async with Client(nodes[0], SERVER, "old") as client:
        answers = await asyncio.gather(*(client.call("echo", b"%d" % number) for number in range(8)))
    assert [answer.data for answer in answers] == [b"%d" % number for number in range(8)]
    taker.close()
    await old
    assert len(came) >= 9
    assert not any(map(is_batch, came))


def test_replies_that_cannot_go_back_together_go_each_by_another_path() -> None:
    """The rail by which requests came is cut before their replies leave."""
    sim = Simulation(3)
    home = sim.node("s", "10.0.0.1@tcp", "10.1.0.1@tcp1")
    other = sim.node("c", "10.0.0.2@tcp", "10.1.0.2@tcp1")
    service = Service("tested")
    executed: list[bytes] = []
    gate: list[asyncio.Event] = []

    @service.method("wait")
    async def wait(call: Call) -> bytes:
        executed.append(bytes(call.data))
        await gate[0].wait()
        return bytes(call.data)

    def serve() -> None:
        gate.append(asyncio.Event())
        Server(service, home.node).start()

    home.loop.enter(serve)
    answers: list[bytes] = []

    async def ask() -> None:
        client = Client(other.node, "10.0.0.1@tcp", "tested")
        calls = (client.call("wait", b"%d" % number, timeout=300.0) for number in range(6))
        answers.extend(answer.data for answer in await asyncio.gather(*calls))
        await client.close()

    other.spawn(ask())
    sim.run_until(lambda: len(executed) == 6)
    used = [ni.nid for ni in home.core.nis.values() if sum(ni.stats.received) and not ni.nid.is_lo]
    home.loop.enter(home.node.del_ni, str(used[0]))
    home.loop.enter(gate[0].set)
    sim.run_until(lambda: len(answers) == 6, 400.0)
    assert answers == [b"%d" % number for number in range(6)]
    assert len(executed) == 6


async def test_a_busy_server_is_asked_less_and_less_often(nodes: Nodes) -> None:
    """It expects to have room in a millisecond each time, which is wrong."""
    service = Service("tested")
    gate = asyncio.Event()

    @service.method("wait")
    async def wait(call: Call) -> None:
        await gate.wait()

    async with (
        Server(service, nodes[1], concurrency=1, queue=1) as server,
        Client(nodes[0], SERVER, "tested") as client,
    ):
        server._service_time.observe(1e-6)
        calls = [asyncio.create_task(client.call("wait")) for _ in range(3)]
        while client.counters.busy < 7:
            await asyncio.sleep(0.001)
        assert client._connection is not None
        (sent_away,) = [call for call in client._connection.calls.values() if call._pause > 0.001]
        assert sent_away._pause == pytest.approx(0.128), "doubled each time"
        gate.set()
        await asyncio.gather(*calls)
        assert client.counters.busy < 20


# Handlers that share a task ----------------------------------------------------------------------------


async def test_handlers_have_contexts_of_their_own(nodes: Nodes) -> None:
    who: ContextVar[bytes] = ContextVar("who", default=b"nobody")
    seen: list[bytes] = []
    service = Service("tested")

    @service.method("set")
    async def set_it(call: Call) -> None:
        seen.append(who.get())
        who.set(bytes(call.data))
        if int(call.data) % 2:
            await asyncio.sleep(0)
        seen.append(who.get())

    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "tested") as client:
        await asyncio.gather(*(client.call("set", b"%d" % number) for number in range(10)))
    assert sorted(seen) == [b"%d" % number for number in range(10)] + [b"nobody"] * 10


async def test_a_handler_that_waits_keeps_nobody_from_running(nodes: Nodes) -> None:
    service = Service("tested")
    gate, order = asyncio.Event(), []

    @service.method("wait")
    async def wait(call: Call) -> None:
        await gate.wait()
        order.append("waited")

    @service.method("open")
    async def open_it(call: Call) -> None:
        order.append("opened")
        gate.set()

    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "tested") as client:
        await asyncio.gather(client.call("wait"), client.call("wait"), client.call("open"))
    assert order == ["opened", "waited", "waited"]


async def test_a_handler_that_is_cancelled_ends_no_other_one(nodes: Nodes) -> None:
    """Its task runs handlers of others as well; one cancels itself, and returns as if nothing were."""
    service = Service("tested")

    @service.method("odd")
    async def odd(call: Call) -> bytes:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return b"odd"

    @service.method("timed")
    async def timed(call: Call) -> bytes:
        try:
            async with asyncio.timeout(0.001):
                await asyncio.sleep(60)
        except TimeoutError:
            pass
        return b"timed"

    @service.method("plain")
    async def plain(call: Call) -> bytes:
        await asyncio.sleep(0)
        return b"plain"

    async with Server(service, nodes[1]) as server, Client(nodes[0], SERVER, "tested") as client:
        for _ in range(3):
            names = ["odd", "plain", "timed", "plain", "odd", "plain", "timed"]
            answers = await asyncio.gather(*(client.call(name) for name in names))
            assert [answer.data.decode() for answer in answers] == names
        task = asyncio.create_task(client.call("timed"))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (await client.call("plain")).data == b"plain"
        while server.running:
            await asyncio.sleep(0)
    assert not any(server.kept()[what] for what in ("handlers", "requests", "calls to be looked at"))


class Turns:
    """In which turns of the loop handlers run.

    The first ones wait at the gate, until all places are taken and the others wait for one.
    """

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self._number = 0
        self._seen: list[int] = []

    async def handle(self) -> None:
        if self.gate.is_set():
            self._seen.append(self._number)
        else:
            await self.gate.wait()

    async def count(self) -> None:
        while True:
            self._number += 1
            await asyncio.sleep(0)

    @property
    def most(self) -> int:
        """Handlers that ran in one turn."""
        return max(self._seen.count(turn) for turn in self._seen)


@pytest.mark.parametrize(("concurrency", "together"), [(1000, MOST), (100, 64)])
async def test_very_many_handlers_leave_the_loop_its_turns(
    nodes: Nodes, concurrency: int, together: int
) -> None:
    """16 handlers, one message's replies, run in a turn; more only while requests wait for a place."""
    service = Service("tested")
    turns = Turns()
    if concurrency >= 600:
        turns.gate.set()

    @service.method("look")
    async def look(call: Call) -> None:
        await turns.handle()

    async with (
        Server(service, nodes[1], concurrency=concurrency, slots=600) as server,
        Client(nodes[0], SERVER, "tested", slots=600) as client,
    ):
        counting = asyncio.create_task(turns.count())
        calls = asyncio.gather(*(client.call("look") for _ in range(600)))
        while not turns.gate.is_set() and server.waiting < 600 - concurrency:
            await asyncio.sleep(0)
        turns.gate.set()
        await calls
        counting.cancel()
    most = turns.most
    assert MOST <= most <= together
    assert (most > MOST) == (together > MOST)


async def test_few_data_are_decoded_in_a_turn(nodes: Nodes) -> None:
    """As objects they may be large, and take long to make."""
    service = Service("tested")
    turns = Turns()

    @service.method("look")
    async def look(call: Call, data: list[int]) -> None:
        await turns.handle()

    data = b"\xdd" + (9995).to_bytes(4, "big") + bytes(9995)
    async with (
        Server(service, nodes[1], concurrency=100, slots=300) as server,
        Client(nodes[0], SERVER, "tested", slots=300) as client,
    ):
        counting = asyncio.create_task(turns.count())
        calls = asyncio.gather(*(client.call("look", data) for _ in range(300)))
        while server.waiting < 200:
            await asyncio.sleep(0)
        turns.gate.set()
        await calls
        counting.cancel()
    assert 1 < turns.most <= 7, "some 64 KiB"


@pytest.mark.pure
async def test_an_awaitable_that_is_no_coroutine_serves(nodes: Nodes) -> None:
    service = Service("tested")

    @service.method("later")
    def later(call: Call) -> asyncio.Future[bytes]:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, b"later")
        return future

    @service.method("wrong")
    def wrong(call: Call) -> bytes:
        return b"not awaitable"

    async with Server(service, nodes[1]), Client(nodes[0], SERVER, "tested") as client:
        assert (await client.call("later")).data == b"later"
        with pytest.raises(RpcError, match="TypeError") as failed:
            await client.call("wrong")
        assert failed.value.errno == errno.EREMOTEIO


@pytest.mark.parametrize("raised", [None, ValueError("late")])
def test_a_handler_whose_loop_is_gone_ends_also_by_an_exception_of_its_own(raised: Exception | None) -> None:
    ended = []

    class Never:
        def __await__(self) -> Generator[object, None, None]:
            yield self

    never = Never()

    async def handler() -> None:
        try:
            await never
        finally:
            ended.append(raised)
            if raised is not None:
                raise raised

    outcome = Outcome()
    steps = steps_of(lambda call: handler(), outcome)
    awaited = steps.send("the call")
    assert awaited is never
    rest = _Rest(steps, outcome, copy_context(), awaited).__await__()
    assert next(rest) is never
    rest.close()
    assert ended == [raised] and outcome.failed is None
    steps = steps_of(lambda call: handler(), outcome)
    assert steps.send("another call") is never
    steps.close()  # as the collector of garbage does it
    assert ended == [raised, raised] and outcome.failed is raised
