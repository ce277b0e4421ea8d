"""Messages that go by another's name, and answers of those who were not asked: nothing is theirs to end."""

from __future__ import annotations

import sys

import pytest

from core.test_core_regressions import arrive, attach
from support.fabric import Fabric
from support.merging import merge
from ulnet.core import receiver
from ulnet.core.event import EventKind
from ulnet.core.md import MdOption
from ulnet.core.msg import NO_PAYLOAD
from ulnet.core.peer import PeerFlag
from ulnet.core.reception import UNVOUCHED
from ulnet.core.tunables import LndTunables
from ulnet.nid import Net, Nid
from ulnet.wire.lnet import Header, MsgType, pack_header

A, B, C, D = (Nid.parse(f"10.0.0.{n}@tcp") for n in (1, 2, 3, 4))


@pytest.fixture
def fabric():
    return Fabric()


def asking(fabric, ack=True):
    """A node that has asked B, whose answers are still under way: with its descriptors and their events."""
    a, b = fabric.node(str(A)), fabric.node(str(B))
    attach(b, bytearray(b"the answer"), None, options=TARGET)
    attach(b, bytearray(10), None, options=TARGET, bits=8)
    events = []
    sink = bytearray(b"untouched!")
    get = a.memory.md_bind(sink, events.append, threshold=2)
    a.get(get, B, 5, 7)
    put = a.memory.md_bind(b"data", events.append, threshold=2)
    a.put(put, B, 5, 8)
    while fabric.wire and fabric.wire[0][0].nid == A:
        fabric.step()
    events.clear()
    return a, sink, get, put, events


TARGET = MdOption.OP_PUT | MdOption.OP_GET | MdOption.MANAGE_REMOTE | MdOption.TRUNCATE


class Forged:
    """The payload of a forged REPLY."""

    def __init__(self):
        self.taken = None

    def take(self, incoming, buffers, mlen, rlen):
        self.taken = incoming
        for view in buffers:
            view[:] = b"X" * len(view)

    def abandon(self, incoming):
        return False

    def unanswered(self):
        pass


@pytest.mark.parametrize("known", [False, True])
def test_an_answer_of_a_node_that_was_not_asked_is_dropped(fabric, known):
    """Even with the right handle: before, it ended the operation, and was written to its memory."""
    a, sink, get, put, events = asking(fabric)
    if known:
        a.peers.learn(C)
    forged = Forged()
    arrive(a, A, 10, kind=MsgType.REPLY, src=C, wmd=get.wmd, rx=forged)
    arrive(a, A, kind=MsgType.ACK, src=C, wmd=put.wmd, length=4)
    assert forged.taken is None
    assert (sink, events) == (b"untouched!", [])
    assert a.stats.drops["answer to nothing that waits"] == 2
    fabric.run()
    assert [event.kind for event in events] == [EventKind.REPLY, EventKind.ACK]
    assert all(not event.status for event in events)
    assert sink == b"the answer"


def test_a_forged_word_that_a_request_was_dropped_is_not_heard(fabric):
    a, _, get, put, events = asking(fabric)
    for refusal in range(1, 64):
        for wmd in (get.wmd, put.wmd):
            arrive(a, A, kind=MsgType.ACK, src=C, wmd=wmd, length=0xFFFFFF00 + refusal)
    assert events == []


def deliver(core, src, hdr, payload=b""):
    """Messages that came whole, as drivers show them: how many bytes of them were taken."""
    raw = pack_header(hdr, False)
    data = bytearray((raw + payload) * 2)
    return core.receiver(core.nis[A], src).deliver(hdr, raw, data, memoryview(data), 0, len(data))


def test_neither_are_whole_messages(fabric):
    a, sink, get, put, events = asking(fabric)
    fields = {"dest_pid": 12345, "src_pid": 12345}
    assert (
        deliver(a, C, Header(int(MsgType.REPLY), A, C, payload_length=10, wmd=get.wmd, **fields), b"X" * 10)
        == 0
    )
    assert deliver(a, C, Header(int(MsgType.ACK), A, C, wmd=put.wmd, length=4, **fields)) == 0
    assert (sink, events) == (b"untouched!", [])
    assert deliver(a, B, Header(int(MsgType.ACK), A, B, wmd=put.wmd, length=4, **fields)) > 0
    assert [event.kind for event in events] == [EventKind.ACK]


def test_another_nid_of_the_node_that_was_asked_may_answer(fabric):
    """As it does where the NI that was asked is gone."""
    a, _, _, put, events = asking(fabric)
    peer = a.peers.find(B)
    peer.mark(PeerFlag.MULTI_RAIL)
    merge(a.peers, peer, B, [B, D])
    arrive(a, A, kind=MsgType.ACK, src=D, wmd=put.wmd, length=4)
    assert [event.kind for event in events] == [EventKind.ACK]


def test_one_descriptor_for_several_nodes_takes_the_answers_of_all_of_them(fabric):
    a, b, c = fabric.node(str(A)), fabric.node(str(B)), fabric.node(str(C))
    for node in (b, c):
        attach(node, bytearray(10), None, options=TARGET)
    events = []
    md = a.memory.md_bind(b"data", events.append)
    for target in (B, C, B):
        a.put(md, target, 5, 7)
    arrive(a, A, kind=MsgType.ACK, src=D, wmd=md.wmd, length=4)
    fabric.run()
    acks = [event for event in events if event.kind is EventKind.ACK]
    assert sorted(event.source for event in acks) == [B, B, C]
    assert md.asked_too == {B, C}
    a.put(md, B, 5, 7)
    fabric.run()
    a.put(md, C, 5, 7)
    assert md.asked_too is None  # nobody else owes an answer any more


def test_an_answer_costs_the_same_however_many_nodes_owe_one(fabric):
    """All of them were looked at for each answer: with a thousand peers that was most of the work."""
    a = fabric.node(str(A))
    called = []
    for count in (3, 300):
        md = a.memory.md_bind(b"data", lambda event: None)
        asked = [Nid.of(A.net, 1000 + n) for n in range(count)]
        for target in asked:
            a.put(md, target, 5, 7)
        a.put(a.memory.md_bind(b"", None), D, 5, 7)
        first, stranger = a.peers.find_ni(asked[0]), a.peers.find_ni(D)
        found = []
        sys.setprofile(lambda frame, what, _, found=found: found.append(what))
        try:
            answers = md.has_asked(first), md.has_asked(stranger)
        finally:
            sys.setprofile(None)
        assert answers == (True, False)
        called.append(len(found))
    assert called[0] == called[1]


# Sources that another node names ----------------------------------------------------------------------


def test_sources_on_the_net_by_which_another_node_sent_them_are_not_believed(fabric):
    """One connection with 3,000 invented sources made a node call each of them."""
    b = fabric.node(str(B))
    attach(b, bytearray(10), None, options=TARGET)
    known = len(list(b.peers))
    for n in range(3000):
        hdr = Header(
            int(MsgType.GET), B, Nid.of(A.net, 1000 + n), portal=5, match_bits=7, length=4, wmd=b"1" * 16
        )
        assert b.receiver(b.nis[B], C).begin(hdr, Forged()) == 0
    assert len(list(b.peers)) == known
    assert not fabric.wire
    assert b.stats.drops["another node of that net sent it than its source"] == 3000


def test_a_source_behind_a_router_is(fabric):
    b = fabric.node(str(B))
    attach(b, bytearray(10), None, options=TARGET)
    far = Nid.parse("10.9.0.1@tcp9")
    hdr = Header(int(MsgType.PUT), B, far, portal=5, match_bits=7)
    assert b.receiver(b.nis[B], C).begin(hdr, NO_PAYLOAD) == 0
    assert b.stats.recv_count == 1


# Bounds of answers ------------------------------------------------------------------------------------


@pytest.mark.pure
def test_those_that_read_nothing_leave_room_for_others(fabric, monkeypatch):
    """Six of them filled the bound of all answers, and nobody else was answered."""
    monkeypatch.setattr(receiver, "MAX_PEER_ANSWERS", 1000)
    monkeypatch.setattr(receiver, "MAX_ANSWERS", 4000)
    b = fabric.node(str(B))
    attach(b, bytearray(8), None, options=TARGET)
    foes = [Nid.of(A.net, 1000 + n) for n in range(30)]
    for foe in foes:
        for _ in range(1500):
            assert arrive(b, B, kind=MsgType.GET, length=4, wmd=b"1" * 16, src=foe) == 0
    held = [b.peers.find_ni(foe).answers for foe in foes]
    assert held == sorted(held, reverse=True)
    assert held[0] <= 1000
    assert sum(held) == b.state.answers <= 4000 + 30 * receiver.MIN_ANSWERS
    before = b.stats.recv_count
    c = fabric.node(str(C))
    assert c is not None
    for _ in range(receiver.MIN_ANSWERS):
        assert arrive(b, B, kind=MsgType.GET, length=4, wmd=b"1" * 16, src=C) == 0
    assert b.stats.recv_count - before == receiver.MIN_ANSWERS


@pytest.mark.pure
def test_requests_that_are_whole_in_a_buffer_have_the_same_bound(fabric, monkeypatch):
    """A run of them is answered together, and is no longer than what is left for that peer."""
    most = receiver.MIN_ANSWERS + receiver.RUN // 2
    monkeypatch.setattr(receiver, "MAX_PEER_ANSWERS", most)
    b = fabric.node(str(B))
    attach(b, bytearray(8), None, options=TARGET)
    hdr = Header(int(MsgType.GET), B, A, portal=5, match_bits=7, length=4, dest_pid=12345, src_pid=12345)
    raw = pack_header(hdr, False)
    data = bytearray(raw * (2 * most))
    reader = b.receiver(b.nis[B], A)
    assert reader.begin(hdr, NO_PAYLOAD) == 0
    before, at = -1, 0
    while at != before:
        before = at
        at = reader.deliver(hdr, raw, data, memoryview(data), at, len(data))
        assert b.peers.find_ni(A).answers <= most
    assert at == (most - 1) * len(raw)


@pytest.mark.parametrize("source", ["10.9.0.1@tcp9", "10.0.0.4@tcp"])
def test_a_source_that_the_certificate_of_a_connection_is_not_for(fabric, source):
    """From whatever net, for this node or another one: unless a gateway of ours to that net passes it on."""
    b = fabric.node(str(B), "10.1.0.2@tcp1")
    attach(b, bytearray(10), None, options=TARGET)
    secured = b.receiver(b.nis[B], C, lambda nid: nid in (C, Nid.parse("10.8.0.3@tcp8")))
    for dest in (B, Nid.parse("10.1.0.9@tcp1")):
        hdr = Header(int(MsgType.PUT), dest, Nid.parse(source), portal=5, match_bits=7)
        assert secured.begin(hdr, NO_PAYLOAD) == 0
    assert (b.stats.recv_count, b.stats.route_count) == (0, 0)
    assert b.stats.drops[UNVOUCHED] == 2
    own = Header(int(MsgType.PUT), B, Nid.parse("10.8.0.3@tcp8"), portal=5, match_bits=7)
    assert secured.begin(own, NO_PAYLOAD) == 0
    assert b.stats.recv_count == 1
    b.gateways.add(Net.parse("tcp9"), C, -1, 0)
    hdr = Header(int(MsgType.PUT), B, Nid.parse("10.9.0.1@tcp9"), portal=5, match_bits=7)
    assert secured.begin(hdr, NO_PAYLOAD) == 0
    assert b.stats.recv_count == 2


OTHER = Nid.parse("10.1.0.2@tcp1")  # of b
NEIGHBOUR = Nid.parse("10.1.0.66@tcp1")


def from_neighbour(b, source):
    """A PUT that a neighbour on b's other net sends in that name; how many such were taken."""
    before = b.stats.recv_count
    hdr = Header(int(MsgType.PUT), OTHER, source, portal=5, match_bits=7)
    b.receiver(b.nis[OTHER], NEIGHBOUR).begin(hdr, NO_PAYLOAD)
    return b.stats.recv_count - before


def test_nobody_else_sends_in_the_name_of_this_node(fabric):
    b = fabric.node(str(B), str(OTHER))
    attach(b, bytearray(10), None, options=TARGET)
    assert from_neighbour(b, B) == 0
    assert from_neighbour(b, OTHER) == 0
    assert from_neighbour(b, NEIGHBOUR) == 1


def test_sources_of_a_secured_net_need_a_certificate_also_by_a_plain_net(fabric):
    """Whoever was on the plain net of a node wrote as any node of its other net, a secured one."""
    b = fabric.node(str(B), str(OTHER))
    attach(b, bytearray(10), None, options=TARGET)
    assert from_neighbour(b, A) == 1  # as it may have come over a router
    for ni in b.state.nets[B.net].nis:
        ni.lnd_tunables = LndTunables(security=2)
    assert from_neighbour(b, A) == 0
    assert b.stats.drops[UNVOUCHED] == 1


def test_who_has_a_certificate_sends_nothing_over_a_net_without(fabric):
    b = fabric.node(str(B), str(OTHER))
    attach(b, bytearray(10), None, options=TARGET)
    assert from_neighbour(b, A) == 1
    hdr = Header(int(MsgType.PUT), B, A, portal=5, match_bits=7)
    b.receiver(b.nis[B], A, [A].__contains__).begin(hdr, NO_PAYLOAD)
    assert from_neighbour(b, A) == 0
