"""NIDs that are asked themselves, and what waits meanwhile."""

from __future__ import annotations

import errno

import pytest

from control.discovery.test_discovery_elsewhere import settle
from control.discovery.test_discovery_handover import lie
from control.discovery.test_discovery_hostile import answer, attach, info, peer, push, put
from control.discovery.test_discovery_takeover import FOE, A, pushed_by
from support.fabric import Fabric
from ulnet.control.instance import LNet
from ulnet.core.ni import NI
from ulnet.nid import Nid
from ulnet.wire.lnet import MsgType

FIRST, SECOND, OTHER = (Nid.parse(f"10.0.0.{number}@tcp") for number in (7, 8, 5))


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


def know_each_other(fabric: Fabric, a: LNet, foe: LNet, node: LNet) -> None:
    """What must happen before a foe may list NIDs of a node that was heard."""
    for core in (a, foe, node):
        attach(core)
    for core, nid in ((a, FIRST), (a, SECOND), (foe, A), (a, FOE)):
        put(core, nid)
    fabric.run()
    fabric.clock.now += 12


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


def test_nids_that_another_lists_all_the_time_are_asked_once_in_ten_seconds(fabric: Fabric) -> None:
    """Its peer, which is configured with more than it tells, was pinged once in each round trip."""
    a, foe, node = (fabric.node(str(nid), discovery=True) for nid in (A, FOE, FIRST))
    node.add_ni(SECOND.net, SECOND)
    a.peers.add(FIRST, [SECOND])
    answer(node, info(9, FIRST))
    know_each_other(fabric, a, foe, node)
    asked = {FIRST: 0, SECOND: 0}
    for turn in range(800):
        if turn < 600:
            push(foe, A, lie(10 + turn, SECOND))
        fabric.clock.now += 0.025
        for core in fabric.cores:
            core.tick(fabric.clock.now)
        for _ in range(len(fabric.wire)):
            msg = fabric.wire[0][1]
            if msg.hdr.type == MsgType.GET and msg.next_nid in asked:
                asked[msg.next_nid] += 1
            fabric.step()
    assert 2 <= asked[SECOND] <= 4
    assert asked[FIRST] <= 4


def test_one_that_is_silent_is_not_asked_again_when_that_may_be(fabric: Fabric) -> None:
    a, foe, node = (fabric.node(str(nid), discovery=True) for nid in (A, FOE, FIRST))
    node.add_ni(SECOND.net, SECOND)
    a.peers.add(FIRST, [SECOND])
    know_each_other(fabric, a, foe, node)
    lost = 0
    for turn in range(300):
        push(foe, A, lie(10 + turn, SECOND))
        fabric.clock.now += 0.1
        for core in fabric.cores:
            core.tick(fabric.clock.now)
        while fabric.wire:
            if fabric.wire[0][1].next_nid == SECOND:
                fabric.wire.popleft()
                lost += "ping" in peer(a, FIRST).exchanges  # else it is the health that is looked after
            else:
                fabric.step()
    assert lost == 1


def test_that_a_nid_is_asked_is_forgotten_when_the_round_ends_otherwise(fabric: Fabric) -> None:
    """The next ping that was lost was taken for one to that NID: what waited was not told why."""
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    node = fabric.node(str(FIRST), str(SECOND), discovery=True)
    a.peers.add(FIRST, [SECOND])
    know_each_other(fabric, a, foe, node)
    victim = peer(a, FIRST)
    a.discovery.push_anyway(victim)
    a.tick(fabric.clock.now)
    fabric.wire.popleft()
    push(foe, A, lie(10, SECOND))
    while not (asking := [one for one in fabric.wire if one[1].next_nid == SECOND]):
        fabric.step()
        a.tick(fabric.clock.now)
    fabric.wire.remove(asking[0])
    victim.error = (errno.EIO, "the push is lost")
    a.discovery._push_lost(victim)
    fabric.run()
    assert victim.exchanges == {}
    assert not a.discovery._claims.asks_suspect(victim)


def test_few_nids_of_a_peer_are_asked_at_a_time(fabric: Fabric) -> None:
    """Three hundred were, with a buffer of 16 KiB each."""
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    listed = [Nid.parse(f"10.0.9.{number}@tcp") for number in range(1, 201)]
    answer(foe, lie(2, *listed))
    put(a, FOE)
    fabric.run()
    assert len(peer(a, FOE).members) == 201
    for nid in listed:
        pushed_by(nid, a, nid, bytes(32))
        a.tick(fabric.clock.now)
    assert 60 <= len(peer(a, FOE).exchanges) <= 66


def test_a_ping_ends_with_connections_of_the_ni_that_it_left_by_alone(fabric: Fabric) -> None:
    """Who called another NI of this node and hung up had the ping asked anew, and messages failed."""
    a = fabric.node(str(A), str(OTHER), discovery=True)
    sent = put(a, FIRST)

    def asked() -> NI | None:
        """The NI by which a ping leaves; no answer comes."""
        a.tick(fabric.clock.now)
        if not fabric.wire:
            return None
        ni, msg = fabric.wire.popleft()
        a.completed([msg])
        a.tick(fabric.clock.now)
        return ni

    by = asked()
    assert by is not None
    (beside,) = {a.nis[A], a.nis[OTHER]} - {by}
    for _ in range(10):
        a.path_lost(beside, FIRST)
        assert asked() is None
    assert not sent
    a.path_lost(by, FIRST)
    assert asked() is not None


def test_pings_that_are_lost_with_one_next_hop_leave_anew_a_few_in_a_turn(fabric: Fabric) -> None:
    """All of them left in one turn: 8,000 in a second."""
    a, done = fabric.node(str(A), discovery=True), []
    nids = [Nid.parse(f"10.9.0.{number}@tcp") for number in range(1, 201)]
    for nid in nids:
        a.discovery.discover(nid, done=lambda error, found: done.append(error))

    def left() -> list[int]:
        """How many leave in each turn."""
        counts: list[int] = []
        while not counts or a.state.work_pending:
            a.tick(fabric.clock.now)
            counts.append(len(fabric.wire))
            while fabric.wire:
                a.completed([fabric.wire.popleft()[1]])
        return [count for count in counts if count]

    assert sum(left()) == 200
    for nid in nids:
        for exchange in peer(a, nid).exchanges.values():
            assert exchange.md is not None
            a.memory.went(exchange.md, OTHER)
    a.path_lost(a.nis[A], OTHER)
    assert left() == [64, 64, 64, 8]
    assert not done
