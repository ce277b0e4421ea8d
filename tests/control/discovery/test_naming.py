"""The names by which upper layers call nodes, and what discovery makes of them (spec discovery.md §7, §8)."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fabric import Fabric, Recorder
from support.merging import merge
from support.parts import quiet_parts
from ulnet.control.instance import LNet
from ulnet.control.naming import ask_primary, name_peer
from ulnet.core import peer_table as peer_module
from ulnet.core.md import MdOption
from ulnet.core.peer import Peer, PeerFlag
from ulnet.core.peer_rules import named
from ulnet.core.peer_table import PeerTable
from ulnet.core.status import LNetError
from ulnet.nid import ANY_NID, LNET_PID, LO_NID, Nid
from ulnet.wire.ping import Feature, NiEntry, NiStatus, PingInfo

A, A1, A2 = (Nid.parse(f"10.{rail}.0.1@tcp{rail or ''}") for rail in range(3))
B, B1, B2 = (Nid.parse(f"10.{rail}.0.2@tcp{rail or ''}") for rail in range(3))
C, C1 = Nid.parse("10.0.0.3@tcp"), Nid.parse("10.1.0.3@tcp1")
NAMED = 0x100111  # locked, up to date, discovered, Multi-Rail


@pytest.fixture
def fabric() -> Fabric:
    return Fabric()


def node(fabric: Fabric, *nids: Nid) -> LNet:
    return fabric.node(*map(str, nids), discovery=True)


def old_node(fabric: Fabric, *nids: Nid) -> LNet:
    """One that knows nothing of rails."""
    core = fabric.node(*map(str, nids))
    core.info.stop()
    assert core.info._ping is not None
    entries = [NiEntry(nid, NiStatus.UP) for nid in nids]
    features = int(Feature.NI_STATUS | Feature.RTE_DISABLED)
    data = memoryview(PingInfo(features, LNET_PID, NiStatus.UP, entries).pack())
    core.info._ping.fragments = [data]
    core.info._ping.length = data.nbytes
    return core


def attach(core: LNet) -> Recorder:
    got = Recorder()
    me = core.memory.me_attach(5, match_bits=7)
    core.memory.md_attach(me, bytearray(100), got, options=MdOption.OP_PUT)
    return got


def put(core: LNet, target: Nid) -> Recorder:
    sent = Recorder()
    core.put(core.memory.md_bind(b"1", sent, threshold=2), target, 5, 7)
    return sent


def peer_of(table: PeerTable, nid: Nid) -> Peer:
    found = table.find(nid)
    assert found is not None
    return found


def peer(core: LNet, nid: Nid) -> Peer:
    return peer_of(core.peers, nid)


def known(core: LNet, nid: Nid) -> list[Nid]:
    """Its NIDs, the primary first, the others in order."""
    primary, *others = peer(core, nid).nids()
    return [primary, *sorted(others)]


def refused(core: LNet, number: int, words: str, *nids: Nid) -> None:
    before = [list(one.nids()) for one in core.peers]
    with pytest.raises(LNetError, match=words) as error:
        name_peer(core, nids)
    assert error.value.errno == number
    assert [list(one.nids()) for one in core.peers] == before


# Naming ----------------------------------------------------------------------------------------------


def test_the_first_nid_within_reach_is_the_name(fabric: Fabric) -> None:
    a = node(fabric, A, A1)
    routed = Nid.parse("10.9.0.2@tcp9")
    a.peers.add(C)
    a.gateways.add(routed.net, C, -1, 0)
    far = Nid.parse("10.8.0.2@tcp8")
    assert name_peer(a, [far, routed, B1, B]).primary_nid == B1
    assert (
        name_peer(a, [Nid.parse("10.8.0.4@tcp8"), Nid.parse("10.9.0.4@tcp9")]).primary_nid.net == routed.net
    )
    assert known(a, B) == [B1, *sorted((B, routed, far))]


def test_discovery_leaves_a_name_alone_and_finds_the_other_nids(fabric: Fabric) -> None:
    a, b = node(fabric, A, A1), node(fabric, B, B1, B2)
    got = attach(a)
    name_peer(a, [B1])
    fabric.run()
    assert known(a, B) == [B1, B, B2]
    assert peer(a, B).flags == NAMED
    put(b, A)
    put(b, A1)
    fabric.run()
    assert [event.initiator for event in got] == [B1, B1]  # whichever NID it came from
    b.del_ni(B2)
    b.del_ni(B1)
    fabric.run()
    assert known(a, B) == [B1, B]
    assert a.peers.find_ni(B1).said_down  # type: ignore[union-attr]
    sent = put(a, B)
    fabric.run()
    assert sent.kinds[0] == "SEND"
    assert not [line for line in fabric.reports if "answers as" in line]


def test_what_the_node_does_not_have_goes(fabric: Fabric) -> None:
    a, _ = node(fabric, A, A1), node(fabric, B, B1)
    name_peer(a, [B, B1, B2, C])
    assert known(a, B) == [B, *sorted((B1, B2, C))]
    fabric.run()
    assert known(a, B) == [B, B1]
    assert a.peers.find(C) is None


def test_a_named_node_is_reached_by_another_of_its_nids(fabric: Fabric) -> None:
    """The first NID is dead when the program starts."""
    a, b = node(fabric, A, A1), node(fabric, B1)
    got = attach(b)
    name_peer(a, [B, B1])
    fabric.run()
    for _ in range(3):
        put(a, B)
        fabric.run()
    assert len(got) >= 1
    assert peer(a, B1).primary_nid == B


def test_a_node_that_was_discovered_gets_the_name(fabric: Fabric) -> None:
    a, _ = node(fabric, A), node(fabric, B, B1, B2)
    put(a, B)
    fabric.run()
    assert known(a, B1) == [B, B1, B2]
    count = a.stats.send_count
    assert name_peer(a, [B1, B2]).primary_nid == B1
    assert known(a, B) == [B1, B, B2]
    fabric.run()
    assert a.stats.send_count == count  # there was nothing to ask
    assert known(a, B) == [B1, B, B2]


def test_two_peers_that_are_one_node_become_one(fabric: Fabric) -> None:
    a, b = node(fabric, A, A1, A2), node(fabric, B, B1, B2)
    old = peer(a, a.peers.learn(B).nid)  # type: ignore[union-attr]
    put(a, B2)
    a.peers.learn(B1)
    named = name_peer(a, [B1, B])
    assert old.gone
    fabric.run()
    assert peer(a, B) is peer(a, B1) is peer(a, B2) is named
    assert known(a, B) == [B1, B, B2]
    attach(b)
    sent = put(a, B2)
    fabric.run()
    assert sent.kinds == ["SEND", "ACK"]
    fabric.assert_conserved()


@pytest.mark.parametrize("first", [B, B2])
def test_news_of_a_named_node_are_its_own_whoever_brings_them(fabric: Fabric, first: Nid) -> None:
    """It was met by a NID that nobody named: no second peer of that node is left."""
    a, _ = node(fabric, A, A1, A2), node(fabric, B, B1, B2)
    put(a, first)
    fabric.step()
    name_peer(a, [B1, C1])
    fabric.run()
    assert peer(a, first) is peer(a, B1)
    assert known(a, first) == [B1, B, B2]
    assert peer(a, first).flags == NAMED


def test_the_earlier_of_two_names_of_one_node_stays(fabric: Fabric) -> None:
    a, _ = node(fabric, A, A1), node(fabric, B, B1)
    name_peer(a, [B1])
    name_peer(a, [B])
    fabric.run()
    assert known(a, B) == [B1, B]
    assert name_peer(a, [B]).primary_nid == B1


def test_a_name_given_again_with_other_nids_stays(fabric: Fabric) -> None:
    a, _ = node(fabric, A, A1), node(fabric, B, B1)
    assert name_peer(a, [B1, B]).primary_nid == B1
    assert name_peer(a, [B2, B]).primary_nid == B1  # before the node said anything
    fabric.run()
    assert known(a, B) == [B1, B]


def test_what_is_configured_stays_as_it_is(fabric: Fabric) -> None:
    a, _ = node(fabric, A, A1), node(fabric, B, B1)
    a.peers.add(B, [B2])
    assert name_peer(a, [B2, B1, C]).primary_nid == B
    fabric.run()
    assert known(a, B) == [B, B2]
    assert not peer(a, B).flags & PeerFlag.LOCK_PRIMARY


@pytest.mark.requirement("bck-025")
def test_a_node_without_rails_is_one_nid_under_its_name(fabric: Fabric) -> None:
    a, b = node(fabric, A, A1), old_node(fabric, B, B1)
    got = attach(b)
    name_peer(a, [B1, B])
    fabric.run()
    assert known(a, B1) == [B1]
    assert peer(a, B1).flags & (PeerFlag.LOCK_PRIMARY | PeerFlag.MULTI_RAIL) == PeerFlag.LOCK_PRIMARY
    assert name_peer(a, [B1, B]).primary_nid == B1
    fabric.run()
    assert known(a, B1) == [B1]
    for nid in (B1, B) * 4:
        put(a, nid)
        fabric.run()
    assert {(event.source, event.target) for event in got} == {(A1, B1), (A, B)}


def test_without_discovery_each_nid_is_a_peer(fabric: Fabric) -> None:
    a, _ = node(fabric, A, A1), node(fabric, B, B1)
    a.set_discovery(0)
    assert name_peer(a, [B2, B, B1]).primary_nid == B
    fabric.run()
    assert [known(a, nid) for nid in (B, B1)] == [[B], [B1]]
    assert a.peers.find(B2) is None
    assert all(peer(a, nid).flags & PeerFlag.LOCK_PRIMARY for nid in (B, B1))
    assert not peer(a, B).multi_rail


def test_discovery_switched_off_keeps_the_name(fabric: Fabric) -> None:
    a, _ = node(fabric, A, A1), node(fabric, B, B1)
    name_peer(a, [B1])
    fabric.run()
    a.set_discovery(0)
    fabric.run()
    assert known(a, B1) == [B1]
    assert peer(a, B1).flags & PeerFlag.LOCK_PRIMARY
    a.set_discovery(1)
    put(a, B1)
    fabric.run()
    assert known(a, B1) == [B1, B]


def test_a_node_that_begins_anew_is_seen_under_its_name(fabric: Fabric) -> None:
    """Its numbers begin anew, too: they are those of the NID that it calls its primary, not of the name."""
    a, b = node(fabric, A, A1), node(fabric, B, B1)
    for number in range(5):
        b.add_ni(B2.net, Nid.parse(f"10.2.1.{number}@tcp2"))
    name_peer(a, [B1])
    fabric.run()
    assert peer(a, B).remote_sequence == b.info.sequence
    b.shutdown()
    fabric.cores.remove(b)
    anew = node(fabric, B, B1)
    a.peer_restarted(B1)
    put(a, B1)
    fabric.run()
    assert known(a, B) == [B1, B]
    assert peer(a, B).remote_sequence == anew.info.sequence
    assert known(anew, A) == [A, A1]


def test_the_node_itself_may_be_named(fabric: Fabric) -> None:
    a = node(fabric, A, A1)
    assert name_peer(a, [LO_NID]).primary_nid == LO_NID
    assert name_peer(a, [LO_NID, A1, A]).primary_nid == A1
    fabric.run()
    assert known(a, A) == [A1, A]


def test_names_do_not_make_room_for_strangers(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    a = node(fabric, A)
    monkeypatch.setattr(peer_module, "MAX_UNCONFIGURED", 2)
    name_peer(a, [B])
    fabric.run()
    a.peers.learn(C)
    assert a.peers.learn(C1) is not None
    assert a.peers.find(C) is None
    assert peer(a, B).flags & PeerFlag.LOCK_PRIMARY


def test_what_names_nothing_is_refused(fabric: Fabric) -> None:
    a = node(fabric, A)
    refused(a, errno.EINVAL, "no NID")
    refused(a, errno.EINVAL, "cannot name a peer", B, ANY_NID)
    refused(a, errno.EINVAL, "cannot name a peer", B, Nid.parse("10.0.0.2@bond0"))
    a.shutdown()
    refused(a, errno.ESHUTDOWN, "shut", B)


def test_configuration_leaves_names_alone(fabric: Fabric) -> None:
    a, _ = node(fabric, A, A1), node(fabric, B, B1)
    name_peer(a, [B1])
    fabric.run()
    for number, words in (
        (errno.EALREADY, (B,)),
        (errno.EEXIST, (B1,)),
        (errno.EEXIST, (C, [B1])),
    ):
        with pytest.raises(LNetError, match="--force") as error:
            a.peers.add(*words)
        assert error.value.errno == number
    a.peers.add(C, [B])  # it has a name without this NID
    assert known(a, B1) == [B1]
    a.peers.delete(C)
    a.peers.delete(B1)
    assert known(a, B1) == [B1]  # as ever with locked ones
    a.peers.delete(B1, force=True)
    assert a.peers.find(B1) is None
    assert a.peers.add(B, [B1]).configured


# Asking ----------------------------------------------------------------------------------------------


def test_the_primary_nid_is_asked_of_the_node(fabric: Fabric) -> None:
    a, _ = node(fabric, A, A1), node(fabric, B, B1)
    told: list[Nid] = []
    ask_primary(a, B1, done=told.append)
    assert told == []
    fabric.run()
    assert told == [B]
    ask_primary(a, B1, done=told.append)
    assert told == [B, B]  # known by now
    assert not peer(a, B).flags & PeerFlag.LOCK_PRIMARY


def test_the_node_has_a_primary_nid_itself(fabric: Fabric) -> None:
    a = node(fabric, A, A1)
    told: list[Nid] = []
    for nid in (A1, LO_NID):
        ask_primary(a, nid, lock=True, done=told.append)
        fabric.run()
    assert told == [A, LO_NID]


def test_a_primary_nid_that_was_asked_for_can_be_locked(fabric: Fabric) -> None:
    a, b = node(fabric, A, A1), node(fabric, B, B1)
    told: list[Nid] = []
    ask_primary(a, B1, lock=True, done=told.append)
    fabric.run()
    assert told == [B]
    b.del_ni(B)
    fabric.run()
    assert known(a, B1) == [B, B1]
    ask_primary(a, B1, done=told.append)
    assert told == [B, B]


def test_a_locked_name_is_told_at_once(fabric: Fabric) -> None:
    """The node is asked meanwhile."""
    a, _ = node(fabric, A, A1), node(fabric, B, B1)
    name_peer(a, [B1])
    told: list[Nid] = []
    ask_primary(a, B1, done=told.append)
    assert told == [B1]
    fabric.run()
    assert known(a, B) == [B1, B]


def test_who_does_not_answer_is_called_as_asked(fabric: Fabric) -> None:
    a = node(fabric, A, A1)
    told: list[Nid] = []
    ask_primary(a, B1, lock=True, done=told.append)
    fabric.run()
    assert told == [B1]
    node(fabric, B, B1)
    put(a, B1)
    fabric.run()
    assert known(a, B1) == [B1, B]


def test_who_asks_as_the_node_goes_is_answered(fabric: Fabric) -> None:
    a = node(fabric, A)
    told: list[Nid] = []
    ask_primary(a, B, lock=True, done=told.append)
    a.shutdown()
    fabric.run()
    assert told == [B]
    with pytest.raises(LNetError):
        ask_primary(a, B, done=told.append)


# Whatever happens ------------------------------------------------------------------------------------

ALL = (A, B, B1, B2, C, C1)
some = st.lists(st.sampled_from(ALL), min_size=1, max_size=4)


@given(st.lists(st.tuples(st.sampled_from(["learn", "name", "merge", "recreate"]), some), max_size=25))
def test_a_name_lasts_unless_an_earlier_one_is_of_the_same_node(script: list[tuple[str, list[Nid]]]) -> None:
    table = PeerTable(lambda net: 8, lambda nid: False, quiet_parts())
    for what, nids in script:
        before = {one.primary_nid: one.locked_at for one in table if named(one)}
        found = table.find(nids[0])
        if what == "learn":
            table.learn(nids[0])
        elif what == "name":
            assert table.name(nids).flags & PeerFlag.LOCK_PRIMARY
        elif found is not None and what == "merge":
            found.mark(PeerFlag.MULTI_RAIL, PeerFlag.DISCOVERED)
            merge(table, found, nids[-1], nids)
        elif found is not None:
            table.recreate(found)
        for primary, locked_at in before.items():
            now = table.find(primary)
            if locked_at == min(before.values()):
                assert now is not None
                assert (named(now), now.primary_nid) == (True, primary)
            elif now is not None and named(now):  # else its node has another name, and that NID no more
                assert now.primary_nid == primary or now.locked_at < locked_at
        for one in table:
            assert one.members.keys() == set(one.nids())
            assert all(table.find(nid) is one for nid in one.members)
