"""NIDs that are asked themselves, and what waits meanwhile."""

from __future__ import annotations

import pytest

from control.discovery.test_discovery_elsewhere import settle
from control.discovery.test_discovery_handover import lie
from control.discovery.test_discovery_hostile import answer, attach, peer, push, put
from control.discovery.test_discovery_takeover import FOE, A
from support.fabric import Fabric
from ulnet.nid import Nid

FIRST, SECOND, OTHER = (Nid.parse(f"10.0.0.{number}@tcp") for number in (7, 8, 5))


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


@pytest.mark.parametrize("named", [False, True], ids=["configured", "called by name"])
def test_a_foe_that_lists_many_nids_of_a_peer_makes_no_message_to_it_fail(
    fabric: Fabric, named: bool
) -> None:
    """Each was asked, whether it can be reached or not, and after eight the peer was given up."""
    far = [Nid.parse(f"10.{number}.0.7@tcp{number}") for number in range(1, 13)]
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    node = fabric.node(str(FIRST), *map(str, far), discovery=True)
    attach(a)
    attach(foe)
    got = attach(node)
    if named:
        a.peers.name([FIRST, *far])
    else:
        a.peers.add(FIRST, far)
    for core, nid in ((a, FIRST), (node, A), (a, FOE)):
        put(core, nid)
    fabric.run()
    fabric.clock.now += 12
    victim = peer(a, FIRST)
    before, sent = len(got), 0
    for sequence in range(2, 8):
        answer(foe, lie(sequence, *far))
        push(foe, A, lie(sequence, *far))
        for _ in range(400):
            moved = fabric.step() or any(core.state.work_pending for core in fabric.cores)
            if not victim.settled and sent < 5 * sequence:
                put(a, FIRST)
                sent += 1
            if not moved:
                break
        fabric.clock.now += 11
    fabric.run()
    assert sent
    assert len(got) == before + sent


def test_messages_for_a_nid_that_moves_go_on_while_what_is_left_of_its_peer_is_asked(fabric: Fabric) -> None:
    """A node is gone, another one has the second of its NIDs: they waited for the first, which is silent."""
    a, gone = fabric.node(str(A), discovery=True), fabric.node(str(FIRST), str(SECOND), discovery=True)
    other = fabric.node(str(OTHER), discovery=True)
    attach(a)
    attach(gone)
    got = attach(other)
    for core, nid in ((a, FIRST), (a, SECOND), (a, OTHER), (gone, A), (other, A)):
        put(core, nid)
    settle(fabric, 2)
    for nid in (FIRST, SECOND, FIRST, SECOND):
        a.discovery.discover(nid, force=True, done=lambda error, whose: None)
        settle(fabric, 12)
    left = peer(a, FIRST)
    assert peer(a, SECOND) is left
    fabric.cores.remove(gone)
    del fabric.nis[FIRST], fabric.nis[SECOND]
    fabric.clock.now += 2
    other.add_ni(SECOND.net, SECOND)
    before = len(got)
    sent = [put(a, SECOND)]
    fabric.silent.add(FIRST)
    for _ in range(60):
        for _ in range(400):
            for core in fabric.cores:
                core.tick(fabric.clock.now)
            if not left.settled and len(sent) < 6:
                sent.append(put(a, SECOND))
            if not fabric.step() and not any(core.state.work_pending for core in fabric.cores):
                break
        fabric.clock.now += 1
    assert len(sent) == 6
    assert list(left.nids()) == [FIRST]
    assert len(got) == before + len(sent)
    assert not [event for one in sent for event in one if event.status]
