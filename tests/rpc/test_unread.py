"""Clients that read less than they ask for: a server does not keep it for them. Virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ulnet.nid import Nid
from ulnet.node import Message
from ulnet.node.port import Port, nobody_asks
from ulnet.rpc import Call, Client, Server, Service
from ulnet.rpc.service import bits_of
from ulnet.sim import Simulation
from ulnet.sim.cables import LinkParams
from ulnet.wire.rpc import (
    HEAD_SIZE,
    MAX_BATCH,
    NO_DEADLINE,
    REPLY_PORTAL,
    REQUEST_PORTAL,
    STREAM,
    CallFrame,
    Connect,
    Connected,
    Kind,
    Note,
    batch,
    frames_in,
    unpack,
)

pytestmark = pytest.mark.requirement("ULP")

HOME = "10.0.0.1@tcp"
INBOX = 77
BITS = bits_of("shop")
LARGE = 1 << 20
SLOW = LinkParams(rate=100_000)  # ten seconds for a reply, and none for a request
MIB = 1 << 20
KEPT = 32 * MIB  # of replies: one client has half as much under way, and what ends meanwhile


class Shop:
    """A service, a client that says what it is told to, and an honest one."""

    def __init__(self, **options: Any) -> None:
        self.sim = Simulation(1)
        self.home = self.sim.node("s", HOME)
        self.greedy = self.sim.node("g", "10.0.0.2@tcp", link=SLOW)
        self.honest = self.sim.node("c", "10.0.0.3@tcp")
        self.service = Service("shop")
        self.options = options
        self.begun = 0
        self.chunks = 0
        self.heard: list[Any] = []
        self.next_number = 0

        @self.service.method("read")
        async def read(call: Call) -> bytes:
            self.begun += 1
            return bytes(LARGE - 200)

        @self.service.method("wait")
        async def wait(call: Call) -> bytes:
            self.begun += 1
            await asyncio.sleep(0.01)
            return bytes(LARGE - 200)

        @self.service.method("sleep")
        async def sleep(call: Call) -> None:
            await asyncio.sleep(1000)

        @self.service.method("nap")
        async def nap(call: Call) -> bytes:
            await asyncio.sleep(80)
            return b"done"

        @self.service.stream("cat")
        async def cat(call: Call) -> AsyncIterator[bytes]:
            while True:
                self.chunks += 1
                yield bytes(LARGE - 200)

        self.home.loop.enter(self.serve)
        self.greedy.loop.enter(self.listen)

    def serve(self) -> None:
        self.server = Server(self.service, self.home.node, **self.options)
        self.server.start()

    def listen(self) -> None:
        self.port = Port(self.greedy.core)

        def came(message: Message) -> None:
            self.heard.extend(unpack(frame) for frame in frames_in(message.data))

        self.inbox = self.greedy.node.inbox(REPLY_PORTAL, INBOX, slots=64, size=LARGE, handler=came)

    def say(self, data: bytes) -> None:
        """A message of the greedy one."""

        def send() -> None:
            self.port.send(Nid.parse(HOME), REQUEST_PORTAL, BITS, data, ended=nobody_asks)

        self.greedy.loop.enter(send)

    def sessions(self, count: int) -> list[int]:
        """Sessions of the greedy one, which reads so far."""
        for number in range(count):
            self.say(Connect(slots=64, largest=LARGE, token=number + 1, answer_to=INBOX).pack())
        self.sim.run(1.0)
        return [frame.session for frame in self.heard if isinstance(frame, Connected)]

    def calls(self, sessions: list[int], method: str, flags: int = 0) -> None:
        self.next_number += 1
        for session in sessions:
            for slot in range(64):
                frame = CallFrame(session, slot, self.next_number, 1, INBOX, method, b"", NO_DEADLINE, 10_000)
                frame.credit, frame.flags = 1 << 20, flags
                self.say(frame.pack())

    @property
    def kept(self) -> int:
        """The bytes of messages that the server's node has under way."""
        mds = self.home.core.memory.mds.values()
        return sum(md.length for md in mds if md.me is None)

    @property
    def messages(self) -> int:
        """How many these are."""
        return sum(md.me is None for md in self.home.core.memory.mds.values())

    def most_kept(self, seconds: float, step: float = 0.1) -> int:
        most = 0
        for _ in range(int(seconds / step)):
            self.sim.run(step)
            most = max(most, self.kept)
        return most

    def assert_that_others_are_served(self) -> None:
        client: Client = self.honest.loop.enter(lambda: Client(self.honest.node, HOME, "shop", largest=LARGE))
        task = self.honest.spawn(client.call("read", timeout=5.0))
        self.sim.run_until(task.done, 6.0)
        assert len(task.result().data) == LARGE - 200
        self.honest.call(client.close())

    def assert_that_all_came_back(self) -> None:
        """Once all that was under way has ended."""
        self.sim.run_until(lambda: not self.server.kept()["bytes to clients"], 400.0)


@pytest.mark.parametrize("method", ["read", "wait"])
def test_replies_that_are_not_read_are_bounded(method: str) -> None:
    shop = Shop(reply_bytes=KEPT)
    sessions = shop.sessions(2)
    most = 0
    for _ in range(20):
        shop.calls(sessions, method)
        most = max(most, shop.most_kept(0.2))
    assert most < KEPT + 64 * MIB, "beside the handlers that run"
    assert shop.begun < 200
    shop.assert_that_others_are_served()
    shop.assert_that_all_came_back()


def test_requests_that_wait_do_not_begin_for_who_does_not_read() -> None:
    shop = Shop(reply_bytes=KEPT, concurrency=4)
    sessions = shop.sessions(4)
    shop.calls(sessions, "wait")
    assert shop.most_kept(3.0) < KEPT
    assert shop.server.waiting == 0, "they were sent away"
    shop.assert_that_others_are_served()
    shop.assert_that_all_came_back()


def test_chunks_that_are_not_read_are_bounded() -> None:
    shop = Shop(reply_bytes=KEPT)
    sessions = shop.sessions(3)
    shop.calls(sessions, "cat", STREAM)
    assert shop.most_kept(5.0) < KEPT
    shop.assert_that_others_are_served()
    assert shop.most_kept(100.0, 1.0) < KEPT, "also when some were sent again"
    for session in sessions:
        shop.say(Note(session, 0, 0, 0, INBOX, Kind.CLOSE).pack())
    shop.sim.run_until(lambda: not shop.server.running, 100.0)
    shop.assert_that_all_came_back()


def test_chunks_of_streams_that_were_given_up_are_bounded() -> None:
    shop = Shop(reply_bytes=KEPT)
    sessions = shop.sessions(3)
    for _ in range(10):
        shop.calls(sessions, "cat", STREAM)
        shop.sim.run(0.2)
        for session in sessions:
            for slot in range(64):
                note = Note(session, slot, shop.next_number, 1, INBOX, Kind.CANCEL)
                shop.say(note.pack())
        shop.sim.run(0.2)
        assert shop.server.running == 0
        assert shop.kept < KEPT
    shop.assert_that_all_came_back()


@pytest.mark.parametrize("what", ["refused", "repeated", "answered", "connect"])
def test_answers_that_are_not_read_are_bounded(what: str) -> None:
    shop = Shop(concurrency=128)
    sessions = shop.sessions(1)
    if what == "answered":
        shop.calls(sessions, "read")
        shop.sim.run(2.0)
    elif what == "repeated":
        shop.calls(sessions, "sleep")
        shop.sim.run(0.5)
    if what != "answered":
        shop.calls(shop.sessions(1)[-1:], "read")
        shop.sim.run(0.5)
        shop.next_number -= 1
    most = messages = 0
    for _ in range(100):
        if what == "connect":
            for _ in range(64):
                shop.say(Connect(slots=64, largest=LARGE, token=1, answer_to=INBOX).pack())
        else:
            shop.next_number -= what != "refused" and shop.next_number > 0
            shop.calls(sessions, {"refused": "none", "repeated": "sleep", "answered": "read"}[what])
        shop.sim.run(0.05)
        most, messages = max(most, shop.kept), max(messages, shop.messages)
    assert most < 34 * MIB
    assert messages < (4000 if what != "repeated" else 6000)
    shop.assert_that_others_are_served()


def test_streams_that_are_read_go_on_beside_others_of_their_client() -> None:
    """More streams than there is room for a chunk of each: all of them move."""
    shop = Shop(reply_bytes=0)
    sums = [0] * 40

    async def read(client: Client, number: int) -> None:
        stream = client.stream("cat")
        async for chunk in stream:
            sums[number] += len(chunk)
            if sums[number] > 4 * LARGE:
                break
        await stream.aclose()

    client: Client = shop.honest.loop.enter(lambda: Client(shop.honest.node, HOME, "shop", largest=LARGE))
    tasks = [shop.honest.spawn(read(client, number)) for number in range(40)]
    shop.sim.run_until(lambda: all(task.done() for task in tasks), 100.0)
    for task in tasks:
        task.result()
    shop.honest.call(client.close())
    shop.assert_that_all_came_back()


def test_streams_leave_room_for_calls_of_their_client() -> None:
    """Its streams fill what they may, all the time, and it reads slowly."""
    shop = Shop(reply_bytes=16 * MIB)
    slow = shop.sim.node("slow", "10.0.0.4@tcp", link=LinkParams(rate=20e6))
    client: Client = slow.loop.enter(lambda: Client(slow.node, HOME, "shop", largest=LARGE))

    async def read() -> None:
        async for _ in client.stream("cat"):
            pass

    streams = [slow.spawn(read()) for _ in range(20)]
    shop.sim.run(2.0)
    calls = [slow.spawn(client.call("read")) for _ in range(20)]
    shop.sim.run_until(lambda: all(task.done() for task in calls), 30.0)
    assert {len(task.result().data) for task in calls} == {LARGE - 200}
    (lasting,) = [slow.spawn(client.call("nap"))]
    shop.sim.run_until(lasting.done, 100.0)
    assert lasting.result().data == b"done", "its client was told that it is at work"
    for task in streams:
        slow.loop.enter(task.cancel)
    slow.call(client.close())
    shop.assert_that_all_came_back()


@pytest.mark.parametrize("what", ["no frame", "version", "stale", "connect", "unknown", "again"])
@pytest.mark.parametrize("count", [MAX_BATCH, MAX_BATCH + 1, 5000])
def test_of_a_batch_that_is_too_long_nothing_is_taken(what: str, count: int) -> None:
    shop = Shop(largest=LARGE)
    (session,) = shop.sessions(1)
    shop.heard.clear()
    frame = {
        "no frame": b"none",
        "version": b"\x55\x72\x02\x02" + bytes(HEAD_SIZE),
        "stale": Note(session + 1, 0, 7, 0, INBOX, Kind.CREDIT, 9).pack(),
        "connect": Connect(slots=64, largest=LARGE, token=1, answer_to=INBOX).pack(),
        "unknown": CallFrame(session, 0, 1, 1, INBOX, "none", b"", NO_DEADLINE, 10_000).pack(),
        "again": CallFrame(session, 0, 1, 1, INBOX, "sleep", b"", NO_DEADLINE, 10_000).pack(),
    }[what]
    shop.say(batch(session, [frame] * count))
    shop.sim.run(20.0)
    if count > MAX_BATCH:
        assert shop.server.counters.malformed == 1
        assert not shop.heard
    elif what in ("no frame", "connect"):  # what leaves together is of one session: CONNECT goes alone
        assert shop.server.counters.malformed == count
        assert not shop.heard
    else:
        assert len(shop.heard) <= count + 1, "and a notice that one of them is at work"
    shop.assert_that_others_are_served()
