"""NIDs that a list gave to a peer and that do not answer: nothing waits for them (docs/security.md)."""

from __future__ import annotations

import random

import pytest

from control.discovery.test_discovery_elsewhere import sent_to, settle
from control.discovery.test_discovery_hostile import answer, attach, info, peer, push, put
from control.discovery.test_discovery_takeover import FOE, A, deliver
from support.fabric import Fabric, Recorder
from ulnet.control.instance import LNet
from ulnet.core.peer import Peer, PeerFlag
from ulnet.core.routing.gateways import Gateways
from ulnet.core.status import LNetError
from ulnet.core.tunables import LndTunables
from ulnet.lnd.tcp.secure import Security
from ulnet.nid import LNET_PID, Net, Nid
from ulnet.wire.ping import NiEntry, PingInfo

HONEST, DEAD, REMOTE = (Nid.parse(nid) for nid in ("10.0.0.7@tcp", "10.0.0.8@tcp", "10.9.0.9@tcp9"))
INNER = Nid.parse("10.9.0.5@tcp9")


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


def carry(fabric: Fabric) -> int:
    """All that can arrive does, without any time passing; how many messages to DEAD do not."""
    before = fabric.lost
    fabric.silent.add(DEAD)
    for _ in range(2000):
        if not fabric.step() and not any(core.state.work_pending for core in fabric.cores):
            break
    fabric.silent.remove(DEAD)
    return fabric.lost - before


def honest_peer(fabric: Fabric) -> tuple[LNet, LNet, Recorder]:
    """A node that knows a peer of two NIDs, one of which no message reaches, and that peer."""
    a, honest = fabric.node(str(A), discovery=True), fabric.node(str(HONEST))
    attach(a)
    got = attach(honest)
    answer(honest, info(5, HONEST, DEAD))
    put(a, HONEST)
    carry(fabric)
    assert {nid: pni.listed for nid, pni in peer(a, HONEST).members.items()} == {HONEST: False, DEAD: True}
    return a, honest, got


def test_a_foe_that_lists_a_nid_that_is_silent_holds_up_no_message_to_its_peer(fabric: Fabric) -> None:
    """The NID alone was asked before anything went to the peer: 48 s, as often as the foe said so."""
    a, _, got = honest_peer(fabric)
    foe = fabric.node(str(FOE))
    attach(foe)
    asked = 0
    for turn in range(5):
        answer(foe, info(turn + 2, FOE, DEAD))
        push(foe, A, info(turn + 2, FOE, DEAD))
        asked += carry(fabric)
        before = len(got)
        put(a, HONEST)
        carry(fabric)
        assert len(got) == before + 1
        fabric.clock.now += 11
    assert 0 < asked <= 5
    assert peer(a, DEAD) is peer(a, HONEST)


def test_a_nid_that_is_silent_is_discovered_with_its_peer(fabric: Fabric) -> None:
    a, _, got = honest_peer(fabric)
    found: list[tuple[LNetError | None, Peer | None]] = []
    a.discovery.discover(DEAD, force=True, done=lambda error, whose: found.append((error, whose)))
    before = len(got)
    put(a, HONEST)
    assert carry(fabric) == 1
    assert found == [(None, peer(a, HONEST))]
    assert len(got) == before + 1


def test_what_asks_a_silent_nid_ends_with_the_node(fabric: Fabric) -> None:
    a, _, _ = honest_peer(fabric)
    a.discovery.discover(DEAD, force=True, done=lambda error, whose: None)
    assert carry(fabric) == 1
    whose = peer(a, DEAD)
    (exchange,) = whose.exchanges.values()
    md = exchange.md
    assert md is not None
    a.shutdown()
    assert not whose.exchanges
    assert md.aborted


def test_a_gateway_is_checked_where_it_is_asked_and_not_at_a_nid_that_a_foe_lists(fabric: Fabric) -> None:
    """The check went to the silent NID, so that the gateway was taken for dead."""
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    gateway = fabric.node(str(HONEST), str(INNER), discovery=False)
    remote = fabric.node(str(REMOTE), discovery=False)
    a.gateways.settings.alive_router_check_interval = 60
    gateway.gateways.settings.router_ping_timeout = 600  # nobody pings its other NI, which stays up
    gateway.router.enable(True)
    info_of = PingInfo(0x1A, LNET_PID, 5, [NiEntry(HONEST), NiEntry(DEAD), NiEntry(INNER)]).pack()
    a.gateways.add(REMOTE.net, HONEST, 1, 0)
    remote.gateways.add(A.net, INNER, 1, 0)
    for core in (a, foe, gateway):
        attach(core)
    got = attach(remote)
    for turn in range(150):
        if turn > 70 and turn % 10 == 0:
            answer(foe, info(turn, FOE, DEAD))
            push(foe, A, info(turn, FOE, DEAD))
        answer(gateway, info_of)
        if turn > 70:
            before = len(got)
            put(a, REMOTE)
        if turn == 70:  # its discovery may take the way by that NID, where nobody is as yet, and is told so
            put(a, REMOTE)
            fabric.run()
        carry(fabric)
        for core in fabric.cores:
            core.tick(fabric.clock.now)
        assert turn <= 70 or len(got) == before + 1
        fabric.clock.now += 1
    assert not any("is down" in line for line in fabric.reports)


@pytest.mark.parametrize("named", [False, True], ids=["", "called by name"])
def test_messages_for_a_nid_that_leaves_a_silent_peer_go_on_with_it(fabric: Fabric, named: bool) -> None:
    """A node has another life with the second of its NIDs and a new one; the first is dead."""
    first, second, third = DEAD, HONEST, Nid.parse("10.0.0.9@tcp")
    a, node = fabric.node(str(A), discovery=True), fabric.node(str(first))
    for core in (a, node):
        attach(core)
    answer(node, info(5, first, second))
    put(a, first)
    fabric.run()
    if named:
        a.peers.name([first])
    assert peer(a, second) is peer(a, first)
    anew = fabric.node(str(second), str(third), discovery=True)
    got = attach(anew)
    anew.discovery.discover(A, force=True, done=lambda error, whose: None)
    carry(fabric)
    for _ in range(10):
        put(a, second)
        carry(fabric)
        for core in (a, anew):
            core.tick(fabric.clock.now)
        fabric.clock.now += 1
    carry(fabric)
    assert len(got) == 10
    assert sorted(peer(a, second).nids()) == ([second, first, third] if named else [second, third])
    assert peer(a, second).primary_nid == (first if named else second)


def test_a_foe_of_two_addresses_one_of_which_falls_silent_gets_nothing(fabric: Fabric) -> None:
    """It was taken for the node of a NID that it had listed: so one of its NIDs was asked in vain."""
    a = fabric.node(str(A), discovery=True)
    foes = [fabric.node(str(nid)) for nid in (DEAD, FOE)]
    for core in (a, *foes):
        attach(core)
    says = [info(0xFFFFFF00 + count, DEAD, FOE, HONEST) for count in range(40)]
    for foe in foes:
        answer(foe, says[0])
    put(a, DEAD)
    fabric.run()
    for foe in foes:
        push(foe, A, says[1])
        fabric.run()
    assert peer(a, HONEST) is peer(a, DEAD) is peer(a, FOE)
    victim = fabric.node(str(HONEST), discovery=True)
    got = attach(victim)
    for turn in range(36):
        if turn % 6 == 0:
            victim.discovery.discover(A, force=True, done=lambda error, whose: None)
        if turn % 3 == 0:
            answer(foes[1], says[turn + 2])
            push(foes[1], A, says[turn + 2])
        carry(fabric)
        for core in fabric.cores:
            core.tick(fabric.clock.now)
        fabric.clock.now += 5
    assert peer(a, HONEST) is not peer(a, FOE)
    assert sent_to(fabric, a, HONEST, got) == 8


# Gateways that are one node ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_routes_to_several_nets_over_two_nids_of_a_gateway_become_one_each(seed: int) -> None:
    """A KeyError ended the turn in which that was found out, and what else was to be done in it."""
    fabric = Fabric()
    a = fabric.node(str(A), chance=random.Random(seed).random)
    for net in ("tcp5", "tcp6"):
        for gateway in (HONEST, DEAD):
            a.gateways.add(Net.parse(net), gateway, 1, 0)
    found = peer(a, HONEST)
    found.mark(PeerFlag.MULTI_RAIL)
    assert not a.peers.adopt(found, DEAD, [HONEST, DEAD])
    a.gateways.discovered(found, failed=False)
    assert len(a.gateways.table) == 2
    assert len({route.gateway for route in a.gateways.table}) == 1


@pytest.mark.pure
def test_a_mistake_in_the_turn_of_one_peer_leaves_the_others_theirs(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = fabric.node(str(A), discovery=True)
    others = [fabric.node(f"10.0.1.{number}@tcp", discovery=True) for number in range(1, 5)]
    got = [attach(other) for other in others]
    as_it_is = Gateways.discovered
    failed: list[Peer] = []

    def mistaken(self: Gateways, whose: Peer, failing: bool) -> None:
        if self is a.gateways and not failed:
            failed.append(whose)
            raise KeyError(str(whose))
        as_it_is(self, whose, failing)

    monkeypatch.setattr(Gateways, "discovered", mistaken)
    for other in others:
        put(a, next(nid for nid in other.nis if nid.net == A.net))
    for _ in range(200):  # what comes in one turn of the loop is done in one turn
        for _ in range(len(fabric.wire)):
            deliver(fabric)
        for core in fabric.cores:
            core.tick(fabric.clock.now)
    assert len(failed) == 1
    assert [len(one) for one in got] == [0, 1, 1, 1]


# Certificates ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 1], ids=["by the secured net", "by the plain net"])
def test_nodes_of_a_secured_and_a_plain_net_are_one_peer_each(fabric: Fabric, first: int) -> None:
    """First heard over the plain net they were that NID alone, and the secured net was not used."""
    nids = [tuple(Nid.parse(f"10.{net}.0.{number}@tcp{net or ''}") for net in (0, 1)) for number in (1, 7)]
    fabric.certificates = {own[0]: frozenset(own) for own in nids}
    nodes = []
    for secured, plain in nids:
        node = fabric.node(discovery=True)
        node.add_ni(secured.net, secured, lnd_tunables=LndTunables(security=int(Security.REQUIRE)))
        node.add_ni(plain.net, plain, lnd_tunables=LndTunables())
        attach(node)
        nodes.append(node)
    for _ in range(4):
        put(nodes[0], nids[1][first])
        put(nodes[1], nids[0][first])
        settle(fabric, 12)
    for node, other in zip(nodes, reversed(nids), strict=True):
        assert sorted(peer(node, other[0]).nids()) == list(other)


def test_few_nids_that_need_certificates_are_called_because_of_lists(fabric: Fabric) -> None:
    a, foe = fabric.node(discovery=True), fabric.node("10.1.0.66@tcp1")
    a.add_ni(A.net, A, lnd_tunables=LndTunables(security=int(Security.REQUIRE)))
    own = Nid.parse("10.1.0.1@tcp1")
    a.add_ni(own.net, own, lnd_tunables=LndTunables())
    for core in (a, foe):
        attach(core)
    source = Nid.parse("10.1.0.66@tcp1")
    listed = [Nid.parse(f"10.0.2.{number}@tcp") for number in range(1, 101)]
    push(foe, own, info(3, source, *listed))
    fabric.run()
    put(a, source)
    for _ in range(50):
        answer(foe, info(3, source, *listed))
        fabric.step()
    assert sum(a.peers.find(nid) is not None for nid in listed) <= 4


# Who is to be asked, and was so shortly before, or cannot be ----------------------------------------------


def pass_time(fabric: Fabric, seconds: int) -> None:
    for _ in range(seconds):
        for _ in range(3):
            fabric.run()
            for core in fabric.cores:
                core.tick(fabric.clock.now)
        fabric.clock.now += 1


@pytest.mark.parametrize("gap", [0, 1, 3, 6, 11], ids="{} s".format)
def test_nids_that_a_node_adds_one_after_another_are_one_peers(fabric: Fabric, gap: int) -> None:
    """Each pushed for itself; the peer was asked once in ten seconds, and nobody asked again."""
    a, node = fabric.node(str(A), discovery=True), fabric.node(str(HONEST), discovery=True)
    for core in (a, node):
        attach(core)
    put(a, HONEST)
    pass_time(fabric, 3)
    nids = [HONEST, *(Nid.parse(f"10.0.0.{number}@tcp") for number in (8, 9, 10))]
    for nid in nids[1:]:
        node.add_ni(nid.net, nid)
        pass_time(fabric, gap)
    pass_time(fabric, 40)
    assert {str(nid): peer(a, nid).primary_nid for nid in nids} == {str(nid): HONEST for nid in nids}


def test_a_question_is_not_for_a_nid_that_the_peer_has_no_longer(fabric: Fabric) -> None:
    """A foe of two addresses took the one away that was to be asked, and kept all that it had listed."""
    a, foes = fabric.node(str(A), discovery=True), [fabric.node(str(nid)) for nid in (DEAD, FOE)]
    for core in (a, *foes):
        attach(core)
    says = info(0xFFFFFF00, DEAD, FOE, HONEST)
    for foe in foes:
        answer(foe, says)
    put(a, DEAD)
    fabric.run()
    push(foes[1], A, says)
    fabric.run()
    whose = peer(a, HONEST)
    assert not a.discovery._claims.is_of(whose.members[HONEST], {HONEST})
    says = info(0xFFFFFF01, FOE, HONEST)
    for foe in foes:
        answer(foe, says)
    push(foes[1], A, says)
    fabric.run()
    assert sorted(peer(a, HONEST).nids()) == [HONEST, FOE]
    victim = fabric.node(str(HONEST), discovery=True)
    got = attach(victim)
    for _ in range(3):
        victim.discovery.discover(A, force=True, done=lambda error, found: None)
        pass_time(fabric, 20)
    assert peer(a, HONEST) is not peer(a, FOE)
    assert sent_to(fabric, a, HONEST, got) == 8


def test_who_cannot_be_asked_any_more_keeps_no_nid(fabric: Fabric) -> None:
    """Its only NID left is on a net that is not here, and it said long ago that it has another one."""
    far, near, other, anew = (
        Nid.parse(nid) for nid in ("10.1.0.5@tcp1", "10.0.0.5@tcp", "10.0.0.6@tcp", "10.0.0.9@tcp")
    )
    a, first, second = (
        fabric.node(str(A), discovery=True),
        fabric.node(str(far), str(near), discovery=True),
        fabric.node(str(other), discovery=True),
    )
    for core in (a, first, second):
        attach(core)
    put(a, near)
    put(a, other)
    pass_time(fabric, 20)
    assert sorted(peer(a, near).nids()) == [near, far]
    first.shutdown()
    pass_time(fabric, 20)
    fabric.cores.remove(first)
    second.add_ni(near.net, near)
    a.discovery.peer_restarted(near)
    for _ in range(4):
        put(a, near)
        pass_time(fabric, 12)
    third = fabric.node(str(far), str(HONEST), str(anew), discovery=True)
    attach(third)
    for _ in range(10):
        for nid in (near, HONEST, anew):
            put(a, nid)
        put(third, A)
        pass_time(fabric, 12)
    assert sorted(peer(a, HONEST).nids()) == [HONEST, anew, far]
    assert sorted(peer(a, near).nids()) == [near, other]


def test_who_waits_is_told_where_the_peer_that_was_asked_lost_all_else(fabric: Fabric) -> None:
    """Configuration takes away the NID that was asked, and the one that spoke is the last one."""
    a, node = fabric.node(str(A), discovery=True), fabric.node(str(DEAD))
    for core in (a, node):
        attach(core)
    answer(node, info(5, DEAD, HONEST))
    put(a, DEAD)
    fabric.run()
    says = info(6, HONEST, DEAD)
    answer(node, says)
    push(node, A, says)
    fabric.run()
    assert peer(a, DEAD).primary_nid == HONEST
    other = fabric.node(str(HONEST), discovery=True)
    attach(other)
    other.discovery.discover(A, force=True, done=lambda error, whose: None)
    assert carry(fabric)
    told: list[LNetError | None] = []
    a.discovery.discover(HONEST, done=lambda error, whose: told.append(error))
    carry(fabric)
    a.peers.add(Nid.parse("10.0.0.9@tcp"), [DEAD])
    for _ in range(80):
        carry(fabric)
        for core in (a, other):
            core.tick(fabric.clock.now)
        fabric.clock.now += 1
    assert told == [None]
