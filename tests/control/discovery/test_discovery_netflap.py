"""Peers that cannot be asked for a while: a net or route is taken away and put back (docs/security.md)."""

from __future__ import annotations

import pytest

from control.discovery.test_discovery_elsewhere import (
    BEYOND,
    FAR,
    FOE2,
    NEAR,
    opened_to,
    routed,
    sent_to,
    settle,
)
from control.discovery.test_discovery_hostile import answer, attach, peer, push, put
from control.discovery.test_discovery_takeover import FOE, A
from support.fabric import Fabric
from ulnet.control.instance import LNet
from ulnet.nid import LNET_PID, Net, Nid
from ulnet.wire.ping import NiEntry, NiStatus, PingInfo

A1, VICTIM1 = Nid.parse("10.1.0.1@tcp1"), Nid.parse("10.1.0.7@tcp1")


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


def lie(sequence: int, victim: Nid, first: bool) -> bytes:
    entries = [NiEntry(FOE), NiEntry(victim, NiStatus.DOWN)]
    if first:
        entries.reverse()
    return PingInfo(0x1E, LNET_PID, sequence, entries).pack()


def speak(fabric: Fabric, victim: LNet, to: Nid) -> None:
    for _ in range(2):
        put(victim, to)
        victim.discovery.discover(to, force=True, done=lambda error, whose: None)
        settle(fabric, 15)


@pytest.mark.parametrize("speaks", [True, False], ids=["when that speaks", "though that says nothing"])
@pytest.mark.parametrize("first", [False, True], ids=["as its second", "as its first"])
@pytest.mark.parametrize("way", ["net", "route", "route, checked before use", "route, its gateway is away"])
def test_who_takes_a_nid_while_its_node_cannot_be_asked_loses_it(
    fabric: Fabric, way: str, first: bool, speaks: bool
) -> None:
    """It had it for good, with 4 or 8 of 8 messages: a NID of a heard peer was taken for known to be its."""
    if way == "net":
        a, node = fabric.node(str(A), str(A1), discovery=True), fabric.node(str(VICTIM1), discovery=True)
        victim, ours = VICTIM1, A1
        attach(a)
    else:
        a, node = routed(fabric)
        victim, ours = BEYOND, A
    foe, got = fabric.node(str(FOE)), attach(node)
    attach(foe)
    for sender, nid in ((a, victim), (node, ours), (a, FOE)):
        put(sender, nid)
    settle(fabric, 12)
    if way == "net":
        a.del_ni(A1)
    else:
        a.gateways.remove(list(a.gateways.table))
    settle(fabric, 1)
    answer(foe, lie(0xFFFFFF01, victim, first))
    push(foe, A, lie(0xFFFFFF01, victim, first))
    settle(fabric, 1)
    assert peer(a, victim) is peer(a, FOE)
    if way == "net":
        a.add_ni(A1.net, A1)
    else:
        a.gateways.settings.check_routers_before_use = "checked" in way
        away = {nid: fabric.nis.pop(nid) for nid in (NEAR,) if "away" in way}
        a.gateways.add(Net.parse("tcp9"), NEAR, 1, 0)
        settle(fabric, 20)
        fabric.nis.update(away)
    settle(fabric, 60)
    if speaks:
        speak(fabric, node, ours)
    assert peer(a, victim) is not peer(a, FOE)
    assert sent_to(fabric, a, victim, got) == 8
    assert opened_to(fabric, a, foe, victim) == bytes(8)
    assert FAR not in peer(a, FOE).members


def taken_with_a_net(fabric: Fabric, count: int) -> tuple[LNet, LNet, LNet, list[Nid]]:
    """Who asks, whose net is away, the node that others say they are, who says so, and further such NIDs."""
    a, node = fabric.node(str(A), str(A1), discovery=True), fabric.node(str(VICTIM1), discovery=True)
    foe = fabric.node(str(FOE), discovery=True)
    attach(a)
    attach(foe)
    others = [Nid.parse(f"10.1.2.{number}@tcp1") for number in range(count)]
    for nid in others:
        attach(fabric.node(str(nid), discovery=True))
    for nid in (*others, VICTIM1, FOE):
        put(a, nid)
    settle(fabric, 12)
    a.del_ni(A1)
    settle(fabric, 1)
    listed = [NiEntry(FOE), *(NiEntry(nid, NiStatus.DOWN) for nid in (*others, VICTIM1))]
    for sequence in range(0xFFFFFF01, 0xFFFFFF04):
        says = PingInfo(0x1E, LNET_PID, sequence, listed).pack()
        answer(foe, says)
        push(foe, A, says)
        settle(fabric, 12)
    assert len(peer(a, FOE).members) == len(listed)
    return a, node, foe, others


@pytest.mark.parametrize("silent", [2, 100])
def test_silent_nids_of_a_net_that_is_back_do_not_keep_a_node_from_being_asked(
    fabric: Fabric, silent: int
) -> None:
    """A net is back once: those that are more than are asked at a time are asked when others were."""
    a, node, _, others = taken_with_a_net(fabric, silent)
    got = attach(node)
    for nid in others:
        del fabric.nis[nid]
    a.add_ni(A1.net, A1)
    settle(fabric, 30)
    assert sent_to(fabric, a, VICTIM1, got) == 8
    assert list(peer(a, VICTIM1).members) == [VICTIM1]


@pytest.mark.parametrize("count", [2, 100])
def test_a_peer_that_goes_over_into_another_one_while_its_nids_are_asked_keeps_none(
    fabric: Fabric, count: int
) -> None:
    """The questions ended with the peer, and nobody asked the others, nor those, again."""
    a, node, _, others = taken_with_a_net(fabric, count)
    got = attach(node)
    second = fabric.node(str(FOE2), discovery=True)
    attach(second)
    put(a, FOE2)
    settle(fabric, 12)
    a.add_ni(A1.net, A1)
    asked = peer(a, FOE)
    assert len(asked.exchanges) >= min(count, 64)
    listed = [NiEntry(FOE2), NiEntry(FOE), *(NiEntry(nid) for nid in (*others, VICTIM1))]
    assert a.peers.adopt(peer(a, FOE2), FOE, {entry.nid for entry in listed}) == 0
    assert asked.gone
    settle(fabric, 30)
    assert sent_to(fabric, a, VICTIM1, got) == 8
    assert {nid for nid in others if list(peer(a, nid).members) != [nid]} == set()


@pytest.mark.pure
def test_nids_that_cannot_be_asked_do_not_keep_those_of_other_nets_from_being_asked(
    fabric: Fabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty-four of a net that were passed over stayed in front, and the net before others."""
    a, node, _, others = taken_with_a_net(fabric, 100)
    got = attach(node)
    away, near = Net.parse("tcp9"), Nid.parse("10.0.0.98@tcp")
    gateway = fabric.node(str(near), "10.9.0.98@tcp9", discovery=True)
    gateway.router.enable(True)
    attach(gateway)
    put(a, near)
    settle(fabric, 12)
    nids = [Nid.parse(f"10.9.2.{number}@tcp9") for number in range(64)]
    monkeypatch.setattr(gateway.info, "refresh", lambda: None)
    answer(gateway, PingInfo(0x1A, LNET_PID, 0xFFFFFF01, [NiEntry(nid) for nid in (near, *nids)]).pack())
    for nid in nids:  # none can be asked otherwise than over the gateway that has them
        assert a.peers.adopt(peer(a, near), nid, {near, *nids}) == 0
        peer(a, nid).members[nid].listed = True
    claims = a.discovery._claims
    waiting = claims._unasked.copy()
    claims._unasked.clear()
    claims._unasked[away] = dict.fromkeys(nids, 0)
    claims._unasked.update(waiting)
    a.gateways.add(away, near, 1, 0)
    settle(fabric)
    for nid in others:
        del fabric.nis[nid]
    a.add_ni(A1.net, A1)
    settle(fabric, 30)
    assert list(claims._unasked[away].values()) == [0] * 64
    assert sent_to(fabric, a, VICTIM1, got) == 8
    assert list(peer(a, VICTIM1).members) == [VICTIM1]
