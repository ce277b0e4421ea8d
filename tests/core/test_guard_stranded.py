"""PUTs that may be lost while there is no other path are copied once there is one, so many in a turn."""

from __future__ import annotations

import errno
from collections import Counter

import pytest

from support.fabric import Fabric
from ulnet.control.instance import LNet
from ulnet.core.event import Event, EventKind
from ulnet.core.guard.identity import tag_of
from ulnet.core.md import MANAGE_REMOTE, OP_PUT, TRUNCATE, Md
from ulnet.core.ni import NI
from ulnet.core.status import HealthStatus
from ulnet.core.tunables import NetTunables
from ulnet.nid import Nid

COUNT = 300
FIRST, SECOND = Nid.parse("10.0.0.2@tcp"), Nid.parse("10.1.0.2@tcp1")

pytestmark = pytest.mark.requirement("HEALTH-resend")


class World:
    """`COUNT` PUTs, one byte each, have left by the first of two paths; both have paused."""

    def __init__(self) -> None:
        self.fabric = fabric = Fabric()
        many = NetTunables(peer_credits=1024, credits=2048)
        self.a = a = fabric.node("10.0.0.1@tcp", "10.1.0.1@tcp1", tunables=many)
        b = fabric.node(str(FIRST), str(SECOND), tunables=many)
        a.peers.add(FIRST, [SECOND]).guard = tag_of(b.state.cookie)
        me = b.memory.me_attach(30, match_bits=1)
        self.got: Counter[int] = Counter()
        sink = bytearray(COUNT)
        b.memory.md_attach(me, sink, self.took, options=OP_PUT | MANAGE_REMOTE | TRUNCATE)
        self.second = self.ni(a, "10.1.0.1@tcp1")
        a.path_stalled(self.second, SECOND)
        self.ends: Counter[tuple[int, EventKind, int]] = Counter()
        self.mds = [self.put(number) for number in range(COUNT)]
        a.path_stalled(self.ni(a, "10.0.0.1@tcp"), FIRST)
        a.tick(fabric.clock.now)
        assert len(fabric.wire) == COUNT, "there is no path for copies"
        self.lose()

    def lose(self) -> None:
        """What is on the wire has left, and nobody gets it."""
        lost = [msg for _, msg in self.fabric.wire]
        self.fabric.wire.clear()
        for msg in lost:
            self.a.completed([msg])

    @staticmethod
    def ni(core: LNet, nid: str) -> NI:
        return core.nis[Nid.parse(nid)]

    def put(self, number: int) -> Md:
        def told(event: Event) -> None:
            self.ends[number, event.kind, event.status] += 1

        md = self.a.memory.md_bind(b"x", told, threshold=2)
        self.a.put(md, FIRST, 30, 1, hdr_data=number)
        return md

    def took(self, event: Event) -> None:
        if event.kind is EventKind.PUT:
            self.got[event.hdr_data] += 1

    def turns(self, seconds: float = 0.0) -> list[int]:
        """How many copies left in each turn, until all is done that is due after that time."""
        self.fabric.clock.now += seconds
        counts = []
        while True:
            before = len(self.fabric.wire)
            self.a.tick(self.fabric.clock.now)
            counts.append(len(self.fabric.wire) - before)
            if not self.a.state.work_pending:
                return counts


def test_so_many_are_copied_in_a_turn() -> None:
    """All were, 25 µs each."""
    world = World()
    world.a.path_moving(world.second, SECOND)
    counts = world.turns(0.6)
    assert max(counts) == 64
    assert sum(counts) == COUNT
    order = [msg.hdr.hdr_data for _, msg in world.fabric.wire]
    assert order == sorted(order)
    assert not any(world.turns(0.6)), "they are no longer stranded"


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_a_path_that_pauses_again_loses_none_of_those_that_wait_for_their_turn(turns: int) -> None:
    world = World()
    a, fabric = world.a, world.fabric
    a.path_moving(world.second, SECOND)
    fabric.clock.now += 0.6
    for _ in range(turns):
        a.tick(fabric.clock.now)
    copied = len(fabric.wire)
    assert copied == min(64 * turns, COUNT)
    a.path_stalled(world.second, SECOND)
    assert not any(world.turns())
    world.lose()
    for number in (0, COUNT - 1):
        a.memory.md_unlink(world.mds[number])
    assert not any(world.turns(0.6))
    a.path_moving(world.second, SECOND)  # for those that have no copy yet, and the first one for the others
    a.path_moving(world.ni(a, "10.0.0.1@tcp"), FIRST)
    counts = world.turns(0.6)
    assert max(counts) == 64
    assert sum(counts) == COUNT - 2
    fabric.run()
    assert world.got == Counter(range(1, COUNT - 1))


@pytest.mark.parametrize("turns", [0, 1])
def test_a_node_that_ends_meanwhile_copies_no_more(turns: int) -> None:
    world = World()
    a, fabric = world.a, world.fabric
    a.path_moving(world.second, SECOND)
    fabric.clock.now += 0.6
    for _ in range(turns):
        a.tick(fabric.clock.now)
    a.shutdown()
    fabric.clock.now += 0.6
    a.tick(fabric.clock.now)
    assert not a.state.work_pending
    assert not fabric.wire
    assert {kind for _, kind, _ in world.ends} >= {EventKind.UNLINK}


def test_a_put_whose_copy_failed_for_good_is_tried_again() -> None:
    """Its first NI is gone, so that the copy has no other path when it fails; nobody looked for one again."""
    world = World()
    a, fabric = world.a, world.fabric
    a.path_moving(world.second, SECOND)
    assert sum(world.turns(0.6)) == COUNT
    a.del_ni(Nid.parse("10.0.0.1@tcp"))
    assert not any(world.turns())
    copies = [msg for _, msg in fabric.wire]
    fabric.wire.clear()
    for msg in copies:
        a.completed([msg], HealthStatus.REMOTE_ERROR, errno.ECONNRESET, "reset")
    assert sum(world.turns(1.0)) == COUNT
    fabric.run()
    assert world.got == Counter(range(COUNT))
