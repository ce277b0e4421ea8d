"""The peer table and its rules (spec lnetctl.md §1 peer, discovery.md §7)."""

from __future__ import annotations

import errno
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fabric import Fabric, Recorder
from support.merging import merge
from support.parts import quiet_parts
from ulnet.core import peer_table as peer_module
from ulnet.core.md import MdOption
from ulnet.core.ni import NI, LocalNet
from ulnet.core.peer import Peer, PeerFlag, PeerNet, PeerNi
from ulnet.core.peer_table import PeerTable
from ulnet.core.status import LNetError
from ulnet.core.tunables import NetTunables
from ulnet.nid import ANY_NID, LO_NID, Nid

A, B, C, D = (Nid.parse(f"10.0.0.{n}@tcp") for n in (1, 2, 3, 4))
B1, D1 = Nid.parse("10.1.0.2@tcp1"), Nid.parse("10.1.0.4@tcp1")


@pytest.fixture
def table():
    return PeerTable(lambda net: 8 if net == A.net else 0, lambda nid: False, quiet_parts())


def refused(code, words, call, *args):
    with pytest.raises(LNetError, match=words) as error:
        call(*args)
    assert error.value.errno == code


@pytest.mark.requirement("cfg-070", "cfg-075")
def test_nids_on_several_nets_are_one_peer(table):
    peer = table.add(B, [B1])
    assert list(peer.nids()) == [B, B1]
    assert table.find(B1) is peer
    assert [pni.max_tx_credits for pni in peer.nis()] == [8, 0]
    assert (peer.multi_rail, peer.configured, peer.flags) == (True, True, 9)
    assert table.add(B, [C]) is peer
    assert list(peer.nids()) == [B, C, B1]


def test_reprs_are_short(table):
    pni = table.learn(A)
    assert repr(pni) == "<PeerNi 10.0.0.1@tcp>"
    assert repr(pni.net) == "<PeerNet tcp>"
    assert repr(pni.peer) == "<Peer 10.0.0.1@tcp, 1 NID>"
    assert repr(table.add(B, [B1])) == f"<Peer {B}, 2 NIDs>"
    net = LocalNet(A.net, cast("Any", None), NetTunables())
    net.nis = [NI(net, A)]
    assert [repr(net), repr(net.nis[0])] == ["<LocalNet tcp, 1 NI>", "<NI 10.0.0.1@tcp>"]


@pytest.mark.pure  # a compiled class calls __init__ from __new__
@pytest.mark.parametrize("one", [Peer, PeerNi, PeerNet, LocalNet, NI])
def test_a_repr_never_fails(one: type[object]) -> None:
    """Before __init__ has run, as a debugger shows objects."""
    assert repr(object.__new__(one)).startswith(f"<{one.__name__} ?")


@pytest.mark.requirement("cfg-080", "snd-065")
def test_a_nid_belongs_to_one_peer(table):
    table.add(B, [B1])
    table.add(C)
    refused(errno.EEXIST, f"{B1} belongs to the configured peer {B}", table.add, C, [D, B1])
    refused(errno.EEXIST, f"{B1} belongs to the configured peer {B}", table.add, B1)
    table.add(D1, multi_rail=False)
    refused(errno.EEXIST, f"{D1} belongs to the configured peer {D1}", table.add, C, [D1])
    assert table.find(D) is None


def test_configuration_takes_nids_from_peers_that_were_only_heard(table):
    heard = table.learn(B)
    peer = table.add(C, [B])
    assert table.find(B) is peer
    assert table.find_ni(B) is not heard
    assert len(table) == 1
    table.learn(D)
    assert table.add(D).configured


@pytest.mark.parametrize(
    ("call", "args", "code", "words"),
    [
        ("add", (ANY_NID,), errno.EINVAL, "cannot name a peer"),
        ("add", (LO_NID,), errno.EINVAL, "cannot name a peer"),
        ("add", (B, [B1], False), errno.EPERM, "configured as Multi-Rail"),
        ("add", (D, [D1, C], False), errno.ENOTUNIQ, "second there"),
        ("delete", (ANY_NID,), errno.EINVAL, "wildcard"),
        ("delete", (D,), errno.ENOENT, "no peer has the NID"),
        ("delete", (B1,), errno.ENODEV, "not the primary NID"),
        ("delete", (B, [D]), errno.ENOENT, "has no NID"),
        ("delete", (B, [B1, A]), errno.ECHILD, "belongs to peer"),
    ],
)
def test_refusals_change_nothing(table, call, args, code, words):
    table.add(B, [B1])
    table.add(A)
    refused(code, words, getattr(table, call), *args)
    assert [list(peer.nids()) for peer in table] == [[B, B1], [A]]


def test_deleting_nids_the_primary_and_locked_peers(table):
    table.add(B, [B1, C])
    table.delete(B, [B1])
    assert list(table.find(B).nids()) == [B, C]
    table.delete(B, [B])
    assert len(table) == 0
    assert table.find(C) is None
    table.add(D, [D1], True, True)
    table.delete(D)
    assert list(table.find(D).nids()) == [D]
    table.delete(D, None, True)
    assert len(table) == 0


def test_strangers_are_bounded(table, monkeypatch):
    monkeypatch.setattr(peer_module, "MAX_UNCONFIGURED", 3)
    for nid in (A, B, C):
        table.learn(nid).refs += nid != B  # messages are under way to A and C
    assert table.learn(D)
    assert table.find(B) is None  # the one that nobody needs made room
    table.find_ni(D).refs += 1
    assert table.learn(B1) is None
    table.delete(A)
    assert table.learn(B1)
    table.add(B)
    assert len(table) == 4


def test_who_answered_over_a_gateway_is_forgotten_after_all_who_were_not_heard(table, monkeypatch):
    monkeypatch.setattr(peer_module, "MAX_UNCONFIGURED", 3)
    for nid in (A, B, C):
        table.learn(nid)
    table.find(A).mark(PeerFlag.DISCOVERED)
    assert table.learn(D)
    assert table.learn(B1)
    assert table.learn(B)
    assert table.find(A) is not None
    for nid in (D, B1, B):
        if table.find(nid) is not None:
            table.find_ni(nid).heard_at = 0.0
    assert table.learn(C)  # all were heard: the one that is known longest makes room
    assert table.find(A) is None


def test_destinations_of_others_that_were_never_heard_have_a_bound_of_their_own(table, monkeypatch):
    """A router's neighbours filled its table with NIDs that nobody has: 0.6 GiB."""
    monkeypatch.setattr(peer_module, "_UNHEARD", 3)
    assert all(table.learn(nid, for_others=True) for nid in (A, B, C))
    assert table.learn(D, for_others=True)
    assert [str(peer.primary_nid) for peer in table] == [str(B), str(C), str(D)]  # A is not in use
    for nid in (B, C, D):
        table.find_ni(nid).refs += 1
    assert table.learn(A, for_others=True) is None
    assert table.learn(A)  # it speaks for itself
    for nid in (A, B, C):
        table.find_ni(nid).heard_at = 0.0
    assert table.learn(B1, for_others=True)  # those who were heard are not counted, nor forgotten
    assert table.learn(D1, for_others=True)
    assert len(table) == 6


def test_unknown_senders_get_a_peer_and_full_tables_drop(monkeypatch):
    fabric = Fabric()
    a, b = fabric.node(str(A)), fabric.node(str(B))
    b.memory.set_lazy(5)
    md = a.memory.md_bind(b"1", None, threshold=1)
    a.put(md, B, 5, 7, ack=False)
    fabric.run()
    peer = b.peers.find(A)
    assert (peer.multi_rail, peer.configured) == (False, False)
    monkeypatch.setattr(peer_module, "MAX_UNCONFIGURED", 1)
    c = fabric.node(str(C))
    c.put(c.memory.md_bind(b"1", None, threshold=1), B, 5, 7, ack=False)
    fabric.run()
    assert b.peers.find(C) is None
    assert b.stats.drops["too many unknown peers"] == 1
    b.memory.set_lazy(5, False)
    fabric.assert_conserved()


@pytest.mark.requirement("bck-025")
def test_single_rail_peers_hear_from_one_ni_only():
    fabric = Fabric()
    a = fabric.node(str(A), str(C))
    b = fabric.node(str(B))
    got = Recorder()
    me = b.memory.me_attach(5, match_bits=7)
    b.memory.md_attach(me, bytearray(100), got, options=MdOption.OP_PUT)
    for _ in range(6):
        a.put(a.memory.md_bind(b"1", None, threshold=1), B, 5, 7, ack=False)
        fabric.run()
    assert len({event.source for event in got}) == 1
    a.peers.add(B)
    for _ in range(6):
        a.put(a.memory.md_bind(b"1", None, threshold=1), B, 5, 7, ack=False)
        fabric.run()
    assert [sum(event.source == nid for event in got[6:]) for nid in (A, C)] == [3, 3]


@pytest.mark.requirement("bck-025")
@pytest.mark.parametrize("called", [A, C])
def test_a_single_rail_peer_that_spoke_first_hears_from_the_ni_that_it_called(called):
    fabric = Fabric()
    a, b = fabric.node(str(A), str(C)), fabric.node(str(B))
    got = Recorder()
    me = b.memory.me_attach(5, match_bits=7)
    b.memory.md_attach(me, bytearray(100), got, options=MdOption.OP_PUT)
    b.put(b.memory.md_bind(b"1", None, threshold=1), called, 5, 7, ack=False)
    fabric.run()
    for _ in range(6):
        a.put(a.memory.md_bind(b"1", None, threshold=1), B, 5, 7, ack=False)
        fabric.run()
    assert [event.source for event in got] == [called] * 6


@pytest.mark.requirement("snd-045", "dbg-010", "dbg-015")
def test_multi_rail_peers_are_used_evenly_over_all_pairs():
    fabric = Fabric()
    a = fabric.node(str(A), "10.1.0.1@tcp1")
    b = fabric.node(str(B), str(B1))
    a.peers.add(B, [B1])
    got = Recorder()
    me = b.memory.me_attach(5, match_bits=7)
    b.memory.md_attach(me, bytearray(100), got, options=MdOption.OP_PUT)
    for _ in range(10):
        a.put(a.memory.md_bind(b"1", None, threshold=2), B, 5, 7)
        fabric.run()
    assert [sum(event.target == nid for event in got) for nid in (B, B1)] == [5, 5]
    # Each ACK went back along its own rail.
    assert b.nis[B].stats.sent[0] == 5
    assert a.nis[A].stats.received[0] == 5
    fabric.assert_conserved()


@pytest.mark.requirement("snd-045")
@pytest.mark.parametrize("get", [False, True])
def test_an_answer_goes_back_by_both_nids_of_its_request_though_others_are_as_good(get):
    fabric = Fabric()
    a, b = fabric.node(str(A), str(C)), fabric.node(str(B), str(D))
    a.peers.add(B, [D])
    b.peers.add(A, [C])
    me = b.memory.me_attach(5, match_bits=7)
    b.memory.md_attach(me, bytearray(8), options=MdOption.OP_GET if get else MdOption.OP_PUT)
    send = a.get if get else a.put
    for near, far in ((A, B), (C, B), (A, D), (C, D)):
        before = [list(ni.stats.sent) for ni in (*a.nis.values(), *b.nis.values())]
        send(a.memory.md_bind(bytearray(1), None, threshold=2), far, 5, 7, source=near)
        fabric.run()
        after = [list(ni.stats.sent) for ni in (*a.nis.values(), *b.nis.values())]
        assert sum(map(sum, after)) - sum(map(sum, before)) == 2
        assert (sum(a.nis[near].stats.received), sum(b.nis[far].stats.sent)) == (
            sum(a.nis[near].stats.sent),
            sum(b.nis[far].stats.received),
        )
    fabric.assert_conserved()


def test_a_net_added_later_gives_its_peers_credits():
    fabric = Fabric()
    a = fabric.node(str(A))
    peer = a.peers.add(B, [B1])
    assert [pni.tx_credits for pni in peer.nis()] == [8, 0]
    a.add_ni(B1.net, Nid.parse("10.1.0.1@tcp1"))
    assert [pni.tx_credits for pni in peer.nis()] == [8, 8]


def test_merge_follows_what_the_peer_lists(table):
    table.learn(B)
    table.learn(C)
    peer = table.find(C)
    peer.mark(PeerFlag.MULTI_RAIL)
    known = table.find_ni(B)
    assert merge(table, peer, B, [B, B1, C]) == {}
    assert list(peer.nids()) == [B, C, B1]
    assert table.find_ni(B) is known  # with its credits, and what waits for them
    assert len(table) == 1
    merge(table, peer, B, [B, B1])
    assert list(peer.nids()) == [B, B1]
    assert table.find(C) is None
    table.add(D)
    assert merge(table, peer, B, [B, D]) == {D: errno.EEXIST}
    assert table.find(D).primary_nid == D
    assert merge(table, table.find(D), B, [B]) == {B: errno.EPERM, D: errno.EPERM}


nids = st.sampled_from([A, B, C, D, B1, D1])


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("learn"), nids),
            st.tuples(st.just("add"), nids, st.lists(nids, max_size=3), st.booleans()),
            st.tuples(st.just("delete"), nids, st.lists(nids, max_size=2)),
            st.tuples(st.just("merge"), nids, st.lists(nids, max_size=4)),
        ),
        max_size=25,
    )
)
def test_no_sequence_of_changes_breaks_the_table(script):
    table = PeerTable(lambda net: 8, lambda nid: False, quiet_parts())
    for name, nid, *rest in script:
        if name == "merge":
            peer = table.find(nid)
            if peer is not None:
                if len(rest[0]) != 2:
                    peer.mark(PeerFlag.MULTI_RAIL)
                merge(table, peer, rest[0][0] if rest[0] else nid, rest[0])
        else:
            try:
                getattr(table, name)(nid, *rest)
            except LNetError:
                pass
        seen: dict[Nid, object] = {}
        for peer in table:
            listed = list(peer.nids())
            assert listed[0] == peer.primary_nid
            assert len(listed) == len(set(listed)) == len(list(peer.nis()))
            for one in listed:
                assert one not in seen
                seen[one] = peer
                assert table.find(one) is peer
                assert peer.owns(one)
        for one in (A, B, C, D, B1, D1):
            assert (table.find(one) is None) == (one not in seen)
