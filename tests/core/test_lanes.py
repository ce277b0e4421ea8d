"""The fast lane does what the general way does, message by message (docs/design/hot-path.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.fabric import Recorder
from support.lanes import A1, B1, BITS, PORTAL, A, B, FastFabric, Watching, World, lane_is_open, small_puts
from ulnet.core.event import Event
from ulnet.core.faults import Fault, FaultKind
from ulnet.core.instance import LNet
from ulnet.core.lanes import LIGHT
from ulnet.core.md import ACK_DISABLE, MANAGE_REMOTE, OP_PUT
from ulnet.core.status import HealthStatus, LNetError
from ulnet.nid import ANY_NID

SENDS = st.tuples(
    st.just("put"),
    st.integers(0, 3),  # which memory
    st.booleans(),  # with ACK
    st.sampled_from([0, 8, 64]),  # offset
    st.sampled_from([0, 1 << 40]),  # header data
    st.sampled_from([BITS, BITS, BITS, 99]),  # 99: nothing is attached
)
STEPS = st.one_of(
    SENDS, SENDS, SENDS, st.tuples(st.just("run")), st.tuples(st.just("unlink"), st.integers(0, 3))
)


def play(world: World, steps: list[tuple[Any, ...]]) -> None:
    world.warm()
    for size in (0, 64, 600, 5000):
        world.bind(bytes(range(256)) * 3 if size == 600 else b"m" * size)
    for step in steps:
        if step[0] == "run":
            world.fabric.run()
        elif step[0] == "unlink":
            world.a.memory.md_unlink(world.mds[step[1]])
        else:
            _, which, ack, offset, data, bits = step
            try:
                world.put(world.mds[which], B, PORTAL, bits, ack=ack, offset=offset, hdr_data=data)
            except LNetError as refusal:
                world.events[which].seen.append((refusal.errno,))
    world.fabric.run()
    world.fabric.assert_conserved()
    assert not world.fabric.complaints


def in_any_order(watching: Watching) -> tuple[list[str], int, bool]:
    """Its events, how often it was refused, whether the last ended it. (Batches end later than others.)"""
    events = [one for one in watching.seen if len(one) > 1]
    refusals = len(watching.seen) - len(events)
    assert not any(one[-1] for one in events[:-1])
    return sorted(repr(one[:-1]) for one in events), refusals, any(one[-1] for one in events[-1:])


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=40), st.booleans())
def test_the_lane_tells_and_counts_what_the_general_way_does(
    steps: list[tuple[Any, ...]], moving: bool
) -> None:
    fast, general = World(True, moving=moving), World(False, moving=moving)
    play(fast, steps)
    play(general, steps)
    assert fast.inbox == general.inbox
    assert fast.arrived.seen == general.arrived.seen
    for one, other in zip(fast.events, general.events, strict=True):
        assert in_any_order(one) == in_any_order(other)
    assert fast.counters() == general.counters()


@pytest.fixture
def world() -> World:
    world = World(True)
    world.warm()
    return world


def test_small_messages_take_the_lane_and_the_inlet(world: World) -> None:
    assert lane_is_open(world)
    assert isinstance(world.fabric, FastFabric)
    before = world.fabric.taken
    small_puts(world, 10, ack=True)
    assert world.fabric.taken - before >= 16  # the first PUT has an identity and goes the general way
    assert [one[0].name for one in world.events[0].seen].count("ACK") == 10


@pytest.mark.parametrize("ack", [False, True])
def test_heavy_ones_count_as_load_until_they_are_delivered(world: World, ack: bool) -> None:
    a, pni = world.a, world.a.peers.find_ni(B)
    assert pni is not None
    flow = pni.flows[a.nis[A]]
    size = LIGHT + 1
    md = world.bind(b"h" * size)
    world.put(md, B, PORTAL, BITS, ack=ack)
    world.fabric.run()
    for number in range(1, 4):
        world.put(md, B, PORTAL, BITS, ack=ack)
        assert flow.outstanding == number * (size + 72)
    assert all(msg.lane is not None for _, msg in list(world.fabric.wire)[-1:])
    world.fabric.run()
    assert flow.outstanding == 0
    assert not md.flights


def test_what_waits_for_credits_is_counted_and_leaves_in_order(world: World) -> None:
    md = world.bind(b"q" * 8)
    pni = world.a.peers.find_ni(B)
    assert pni is not None
    for number in range(20):
        world.put(md, B, PORTAL, BITS, ack=False, hdr_data=number)
    assert pni.tx_credits == 4 - 20
    assert len(pni.tx_queue) == 16
    start = len(world.arrived.seen)
    world.fabric.run()
    assert [one[6] for one in world.arrived.seen[start:]] == list(range(20))
    assert pni.min_tx_credits == 4 - 20


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.faults.add(Fault(FaultKind.DROP, ANY_NID, ANY_NID, rate=2)),
        lambda a: a.selector.follow(True),
        lambda a: a.add_ni(A1.net, A1),
        lambda a: a.health.values.set_peer(a.peers.find_ni(B), 900),
        lambda a: a.health.values.set_ni(a.nis[A], 900),
        lambda a: a.peers.find(B).mark(remove=0x1),
        lambda a: a.settings_changed(),
        lambda a: a.set_cpts(A, None),
    ],
    ids=["fault rule", "trace", "another NI", "peer's health", "own health", "flags", "settings", "CPTs"],
)
def test_whatever_the_choice_depends_on_closes_the_lane(
    world: World, change: Callable[[LNet], object]
) -> None:
    assert lane_is_open(world)
    change(world.a)
    assert not lane_is_open(world)
    small_puts(world, 5)
    world.fabric.assert_conserved()


def test_fault_rules_see_each_message(world: World) -> None:
    failing = Fault(FaultKind.DROP, ANY_NID, ANY_NID, rate=2, health=1 << HealthStatus.LOCAL_DROPPED)
    rule = world.a.faults.add(failing)
    small_puts(world, 10)
    assert rule.count >= 10


def test_a_trace_sees_each_message(world: World) -> None:
    trace = world.a.selector.follow(True)
    small_puts(world, 10)
    assert sum(tally.messages for tally in trace.tallies.values()) == 10


def test_with_two_rails_load_decides_each_time() -> None:
    world = World(True)
    world.a.add_ni(A1.net, A1)
    world.b.add_ni(B1.net, B1)
    world.fabric.run()
    world.warm()
    small_puts(world, 40)
    sent = [world.a.nis[nid].stats.sent[1] for nid in (A, A1)]
    assert min(sent) >= 15


def test_messages_of_a_lane_fail_as_others_do(world: World) -> None:
    md = world.bind(b"f" * 16)
    for _ in range(6):
        world.put(md, B, PORTAL, BITS, ack=False)
    while world.fabric.step(lambda msg: msg.md is md):
        pass
    seen = world.events[0].seen
    assert [one[1] != 0 for one in seen] == [True] * 6
    assert {one[11] for one in seen} == {B}
    world.fabric.assert_conserved()
    small_puts(world, 3)  # and those after them are well
    assert [one[1] for one in world.events[1].seen] == [0, 0, 0]


def test_given_back_messages_set_out_anew(world: World) -> None:
    md = world.bind(b"b" * 16)
    for number in range(3):
        world.put(md, B, PORTAL, BITS, ack=False, hdr_data=number)
    waiting = [msg for _, msg in world.fabric.wire]
    world.fabric.wire.clear()
    for msg in waiting:
        world.a.take_back(msg)
    start = len(world.arrived.seen)
    world.fabric.run()
    assert sorted(one[6] for one in world.arrived.seen[start:]) == [0, 1, 2]
    assert len(world.events[0].seen) == 3
    world.fabric.assert_conserved()


def test_an_unlinked_descriptor_ends_with_its_last_message(world: World) -> None:
    md = world.bind(b"u" * 16)
    for _ in range(6):
        world.put(md, B, PORTAL, BITS, ack=False)
    world.a.memory.md_unlink(md)
    world.fabric.run()
    seen = world.events[0].seen
    assert len(seen) == 6
    assert [one[12] for one in seen] == [False] * 5 + [True]
    assert not md.linked


def test_a_handler_may_send_from_every_event(world: World) -> None:
    left = 30

    def more(event: Event | None = None) -> None:
        nonlocal left
        if left:
            left -= 1
            world.put(md, B, PORTAL, BITS, ack=False, hdr_data=left)

    md = world.a.memory.md_bind(b"h" * 8, more)
    start = len(world.arrived.seen)
    for _ in range(3):
        more()
    world.fabric.run()
    assert sorted(one[6] for one in world.arrived.seen[start:]) == list(range(30))
    world.fabric.assert_conserved()


def test_a_handler_that_fails_breaks_nothing(world: World) -> None:
    def fails(event: Event) -> None:
        raise ValueError("mine")

    md = world.a.memory.md_bind(b"h" * 8, fails)
    for _ in range(3):
        world.put(md, B, PORTAL, BITS, ack=False)
    world.fabric.run()
    assert len(world.fabric.complaints) == 3
    world.fabric.assert_conserved()


def test_an_answer_that_does_not_come_is_missed_all_the_same(world: World) -> None:
    got = Recorder()
    md = world.a.memory.md_bind(b"t" * 8, got)
    for _ in range(4):
        world.put(md, B, PORTAL, 99)  # nothing is attached: no ACK
    world.fabric.run()
    assert world.a.stats.rst_alloc == 1
    world.fabric.clock.now += world.a.settings.transaction_timeout + 1
    world.fabric.run()
    assert world.a.stats.rst_alloc == 0
    assert world.a.stats.response_timeout_count == 1
    assert not md.linked


def test_acknowledged_ones_are_answered_whatever_handle_their_memory_has_by_then(world: World) -> None:
    md = world.bind(b"r" * 8)
    for _ in range(3):  # the first of each round has an identity, for which the descriptor is renewed
        for _ in range(3):
            world.put(md, B, PORTAL, BITS)
        world.fabric.run()
    assert [one[0].name for one in world.events[0].seen].count("ACK") == 9
    assert world.a.stats.drop_count == 0


def test_nothing_holds_memory_that_was_taken_back(world: World) -> None:
    mine = bytearray(64)
    md = world.a.memory.md_bind(mine, None)
    for _ in range(4):
        world.put(md, B, PORTAL, BITS, ack=False)
    world.fabric.run()
    world.a.memory.md_unlink(md)
    (me,) = world.b.memory.portal(PORTAL).entries()
    world.b.memory.me_unlink(me)
    del md, me
    mine.extend(b"more")  # as long as anyone has a view of it, its size is fixed
    world.inbox.extend(b"more")


def test_memory_that_goes_and_comes_is_matched_anew(world: World) -> None:
    small_puts(world, 3)
    portal = world.b.memory.portal(PORTAL)
    (me,) = portal.entries()
    world.b.memory.me_unlink(me)
    small_puts(world, 2)
    assert world.b.stats.drops["no matching entry"] == 2
    other = bytearray(64)
    me = world.b.memory.me_attach(PORTAL, match_bits=BITS)
    got = Recorder()
    world.b.memory.md_attach(me, other, got, options=OP_PUT | MANAGE_REMOTE, threshold=3)
    small_puts(world, 5)
    assert other == b"s" * 64
    assert [event.unlinked for event in got] == [False, False, True]
    assert world.b.stats.drops["no matching entry"] == 4


def test_nodes_that_shut_down_take_nothing_more(world: World) -> None:
    md = world.bind(b"z" * 8)
    world.a.shutdown()
    with pytest.raises(LNetError):
        world.put(md, B, PORTAL, BITS, ack=False)


def test_a_driver_may_finalize_one_by_one(world: World) -> None:
    world.fabric.tell = lambda: None  # type: ignore[attr-defined]
    md = world.bind(b"1" * 8)
    world.put(md, B, PORTAL, BITS, ack=False)
    ((_, msg),) = world.fabric.wire
    world.fabric.wire.clear()
    assert msg.lane is not None
    world.a.finalize(msg, HealthStatus.OK)
    assert len(world.events[0].seen) == 1
    assert world.a.stats.msgs_alloc == 0


def test_an_inlet_holds_nothing_of_memory_that_it_did_not_take_to() -> None:
    world = World(True)
    world.warm()
    mine = bytearray(64)
    me = world.b.memory.me_attach(PORTAL + 1, match_bits=BITS)
    md = world.b.memory.md_attach(me, mine, None, options=OP_PUT | MANAGE_REMOTE | ACK_DISABLE)
    world.put(world.bind(b"named"), B, PORTAL + 1, BITS, ack=True)  # taken, but nobody says so
    world.fabric.run()
    assert bytes(mine).startswith(b"named")
    world.b.memory.md_unlink(md)
    del md, me
    mine.extend(b"more")  # as long as anyone has a view of it, its size is fixed
