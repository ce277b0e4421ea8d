"""A peer tells of more NIDs than are merged in one turn: what happens between two turns is not lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.fabric import Fabric, Recorder
from ulnet.control.instance import LNet
from ulnet.core.peer import Peer
from ulnet.core.status import LNetError
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.ping import NiEntry, PingInfo

A, B = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.0.0.2@tcp")
MANY = [Nid.parse(f"10.{1 + (n >> 8)}.{n & 255}.7@tcp") for n in range(600)]
Change = Callable[[LNet, LNet], object]


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


def peer(core: LNet, nid: Nid) -> Peer:
    found = core.peers.find(nid)
    assert found is not None
    return found


def half_merged(fabric: Fabric) -> tuple[LNet, LNet]:
    """Two nodes; the first one has merged a part of the 201 NIDs that the second one pushed."""
    a, b = fabric.node(str(A), discovery=True), fabric.node(str(B), discovery=True)
    for one, nid in ((a, B), (b, A)):
        one.discovery.discover(nid, done=lambda error, found: None)
    fabric.run()
    for nid in MANY[:200]:
        b.add_ni(nid.net, nid)
    while (merging := peer(a, B).merging) is None or len(merging[0].entries) < 201:
        fabric.step()
    return a, b


def answers_as_one_nid(core: LNet) -> None:
    """The node began anew, with its first NID alone."""
    md = core.info._ping
    assert md is not None
    data = PingInfo(0x1E, LNET_PID, 1, [NiEntry(B)]).pack()
    md.fragments = [memoryview(data)]
    md.length = len(data)


def restart(a: LNet, b: LNet) -> None:
    answers_as_one_nid(b)
    a.peer_restarted(B)


def delete(a: LNet, b: LNet) -> None:
    a.peers.delete(B, [MANY[0]])


def strict(a: LNet, b: LNet) -> None:
    a.set_discovery(2)


def nothing(a: LNet, b: LNet) -> None:
    pass


@pytest.mark.parametrize(("change", "known"), [(nothing, 201), (restart, 1), (delete, 201), (strict, 201)])
def test_what_happens_between_two_turns_is_not_lost(fabric: Fabric, change: Change, known: int) -> None:
    a, b = half_merged(fabric)
    change(a, b)
    fabric.run()
    got = Recorder()
    a.put(a.memory.md_bind(b"1", got, threshold=2), B, 5, 7)
    fabric.run()
    found = peer(a, B)
    assert len(found.members) == known
    assert found.settled and found.merging is None and not found.parked


def test_a_peer_that_goes_between_two_turns_keeps_nothing(fabric: Fabric) -> None:
    a, _ = half_merged(fabric)
    found = peer(a, B)
    a.peers.delete(B)
    assert found.merging is None and found.news is None
    fabric.run()
    assert a.peers.find(MANY[0]) is None


@pytest.mark.parametrize("at", [0, 63, 64, 550, 599])
def test_who_asks_any_nid_of_a_long_list_finds_the_whole_peer(fabric: Fabric, at: int) -> None:
    a = fabric.node(str(A), discovery=True)
    fabric.node(str(B), *map(str, MANY), discovery=True)
    a.peers.learn(B)
    told: list[tuple[LNetError | None, Peer | None]] = []
    a.discovery.discover(MANY[at], done=lambda error, found: told.append((error, found)))
    fabric.run()
    assert told == [(None, peer(a, B))]
    assert next(iter(peer(a, B).members)) == B and len(peer(a, B).members) == 601


def test_one_long_list_is_worked_at_in_a_tick_and_all_have_their_turns(fabric: Fabric) -> None:
    """200 peers that push long lists at once would keep everybody waiting for as many turns."""
    a = fabric.node(str(A), discovery=True)
    nids = [Nid.parse(f"10.0.1.{n}@tcp") for n in range(1, 9)]
    for number, nid in enumerate(nids):
        a.peers.learn(nid)
        listed = [Nid.parse(f"10.{20 + number}.{n}.7@tcp") for n in range(130)]
        entries = [NiEntry(one) for one in (nid, *listed)]
        a.discovery.pushed(nid, PingInfo(0x1E, LNET_PID, 2, entries))

    def merged() -> list[int]:
        return [len(peer(a, nid).members) for nid in nids]

    seen = [merged()]
    while any(one.news for one in a.peers):
        a.tick(fabric.clock.now)
        seen.append(merged())
        assert sum(now != before for now, before in zip(seen[-1], seen[-2], strict=True)) <= 1
    assert seen[8] == [64] * 8, "each has its first turn before any has its second"
    assert seen[-1] == [131] * 8 and len(seen) == 1 + 8 * 3
    assert all(peer(a, nid).merging is None for nid in nids)
