"""News of a peer that are handed over to another peer of the same node (docs/design/discovery.md)."""

from __future__ import annotations

import random

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


def without(fabric: Fabric, silent: Nid) -> None:
    """All arrives but what goes to a NID where nobody answers, and nobody says so."""
    fabric.silent.add(silent)
    for _ in range(1000):
        for core in fabric.cores:
            core.tick(fabric.clock.now)
        if not fabric.step() and not any(core.state.work_pending for core in fabric.cores):
            break
    fabric.silent.remove(silent)


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


@pytest.mark.parametrize("seed", [7, 13, 31, 32, 42, 46])
def test_the_nids_of_a_node_that_went_to_two_others_are_theirs(fabric: Fabric, seed: int) -> None:
    """Both begin anew with one of them each. What one NID answered counted for both: split for good."""
    chance = random.Random(seed)
    old, one, other = (FIRST, SECOND), (THIRD, FIRST), (FOURTH, SECOND)
    a = fabric.node(str(A), discovery=True)
    before = [fabric.node(*map(str, nids), discovery=True) for nids in (old, one[:1], other[:1])]
    for core in (a, *before):
        attach(core)
        put(core, A)
    for nid in (FIRST, THIRD, FOURTH, SECOND):
        put(a, nid)
        pass_time(fabric, 2)
    for nid in old:
        a.discovery.discover(nid, force=True, done=lambda error, whose: None)
        pass_time(fabric, 12)
    for _ in range(chance.randint(0, 3)):
        put(a, FIRST)
        pass_time(fabric, 1)
    assert peer(a, FIRST) is peer(a, SECOND)
    leave(fabric, *before)
    lives = [fabric.node(*map(str, nids), discovery=True) for nids in (one, other)]
    for core in lives:
        attach(core)
    nids = [*one, *other]
    chance.shuffle(nids)
    for nid in nids:
        a.peer_restarted(nid)
    for _ in range(4):
        what = chance.random()
        core = chance.choice(lives)
        if what < 0.4:
            core.discovery.discover(A, force=chance.random() < 0.5, done=lambda error, whose: None)
        elif what < 0.7:
            send(core, chance.choice([nid for nid in core.nis if nid.net == A.net]))
        else:
            put(a, chance.choice([*one, *other]))
        if chance.random() < 0.6:
            fabric.run()
        fabric.clock.now += chance.choice([0, 0, 1, 3])
    for _ in range(8):
        for nid in (*one, *other):
            put(a, nid)
        for core in lives:
            put(core, A)
        fabric.run()
        fabric.clock.now += 10
    assert [sorted(peer(a, nid).nids()) for nid in (THIRD, FOURTH)] == [sorted(one), sorted(other)]


@pytest.mark.parametrize("talks", range(3))
def test_a_locked_name_goes_with_its_nid_to_another_node(fabric: Fabric, talks: int) -> None:
    """The node that had it answered by its other NIDs, and nobody was asked by the name: half went there."""
    a = fabric.node(str(A), discovery=True)
    old = fabric.node(str(FIRST), str(SECOND), "10.0.0.21@tcp", "10.0.0.22@tcp", discovery=True)
    new = fabric.node(str(THIRD), discovery=True)
    for core in (a, old):
        attach(core)
    got = attach(new)
    a.peers.name([FIRST])
    for sender, nid in ((a, FIRST), (a, THIRD), (new, A), (old, A)):
        put(sender, nid)
    pass_time(fabric, 3)
    for _ in range(talks):
        put(a, FIRST)
        pass_time(fabric, 1)
    old.del_ni(FIRST)
    pass_time(fabric, 5)
    put(a, FIRST)
    new.add_ni(FIRST.net, FIRST)
    a.peer_restarted(FIRST)
    for _ in range(6):
        put(a, FIRST)
        put(new, A)
        put(old, A)
        pass_time(fabric, 12)
    assert sent_to(fabric, a, FIRST, got) == 8
    assert sorted(peer(a, FIRST).nids()) == [THIRD, FIRST]
    assert not peer(a, SECOND).owns(FIRST)


@pytest.mark.parametrize("talks", range(4))
def test_messages_wait_for_no_nid_but_the_one_that_another_life_was_seen_at(
    fabric: Fabric, talks: int
) -> None:
    """The NID that was pinged instead was silent: messages waited for 50 s, and 49 of 200 failed."""
    a, node = fabric.node(str(A), discovery=True), fabric.node(str(FIRST), str(SECOND), discovery=True)
    for core in (a, node):
        attach(core)
    for _ in range(4 + talks):
        put(a, FIRST)
        put(node, A)
        pass_time(fabric, 1)
    for nid in (FIRST, SECOND) * 2:
        a.discovery.discover(nid, force=True, done=lambda error, whose: None)
        pass_time(fabric, 6)
    leave(fabric, node)
    node = fabric.node(str(SECOND), discovery=True)
    got = attach(node)
    put(node, A)
    a.peer_restarted(SECOND)
    without(fabric, FIRST)
    for count in range(1, 11):
        put(a, SECOND)
        without(fabric, FIRST)
        assert len(got) == count
        fabric.clock.now += 1
    assert list(peer(a, SECOND).nids()) == [SECOND]


@pytest.mark.parametrize("silent", [FIRST, SECOND], ids=str)
def test_a_nid_that_another_life_was_seen_at_and_that_is_silent_holds_messages_up_for_5_s(
    fabric: Fabric, silent: Nid
) -> None:
    a, node = fabric.node(str(A), discovery=True), fabric.node(str(FIRST), str(SECOND), discovery=True)
    attach(a)
    got = attach(node)
    for nid in (FIRST, SECOND):
        put(a, nid)
        pass_time(fabric, 2)
    before = len(got)
    spoken = FIRST if silent == SECOND else SECOND
    a.peer_restarted(silent)
    put(a, spoken)
    for _ in range(8):
        without(fabric, silent)
        fabric.clock.now += 1
        a.tick(fabric.clock.now)
    assert len(got) == before + 1


def test_each_nid_that_another_life_was_seen_at_is_asked(fabric: Fabric) -> None:
    """Two NIDs of a node are two other nodes' by now, which say nothing by themselves."""
    a, node = fabric.node(str(A), discovery=True), fabric.node(str(FIRST), str(SECOND), discovery=True)
    for core in (a, node):
        attach(core)
    for nid in (FIRST, SECOND):
        put(a, nid)
        pass_time(fabric, 2)
    leave(fabric, node)
    lives = [fabric.node(str(nid)) for nid in (FIRST, SECOND)]
    got = [attach(life) for life in lives]
    for nid in (FIRST, SECOND):
        a.peer_restarted(nid)
    put(a, SECOND)
    pass_time(fabric, 2)
    assert [len(one) for one in got] == [0, 1]
    found = [a.peers.find(nid) for nid in (FIRST, SECOND)]
    assert [whose is None or len(whose.members) for whose in found] == [1, 1]


def test_who_lists_a_nid_that_is_silent_holds_messages_to_its_peer_up_once(fabric: Fabric) -> None:
    """It spoke once, so that its peer is asked by it; it is not asked again while its health is bad."""
    a, node = fabric.node(str(A), discovery=True), fabric.node(str(FIRST), str(SECOND), discovery=True)
    foe = fabric.node(str(FOE))
    for core in (a, node, foe):
        attach(core)
    for nid in (FIRST, SECOND):
        send(node, nid)
        a.discovery.discover(nid, force=True, done=lambda error, whose: None)
        pass_time(fabric, 12)
    whose = peer(a, FIRST)
    assert not any(pni.listed for pni in whose.members.values())
    held = 0
    for turn in range(6):
        answer(foe, lie(turn + 2, SECOND))
        push(foe, A, lie(turn + 2, SECOND))
        without(fabric, SECOND)
        held += a.discovery.queued(whose) or bool(whose.exchanges)
        for _ in range(12):
            without(fabric, SECOND)
            fabric.clock.now += 1
    assert held <= 1
    assert peer(a, SECOND) is whose
