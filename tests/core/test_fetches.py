"""GETs and REPLYs in lanes do what they do the general way, message by message (docs/design/hot-path.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.lanes import A1, BITS, PORTAL, A, B, Watching
from support.store import NOWHERE, STORE, Store, taken
from ulnet.core.event import Event, EventKind
from ulnet.core.faults import Fault, FaultKind
from ulnet.core.instance import LNet
from ulnet.core.lane import LIGHT
from ulnet.core.md import MANAGE_REMOTE, MAX_SIZE, OP_GET, OP_PUT, TRUNCATE, Md
from ulnet.core.status import HealthStatus, LNetError
from ulnet.nid import ANY_NID, LNET_PID
from ulnet.wire.lnet import Header, MsgType, pack_header

SIZES = (0, 64, 64, 600, LIGHT + 1)

STEPS = st.one_of(
    st.tuples(
        st.just("get"),
        st.integers(0, len(SIZES) - 1),  # into which memory
        st.sampled_from([0, 0, 0, 8, 10200]),  # from which offset
        st.sampled_from([BITS, BITS, BITS, NOWHERE]),
        st.integers(1, 6),  # how many of them
    ),
    st.tuples(st.just("put"), st.booleans()),
    st.tuples(st.just("run")),
    st.tuples(st.just("unlink"), st.integers(0, len(SIZES) - 1)),
    st.tuples(st.just("step"), st.integers(1, 4)),
)


def play(world: Store, steps: list[tuple[Any, ...]]) -> None:
    for size in SIZES:
        world.sink(size)
    mine = world.bind(b"p" * 32)
    for step in steps:
        if step[0] == "run":
            world.fabric.run()
        elif step[0] == "step":
            for _ in range(step[1]):
                world.fabric.step()
        elif step[0] == "unlink":
            world.fabric.run()  # how far each is by now differs
            world.a.memory.md_unlink(world.mds[step[1]])
        elif step[0] == "put":
            world.put(mine, B, PORTAL, BITS, ack=step[1])
        else:
            _, which, offset, bits, count = step
            for _ in range(count):
                try:
                    world.get(world.mds[which], B, STORE, bits, offset=offset)
                except LNetError as refusal:
                    world.events[which].seen.append((refusal.errno,))
    world.fabric.run()


def ends(watching: Watching) -> tuple[list[str], int]:
    """Its events in any order (batches end later than others), and how often it was refused."""
    events = [one for one in watching.seen if len(one) > 1]
    return sorted(map(repr, events)), len(watching.seen) - len(events)


@pytest.mark.parametrize("options", [MANAGE_REMOTE, MANAGE_REMOTE | TRUNCATE, 0, MANAGE_REMOTE | MAX_SIZE])
@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=30), st.sampled_from([-1, -1, 3, 12]))
def test_lanes_tell_and_count_what_the_general_way_does(
    options: int, steps: list[tuple[Any, ...]], threshold: int
) -> None:
    fast, general = (Store(lanes, options=options, threshold=threshold) for lanes in (True, False))
    for world in (fast, general):
        play(world, steps)
    assert fast.sinks == general.sinks
    assert ends(fast.fetched) == ends(general.fetched)
    for one, other in zip(fast.events, general.events, strict=True):
        assert ends(one) == ends(other)
    assert fast.all_counters() == general.all_counters()
    assert fast.lent.linked == general.lent.linked
    for world in (fast, general):
        world.fabric.clock.now += 1000.0  # what nothing is attached for is given up
        world.fabric.run()
        world.fabric.assert_conserved()
        assert not world.fabric.complaints
        assert world.a.stats.rst_alloc == 0


@pytest.fixture
def world() -> Store:
    return Store(True)


def fetch(world: Store, count: int, size: int = 64) -> Md:
    md = world.sink(size)
    for _ in range(count):
        world.get(md, B, STORE, BITS)
    world.fabric.run()
    return md


def test_they_take_lanes_and_inlets(world: Store) -> None:
    fetch(world, 1)
    before = taken(world)
    fetch(world, 10)
    assert taken(world) - before >= 14  # the fabric hands some to the general way, as a driver might
    assert [one[0] for one in world.events[1].seen].count(EventKind.REPLY) == 10
    assert world.sinks[1] == world.stock[:64]
    pni = world.a.peers.find_ni(B)
    assert pni is not None
    assert pni.fetches is not None
    assert len(pni.fetches.free) == 10


def test_heavy_ones_count_as_load_until_their_answer_is_there(world: Store) -> None:
    size = LIGHT + 1
    md = fetch(world, 1, size)
    pni = world.a.peers.find_ni(B)
    assert pni is not None
    flow = pni.flows[world.a.nis[A]]
    for number in range(1, 4):
        world.get(md, B, STORE, BITS)
        assert flow.outstanding == number * (size + 72)
    world.fabric.run()
    assert flow.outstanding == 0
    assert not md.flights


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.faults.add(Fault(FaultKind.DROP, ANY_NID, ANY_NID, rate=2)),
        lambda a: a.add_ni(A1.net, A1),
        lambda a: a.health.values.set_ni(a.nis[A], 900),
        lambda a: a.settings_changed(),
    ],
    ids=["fault rule", "another NI", "own health", "settings"],
)
def test_whatever_the_choice_depends_on_closes_both_lanes(
    world: Store, change: Callable[[LNet], object]
) -> None:
    fetch(world, 3)
    before = taken(world)
    change(world.a)
    md = world.sink(64)
    world.get(md, B, STORE, BITS)
    assert taken(world) == before
    ((_, msg),) = world.fabric.wire
    assert msg.lane is None
    world.fabric.run()
    world.fabric.assert_conserved()


def test_memory_that_is_taken_back_is_held_by_nobody(world: Store) -> None:
    mine, lent = bytearray(64), bytearray(64)
    me = world.b.memory.me_attach(STORE + 1, match_bits=BITS)
    store = world.b.memory.md_attach(me, lent, None, options=OP_GET | MANAGE_REMOTE)
    md = world.a.memory.md_bind(mine, None)
    for _ in range(3):
        world.get(md, B, STORE + 1, BITS)
        world.fabric.run()
    world.a.memory.md_unlink(md)
    world.b.memory.md_unlink(store)
    del md, me, store
    mine.extend(b"more")  # as long as anyone has a view of it, its size is fixed
    lent.extend(b"more")


def test_memory_unlinked_while_its_replies_wait_ends_with_the_last(world: Store) -> None:
    md = fetch(world, 1)
    for _ in range(4):
        world.get(md, B, STORE, BITS)
    while not any(ni.nid == B for ni, _ in world.fabric.wire):
        world.fabric.step()
    world.b.memory.md_unlink(world.lent)
    world.fabric.run()
    assert not world.lent.linked
    assert [one[-1] for one in world.fetched.seen if one[-1]] == [True]
    world.fabric.assert_conserved()


def test_replies_that_fail_are_told_of_with_an_event_of_their_own(world: Store) -> None:
    md = fetch(world, 2)
    start = len(world.fetched.seen)
    for _ in range(2):
        world.get(md, B, STORE, BITS)
    while world.fabric.step(lambda msg: msg.sending and msg.hdr.type == 3):
        pass
    failed = world.fetched.seen[start:]
    assert [one[0] for one in failed] == [EventKind.GET] * 2
    assert all(one[1] for one in failed)
    fetch(world, 2)
    assert [one[1] for one in world.fetched.seen[start + 2 :]] == [0, 0]  # what the lane shares is unhurt
    world.fabric.assert_conserved()


def test_a_handler_may_fetch_from_every_event(world: Store) -> None:
    left = 30

    def more(event: Event | None = None) -> None:
        nonlocal left
        if left and (event is None or event.kind is EventKind.REPLY):
            left -= 1
            world.get(md, B, STORE, BITS)

    md = world.a.memory.md_bind(bytearray(8), more)
    for _ in range(3):
        more()
    world.fabric.run()
    assert left == 0
    assert len(world.fetched.seen) == 30
    world.fabric.assert_conserved()


def test_an_answer_that_does_not_come_is_missed_all_the_same(world: Store) -> None:
    md = fetch(world, 2)
    for _ in range(4):
        world.get(md, B, STORE, NOWHERE)
    world.fabric.run()
    assert world.a.stats.rst_alloc == 1
    world.fabric.clock.now += world.a.settings.transaction_timeout + 1
    world.fabric.run()
    assert world.a.stats.rst_alloc == 0
    assert world.a.stats.response_timeout_count == 1
    assert not md.linked


def test_read_only_memory_is_refused_in_a_lane_too(world: Store) -> None:
    fetch(world, 2)
    md = world.bind(b"read-only")
    with pytest.raises(LNetError, match="read-only"):
        world.get(md, B, STORE, BITS)
    assert md.refs == 0


def test_puts_and_gets_of_one_descriptor_do_not_mix_up_their_answers(world: Store) -> None:
    md = fetch(world, 2)
    for number in range(12):
        if number % 3:
            world.get(md, B, STORE, BITS)
        else:
            world.put(md, B, PORTAL, BITS)
    world.fabric.run()
    kinds = [one[0] for one in world.events[0].seen]
    assert kinds.count(EventKind.REPLY) == 10
    assert kinds.count(EventKind.ACK) == 4
    world.fabric.assert_conserved()


def test_one_memory_may_be_written_and_fetched(world: Store) -> None:
    both = bytearray(64)
    me = world.b.memory.me_attach(STORE + 2, match_bits=BITS)
    world.b.memory.md_attach(me, both, None, options=OP_GET | OP_PUT | MANAGE_REMOTE)
    out, back = world.bind(b"w" * 64), world.sink(64)
    for _ in range(4):
        world.put(out, B, STORE + 2, BITS)
        world.get(back, B, STORE + 2, BITS)
        world.fabric.run()
    assert world.sinks[-1] == b"w" * 64
    world.fabric.assert_conserved()


def test_nothing_is_taken_from_a_connection_that_a_handler_closed(world: Store) -> None:
    """What was read with it is lost, and the inlet holds nothing any more."""
    inlet = world.a.inlet(world.a.nis[A], B)
    got: list[EventKind] = []

    def close(event: Event) -> None:
        if event.kind is EventKind.REPLY:
            got.append(event.kind)
            inlet.close()

    md = world.a.memory.md_bind(bytearray(8), close)
    for _ in range(5):
        world.get(md, B, STORE, BITS)
    wire = world.fabric.wire
    while wire:
        world.a.finalize(wire.popleft()[1], HealthStatus.OK)
    hdr = Header(int(MsgType.REPLY), A, B, LNET_PID, LNET_PID, 8, world.a.memory.wmd_of(md))
    raw = pack_header(hdr, False)
    data = bytearray((raw + bytes(8)) * 4)
    view = memoryview(data)
    size = len(raw) + 8
    assert inlet._look(hdr)
    assert inlet.take_run(hdr, raw, data, view, 0, len(data)) == size
    assert len(got) == 1
    assert not md.keepers or inlet not in md.keepers
