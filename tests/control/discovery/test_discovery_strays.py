"""NIDs that a list gave to a peer before their own node was heard (docs/security.md)."""

from __future__ import annotations

import pytest

from control.discovery.test_discovery_elsewhere import BEYOND, NEAR, opened_to, routed, sent_to, settle
from control.discovery.test_discovery_hostile import answer, attach, info, peer, push, put
from control.discovery.test_discovery_takeover import FOE, SECOND, VICTIM, A, pushed_by
from support.fabric import Fabric, Recorder
from ulnet.control.instance import LNet
from ulnet.nid import LNET_PID, Net, Nid
from ulnet.wire.ping import NiEntry, PingInfo

MANY = 0xFFFFFFF0  # a sequence number that no other one exceeds
THIRD = Nid.parse("10.2.0.7@tcp2")
GATEWAY, INNER, REMOTE = (Nid.parse(nid) for nid in ("10.0.0.5@tcp", "10.2.0.5@tcp2", "10.2.0.9@tcp2"))


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


def listed_by(fabric: Fabric, a: LNet, foe: LNet, sequence: int, *nids: Nid) -> None:
    answer(foe, info(sequence, *nids))
    put(a, FOE)
    fabric.run()
    push(foe, A, info(sequence, *nids))
    fabric.run()


def speak(fabric: Fabric, victim: LNet) -> None:
    """A node sends, and discovers whom it sends to."""
    put(victim, A)
    victim.discovery.discover(A, force=True, done=lambda error, found: None)
    settle(fabric)


def is_its_own(fabric: Fabric, a: LNet, foe: LNet, victim: Nid, got: Recorder) -> None:
    assert sent_to(fabric, a, victim, got) == 8
    assert opened_to(fabric, a, foe, victim) == bytes(8)
    assert not peer(a, victim).owns(FOE)


# Whoever lists it, its node has it once that speaks ----------------------------------------------------


@pytest.mark.parametrize("called", [False, True], ids=["", "the victim was called"])
@pytest.mark.parametrize("named", [None, FOE, VICTIM], ids=["", "the foe is named", "the victim is named"])
@pytest.mark.parametrize("sequence", [2, MANY])
@pytest.mark.parametrize("nids", [(FOE, VICTIM), (VICTIM, FOE)], ids=["as its second", "as its first"])
def test_a_nid_that_was_listed_first_is_its_nodes_once_that_says_so(
    fabric: Fabric, nids: tuple[Nid, ...], sequence: int, named: Nid | None, called: bool
) -> None:
    """What it pushed had a lower number than the foe's list, and the ping about that went to the foe."""
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    for core in (a, foe):
        attach(core)
    if named is FOE:
        a.peers.name([FOE])
    if called:
        put(a, VICTIM)
        fabric.run()
        if named is VICTIM:
            a.peers.name([VICTIM, SECOND])
    listed_by(fabric, a, foe, sequence, *nids)
    assert peer(a, VICTIM) is peer(a, FOE)
    if named is VICTIM:
        a.peers.name([VICTIM, SECOND])
    victim = fabric.node(str(VICTIM), str(SECOND), discovery=True)
    got = attach(victim)
    speak(fabric, victim)
    is_its_own(fabric, a, foe, VICTIM, got)
    assert sorted(peer(a, VICTIM).nids()) == [VICTIM, SECOND]
    for _ in range(3):
        push(foe, A, info(MANY + 1, *nids, SECOND))
        settle(fabric, 12)
    is_its_own(fabric, a, foe, VICTIM, got)
    if named is not None:
        assert peer(a, named).primary_nid == named
    fabric.assert_conserved()


def test_each_of_several_nodes_that_were_listed_has_its_nid(fabric: Fabric) -> None:
    """They speak at the same time."""
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    for core in (a, foe):
        attach(core)
    nids = [Nid.parse(f"10.0.1.{number}@tcp") for number in range(1, 9)]
    listed_by(fabric, a, foe, MANY, FOE, *nids)
    assert len(peer(a, FOE).members) == 9
    victims = [fabric.node(str(nid), discovery=True) for nid in nids]
    for victim in victims:
        victim.discovery.discover(A, force=True, done=lambda error, found: None)
    settle(fabric, 12)
    assert [list(peer(a, nid).nids()) for nid in (FOE, *nids)] == [[nid] for nid in (FOE, *nids)]


def test_what_comes_by_a_gateway_in_the_name_of_a_nid_has_that_asked(fabric: Fabric) -> None:
    """A router passes on what anybody says: the foe would be known to be the node of a NID that it listed."""
    a, beyond = routed(fabric)
    foe = fabric.node(str(FOE))
    attach(foe)
    got = attach(beyond)
    listed_by(fabric, a, foe, 11, FOE, BEYOND)
    assert peer(a, BEYOND) is peer(a, FOE)
    pushed_by(NEAR, a, BEYOND, info(12, FOE, BEYOND))
    settle(fabric)
    assert peer(a, BEYOND) is not peer(a, FOE)
    is_its_own(fabric, a, foe, BEYOND, got)


@pytest.mark.parametrize("answers", [b"", b"nothing that is a ping info"], ids=["nothing", "nonsense"])
def test_nor_does_it_help_not_to_answer_then(fabric: Fabric, answers: bytes) -> None:
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    for core in (a, foe):
        attach(core)
    listed_by(fabric, a, foe, MANY, FOE, VICTIM)
    answer(foe, answers)
    if not answers:
        foe.info.stop()
    victim = fabric.node(str(VICTIM), discovery=True)
    got = attach(victim)
    speak(fabric, victim)
    settle(fabric, 120)
    put(a, VICTIM)
    settle(fabric, 120)
    got.clear()
    is_its_own(fabric, a, foe, VICTIM, got)
    fabric.assert_conserved()


def test_a_push_without_info_has_its_own_nid_asked(fabric: Fabric) -> None:
    """The foe was asked who it is."""
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    for core in (a, foe):
        attach(core)
    listed_by(fabric, a, foe, MANY, FOE, VICTIM)
    victim = fabric.node(str(VICTIM), discovery=True)
    got = attach(victim)
    pushed_by(VICTIM, a, VICTIM, bytes(32))
    settle(fabric)
    is_its_own(fabric, a, foe, VICTIM, got)


def test_who_asks_for_a_nid_hears_of_its_node(fabric: Fabric) -> None:
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    for core in (a, foe):
        attach(core)
    listed_by(fabric, a, foe, MANY, FOE, VICTIM)
    victim = fabric.node(str(VICTIM))
    attach(victim)
    found: list[object] = []
    a.discovery.discover(VICTIM, force=True, done=lambda error, who: found.append(who))
    settle(fabric)
    assert peer(a, VICTIM) is not peer(a, FOE)
    assert len(found) == 1


def test_a_node_that_gave_up_the_nid_that_it_was_heard_by_stays_one_peer(fabric: Fabric) -> None:
    """What it says by another one is not what a stranger says."""
    a = fabric.node(str(A), "10.1.0.1@tcp1", discovery=True)
    node = fabric.node(str(VICTIM), str(SECOND), discovery=True)
    attach(node)
    put(a, VICTIM)
    fabric.run()
    known = peer(a, SECOND)
    node.del_ni(VICTIM)
    fabric.run()
    assert list(peer(a, SECOND).nids()) == [SECOND]
    assert peer(a, SECOND) is known


# By a NID that nobody had ------------------------------------------------------------------------------


@pytest.mark.parametrize("heard", [False, True], ids=["before the victim", "after the victim"])
def test_a_listed_nid_does_not_make_the_victim_agree(fabric: Fabric, heard: bool) -> None:
    """The victim lists its second NID, which the foe had got: so it seemed to be the foe, with its first."""
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    victim = fabric.node(str(VICTIM), *([] if heard else [str(SECOND)]), discovery=True)
    got = attach(victim)
    for core in (a, foe):
        attach(core)
    if heard:
        speak(fabric, victim)
    listed_by(fabric, a, foe, 11, FOE, SECOND)
    assert peer(a, SECOND) is peer(a, FOE)
    if heard:
        victim.add_ni(SECOND.net, SECOND)
    speak(fabric, victim)
    for sequence in (12, 13, 14):
        listed_by(fabric, a, foe, sequence, FOE, SECOND, VICTIM)
        settle(fabric, 12)
    got.clear()
    is_its_own(fabric, a, foe, VICTIM, got)
    assert peer(a, VICTIM).owns(VICTIM)


def test_of_two_that_list_a_nid_its_own_node_has_it(fabric: Fabric) -> None:
    """It stayed with the first one, whoever it belonged to: it is asked itself where it can be."""
    a, foe = fabric.node(str(A), "10.1.0.1@tcp1", discovery=True), fabric.node(str(FOE))
    for core in (a, foe):
        attach(core)
    listed_by(fabric, a, foe, MANY, FOE, SECOND, THIRD)
    victim = fabric.node(str(VICTIM), str(SECOND), str(THIRD), discovery=True)
    attach(victim)
    put(a, VICTIM)
    settle(fabric, 12)
    assert sorted(peer(a, VICTIM).nids()) == [VICTIM, SECOND, THIRD]
    assert list(peer(a, FOE).nids()) == [FOE]


# Gateways ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [False, True], ids=["the list first", "the route first"])
@pytest.mark.parametrize("nids", [(FOE, GATEWAY), (GATEWAY, FOE)], ids=["as its second", "as its first"])
def test_nobody_becomes_a_gateway_by_listing_one_that_is_down(
    fabric: Fabric, nids: tuple[Nid, ...], first: bool
) -> None:
    """All messages to the net beyond went to it, and it was believed in the names of the nodes there."""
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    for core in (a, foe):
        attach(core)
    a.gateways.settings.alive_router_check_interval = 5
    says = PingInfo(0x1A, LNET_PID, MANY, [NiEntry(nid) for nid in (*nids, Nid.parse("10.2.0.66@tcp2"))])
    if first:
        a.gateways.add(REMOTE.net, GATEWAY, 1, 0)
    answer(foe, says.pack())
    put(a, FOE)
    fabric.run()
    push(foe, A, says.pack())
    if not first:
        fabric.run()
        a.gateways.add(REMOTE.net, GATEWAY, 1, 0)
    settle(fabric, 70)
    assert not a.routing.leads_over(FOE, REMOTE.net)
    assert [a.gateways.why_down(route) for route in a.gateways.table] == ["gateway dead"]
    gateway = fabric.node(str(GATEWAY), str(INNER), discovery=True)
    gateway.router.enable(True)
    remote = fabric.node(str(REMOTE), discovery=True)
    remote.gateways.add(Net.parse("tcp"), INNER, 1, 0)
    settle(fabric, 130)  # until it says that it routes
    assert sorted(peer(a, GATEWAY).nids()) == [GATEWAY, INNER]
    assert sent_to(fabric, a, REMOTE, attach(remote)) == 8


def test_a_gateway_is_one_peer_by_whichever_nid_it_is_known(fabric: Fabric) -> None:
    a = fabric.node(str(A), discovery=True)
    attach(fabric.node(str(VICTIM), str(GATEWAY), str(INNER), discovery=True))
    put(a, VICTIM)
    settle(fabric)
    a.gateways.add(REMOTE.net, GATEWAY, 1, 0)
    settle(fabric)
    assert sorted(peer(a, GATEWAY).nids()) == [GATEWAY, VICTIM, INNER]
