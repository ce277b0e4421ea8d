"""News of a peer that are handed over to another peer of the same node (docs/design/discovery.md)."""

from __future__ import annotations

import pytest

from control.discovery.test_discovery_elsewhere import opened_to, sent_to
from control.discovery.test_discovery_hostile import answer, attach, peer, push, put
from control.discovery.test_discovery_takeover import FOE, A
from support.fabric import Fabric
from ulnet.control.instance import LNet
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.ping import NiEntry, NiStatus, PingInfo

FIRST, SECOND, THIRD, FOURTH = (Nid.parse(f"10.0.0.{number}@tcp") for number in (7, 8, 5, 11))
FAR = Nid.parse("10.1.0.7@tcp1")
JUNK = [Nid.parse(f"10.7.{number // 200}.{number % 200 + 1}@tcp7") for number in range(900)]


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


def send(core: LNet, source: Nid) -> None:
    core.put(core.memory.md_bind(b"1", None, threshold=2), A, 5, 7, source=source)


def lie(sequence: int, *nids: Nid) -> bytes:
    entries = [NiEntry(FOE), *(NiEntry(nid, NiStatus.DOWN) for nid in nids)]
    return PingInfo(0x1E, LNET_PID, sequence, entries).pack()


def test_the_list_that_a_peer_has_still_to_take_is_not_the_word_of_who_hands_news_over(
    fabric: Fabric,
) -> None:
    """The victim, by its second NID, names the first one, which a foe has listed; the foe's list is long.

    That went on as if the victim had said it: 4 of 8 messages, and memory that was open to the victim alone.
    """
    a, foe = fabric.node(str(A), discovery=True), fabric.node(str(FOE))
    for core in (a, foe):
        attach(core)
    answer(foe, lie(0xFFFFFF00, FIRST))
    put(a, FOE)
    fabric.run()
    # The first push only has the buffer for pushes grow.
    for says in (lie(0xFFFFFF00, FIRST, FAR, *JUNK), lie(0xFFFFFF00, FIRST)):
        push(foe, A, says)
        fabric.run()
    fabric.clock.now += 30
    victim = fabric.node(str(FIRST), str(SECOND))
    got = attach(victim)
    send(victim, SECOND)
    fabric.run()
    answer(foe, lie(0xFFFFFF03, FIRST, SECOND, *JUNK))
    push(foe, A, lie(0xFFFFFF01, FIRST, SECOND))
    push(foe, A, lie(0xFFFFFF02, FIRST, SECOND, *JUNK))
    fabric.run()
    assert opened_to(fabric, a, foe, SECOND) == bytes(8)
    assert sent_to(fabric, a, SECOND, got) == 8
    assert not peer(a, SECOND).owns(FOE)


# Honest nodes whose NIDs change --------------------------------------------------------------------------


def pass_time(fabric: Fabric, seconds: int) -> None:
    for _ in range(seconds):
        fabric.run()
        for core in list(fabric.cores):
            core.tick(fabric.clock.now)
        fabric.clock.now += 1


def leave(fabric: Fabric, *nodes: LNet) -> None:
    for node in nodes:
        node.shutdown()
        pass_time(fabric, 2)
        fabric.cores.remove(node)
        for nid in [nid for nid, (_, core) in fabric.nis.items() if core is node]:
            del fabric.nis[nid]


def test_new_nids_are_one_peers_where_the_primary_nid_stays_with_an_old_peer(fabric: Fabric) -> None:
    """The old peer is out of reach and says nothing. The new NIDs stayed a peer each, without fail-over."""
    a, node = fabric.node(str(A), discovery=True), fabric.node(str(FAR), str(SECOND), discovery=True)
    for core in (a, node):
        attach(core)
    put(a, SECOND)
    put(node, A)
    pass_time(fabric, 3)
    assert sorted(peer(a, SECOND).nids()) == [SECOND, FAR]
    leave(fabric, node)
    for _ in range(3):
        put(a, SECOND)
        pass_time(fabric, 5)
    node = fabric.node(str(FAR), str(THIRD), str(FOURTH), discovery=True)
    attach(node)
    for _ in range(6):
        put(a, THIRD)
        put(a, FOURTH)
        put(node, A)
        pass_time(fabric, 12)
    assert sorted(peer(a, THIRD).nids()) == [THIRD, FOURTH]
    assert sorted(peer(a, SECOND).nids()) == [SECOND, FAR]
