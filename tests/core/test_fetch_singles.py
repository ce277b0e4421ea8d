"""GETs into memory of their own take the lane under a name each, and end as all others do."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.lanes import BITS, PORTAL, B
from support.store import NOWHERE, STORE, Store, taken
from ulnet.core.event import Event, EventKind
from ulnet.core.instance import LNet
from ulnet.core.lane import LIGHT
from ulnet.core.md import MANAGE_REMOTE, MAX_SIZE, TRUNCATE, Md


class Call:
    """Who fetches: `ends` are the lengths, or errors, of what is over; `got` what came."""

    def __init__(self, core: LNet, fast: bool) -> None:
        self.core = core
        self.fast = fast
        self.ends: list[tuple[int, bytes]] = []
        self.quick = 0
        self.last: Md | None = None
        self._idle: list[Md] = []
        self._over: set[Md] = set()
        self._sinks: dict[Md, bytearray] = {}

    def get(self, size: int, *, offset: int = 0, bits: int = BITS, timeout: float | None = None) -> None:
        """As `node.get` does it: by the short way if there is one, else with a descriptor that is bound."""
        sink = bytearray(size)
        if self.fast:
            md = self._idle.pop() if self._idle else self._new()
            self._sinks[md] = sink
            if self.core.fetches.fetch(md, sink, B, STORE, bits, offset, timeout):
                self.quick += 1
                self.last = md
                return
            self._idle.append(md)
        md = self.core.memory.md_bind(sink, self._heard, threshold=2, timeout=timeout)
        self._sinks[md] = sink
        self.last = md
        get = self.core.get if self.fast else self.core._initiate.get
        get(md, B, STORE, bits, offset=offset)

    def _new(self) -> Md:
        md = Md([], self._heard)
        md.on_end = lambda length: self._ended(md, length)
        return md

    def _ended(self, md: Md, length: int) -> None:
        assert not md.linked
        assert not md.fragments
        assert not md.refs
        self.ends.append((length, bytes(self._sinks[md])))
        self._idle.append(md)

    def _heard(self, event: Event) -> None:
        md = event.md
        if md in self._over:
            return
        if event.status or (event.unlinked and event.kind is not EventKind.REPLY):
            self._over.add(md)
            self.ends.append((event.status or -errno.ECANCELED, b""))
        elif event.kind is EventKind.REPLY:
            self._over.add(md)
            self.ends.append((event.mlength, bytes(self._sinks[md])))


STEPS = st.one_of(
    st.tuples(
        st.just("get"),
        st.sampled_from([0, 64, 64, 64, 600, LIGHT + 1]),
        st.sampled_from([0, 0, 0, 8, 10200]),  # from which offset
        st.sampled_from([BITS, BITS, BITS, NOWHERE]),
        st.integers(1, 6),  # how many of them
    ),
    st.tuples(st.just("run")),
    st.tuples(st.just("step"), st.integers(1, 4)),
    st.tuples(st.just("unlink")),
    st.tuples(st.just("shared")),  # into memory that is used again and again
    st.tuples(st.just("put"), st.booleans()),
)


def play(world: Store, steps: list[tuple[Any, ...]], fast: bool) -> Call:
    call = Call(world.a, fast)
    shared, mine = world.sink(64), world.bind(b"p" * 32)
    for step in steps:
        if step[0] == "run":
            world.fabric.run()
        elif step[0] == "step":
            for _ in range(step[1]):
                world.fabric.step()
        elif step[0] == "unlink":
            if call.last is not None:
                world.a.memory.md_unlink(call.last)
        elif step[0] == "shared":
            world.get(shared, B, STORE, BITS)
        elif step[0] == "put":
            world.put(mine, B, PORTAL, BITS, ack=step[1])
        else:
            _, size, offset, bits, count = step
            for _ in range(count):
                call.get(size, offset=offset, bits=bits)
    world.fabric.run()
    return call


@pytest.mark.parametrize("options", [MANAGE_REMOTE, MANAGE_REMOTE | TRUNCATE, 0, MANAGE_REMOTE | MAX_SIZE])
@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=30), st.sampled_from([-1, -1, -1, 12]))
def test_the_short_way_tells_and_counts_what_the_general_way_does(
    options: int, steps: list[tuple[Any, ...]], threshold: int
) -> None:
    """Who is unlinked in the middle depends on how far it was; so those programs end alike, no more."""
    cut = any(step[0] == "unlink" for step in steps)
    fast, general = (Store(lanes, options=options, threshold=threshold) for lanes in (True, False))
    quick, slow = play(fast, steps, True), play(general, steps, False)
    if not cut:
        assert sorted(quick.ends) == sorted(slow.ends)
        assert fast.sinks == general.sinks
        assert fast.all_counters() == general.all_counters()
    for world in (fast, general):
        world.fabric.clock.now += 1000.0  # what nothing is attached for is given up
        world.fabric.run()
        world.fabric.assert_conserved()
        assert not world.fabric.complaints
        assert world.a.stats.rst_alloc == 0
    assert len(quick.ends) == len(slow.ends)


@pytest.fixture
def world() -> Store:
    return Store(True)


def run(world: Store) -> None:
    """As over TCP: a driver has told that a message was sent before its answer comes."""
    while world.fabric.step():
        world.fabric.tell()  # type: ignore[attr-defined]


def test_each_takes_the_lane_and_gets_its_own_answer(world: Store) -> None:
    call = Call(world.a, True)
    for offset in (0, 0, *range(40)):
        call.get(16, offset=offset)
        run(world)
    assert call.quick >= 40
    assert [got for _, got in call.ends[2:]] == [world.stock[at : at + 16] for at in range(40)]
    before = taken(world)
    for _ in range(20):  # they differ in their handle alone, so nothing is unpacked any more
        call.get(16, offset=5)
    run(world)
    assert taken(world) - before >= 30
    assert call.ends[-20:] == [(16, world.stock[5:21])] * 20
    world.fabric.assert_conserved()


def test_descriptors_are_used_again(world: Store) -> None:
    call = Call(world.a, True)
    for _ in range(10):
        call.get(64)
        run(world)
    assert len(call._idle) == 1
    assert len(world.a.memory.mds) == len([md for md in world.a.memory.mds.values() if md.linked])


def test_a_late_reply_goes_nowhere(world: Store) -> None:
    call = Call(world.a, True)
    for _ in range(3):
        call.get(64)
        run(world)
    call.get(64, timeout=1.0)
    md = call.last
    assert md is not None
    sink = call._sinks[md]
    while not any(msg.hdr.type == 3 for _, msg in world.fabric.wire):
        world.fabric.step()
        world.fabric.tell()  # type: ignore[attr-defined]
    world.fabric.clock.now += 2.0
    world.a.tick(world.fabric.clock.now)
    assert call.ends[-1] == (-errno.ETIMEDOUT, b"")
    run(world)
    assert bytes(sink) == bytes(64)
    assert world.a.stats.drops["answer to nothing that waits"] == 1
    world.fabric.assert_conserved()


def test_an_owner_that_fails_breaks_nothing(world: Store) -> None:
    call = Call(world.a, True)
    for _ in range(2):
        call.get(64)
        run(world)
    md = Md([], None)

    def fails(length: int) -> None:
        raise ValueError("mine")

    md.on_end = fails
    assert world.a.fetches.fetch(md, bytearray(64), B, STORE, BITS, 0, None)
    run(world)
    assert len(world.fabric.complaints) == 1
    world.fabric.assert_conserved()


def test_what_is_wrong_is_left_to_the_general_way_to_tell(world: Store) -> None:
    call = Call(world.a, True)
    for _ in range(2):
        call.get(64)
        run(world)
    md = Md([], None)
    for buffer, bits, timeout in (
        (b"read-only", BITS, None),
        (memoryview(bytearray(8))[::2], BITS, None),
        (bytearray((1 << 20) + 1), BITS, None),
        (bytearray(8), 1 << 64, None),
        (bytearray(8), BITS, -1.0),
    ):
        assert not world.a.fetches.fetch(md, buffer, B, STORE, bits, 0, timeout)
    assert not md.linked
    world.fabric.assert_conserved()
