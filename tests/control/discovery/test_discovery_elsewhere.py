"""Plain peers that list NIDs which a node does not hear itself: behind gateways, or on other nets."""

from __future__ import annotations

import pytest

from control.discovery.test_discovery_hostile import answer, attach, peer, push, put
from control.discovery.test_discovery_takeover import FOE, SECOND, VICTIM, A, lie, pushed_by
from support.fabric import Fabric, Recorder
from ulnet.control.instance import LNet
from ulnet.core.md import MdOption
from ulnet.core.peer import PeerFlag
from ulnet.nid import LNET_PID, Net, Nid
from ulnet.wire.ping import NiEntry, NiStatus, PingInfo

NEAR, FAR, BEYOND = (Nid.parse(name) for name in ("10.0.0.9@tcp", "10.9.0.9@tcp9", "10.9.0.7@tcp9"))
FOE2 = Nid.parse("10.0.0.67@tcp")


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


def claiming(first: bool, victim: Nid, *more: Nid) -> bytes:
    """What the foe pushes: another's NID, as its primary or behind its own."""
    entries = [NiEntry(FOE), *(NiEntry(nid) for nid in more)]
    entries.insert(0 if first else len(entries), NiEntry(victim, NiStatus.DOWN))
    return PingInfo(0x1E, LNET_PID, 100, entries).pack()


def settle(fabric: Fabric, seconds: int = 6) -> None:
    for _ in range(seconds):
        fabric.run()
        fabric.clock.now += 1.0
    fabric.run()


def sent_to(fabric: Fabric, a: LNet, victim: Nid, got: Recorder) -> int:
    """How many of eight messages to a NID are its node's."""
    before = len(got)
    for _ in range(8):
        put(a, victim)
        settle(fabric, 2)
    return len(got) - before


def opened_to(fabric: Fabric, a: LNet, foe: LNet, victim: Nid) -> bytes:
    """What the foe writes into memory that is open to another node alone."""
    opened = bytearray(8)
    me = a.memory.me_attach(9, match_bits=1, nid=victim)
    a.memory.md_attach(me, opened, None, options=MdOption.OP_PUT)
    foe.put(foe.memory.md_bind(b"EVIL", None, threshold=2), A, 9, 1)
    settle(fabric)
    return bytes(opened)


def gains_nothing(
    fabric: Fabric, a: LNet, foe: LNet, victim: Nid, got: Recorder, first: bool = False
) -> None:
    """Neither the messages to a NID nor memory that is open to its node are those of who lists it."""
    says = claiming(first, victim)
    answer(foe, says)
    for _ in range(3):
        push(foe, A, says)
        settle(fabric, 12)
    assert sent_to(fabric, a, victim, got) == 8
    assert opened_to(fabric, a, foe, victim) == bytes(8)


def routed(fabric: Fabric) -> tuple[LNet, LNet]:
    """A node, and one that it reaches by a gateway: both ways were used."""
    a, gateway = fabric.node(str(A), discovery=True), fabric.node(str(NEAR), str(FAR), discovery=True)
    beyond = fabric.node(str(BEYOND), discovery=True)
    for core in (a, gateway, beyond):
        core.gateways.settings.alive_router_check_interval = core.gateways.settings.router_ping_timeout = 5
    gateway.router.enable(True)
    a.gateways.add(Net.parse("tcp9"), NEAR, 1, 0)
    beyond.gateways.add(Net.parse("tcp"), FAR, 1, 0)
    settle(fabric, 70)
    attach(a)
    return a, beyond


@pytest.mark.parametrize("locked", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_a_peer_behind_a_gateway_stays_with_who_answered(fabric: Fabric, first: bool, locked: bool) -> None:
    """Only next hops were heard: one push of a neighbour had the messages for such a peer."""
    a, beyond = routed(fabric)
    foe, got = fabric.node(str(FOE)), attach(beyond)
    put(a, BEYOND)
    settle(fabric)
    put(beyond, A)
    settle(fabric)
    if locked:
        a.peers.lock(peer(a, BEYOND))
    attach(foe)
    gains_nothing(fabric, a, foe, BEYOND, got, first)


def test_a_gateways_other_nids_stay_with_it(fabric: Fabric) -> None:
    """Who listed one of them had the route down: messages beyond failed."""
    a, beyond = routed(fabric)
    foe, got = fabric.node(str(FOE)), attach(beyond)
    put(a, BEYOND)
    settle(fabric)
    says = claiming(False, FAR)
    answer(foe, says)
    push(foe, A, says)
    fabric.run()
    assert [a.gateways.why_down(route) for route in a.gateways.table] == [""]
    assert sent_to(fabric, a, BEYOND, got) == 8


def test_a_primary_nid_of_another_net_stays_with_its_node(fabric: Fabric) -> None:
    """This node has no NI of that net, so that the NID was never heard."""
    a, victim = fabric.node(str(A), discovery=True), fabric.node(str(SECOND), str(VICTIM), discovery=True)
    foe = fabric.node(str(FOE))
    attach(a)
    attach(foe)
    got = attach(victim)
    for _ in range(2):
        put(a, VICTIM)
        fabric.run()
    assert peer(a, VICTIM).primary_nid == SECOND
    gains_nothing(fabric, a, foe, SECOND, got)


def test_a_nid_that_went_to_another_node_is_found_there(fabric: Fabric) -> None:
    """The node that lost it has told nobody: it is asked, and then the other one again."""
    a = fabric.node(str(A), discovery=True)
    before, now = fabric.node(str(VICTIM), str(SECOND), discovery=True), fabric.node(str(FOE), discovery=True)
    for core in (a, before, now):
        attach(core)
    for nid in (VICTIM, FOE):
        put(a, nid)
        fabric.run()
    assert list(peer(a, VICTIM).nids()) == [VICTIM, SECOND]
    before.discovery.stop()
    before.del_ni(SECOND)
    before.discovery.start()
    now.add_ni(SECOND.net, SECOND)
    fabric.run()
    put(a, FOE)
    fabric.run()
    assert [list(peer(a, nid).nids()) for nid in (VICTIM, FOE)] == [[VICTIM], [FOE, SECOND]]


def test_who_was_heard_is_not_taken_while_it_is_asked_for_the_first_time(fabric: Fabric) -> None:
    a, victim = fabric.node(str(A), discovery=True), fabric.node(str(VICTIM), discovery=True)
    foe = fabric.node(str(FOE))
    attach(a)
    attach(foe)
    got = attach(victim)
    victim.discovery.stop()
    put(victim, A)
    fabric.run()
    victim.discovery.start()
    put(a, VICTIM)
    a.tick(fabric.clock.now)
    assert peer(a, VICTIM).flags & PeerFlag.DISCOVERING
    answer(foe, lie(9, VICTIM))
    pushed_by(FOE, a, FOE, lie(9, VICTIM))
    for _ in range(30):
        a.tick(fabric.clock.now)
    fabric.run()
    assert sent_to(fabric, a, VICTIM, got) == 8
    assert len(got) == 9
    assert list(peer(a, VICTIM).nids()) == [VICTIM]


def test_a_certificate_is_for_the_primary_nid_too(fabric: Fabric) -> None:
    """Who named another had its list merged as that one's, which has no certificate yet."""
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE), str(FOE2))
    attach(a)
    attach(foe)
    fabric.certificates = dict.fromkeys((FOE, FOE2), frozenset((FOE, FOE2)))
    put(a, VICTIM)  # which is down
    settle(fabric, 60)
    says = claiming(True, VICTIM, FOE2)
    answer(foe, says)
    push(foe, A, says)
    settle(fabric)
    assert list(peer(a, VICTIM).nids()) == [VICTIM]
    got = attach(fabric.node(str(VICTIM), discovery=True))
    assert sent_to(fabric, a, VICTIM, got) == 8
