"""Lanes over several rails choose, tell and count as the general way does, message by message."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from support.lanes import BITS, PORTAL, A, B, FastFabric, RailWorld, Watching
from support.store import NOWHERE
from ulnet.core.event import Event
from ulnet.core.faults import Fault, FaultKind
from ulnet.core.md import Md
from ulnet.core.msg import Msg
from ulnet.core.selection import Balance
from ulnet.core.status import HealthStatus
from ulnet.nid import ANY_NID, Nid
from ulnet.wire.lnet import MsgType


def change(world: RailWorld, chance: Random) -> None:
    """Something that choices depend on becomes another."""
    a = world.a
    kind = chance.randrange(8)
    nis = [ni for ni in a.nis.values() if ni.net.net.type != 9]
    peer = a.peers.find(B)
    assert peer is not None
    pnis = list(peer.nis())
    ni, pni, number = chance.choice(nis), chance.choice(pnis), chance.random()
    if kind == 0:
        a.health.values.set_peer(pni, 1000 if number < 0.6 else 900)
    elif kind == 1:
        a.health.values.set_ni(ni, 1000 if number < 0.6 else 900)
    elif kind == 2:
        flow = peer.flows.get(ni)
        if flow is not None:
            flow.presume(1e9 if number < 0.5 else 1e8)
    elif kind == 3:
        flow = pni.flows.get(ni)
        if flow is not None:
            flow.presume(2e9 if number < 0.3 else 1e9 if number < 0.6 else 1e8)
    elif kind == 4 and len(nis) > 2 and ni.nid not in (A,):
        a.del_ni(ni.nid)
    elif kind == 5:
        ni.weight = chance.choice([0, 0, 0, 1, 3])
        a.state.epoch += 1
    elif kind == 6:
        if number < 0.3:
            a.faults.add(Fault(FaultKind.DROP, ANY_NID, ANY_NID, rate=9))
        else:
            a.faults.delete(FaultKind.DROP)
    else:
        a.settings_changed()


def play(world: RailWorld, seed: int, changes: bool) -> list[object]:
    """A program of that seed; a list of what was seen between its steps.

    While a change leaves one way only, small messages do not count as load, and choices count when messages
    have left: so nothing is under way when something changes, and only then is looked, but at no turns. (And
    there are more than two rails, for rates would not be the same.)
    """
    chance = Random(seed)
    told: list[object] = []
    for size in (0, 64, 600, 5000, 70000):
        world.bind(b"m" * size)
    for _ in range(60):
        for _ in range(chance.choice([1, 1, 2, 9, 30])):
            which, ack = chance.choice([0, 1, 1, 2, 2, 3, 4]), chance.random() < 0.4
            data = chance.choice([0, 0, 1 << 40])
            if changes and chance.random() < 0.05:
                world.a.memory.md_unlink(world.mds[which])
                world.mds[which] = world.a.memory.md_bind(b"n" * world.mds[which].length, world.events[which])
            world.put(world.mds[which], B, PORTAL, BITS, ack=ack, hdr_data=data)
        for _ in range(chance.choice([0, 1, 2, 9, 50])):
            world.fabric.step()
        world.fabric.clock.now += chance.choice([0.0, 0.001, 0.02])
        quiet = chance.random() < 0.3
        if quiet:
            world.fabric.run()
        if quiet or not changes:
            told.append(world.seen(not changes))
        if quiet and changes:
            change(world, chance)
    world.a.faults.delete(FaultKind.DROP)
    world.fabric.run()
    told.append(world.seen(not changes))
    return told


SHAPES = [(2, 1), (2, 2), (3, 2), (4, 1), (5, 4), (16, 1), (16, 16)]


@pytest.mark.parametrize(
    ("balance", "batches"), [("expected", False), ("expected", True), ("documents", True)]
)
@pytest.mark.parametrize(
    ("rails", "nets", "changes"),
    [*((*shape, False) for shape in SHAPES), *((*shape, True) for shape in SHAPES if shape[0] > 2)],
)
def test_rails_choose_tell_and_count_as_the_general_way_does(
    rails: int, nets: int, balance: Balance, batches: bool, changes: bool
) -> None:
    fast, general = (RailWorld(lanes, rails, nets, balance, 300, batches) for lanes in (True, False))
    assert fast.rails_in_use()
    seen, expected = play(fast, rails, changes), play(general, rails, changes)
    for step, (one, other) in enumerate(zip(seen, expected, strict=True)):
        assert one == other, step
    assert [w.seen for w in fast.events] == [w.seen for w in general.events]
    assert fast.arrived.seen == general.arrived.seen
    joined = any(ni.choices["same batch"] for ni in fast.a.nis.values())
    assert joined == (batches and balance == "expected")
    for world in (fast, general):
        world.fabric.assert_conserved()


@pytest.mark.parametrize("changes", [False, True], ids=["steady", "changing"])
@pytest.mark.parametrize("balance", ["expected", "documents"])
@pytest.mark.parametrize(("rails", "nets"), [(2, 1), (3, 2), (4, 1), (16, 16)])
def test_nothing_is_lost_where_credits_run_out(
    rails: int, nets: int, balance: Balance, changes: bool
) -> None:
    """Credits of a batch come back at once, so who waits for them on other rails may leave a bit later."""
    fast, general = (RailWorld(lanes, rails, nets, balance, 4, batches=True) for lanes in (True, False))
    play(fast, rails, changes)
    play(general, rails, changes)
    for one, other in zip(fast.events, general.events, strict=True):
        assert sorted(repr(seen[:2]) for seen in one.seen) == sorted(repr(seen[:2]) for seen in other.seen)
    assert sorted(map(what, fast.arrived.seen)) == sorted(map(what, general.arrived.seen))
    assert rails > 4 or min(pni.min_tx_credits for peer in fast.a.peers for pni in peer.nis()) < 0
    for world in (fast, general):
        world.fabric.assert_conserved()


def what(told: tuple[Any, ...]) -> str:
    """An event without its way."""
    return repr((told[0], *told[1:8]))


@pytest.fixture
def world() -> RailWorld:
    return RailWorld(True, 4, 4, "expected")


def puts(world: RailWorld, count: int, size: int = 64, ack: bool = False) -> Watching:
    md = world.bind(b"p" * size)
    for _ in range(count):
        world.put(md, B, PORTAL, BITS, ack=ack)
    return world.events[-1]


def in_lanes(world: RailWorld) -> int:
    return sum(msg.lane is not None for _, msg in world.fabric.wire)


def test_idle_rails_take_turns_and_all_messages_take_lanes(world: RailWorld) -> None:
    before = {ni.nid: ni.stats.sent[1] for ni in world.a.nis.values()}
    for _ in range(8):
        puts(world, 1)
        assert in_lanes(world) == 1
        world.fabric.run()
    shares = [ni.stats.sent[1] - before[ni.nid] for ni in world.a.nis.values() if before[ni.nid]]
    assert shares == [2, 2, 2, 2]


@pytest.mark.parametrize("ack", [False, True])
def test_messages_count_as_load_until_they_are_delivered(world: RailWorld, ack: bool) -> None:
    peer = world.a.peers.find(B)
    assert peer is not None
    puts(world, 8, 1000, ack)
    assert [flow.outstanding for flow in peer.flows.values()] == [2 * 1072] * 4
    world.fabric.run()
    assert [flow.outstanding for flow in peer.flows.values()] == [0] * 4
    assert not any(md.flights for md in world.mds)


@pytest.mark.parametrize("lanes", [True, False], ids=["lanes", "general"])
def test_who_waits_for_an_answer_is_known_at_its_next_hop_and_nobody_else(lanes: bool) -> None:
    """A peer that begins a new life there owes that answer no more."""
    world = RailWorld(lanes, 4, 4, "expected")

    def waiting(md: Md) -> list[Nid]:
        (peer,) = (peer for peer in world.a.peers if peer.multi_rail)
        return [pni.nid for pni in peer.nis() if md in world.a.memory.at_hop(pni.nid)]

    one_way, asking = world.bind(b"o" * 64), world.bind(b"a" * 64)
    for _ in range(3):
        world.put(one_way, B, PORTAL, BITS, ack=False)
        world.put(asking, B, PORTAL, BITS, ack=True)
        assert not waiting(one_way)
        assert waiting(asking) == [world.fabric.wire[-1][1].next_nid]
    world.fabric.run()


def test_failed_ones_take_another_rail(world: RailWorld) -> None:
    lost: list[Msg] = []

    def once(msg: Msg) -> bool:
        if msg.hdr.type == MsgType.PUT and not lost:
            lost.append(msg)
            return True
        return False

    seen = puts(world, 8, ack=True)
    while world.fabric.step(once):
        pass
    for _ in range(4):
        world.fabric.clock.now += 2.0
        world.fabric.run()
    assert lost
    assert [one[0].name for one in seen.seen].count("ACK") == 8
    world.fabric.assert_conserved()


def test_handlers_may_send_close_and_unlink_in_the_midst(world: RailWorld) -> None:
    left = 40

    def more(event: Event | None = None) -> None:
        nonlocal left
        if left == 20:
            world.a.settings_changed()
        if left == 10:
            world.a.del_ni(next(nid for nid in world.a.nis if nid not in (A,) and nid.net.type != 9))
        if left:
            left -= 1
            world.put(md, B, PORTAL, BITS, ack=False, hdr_data=left)
        else:
            world.a.memory.md_unlink(md)

    md = world.a.memory.md_bind(b"h" * 8, more)
    for _ in range(3):
        more()
    world.fabric.run()
    world.fabric.assert_conserved()
    assert left == 0
    assert not md.linked


def test_nothing_holds_memory_that_was_taken_back(world: RailWorld) -> None:
    mine = bytearray(64)
    md = world.a.memory.md_bind(mine, None)
    for _ in range(9):
        world.put(md, B, PORTAL, BITS, ack=False)
    world.fabric.run()
    assert world.rails_in_use()
    world.a.memory.md_unlink(md)
    del md
    mine.extend(b"more")  # as long as anyone has a view of it, its size is fixed


def test_rails_close_with_their_peer(world: RailWorld) -> None:
    pni = world.a.peers.find_ni(B)
    assert pni is not None
    rails = pni.rails
    assert rails is not None
    world.a.peers.delete(pni.peer.primary_nid)
    assert pni.rails is None
    assert all(way.closed for ways in rails.ways.values() for way in ways.values())
    assert isinstance(world.fabric, FastFabric)


@pytest.mark.parametrize("lanes", [True, False])
def test_that_no_rail_is_left_is_told_by_events(lanes: bool) -> None:
    world = RailWorld(lanes, 2, 1, "expected")
    md = world.bind(b"where to")
    for nid in [nid for nid in world.a.nis if nid.net == A.net]:
        world.a.del_ni(nid)
    for _ in range(3):  # the peer is not asked anew yet
        world.put(md, B, PORTAL, BITS, ack=False)
    world.fabric.run()
    assert [(seen[0].name, seen[1]) for seen in world.events[-1].seen] == [("SEND", -errno.EHOSTUNREACH)] * 3
    world.fabric.assert_conserved()


@pytest.mark.parametrize("lanes", [True, False], ids=["lanes", "generally"])
def test_answers_lost_with_their_path_do_not_keep_others_off_it(lanes: bool) -> None:
    """A descriptor that is used on and on has no deadline that would tell that they never come."""
    world = RailWorld(lanes, 2, 2, "expected", 300)
    md = world.bind(b"x" * 4000)
    for _ in range(10):
        world.put(md, B, PORTAL, BITS, ack=True)
    lost = _run_but_lose_acks_of_one_rail(world)
    assert lost == 5
    peer = world.a.peers.find(B)
    assert peer is not None
    for ni in peer.flows:
        for pni in peer.nis():
            if pni.nid.net == ni.nid.net:
                world.a.path_lost(ni, pni.nid)
    before = {ni: ni.stats.sent[MsgType.PUT] for ni in peer.flows}
    for _ in range(20):
        world.put(md, B, PORTAL, BITS, ack=True)
        world.fabric.run()
    shares = [ni.stats.sent[MsgType.PUT] - count for ni, count in before.items()]
    assert min(shares) >= 9, shares  # who is asked whether it is still there gets a message more
    assert all(flow.outstanding == 0 for flow in peer.flows.values())
    assert not md.flights


def _run_but_lose_acks_of_one_rail(world: RailWorld) -> int:
    """As when the connection is reset behind a write that went well."""
    rail, lost = None, 0
    while True:
        if world.fabric.wire:
            ni, msg = world.fabric.wire[0]
            if msg.hdr.type == MsgType.ACK and rail in (None, ni.nid):
                rail = ni.nid
                lost += 1
                world.fabric.wire.popleft()
                world.b.sent([msg]) if msg.lane else world.b.finalize(msg, HealthStatus.OK)
                continue
        if not world.fabric.step():
            return lost


@pytest.mark.parametrize("lanes", [True, False])
@pytest.mark.parametrize("size", [64, 5000])
def test_puts_that_found_no_memory_are_no_load_after_their_time(lanes: bool, size: int) -> None:
    """Nobody answers them, and what is answered behind them lets their descriptor live on."""
    world = RailWorld(lanes, 2, 2, "expected", credits=64)
    a = world.a
    lost, late, busy = (world.bind(bytes(size)) for size in (size, size, 8000))
    peer = a.peers.find(B)
    assert peer is not None

    def loads() -> list[int]:
        a.state.settle()
        pairs = [flow.outstanding for pni in peer.nis() for flow in pni.flows.values()]
        ways = [flow.outstanding for flow in peer.flows.values()]
        assert sum(pairs) == sum(ways)
        return ways

    def read() -> None:
        """Enough traffic for readings."""
        for _ in range(32):
            world.put(busy, B, PORTAL, BITS)
        world.fabric.clock.now += 0.5
        world.fabric.run()

    def put(md: Md) -> None:
        for bits in (NOWHERE, NOWHERE, NOWHERE, NOWHERE, BITS):
            world.put(md, B, PORTAL, bits)
            world.fabric.run()

    read()
    put(lost)
    world.fabric.clock.now += a.settings.transaction_timeout - 1
    put(late)
    read()
    assert sum(loads()) == 8 * (72 + size)
    world.fabric.clock.now += 6.0  # now the first have had their time
    read()
    assert sum(loads()) == 4 * (72 + size)
    assert min(loads()) > 0
    world.fabric.clock.now += a.settings.transaction_timeout
    read()
    assert loads() == [0, 0]
    for md in (lost, late, busy):
        assert md.linked
        a.memory.md_unlink(md)
    assert loads() == [0, 0]
