"""Peers whose bulk never moves: what they keep is bounded, and others are served at once."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from selftest.conftest import SID, Lab, until
from ulnet.core.event import Event, EventKind
from ulnet.core.faults import Fault, FaultKind, FaultRule
from ulnet.nid import ANY_NID, Nid
from ulnet.selftest.exchange import Bulk
from ulnet.selftest.places import Places
from ulnet.selftest.services import PING_MAGIC, BrwClient
from ulnet.selftest.targets import pack_targets, targets_size
from ulnet.wire.lnet import MsgType
from ulnet.wire.selftest import (
    BULK_PORTAL,
    FRAMEWORK_PORTAL,
    MESSAGE_SIZE,
    TEST_PORTAL,
    Message,
    is_framework,
    pack_message,
    unpack_message,
)
from ulnet.wire.selftest_bodies import (
    BrwReply,
    BrwRequest,
    MakeSessionRequest,
    PingReply,
    PingRequest,
    Request,
    TestReply,
    TestRequest,
)
from ulnet.wire.selftest_values import (
    BULK_LEN,
    BulkBytes,
    Check,
    Direction,
    PingParameters,
    Service,
    SessionId,
)

pytestmark = pytest.mark.requirement("LST")

OTHER = SessionId(SID.nid, 78)
_TARGETS = 10_000


def order(lab: Lab, targets: int = _TARGETS) -> TestRequest:
    """To be the client of a ping test."""
    fields: dict[str, Any] = {"service": Service.PING, "loop": 1, "concurrency": 1, "is_client": 1}
    fields |= {"targets": targets, "parameters": PingParameters()}
    return TestRequest(lab.next_id(), lab.next_id(), SID, 5, **fields)


def orders(lab: Lab, count: int) -> list[TestRequest]:
    return [order(lab) for _ in range(count)]


def brws(lab: Lab, count: int) -> list[BrwRequest]:
    fields = (Direction.WRITE, 65_536, Check.FULL)
    return [BrwRequest(lab.next_id(), lab.next_id(), *fields) for _ in range(count)]


@dataclass
class Attack:
    """Node 2 of a lab asks node 1, and never answers what that asks of it."""

    lab: Lab
    rule: FaultRule

    @property
    def fetched(self) -> int:
        """GETs of bulk that it was sent."""
        return self.rule.struck

    @property
    def kept(self) -> int:
        """Bytes of node 1 into which GETs under way are to put their answers."""
        mds = self.lab.nodes[1].core.memory.mds.values()
        waiting = [md.length for md in mds if md.me is None and md.linked]
        return sum(length for length in waiting if length > MESSAGE_SIZE)  # not its replies

    @property
    def answered(self) -> int:
        """Requests that node 1 has answered."""
        return sum(rail.answered for rail in self.lab.tests[1].exchange.rails.values())

    async def ask(self, requests: Sequence[Request]) -> None:
        """Send them, by one NID."""
        exchange = self.lab.tests[1].exchange
        before = exchange.received
        for request in requests:
            message = Message(request, BULK_LEN)
            portal = FRAMEWORK_PORTAL if is_framework(message.service) else TEST_PORTAL
            raw = pack_message(message)
            await self.lab.nodes[2].put(
                self.lab.nid(1), portal, message.service, raw, ack=False, source=self.lab.nid(2)
            )
        await until(lambda: exchange.received == before + len(requests))


@pytest.fixture
async def attack(lab: Lab) -> AsyncIterator[Attack]:
    await lab.tests[2].close()
    faults = lab.nodes[2].core.faults
    silent = Fault(
        FaultKind.DROP, ANY_NID, ANY_NID, portals=1 << BULK_PORTAL, messages=1 << MsgType.GET, rate=1
    )
    yield Attack(lab, faults.add(silent))
    faults.delete(FaultKind.DROP)


async def honest_order(lab: Lab) -> TestReply:
    """What node 1 tells node 0, which lends the list that it tells of."""
    request = order(lab, 2)
    nids = [lab.nid(2), lab.nid(2, 1)]
    bulk = Bulk(request.bulkid, pack_targets(nids), targets_size(2, BULK_LEN), source=True)
    reply = await lab.ask(request, bulk=bulk)
    assert isinstance(reply, TestReply)
    return reply


async def test_orders_whose_lists_never_come_keep_little(attack: Attack) -> None:
    lab, most = attack.lab, 8 * targets_size(_TARGETS, BULK_LEN)
    await lab.ask(MakeSessionRequest(lab.next_id(), SID))
    await attack.ask(orders(lab, 300))
    await until(lambda: attack.kept >= most)
    assert await honest_order(lab) == TestReply(0, SID)
    assert attack.kept == most, "its orders are under way still"
    await until(lambda: attack.answered == 2 + 300 - 8 - 32)  # there is no room to wait


async def test_orders_that_wait_end_with_their_session(attack: Attack) -> None:
    """They fetch nothing then, and their places serve others."""
    lab = attack.lab
    lab.nodes[1].core.settings.transaction_timeout = 5
    await lab.ask(MakeSessionRequest(lab.next_id(), SID))
    await attack.ask(orders(lab, 20))
    await until(lambda: attack.fetched == 8)
    await lab.ask(MakeSessionRequest(lab.next_id(), OTHER, force=1))
    await until(lambda: attack.answered == 2 + 20)
    assert attack.fetched == 8 and not attack.kept
    await lab.ask(MakeSessionRequest(lab.next_id(), SID, force=1))
    await attack.ask(orders(lab, 20))
    await until(lambda: attack.fetched == 16)


async def test_bulk_that_never_moves_leaves_places_to_others(attack: Attack) -> None:
    """More requests than bulk may move at the same time, of one peer; another one's move at once."""
    lab = attack.lab
    await attack.ask(brws(lab, 500))
    await until(lambda: attack.fetched >= 64)
    bulk = BulkBytes(Direction.WRITE, Check.FULL, 4096, 0)
    clients = [BrwClient(lab.tests[0].exchange, lab.nid(1), BULK_LEN, 20.0, bulk) for _ in range(100)]
    try:
        await asyncio.gather(*(client.once() for client in clients))
    finally:
        for client in clients:
            client.close()
    assert lab.tests[1].exchange.counters().bulk_get == 100 * 4096
    assert attack.kept == 64 * 65_536, "its own are under way still"


async def test_bulk_that_has_no_room_to_wait_is_refused(attack: Attack) -> None:
    lab = attack.lab
    await attack.ask(brws(lab, 64 + 16_384))
    assert attack.kept == 64 * 65_536
    requests, heard = brws(lab, 10), asyncio.Queue[bytes]()

    def hear(event: Event) -> None:
        if event.kind is EventKind.PUT:
            heard.put_nowait(bytes(event.data))

    at = lab.nodes[2].attach(BULK_PORTAL, requests[-1].rpyid, bytearray(MESSAGE_SIZE), handler=hear)
    await attack.ask(requests)
    async with asyncio.timeout(60):
        refused = unpack_message(await heard.get())
    at.close()
    assert refused.body == BrwReply(errno.ENOMEM)
    await until(lambda: attack.answered == 10)
    assert isinstance(await lab.ask(PingRequest(lab.next_id(), PING_MAGIC, 1, 1, 2)), PingReply)


# The mechanism alone -----------------------------------------------------------------------------------


def peer(number: int) -> Nid:
    return Nid.parse(f"10.0.0.{number}@tcp")


def test_one_peer_has_half_of_what_others_leave() -> None:
    begun: list[str] = []
    places: Places[str] = Places(8, 8, begun.append)
    assert [places.offer(peer(1), f"a{number}") for number in range(9)] == [True] * 8 + [False]
    assert begun == ["a0", "a1", "a2", "a3"]
    assert [places.offer(peer(2), f"b{number}") for number in range(5)] == [True] * 4 + [False]
    assert [places.offer(peer(3), f"c{number}") for number in range(3)] == [True] * 2 + [False]
    assert [places.offer(peer(4), f"d{number}") for number in range(2)] == [True] * 2
    assert begun[4:] == ["b0", "b1", "c0", "d0"]
    assert not places.offer(peer(5), "e0"), "no place, and no room"


def test_peers_have_places_in_turn() -> None:
    begun: list[str] = []
    places: Places[str] = Places(2, 100, begun.append)
    for number in range(4):
        for name in (1, 2, 3):
            assert places.offer(peer(name), f"{name}.{number}")
    assert begun == ["1.0", "2.0"]
    for ended in range(11):
        places.end(peer(int(begun[ended][0])))
    assert sorted(begun) == [f"{name}.{number}" for name in (1, 2, 3) for number in range(4)]
    assert {one[0] for one in begun[2:5]} == {"1", "2", "3"}


def test_what_ends_as_soon_as_it_begins_lets_all_others_begin() -> None:
    """In a loop: ten thousand of them, each begun by the end of the other, had no room on the stack."""
    begun: list[int] = []

    def begin(number: int) -> None:
        begun.append(number)
        if number >= 2:
            places.end(peer(1))

    places: Places[int] = Places(4, 20_000, begin)
    assert all(places.offer(peer(1), number) for number in range(10_000))
    assert begun == [0, 1]
    places.end(peer(1))
    assert begun == list(range(10_000))


def test_what_is_given_up_has_no_turn() -> None:
    begun: list[str] = []
    places: Places[str] = Places(2, 4, begun.append)
    for work in ("a", "b", "c"):
        assert places.offer(peer(1), work)
    places.give_up(peer(1), "b")
    places.give_up(peer(1), "a")
    assert begun == ["a", "c"]
    assert places.offer(peer(1), "d")
    places.clear()
    assert places.offer(peer(2), "e") and begun == ["a", "c", "e"]


@given(st.data())
def test_nothing_is_forgotten_and_nothing_begins_twice(data: st.DataObject) -> None:
    begun: list[tuple[int, int]] = []
    under_way: dict[tuple[int, int], None] = {}

    def begin(work: tuple[int, int]) -> None:
        begun.append(work)
        under_way[work] = None
        assert len(under_way) <= 5

    places: Places[tuple[int, int]] = Places(5, 9, begin)
    taken = [
        (number, work)
        for work, number in enumerate(data.draw(st.lists(st.integers(1, 4), max_size=40)))
        if places.offer(peer(number), (number, work))
    ]
    while under_way:
        work = data.draw(st.sampled_from(sorted(under_way)))
        del under_way[work]
        places.end(peer(work[0]))
    assert sorted(begun) == sorted(taken)
    assert places.offer(peer(1), (1, 99)) and begun[-1] == (1, 99)
