"""Floods of frames at a server: a turn of the loop serves some, and each client has its turn."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ulnet.core.md import Buffer
from ulnet.nid import Nid
from ulnet.node import Message
from ulnet.rpc.counters import ServerCounters
from ulnet.rpc.incoming import Incoming
from ulnet.wire.rpc import Frame, Kind, Note, batch

pytestmark = [pytest.mark.requirement("ULP"), pytest.mark.pure]  # messages are no real ones

FLOOD, OTHER = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.0.0.2@tcp")
TURN = 128  # frames
ROOM = 8 << 20  # bytes that wait


class Desk:
    """What is served, and to whom."""

    def __init__(self) -> None:
        self.served: list[tuple[Nid, int, bool]] = []
        self.counters = ServerCounters()
        self.incoming = Incoming(asyncio.get_running_loop(), self.counters, self._serve)

    def _serve(self, frame: Frame, message: Message, alone: bool) -> None:
        self.served.append((message.initiator, frame.number, alone))

    def say(self, client: Nid, data: Buffer) -> None:
        message: Any = SimpleNamespace(data=memoryview(data), initiator=client)
        message.release = lambda: setattr(message, "data", memoryview(b""))
        self.incoming.arrived(cast(Message, message))


def note(number: int, size: int = 0) -> bytes:
    return Note(1, 0, number, 0, 0, Kind.CANCEL).pack() + bytes(size)


async def test_a_flood_of_long_batches_is_served_in_turns_and_others_are_not_behind_it() -> None:
    desk = Desk()
    count = 40
    for number in range(count):
        desk.say(FLOOD, batch(1, [note(16 * number + of) for of in range(16)]))
    desk.say(OTHER, note(7))
    assert 0 < len(desk.served) <= TURN
    turns = 0
    while len(desk.served) < 16 * count + 1:
        before = len(desk.served)
        await asyncio.sleep(0)
        turns += 1
        assert len(desk.served) - before < 2 * TURN  # two turns lie between two looks at most
        assert turns < 50
    assert turns >= 16 * count // (2 * TURN)
    flood = [number for client, number, _ in desk.served if client == FLOOD]
    assert flood == list(range(16 * count)), "in order"
    place = [client for client, _, _ in desk.served].index(OTHER)
    assert place <= TURN + 2 * 16, "in the first turn that others had"
    assert desk.served[place] == (OTHER, 7, True)
    assert not desk.incoming.bytes


@pytest.mark.parametrize("size", [0, 10_000])
async def test_who_keeps_much_waiting_has_no_more_taken(size: int) -> None:
    """Views of what came would keep its memory; what waits is a copy, of which there is so much."""
    desk = Desk()
    for number in range(60_000):
        desk.say(FLOOD, note(number, size))
        if desk.counters.busy:
            break
    assert desk.counters.busy == 1
    assert ROOM / 2 <= desk.incoming.bytes < ROOM
    desk.say(OTHER, note(7))
    assert desk.counters.busy == 1, "others have what is left"
    taken = number + 1
    while len(desk.served) < taken:
        await asyncio.sleep(0)
    assert [number for client, number, _ in desk.served if client == FLOOD] == list(range(taken - 1))
    assert not desk.incoming.bytes


async def test_what_waits_when_a_server_is_closed_is_not_served() -> None:
    desk = Desk()
    for number in range(TURN + 100):
        desk.say(FLOOD, note(number))
    desk.incoming.closed = True
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(desk.served) == TURN
    assert not desk.incoming.bytes
