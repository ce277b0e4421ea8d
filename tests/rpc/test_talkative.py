"""Servers that say the same again and again: their clients do not answer each time. Virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from ulnet.nid import Nid
from ulnet.node import Message
from ulnet.node.port import Port, nobody_asks
from ulnet.rpc import Client
from ulnet.rpc.service import bits_of
from ulnet.sim import Simulation
from ulnet.wire.rpc import (
    KNOWS_BATCH,
    MAX_BATCH,
    REPLY_PORTAL,
    REQUEST_PORTAL,
    CallFrame,
    Chunk,
    Connect,
    Connected,
    Kind,
    Note,
    Reply,
    batch,
    frames_in,
    unpack,
)

pytestmark = pytest.mark.requirement("ULP")

FOE = "10.0.0.1@tcp"
HOME = "10.0.0.2@tcp"
SESSION = 9
MANY = MAX_BATCH  # frames in a message
FEW = 4  # answers under way


class Shop:
    """A server that says what it is told to, and a client with a stream of it."""

    def __init__(self, credit: int) -> None:
        self.sim = Simulation(1)
        self.foe = self.sim.node("s", FOE)
        self.home = self.sim.node("c", HOME)
        self.heard: list[Any] = []
        self.read: list[bytes] = []
        self.foe.loop.enter(self.listen)
        self.client: Client = self.home.loop.enter(
            lambda: Client(self.home.node, FOE, "shop", credit=credit, slots=2)
        )
        self.reader = self.home.spawn(self.use())
        self.sim.run(1.0)
        (self.call,) = [frame for frame in self.heard if isinstance(frame, CallFrame)]
        self.head = (SESSION, self.call.slot, self.call.number, self.call.attempt, 0)
        self.heard.clear()

    async def use(self) -> None:
        async for chunk in self.client.stream("watch"):
            self.read.append(chunk)

    def listen(self) -> None:
        self.port = Port(self.foe.core)

        def came(message: Message) -> None:
            for raw in frames_in(message.data):
                frame = unpack(raw)
                self.heard.append(frame)
                if isinstance(frame, Connect):
                    self.inbox = frame.answer_to
                    answer = Connected(SESSION, 0, 0, frame.attempt, 0, 2, 16384, 7)
                    answer.token, answer.knows = frame.token, KNOWS_BATCH
                    self._send(answer.pack())

        self.foe.node.inbox(REQUEST_PORTAL, bits_of("shop"), slots=64, size=16384, handler=came)

    def _send(self, data: bytes) -> None:
        self.port.send(Nid.parse(HOME), REPLY_PORTAL, self.inbox, data, ended=nobody_asks)

    def say(self, *frames: bytes) -> list[Any]:
        """Messages of those frames; what is heard then."""
        self.heard.clear()
        for at in range(0, len(frames), MAX_BATCH):
            self.foe.loop.enter(self._send, batch(SESSION, list(frames[at : at + MAX_BATCH])))
        self.sim.run(0.5)
        return [frame for frame in self.heard if isinstance(frame, Note)]

    def end(self) -> None:
        """The stream ends well, and nothing is left of it."""
        self.say(Reply(*self.head, 0, len(self.read)).pack())
        self.sim.run_until(self.reader.done, 10.0)
        self.reader.result()
        self.home.call(self.client.close())
        self.sim.run_until_quiet()
        assert self.home.core.stats.msgs_alloc == 0
        assert [md for md in self.home.core.memory.mds.values() if md.me is None] == []


def test_notices_that_a_stream_is_at_work_are_not_all_answered() -> None:
    shop = Shop(credit=8)
    working = Note(*shop.head, Kind.WORKING, 1000).pack()
    for _ in range(3):
        heard = shop.say(*[working] * MANY)
        assert [(frame.kind, frame.value) for frame in heard] == [(Kind.CREDIT, 8)] * FEW
    assert len(shop.say(working)) == 1, "the last one may have been lost"
    shop.end()


def test_room_that_there_is_meanwhile_is_told_once_fewer_notices_are_under_way() -> None:
    shop = Shop(credit=8)
    working = Note(*shop.head, Kind.WORKING, 1000).pack()
    chunks = [Chunk(*shop.head, index, b"x").pack() for index in range(8)]
    heard = shop.say(*[working] * 10, *chunks)
    assert [frame.value for frame in heard][:FEW] == [8] * FEW
    assert heard[-1].value == 16, "all were read"
    assert len(shop.read) == 8
    shop.end()


def test_sessions_that_nobody_has_asked_for_are_not_all_ended() -> None:
    shop = Shop(credit=8)
    for turn in range(3):
        invented = [
            Connected(1000 * turn + number, 0, 0, 1, 0, 1, 16384, 7) for number in range(1000, 1000 + MANY)
        ]
        heard = shop.say(*(frame.pack() for frame in invented))
        assert [frame.kind for frame in heard] == [Kind.CLOSE] * FEW
        assert [frame.session for frame in heard] == [frame.session for frame in invented[:FEW]]
    shop.end()
