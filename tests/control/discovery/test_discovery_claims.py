"""NIDs that a node lists though they are another's: nobody gets messages that are for somebody else."""

from __future__ import annotations

import pytest

from control.discovery.test_discovery_hostile import answer, attach, info, peer, push, put
from support.fabric import Fabric
from ulnet.core.msg import NO_PAYLOAD
from ulnet.nid import Nid
from ulnet.wire.lnet import Header, MsgType
from ulnet.wire.ping import PingInfo

A, FOE, VICTIM = (Nid.parse(f"10.0.0.{n}@tcp") for n in (1, 6, 7))
SECOND = Nid.parse("10.1.0.7@tcp")


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("nids", [(FOE, VICTIM), (VICTIM, FOE)], ids=["as its second", "as its first"])
def test_a_node_does_not_get_the_messages_of_another_by_listing_it(
    fabric: Fabric, nids: tuple[Nid, ...], named: bool
) -> None:
    """8 of 8 pings for the victim went to the attacker."""
    a = fabric.node(str(A), discovery=True)
    victim, foe = fabric.node(str(VICTIM), discovery=True), fabric.node(str(FOE))
    for node in (victim, foe):
        attach(node)
    put(a, VICTIM)
    fabric.run()
    if named:
        a.peers.name([VICTIM])
    answer(foe, info(2, *nids))
    put(a, FOE)
    push(foe, A, info(3, *nids))
    fabric.run()
    before = foe.stats.recv_count
    for _ in range(8):
        put(a, VICTIM)
        fabric.run()
    assert foe.stats.recv_count == before
    assert list(peer(a, VICTIM).nids()) == [VICTIM]
    assert peer(a, FOE) is not peer(a, VICTIM)


def test_that_it_is_listed_again_and_again_asks_the_victim_once(fabric: Fabric) -> None:
    a = fabric.node(str(A), discovery=True)
    victim, foe = fabric.node(str(VICTIM), discovery=True), fabric.node(str(FOE))
    attach(victim)
    put(a, VICTIM)
    fabric.run()
    answer(foe, info(2, FOE, VICTIM))
    before = victim.stats.recv_count
    for sequence in range(3, 103):
        push(foe, A, info(sequence, FOE, VICTIM))
        fabric.run()
    assert victim.stats.recv_count <= before + 2


@pytest.mark.parametrize("first", [VICTIM, SECOND], ids=["the first is told", "the second is told"])
def test_two_nids_of_one_node_that_both_have_spoken_become_one_peer_when_both_say_so(
    fabric: Fabric, first: Nid
) -> None:
    """It told other things before."""
    a, b = fabric.node(str(A), discovery=True), fabric.node(str(VICTIM), str(SECOND))
    attach(b)
    for nid in (VICTIM, SECOND):
        answer(b, info(2, nid))
        put(a, nid)
        fabric.run()
    assert peer(a, VICTIM) is not peer(a, SECOND)
    answer(b, info(3, VICTIM, SECOND))
    a.discovery.pushed(first, PingInfo.unpack(info(3, VICTIM, SECOND)))
    fabric.run()
    assert sorted(peer(a, VICTIM).nids()) == [VICTIM, SECOND]
    assert put(a, SECOND) is not None
    fabric.run()
    assert b.stats.drop_count == 0


def test_what_the_certificate_of_a_node_is_not_for_it_cannot_list(fabric: Fabric) -> None:
    """Also where nobody has heard of the other one yet."""
    a = fabric.node(str(A), discovery=True)
    foe = fabric.node(str(FOE))
    own = a.receiver(a.nis[A], FOE, lambda nid: nid in (FOE, SECOND))
    own.begin(Header(int(MsgType.PUT), A, FOE, portal=5), NO_PAYLOAD)  # type: ignore[arg-type]
    answer(foe, info(2, FOE, VICTIM, SECOND))
    a.discovery.pushed(FOE, PingInfo.unpack(info(2, FOE, VICTIM, SECOND)))
    a.tick(fabric.clock.now)
    assert list(peer(a, FOE).nids()) == [FOE, SECOND]
    assert a.peers.find(VICTIM) is None


def test_a_node_without_a_certificate_cannot_list_one_that_has_one(fabric: Fabric) -> None:
    a = fabric.node(str(A), discovery=True)
    secured = a.receiver(a.nis[A], VICTIM, lambda nid: nid == VICTIM)
    secured.begin(Header(int(MsgType.PUT), A, VICTIM, portal=5), NO_PAYLOAD)  # type: ignore[arg-type]
    a.peers.learn(FOE)
    a.discovery.pushed(FOE, PingInfo.unpack(info(2, FOE, VICTIM)))
    a.tick(fabric.clock.now)
    assert list(peer(a, FOE).nids()) == [FOE]
    assert list(peer(a, VICTIM).nids()) == [VICTIM]


def test_a_ping_that_fails_is_no_answer_to_a_question_whose_nid_has_left(fabric: Fabric) -> None:
    """The NIDs that were listed left the peer for that, and who waited was not told of the failure."""
    a, node = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    attach(node)
    third = Nid.parse("10.0.0.8@tcp")
    answer(node, info(2, FOE, third, VICTIM))
    put(a, FOE)
    fabric.run()
    whose, claims = peer(a, FOE), a.discovery._claims
    whose.members[third].listed = False
    assert not claims.is_of(whose.members[VICTIM], {VICTIM})
    assert claims.asks(whose) == FOE
    a.peers.split(whose.members[FOE])
    assert sorted(whose.nids()) == [VICTIM, third]
    assert claims.asks(whose) is None
    assert claims.silent(whose) is None
    assert peer(a, VICTIM) is whose
