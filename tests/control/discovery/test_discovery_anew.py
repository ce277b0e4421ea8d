"""Peers that have themselves made anew: what one may do, and what is kept of it, does not begin again."""

from __future__ import annotations

import gc

import pytest

from control.discovery.test_discovery_hostile import answer, attach, info, peer, push, put
from support.fabric import Fabric
from ulnet.control.instance import LNet
from ulnet.core.peer import PeerFlag, PeerNi
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.ping import NiEntry, PingInfo

A, FOE, ELSE = (Nid.parse(name) for name in ("10.0.0.1@tcp", "10.0.0.66@tcp", "10.0.0.99@tcp"))
B, B2 = Nid.parse("10.0.0.7@tcp"), Nid.parse("10.0.0.8@tcp")


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


def far(count: int, at: int = 0) -> list[Nid]:
    return [Nid.parse(f"10.{8 + at}.{n >> 8}.{n & 255}@tcp8") for n in range(1, count + 1)]


def tells(fabric: Fabric, foe: LNet, sequence: int, nids: list[Nid]) -> None:
    """It pushes a list, and answers with it."""
    answer(foe, info(sequence, FOE, *nids))
    push(foe, A, info(sequence, FOE, *nids))
    fabric.run()


def made_anew(fabric: Fabric, foe: LNet, sequence: int) -> None:
    """A push says that its node does not discover any more."""
    push(foe, A, PingInfo(0x0E, LNET_PID, sequence, [NiEntry(FOE)]).pack())
    fabric.run()


def test_nothing_is_kept_of_long_lists_of_peers_that_left(fabric: Fabric) -> None:
    """The last 64 were kept whole, and counted for no bound: 256,000 NIDs of one address."""
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    gc.collect()
    gc.disable()
    try:
        for turn in range(6):
            tells(fabric, foe, 10 * turn + 2, far(600, turn))
            assert len(peer(a, FOE).members) == 601
            made_anew(fabric, foe, 10 * turn + 3)
            fabric.clock.now += 20
        fabric.all_peer_nis.clear()
        kept = sum(type(one) is PeerNi and one.nid.net == far(1)[0].net for one in gc.get_objects())
    finally:
        gc.enable()
    assert kept <= 1200


@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "lists-less"])
def test_who_listed_many_nids_is_forgotten_with_them(fabric: Fabric, leaves: bool) -> None:
    """Each peer that ever had more than 256 was kept for good, 61 KiB each."""
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    tells(fabric, foe, 2, far(300))
    assert len(a.peers._many) == 1
    if leaves:
        made_anew(fabric, foe, 3)
    else:
        tells(fabric, foe, 3, far(100))
    assert not a.peers._many


def test_what_a_peer_may_push_does_not_begin_again(fabric: Fabric) -> None:
    """One address pushed 33.7 KB a second in place of 4."""
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    for turn in range(8):
        tells(fabric, foe, 10 * turn + 2, far(1500))
        made_anew(fabric, foe, 10 * turn + 3)
        fabric.clock.now += 1.5
    assert a.stats.drops["more pushes than a peer may send"] >= 4


@pytest.mark.parametrize("how", ["anew", "late"])
def test_how_often_a_peer_of_a_long_list_is_asked_does_not_begin_again(fabric: Fabric, how: str) -> None:
    """By 1.5 KB a second one address took three times the time that this node has."""
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    lists = [info(100, FOE, *far(3900, at)) for at in range(3)]
    before = a.stats.recv_length
    for turn in range(20):
        answer(foe, lists[turn % 3])
        push(foe, A, info(100 + turn, ELSE))
        fabric.run()
        if how == "anew":
            made_anew(fabric, foe, 200 + turn)
        else:  # its number is too low, so that it is asked which one is true
            push(foe, A, info(1, FOE))
            fabric.run()
        fabric.clock.now += 0.1
    assert len(lists[0]) <= a.stats.recv_length - before < 7 * len(lists[0])


def test_what_is_allowed_goes_with_the_nids_that_spoke(fabric: Fabric) -> None:
    a = fabric.node(str(A), discovery=True)
    pni = a.peers.learn(FOE)
    assert pni is not None
    pni.heard_at = fabric.clock.now
    pni.peer.allowance.silent_at = 300.0
    other = a.peers.learn(ELSE)
    assert other is not None
    other.peer.mark(int(PeerFlag.MULTI_RAIL))
    assert a.peers.adopt(other.peer, FOE, [FOE]) == 0
    assert other.peer.allowance.silent_at == 300.0
    a.peers.keep_only(other.peer, [ELSE])
    again = a.peers.learn(FOE)
    assert again is not None
    assert again.peer is not other.peer
    assert again.peer.allowance.silent_at == 300.0
    assert a.peers.forget(again.peer)
    again = a.peers.learn(FOE)
    assert again is not None
    assert again.peer.allowance.silent_at == 300.0


def test_a_long_list_is_asked_for_at_once_where_a_message_waits(fabric: Fabric) -> None:
    a = fabric.node(str(A), discovery=True)
    for turn in range(5):
        nid = Nid.parse(f"10.0.0.{70 + turn}@tcp")
        other = fabric.node(str(nid))
        attach(other)
        answer(other, info(2, nid, *far(2000, turn)))
        ended = put(a, nid)
        fabric.run()
        assert [(event.kind.name, event.status) for event in ended] == [("SEND", 0), ("ACK", 0)]
        assert len(peer(a, nid).members) == 2001


@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_a_nid_that_is_another_node_each_time_holds_no_message_for_ever(fabric: Fabric, every: int) -> None:
    """Its pings were not counted, as they were for who might be there now."""
    a, b = fabric.node(str(A), discovery=True), fabric.node(str(B), str(B2), discovery=True)
    attach(b)
    put(a, B)
    fabric.run()
    a.peer_restarted(B2)
    sent = put(a, B)
    for step in range(100):
        a.tick(fabric.clock.now)
        for ni, msg in [one for one in fabric.wire if one[1].next_nid == B2]:
            fabric.wire.remove((ni, msg))
            a.completed([msg])
            a.peer_restarted(B2)
            a.path_lost(ni, B2)
        if step % every == 0:
            a.peer_restarted(B2)
        fabric.step()
        if sent:
            break
    assert not sent[0].status or "its connections break before it answers" in sent[0].reason
