"""PUTs with memory of their own take the lane, under a name each: as all others do, and never twice."""

from __future__ import annotations

import errno
import gc
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from support.fabric import Fabric
from support.lanes import A1, B1, BITS, PORTAL, A, B, FastFabric, RailWorld, World
from ulnet.core.event import Event, EventKind
from ulnet.core.faults import Fault, FaultKind
from ulnet.core.guard.identity import again, is_identity
from ulnet.core.instance import LNet
from ulnet.core.lanes import LIGHT
from ulnet.core.md import ACK_DISABLE, MANAGE_REMOTE, OP_PUT, Buffer, Md
from ulnet.core.status import HealthStatus
from ulnet.nid import ANY_NID, Nid
from ulnet.wire.lnet import NO_WMD, Header, MsgType

NOWHERE = 99  # match bits that nothing is attached for


class Call:
    """Who waits for one PUT after the other: `ends` are the lengths, or errors, of those that are over."""

    def __init__(self, core: LNet) -> None:
        self.core = core
        self.ends: list[int] = []
        self.md: Md | None = None
        self.quick = 0
        self.unlinked = 0
        self._idle: list[Md] = []
        self._wanted: dict[Md, EventKind] = {}
        self._over: set[Md] = set()

    def put(
        self,
        data: Buffer | list[Buffer],
        *,
        ack: bool = True,
        offset: int = 0,
        hdr_data: int = 0,
        bits: int = BITS,
        fast: bool = True,
        target: Nid = B,
        timeout: float | None = None,
    ) -> Md:
        """As `node.put` does it: by the short way if there is one, else with a descriptor that is bound."""
        if timeout is None and not ack:
            timeout = 50.0
        if fast:
            md = self._idle.pop() if self._idle else self._new()
            if self.core.singles.put(md, data, target, PORTAL, bits, ack, offset, hdr_data, timeout):
                self.quick += 1
                self.md = md
                self._wanted[md] = EventKind.ACK if ack else EventKind.SEND
                return md
            self._idle.append(md)
        md = self.core.memory.md_bind(data, self._heard, threshold=2 if ack else 1, timeout=timeout)
        self._wanted[md] = EventKind.ACK if ack else EventKind.SEND
        self.md = md
        general = self.core._initiate.put if not fast else self.core.put
        general(md, target, PORTAL, bits, ack=ack, offset=offset, hdr_data=hdr_data)
        return md

    def close(self) -> None:
        """Take back what nobody waits for any more, as `node.put` does when it ends."""
        for md in self._over:
            self.core.memory.md_unlink(md)
        self.md = None
        self._over.clear()
        self._wanted.clear()

    def _new(self) -> Md:
        md = Md([], self._heard)
        md.on_end = lambda length: self._ended(md, length)
        return md

    def _ended(self, md: Md, length: int) -> None:
        assert not md.linked
        assert not md.fragments
        assert not md.refs
        assert md.put is None
        self.ends.append(length)
        self._idle.append(md)

    def _heard(self, event: Event) -> None:
        if event.unlinked:
            self.unlinked += 1
        if event.md in self._over:
            return
        if event.status:
            self._over.add(event.md)
            self.ends.append(event.status)
        elif event.kind is self._wanted[event.md]:
            self._over.add(event.md)
            self.ends.append(event.mlength)
        elif event.unlinked:  # it had left: no ACK will be told of
            self._over.add(event.md)
            self.ends.append(-errno.ECANCELED)


@pytest.fixture
def world() -> World:
    world = World(True)
    world.warm()
    return world


def fabric_of(world: World) -> FastFabric:
    assert isinstance(world.fabric, FastFabric)
    return world.fabric


def run(world: World) -> None:
    """As over TCP: a driver has told that a message was sent before its answer comes."""
    while world.fabric.step():
        fabric_of(world).tell()


# Both ways are one ----------------------------------------------------------------------------------

STEPS = st.one_of(
    st.tuples(
        st.just("put"),
        st.sampled_from([0, 64, 64, 64, 600, LIGHT + 1]),
        st.booleans(),  # with ACK
        st.sampled_from([0, 0, 8, 64]),  # offset
        st.sampled_from([0, 0, 1 << 40]),  # header data
        st.sampled_from([BITS, BITS, BITS, NOWHERE]),
        st.integers(1, 6),  # how many of them
    ),
    st.tuples(st.just("run")),
    st.tuples(st.just("step"), st.integers(1, 4)),
    st.tuples(st.just("unlink")),
    st.tuples(st.just("shared"), st.booleans()),  # another descriptor, which sends again and again
)


def play(steps: list[tuple[Any, ...]], fast: bool, moving: bool) -> tuple[World, Call]:
    world = World(fast, moving=moving)
    world.warm()
    call = Call(world.a)
    shared = world.bind(b"h" * 32)
    for step in steps:
        if step[0] == "run":
            world.fabric.run()
        elif step[0] == "step":
            for _ in range(step[1]):
                world.fabric.step()
        elif step[0] == "unlink":
            if call.md is not None:
                world.a.memory.md_unlink(call.md)
        elif step[0] == "shared":
            world.put(shared, B, PORTAL, BITS, ack=step[1])
        else:
            _, size, ack, offset, data, bits, count = step
            for number in range(count):
                payload = bytes([number]) * size
                call.put(payload, ack=ack, offset=offset, hdr_data=data, bits=bits, fast=fast)
    world.fabric.run()
    return world, call


@settings(max_examples=80, deadline=None)
@given(st.lists(STEPS, max_size=30), st.booleans())
@example([("put", 64, True, 0, 0, BITS, 1), ("step", 1), ("unlink",)], False)
def test_the_short_way_tells_and_counts_what_the_general_way_does(
    steps: list[tuple[Any, ...]], moving: bool
) -> None:
    """Who is unlinked in the middle depends on how far it was; so those programs end alike, no more."""
    cut = any(step[0] == "unlink" for step in steps)
    (fast, quick), (general, slow) = (play(steps, way, moving) for way in (True, False))
    if not cut:
        assert fast.inbox == general.inbox
        assert fast.arrived.seen == general.arrived.seen
        assert sorted(quick.ends) == sorted(slow.ends)
        assert fast.counters() == general.counters()
        assert fast.a.stats.rst_alloc == general.a.stats.rst_alloc
    for world in (fast, general):
        world.fabric.clock.now += 1000.0  # what nothing is attached for is given up
        world.fabric.run()
        world.fabric.assert_conserved()
        assert not world.fabric.complaints
        assert world.a.stats.rst_alloc == 0
    assert len(quick.ends) == len(slow.ends)
    quick.close()
    slow.close()
    assert len(fast.a.memory.mds) == len(general.a.memory.mds)


RAILS = [(2, 1, False), (2, 2, True), (3, 2, True), (4, 4, False), (4, 4, True), (4, 1, True)]


def play_over_rails(rails: int, nets: int, batches: bool, fast: bool) -> tuple[RailWorld, Call, list[object]]:
    """A program of random messages, and all that tells one choice from another between its steps."""
    chance = Random(rails + nets)
    world = RailWorld(True, rails, nets, "expected", 300, batches)
    put = world.a.put if fast else world.a._initiate.put
    call = Call(world.a)
    shared = world.bind(b"h" * 32)
    seen: list[object] = []
    for _ in range(60):
        ack = chance.random() < 0.6  # in which order both kinds end differs, and rates follow
        for _ in range(chance.choice([1, 1, 3, 20])):
            size = chance.choice([0, 64, 64, 64, 600, 5000, 70000])
            data = chance.choice([0, 0, 0, 1 << 40])
            if chance.random() < 0.1:
                put(shared, B, PORTAL, BITS, ack=ack, hdr_data=data)
            else:
                for _ in range(chance.choice([1, 2, 5])):
                    call.put(b"r" * size, ack=ack, hdr_data=data, fast=fast)
        seen.append(world.seen(True))
        world.fabric.clock.now += chance.choice([0.0, 0.001, 0.02])
        world.fabric.run()  # in the middle of it the two differ: what comes by an inlet is a step less
        seen.append(world.seen(True))
    return world, call, seen


@pytest.mark.parametrize(("rails", "nets", "batches"), RAILS)
def test_over_rails_the_short_way_chooses_tells_and_counts_as_the_general_way_does(
    rails: int, nets: int, batches: bool
) -> None:
    (fast, quick, seen), (general, slow, expected) = (
        play_over_rails(rails, nets, batches, way) for way in (True, False)
    )
    assert quick.quick == len(quick.ends)
    for step, (one, other) in enumerate(zip(seen, expected, strict=True)):
        assert one == other, step
    assert sorted(quick.ends) == sorted(slow.ends)
    assert fast.arrived.seen == general.arrived.seen
    assert fast.events[-1].seen == general.events[-1].seen
    for world in (fast, general):
        world.fabric.assert_conserved()
        assert world.a.stats.rst_alloc == 0
        assert all(flow.outstanding == 0 for peer in world.a.peers for flow in peer.flows.values())


def test_each_takes_the_lane_under_an_identity_of_its_own(world: World) -> None:
    call = Call(world.a)
    call.put(b"first")
    run(world)
    assert call.quick == 1
    for _ in range(5):
        call.put(b"x" * 64)
    names = [msg.name for _, msg in world.fabric.wire]
    assert len(set(names)) == len(names) == 4  # peer_credits: the fifth waits for its turn
    assert all(is_identity(name) and name[13:15] == world.b._receive._once.tag for name in names)
    assert all(
        msg.lane is not None and msg.hdr is world.fabric.wire[0][1].hdr for _, msg in world.fabric.wire
    )
    run(world)
    assert call.ends == [5, *[64] * 5]
    assert call.unlinked == 0
    assert all(world.b._receive._once.notes.taken(again(name)) for name in names)
    world.fabric.assert_conserved()


def test_inlets_take_them_and_their_answers(world: World) -> None:
    call = Call(world.a)
    before = fabric_of(world).taken
    for _ in range(10):
        call.put(b"x" * 64)
        run(world)
    assert fabric_of(world).taken - before == 20
    assert call.ends == [64] * 10


def test_a_peer_that_keeps_no_identities_gets_plain_handles(world: World) -> None:
    pni = world.a.peers.find_ni(B)
    assert pni is not None
    pni.peer.guard = b""
    call = Call(world.a)
    for _ in range(6):
        call.put(b"k" * 64)
    assert not any(is_identity(msg.wmd) for _, msg in world.fabric.wire)
    world.fabric.run()
    assert call.ends == [64] * 6
    assert call.quick == 6
    world.fabric.assert_conserved()


def test_memory_of_many_pieces_and_of_none(world: World) -> None:
    call = Call(world.a)
    call.put([b"one", bytearray(b"two"), memoryview(b"three")])
    call.put([])
    call.put(b"")
    world.fabric.run()
    assert call.ends == [11, 0, 0]
    assert bytes(world.inbox[:11]) == b"onetwothree"


def test_nothing_holds_the_memory_when_it_is_over(world: World) -> None:
    mine = bytearray(64)
    call = Call(world.a)
    for ack in (True, False):
        call.put(mine, ack=ack)
        run(world)
    mine.extend(b"more")  # as long as anyone has a view of it, its size is fixed
    assert call.quick == 2


def test_a_length_that_was_cut_is_told(world: World) -> None:
    call = Call(world.a)
    for _ in range(3):
        call.put(b"c" * 600, offset=(1 << 14) - 100)
        world.fabric.run()
    assert call.ends == [100] * 3


# What is not well -----------------------------------------------------------------------------------


def test_one_that_is_not_answered_is_given_up_in_time(world: World) -> None:
    call = Call(world.a)
    for _ in range(3):
        call.put(b"t", bits=NOWHERE, timeout=5.0)
    world.fabric.run()
    assert world.a.stats.rst_alloc == 3
    world.fabric.clock.now += 6.0
    world.fabric.run()
    assert call.ends == [-110] * 3
    assert world.a.stats.response_timeout_count == 3
    assert world.a.stats.rst_alloc == 0
    call.put(b"well")
    world.fabric.run()
    assert call.ends[-1] == 4


def test_one_that_waits_for_credits_too_long_without_ack_is_given_up(world: World) -> None:
    call = Call(world.a)
    for _ in range(9):
        call.put(b"t", ack=False, timeout=5.0)
    world.fabric.clock.now += 6.0
    world.a.tick(world.fabric.clock.now)
    assert call.ends == [-110] * 9
    world.fabric.run()
    world.fabric.assert_conserved()
    assert call.unlinked == 9
    assert len(call.ends) == 9


def test_one_that_is_taken_back_while_busy_ends_with_its_message(world: World) -> None:
    call = Call(world.a)
    mds = [call.put(b"u" * 8) for _ in range(6)]
    for md in mds:
        world.a.memory.md_unlink(md)
    world.fabric.run()
    assert call.unlinked == 6
    assert all(end < 0 for end in call.ends)
    assert not any(md.linked for md in mds)
    world.fabric.assert_conserved()


def test_messages_that_fail_are_told_of_or_sent_again(world: World) -> None:
    call = Call(world.a)
    for _ in range(6):
        call.put(b"f" * 16)
    lost = 0

    def breaks(msg: Any) -> bool:
        nonlocal lost
        lost += msg.hdr.type == MsgType.PUT and lost < 3
        return bool(msg.hdr.type == MsgType.PUT and lost < 3)

    for _ in range(200):
        world.fabric.step(breaks)
    for _ in range(10):
        world.fabric.clock.now += 10.0
        world.fabric.run()
    assert len(call.ends) == 6
    assert Counter(end > 0 for end in call.ends)[True] >= 4
    world.fabric.assert_conserved()


def test_given_back_ones_set_out_anew_under_their_names(world: World) -> None:
    call = Call(world.a)
    for number in range(3):
        call.put(b"b" * 16, hdr_data=number)
    waiting = [msg for _, msg in world.fabric.wire]
    names = {msg.name for msg in waiting}
    world.fabric.wire.clear()
    for msg in waiting:
        world.a.take_back(msg)
    start = len(world.arrived.seen)
    world.a.tick(world.fabric.clock.now)
    assert {msg.wmd for _, msg in world.fabric.wire} == names
    world.fabric.run()
    assert sorted(one[6] for one in world.arrived.seen[start:]) == [0, 1, 2]
    assert call.ends == [16] * 3
    world.fabric.assert_conserved()


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("delivered", [True, False])
def test_what_left_by_a_lane_is_sent_again_when_its_path_is_lost_and_taken_once(
    world: World, fast: bool, delivered: bool
) -> None:
    """Its first came or not, its ACK did not: the copy over another rail gets one."""
    a, fabric = world.a, world.fabric
    start = len(world.arrived.seen)
    call = Call(a)
    for number in range(3):
        call.put(b"g" * 64, hdr_data=number, fast=fast)
    puts = list(fabric.wire)
    fabric.wire.clear()
    if delivered:
        fabric.wire.extend(puts)
        while any(msg.hdr.type == MsgType.PUT for _, msg in fabric.wire):
            fabric.step()
            for one in [one for one in fabric.wire if one[1].hdr.type == MsgType.ACK]:
                fabric.wire.remove(one)
                world.b.finalize(one[1], HealthStatus.OK)
    else:
        for _, msg in puts:
            a.finalize(msg, HealthStatus.OK)  # the driver is done with them, and nobody got them
    fabric.run()
    assert call.ends == []
    for core, nid in ((a, A1), (world.b, B1)):
        core.add_ni(nid.net, nid)
    fabric.run()
    a.path_lost(a.nis[A], B)
    fabric.run()
    assert call.ends == [64] * 3
    assert sorted(one[6] for one in world.arrived.seen[start:]) == [0, 1, 2]
    assert world.b.stats.drops["sent again, and was taken or may have been"] == 3 * delivered
    assert a.stats.rst_alloc == 0
    fabric.assert_conserved()
    call.put(b"after")
    fabric.run()
    assert call.ends[-1] == 5


def test_a_late_first_behind_its_resend_is_dropped_by_the_inlet_too(world: World) -> None:
    """The receiver's half alone: hand-made headers on a connection that knows their like."""
    b = world.b
    inlet = b.inlet(b.nis[B], A)
    tag = b._receive._once.tag
    prefix = b"other\0\0\0"
    payload = memoryview(b"z" * 8)

    def header(number: int, mark: int) -> Header:
        name = prefix + number.to_bytes(5, "big") + tag + bytes((mark,))
        return Header(MsgType.PUT, B, A, 12345, 12345, 8, name, BITS, number, PORTAL)

    known = header(1, 0x40)
    start = len(world.arrived.seen)
    assert inlet.take(known, payload, 0)
    assert inlet.named
    assert inlet.take(known, payload, 0, header(2, 0x40).wmd)
    resend = header(3, 0x80)
    assert not inlet.take(known, payload, 0, resend.wmd)  # looked at more closely
    b._receive._once.resends[header(4, 0x40).wmd[:15]] = 0.0
    assert not inlet.take(known, payload, 0, header(4, 0x40).wmd)  # its resend was delivered
    former = header(5, 0x40).wmd[:13] + b"??" + bytes((0x40,))
    assert not inlet.take(known, payload, 0, former)  # meant for a former life: not noted, so looked at
    notes = b._receive._once.notes
    assert [notes.taken(header(number, 0x80).wmd) for number in (1, 2, 3, 4)] == [True, True, False, False]
    assert len(world.arrived.seen) - start == 2
    inlet.settle()


def test_memory_that_is_not_acknowledged_goes_the_general_way(world: World) -> None:
    """A PUT to it is noted as taken without ACK, so its resend must not be answered."""
    me = world.b.memory.me_attach(PORTAL, match_bits=50)
    options = OP_PUT | MANAGE_REMOTE | ACK_DISABLE
    world.b.memory.md_attach(me, bytearray(64), None, options=options)
    call = Call(world.a)
    before = fabric_of(world).taken
    for _ in range(4):
        call.put(b"q" * 8, bits=50)
    names = [msg.name for _, msg in world.fabric.wire]
    world.fabric.run()
    assert fabric_of(world).taken == before
    assert set(world.b._receive._once.notes.lengths) == {name[:15] for name in names}
    assert call.ends == []
    assert world.a.stats.rst_alloc == 4


def test_answers_that_nobody_waits_for_any_more_are_dropped(world: World) -> None:
    call = Call(world.a)
    md = call.put(b"d" * 8)
    while not any(msg.hdr.type == MsgType.ACK for _, msg in world.fabric.wire):
        world.fabric.step()
    fabric_of(world).tell()
    world.a.memory.md_unlink(md)
    world.fabric.run()
    assert world.a.stats.drops["answer to nothing that waits"] == 1
    world.fabric.assert_conserved()


# What lanes depend on changes under them ------------------------------------------------------------

_RULE = Fault(FaultKind.DROP, ANY_NID, ANY_NID, rate=3, health=1 << HealthStatus.LOCAL_DROPPED)


def _rails(world: World, chance: Random) -> None:
    for core, nid in ((world.a, A1), (world.b, B1)):
        if nid in core.nis:
            core.del_ni(nid)
        else:
            core.add_ni(nid.net, nid)


def _give_back(world: World, chance: Random) -> None:
    """The driver gives some messages back of which nothing was sent."""
    for ni, msg in list(world.fabric.wire):
        if ni.nid in (A, A1) and msg.hdr.type == MsgType.PUT and chance.random() < 0.3:
            world.fabric.wire.remove((ni, msg))
            world.a.take_back(msg)


_CHANGES: list[Callable[[World, Random], object]] = [
    lambda world, chance: world.a.settings_changed(),
    lambda world, chance: world.a.selector.follow(True),
    lambda world, chance: world.a.faults.add(_RULE),
    lambda world, chance: world.a.faults.delete(FaultKind.DROP),
    lambda world, chance: world.a.peer_restarted(B),
    lambda world, chance: world.b.peer_restarted(A),
    lambda world, chance: world.a.path_lost(world.a.nis[A], B),
    lambda world, chance: fabric_of(world).reconnect(),
    _rails,
]


@pytest.mark.parametrize("seed", range(80))
@pytest.mark.parametrize("rails", [1, 3])
def test_each_ends_once_and_comes_once_whatever_changes(seed: int, rails: int) -> None:
    chance = Random(seed)
    world = World(True) if rails == 1 else RailWorld(True, rails, 1, "expected", batches=seed % 2 == 0)
    world.warm()
    call = Call(world.a)
    data = [bytearray(b"s" * size) for size in (0, 64, 64, 600, LIGHT + 1)]
    start, quiet, sent = len(world.arrived.seen), False, 0

    def is_lost(msg: Any) -> bool:
        return not quiet and msg.hdr.type == MsgType.PUT and chance.random() < 0.03

    for _ in range(120):
        for _ in range(chance.choice([1, 1, 3, 10])):
            sent += 1
            call.put(chance.choice(data), ack=chance.random() < 0.7, hdr_data=sent)
        if chance.random() < 0.1 and call.md is not None:
            world.a.memory.md_unlink(call.md)
        for _ in range(chance.choice([0, 1, 3, 20])):
            world.fabric.step(is_lost)
        if chance.random() < 0.15:
            chance.choice(_CHANGES)(world, chance)
        if chance.random() < 0.05:
            _give_back(world, chance)
    quiet = True
    world.a.faults.delete(FaultKind.DROP)
    for _ in range(30):
        world.fabric.run()
        world.fabric.clock.now += 10.0
    world.fabric.run()
    assert len(call.ends) == sent
    call.close()
    came = Counter(one[6] for one in world.arrived.seen[start:])
    assert max(came.values()) == 1
    assert call.quick
    world.fabric.assert_conserved()
    assert not world.fabric.complaints
    assert world.a.stats.rst_alloc == 0
    assert len(world.a.memory.mds) == len(world.b.memory.mds) - 1  # both answer pings; B has the inbox
    gc.collect()  # those of `call` know themselves
    for one in data:
        one.extend(b"more")  # nobody has a view of it


# Broken connections ---------------------------------------------------------------------------------


class Counted(dict[Any, Any]):
    """Counts who is looked at."""

    looked = 0

    def __iter__(self) -> Any:
        for one in super().__iter__():
            self.looked += 1
            yield one


@pytest.mark.pure
def test_a_broken_connection_looks_at_those_alone_that_sent_there() -> None:
    fabric = Fabric()
    a = fabric.node("10.0.0.1@tcp")
    others = [Nid.parse(f"10.0.1.{number}@tcp") for number in range(1, 101)]
    for nid in others:
        fabric.node(str(nid))
        md = a.memory.md_bind(b"to all", None)
        a.put(md, nid, PORTAL, BITS)
    fabric.run()
    hops: dict[Nid, Any] = a.memory._hops
    assert [len(hops[nid]) for nid in others] == [1] * 100
    everyone = a.memory.mds = Counted(a.memory.mds)
    for nid in others:
        hops[nid] = Counted(hops[nid])
    assert a.memory.awaits(others[7])
    assert not a.memory.awaits(Nid.parse("10.9.9.9@tcp"))
    assert everyone.looked == 0
    assert sum(there.looked for there in hops.values()) == 1
    a.memory.forsake(others[7])
    assert others[7] not in hops
    assert sum(there.looked for there in hops.values()) == 0


def test_a_named_put_is_not_taken_for_one_without_ack_that_came_before_a_resend(world: World) -> None:
    """The driver knows the header of the former, and the inlet looks for names since the latter."""
    inlet = world.b.inlet(world.b.nis[B], A)
    tag = world.b._receive._once.tag
    mds = [world.bind(b"") for _ in range(2)]
    resent, named = (world.a.memory.identity_of(md, tag) for md in mds)
    plain, repeated = (
        Header(int(MsgType.PUT), B, A, 12345, 12345, 8, wmd, BITS, 0, PORTAL)
        for wmd in (NO_WMD, again(resent))
    )
    payload = memoryview(b"12345678")
    assert inlet.take(plain, payload, 0)
    assert not inlet.take(repeated, payload, 0)
    assert inlet.named
    assert not inlet.take(plain, payload, 0, named)
    assert not world.b._receive._once.notes.taken(again(named))
