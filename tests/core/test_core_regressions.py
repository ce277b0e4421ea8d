"""Each of these once went wrong: re-entrant handlers, hostile peers, requests that make no sense."""

from __future__ import annotations

import errno
import gc
import math

import pytest

from support.fabric import Delivery, Fabric, Recorder
from support.merging import merge
from support.parts import quiet_parts
from support.stream import NO_PAYLOAD
from ulnet.core import peer_table as peer_module
from ulnet.core import receiver
from ulnet.core.event import EventKind
from ulnet.core.md import MdOption
from ulnet.core.peer import PeerFlag, PeerNi
from ulnet.core.peer_table import PeerTable
from ulnet.core.status import LNetError
from ulnet.core.tunables import NetTunables
from ulnet.nid import ANY_NID, LO_NET, LO_NID, Net, NetType, Nid
from ulnet.wire.lnet import PING_MATCH_BITS, Header, MsgType
from ulnet.wire.ping import NiEntry, PingInfo

A, B, C = (Nid.parse(f"10.0.0.{n}@tcp") for n in (1, 2, 3))
A1, B1 = Nid.parse("10.1.0.1@tcp1"), Nid.parse("10.1.0.2@tcp1")
FOREIGN = Nid.parse("10.9.0.9@tcp9")
TARGET = MdOption.OP_PUT | MdOption.OP_GET | MdOption.TRUNCATE


@pytest.fixture
def fabric():
    fabric = Fabric()
    yield fabric
    fabric.run()
    fabric.assert_conserved()
    assert not fabric.complaints


def attach(core, buffer, handler, *, portal=5, bits=7, options=TARGET, **md):
    me = core.memory.me_attach(portal, match_bits=bits)
    return core.memory.md_attach(me, buffer, handler, options=options, **md)


def send(fabric, core, target=B, *, bits=7, portal=5, data=b"", source=None):
    core.put(core.memory.md_bind(data, None, threshold=1), target, portal, bits, ack=False, source=source)
    fabric.run()


def arrive(core, ni_nid, payload_length=0, *, kind=MsgType.PUT, src=A, hop=None, rx=NO_PAYLOAD, **fields):
    """A header as a driver would hand it up, with nothing behind it; `hop` sent it, or `src` itself."""
    fields = {"portal": 5, "match_bits": 7, "dest_pid": 12345, "src_pid": 12345} | fields
    hdr = Header(int(kind), ni_nid, src, payload_length=payload_length, **fields)
    return core.receiver(core.nis[ni_nid], hop or src).begin(hdr, rx)


def hold_payload(monkeypatch):
    """From now on drivers are asked for payload, and it does not come: with what they were asked."""
    held = []
    monkeypatch.setattr(Delivery, "take", lambda *args: held.append(args))
    return held


def refused(code, words, call, *args, **kwargs):
    with pytest.raises(LNetError, match=words) as error:
        call(*args, **kwargs)
    assert error.value.errno == code


# Delayed messages and handlers that attach more memory -------------------------------------------


def test_a_handler_that_attaches_memory_gets_each_waiting_message_once(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    b.memory.set_lazy(5)
    for _ in range(4):
        send(fabric, a)
    got = []

    def again(event):
        if event.kind is EventKind.PUT:
            got.append(event)
            if len(got) < 3:
                attach(b, bytearray(8), again, threshold=1)
            else:
                attach(b, bytearray(8), got.append)

    attach(b, bytearray(8), again, threshold=1)
    assert len(got) == 4
    assert not b.memory.portal(5).delayed


def test_waiting_messages_are_matched_in_order_of_arrival_whatever_handlers_attach(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    b.memory.set_lazy(5)
    order = []
    for number, bits in enumerate([1, 2, 1, 1, 2]):
        a.put(a.memory.md_bind(b"", None, threshold=1), B, 5, bits, ack=False, hdr_data=number)
        fabric.run()

    def second(event):
        order.append(event.hdr_data)
        if len(order) == 1:
            attach(b, bytearray(1), lambda event: order.append(event.hdr_data), bits=1, threshold=3)

    attach(b, bytearray(1), second, bits=2, threshold=2)
    assert order == [1, 0, 2, 3, 4]


def test_a_stalled_push_and_thousands_behind_it_leave_the_push_buffer_posted(fabric, monkeypatch):
    a, b = fabric.node(str(A), str(A1)), fabric.node(str(B), discovery=True)
    a.put(a.memory.md_bind(b"garbage", None, threshold=1), B, 0, PING_MATCH_BITS, ack=False)
    held = hold_payload(monkeypatch)  # it is long on its way
    fabric.step()
    for _ in range(3000):
        assert arrive(b, B, portal=0, match_bits=PING_MATCH_BITS) == 0
    monkeypatch.undo()
    for args in held:
        Delivery.take(*args)
    assert not b.memory.portal(0).delayed
    push = PingInfo(0x1E, 12345, 4, [NiEntry(A), NiEntry(A1)]).pack()
    a.put(a.memory.md_bind(push, None, threshold=1), B, 0, PING_MATCH_BITS, ack=False)
    fabric.run()
    assert b.peers.find(A1) is b.peers.find(A)


def test_what_can_never_match_does_not_wait_on_the_reserved_portal(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    for bits in range(5):
        send(fabric, a, portal=0, bits=bits)
    assert not b.memory.portal(0).delayed
    assert b.stats.drop_count == 5


@pytest.mark.parametrize("what", ["set_lazy", "del_ni", "forget_rx", "unlink", "shutdown"])
def test_a_handler_may_end_the_waiting_of_others(fabric, what):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    b.memory.set_lazy(5)
    for size in (0, 5, 0, 6, 0):
        send(fabric, a, data=bytes(size))
    got = Recorder()

    def handler(event):
        got(event)
        if len(got) > 1:
            return
        if what == "set_lazy":
            b.memory.set_lazy(5, False)
        elif what == "del_ni":
            b.del_ni(B)
        elif what == "forget_rx":
            for rx in list(fabric.delayed):
                fabric.break_delivery(rx)
        elif what == "unlink":
            b.memory.md_unlink(event.md)
        else:
            b.shutdown()

    attach(b, bytearray(100), handler, threshold=3)
    fabric.run()
    expected = {"set_lazy": 1, "del_ni": 3, "forget_rx": 3, "unlink": 2, "shutdown": 2}
    assert len(got) == expected[what]
    assert [event.unlinked for event in got] == [False] * (len(got) - 1) + [what != "set_lazy"]
    b.memory.set_lazy(5, False)


def test_waiting_messages_follow_their_sender_into_another_peer(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    b.memory.set_lazy(5)
    send(fabric, a)
    b.peers.add(C, [A])
    me = b.memory.me_attach(5, match_bits=7, nid=C)
    b.memory.md_attach(me, bytearray(1), got := Recorder(), options=TARGET)
    assert [event.initiator for event in got] == [C]


# Unlinking while busy ----------------------------------------------------------------------------


def test_an_unlinked_busy_descriptor_takes_no_further_operation(fabric, monkeypatch):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    b.memory.set_lazy(6)
    got = Recorder()
    md = attach(b, bytearray(64), got)
    held = hold_payload(monkeypatch)
    a.put(a.memory.md_bind(b"one", None, threshold=1), B, 5, 7, ack=False)
    fabric.step()
    b.memory.md_unlink(md)
    monkeypatch.undo()
    send(fabric, a, data=b"two")
    for args in held:
        Delivery.take(*args)
    fabric.run()
    assert [(event.mlength, event.status, event.unlinked) for event in got] == [(3, -errno.ETIMEDOUT, True)]
    assert b.stats.drop_count == 1


def test_a_put_into_memory_that_was_unlinked_meanwhile_is_not_acknowledged(fabric, monkeypatch):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    md = attach(b, bytearray(64), got := Recorder())
    sent = Recorder()
    held = hold_payload(monkeypatch)
    source = a.memory.md_bind(b"one", sent, threshold=2)
    a.put(source, B, 5, 7)
    fabric.step()
    b.memory.md_unlink(md)
    monkeypatch.undo()
    Delivery.take(*held[0])
    fabric.run()
    assert got[0].status == -errno.ETIMEDOUT
    assert sent.kinds == ["SEND"]
    a.memory.md_unlink(source)


def test_an_unlinked_busy_descriptor_is_not_sent_from_and_takes_no_answer(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    attach(b, bytearray(b"12345678"), None)
    buffer, got = bytearray(8), Recorder()
    md = a.memory.md_bind(buffer, got, threshold=4)
    a.get(md, B, 5, 7)
    a.memory.md_unlink(md)
    refused(errno.ENOENT, "bind a new one", a.get, md, B, 5, 7)
    fabric.run()
    assert got.kinds == ["SEND"]
    assert got[0].unlinked
    assert buffer == bytes(8)
    assert a.stats.drops["answer to nothing that waits"] == 1


def test_queued_replies_from_unlinked_memory_are_cancelled(fabric):
    a = fabric.node(str(A))
    b = fabric.node(str(B), tunables=NetTunables(credits=1, peer_credits=1))
    served = Recorder()
    md = attach(b, bytearray(b"12345678"), served, options=MdOption.OP_GET | MdOption.MANAGE_REMOTE)
    readers = [a.memory.md_bind(bytearray(8), None, threshold=2) for _ in range(2)]
    for reader in readers:
        a.get(reader, B, 5, 7)
    for _ in readers:
        assert fabric.step()
    b.memory.md_unlink(md)
    fabric.run()
    assert [(event.status, event.unlinked) for event in served] == [
        (-errno.ETIMEDOUT, False),
        (-errno.ECANCELED, True),
    ]
    for reader in readers:
        a.memory.md_unlink(reader)


def test_a_descriptor_used_anew_in_an_overdue_handler_keeps_its_new_deadline(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    attach(b, bytearray(8), None, options=TARGET | MdOption.ACK_DISABLE)
    events = Recorder()
    other = a.memory.md_bind(b"2", events, timeout=2.0)

    def on_first(event):
        if event.kind is EventKind.UNLINK:
            a.put(other, B, 5, 7)

    first = a.memory.md_bind(b"1", on_first, threshold=2, timeout=2.0)
    a.put(first, B, 5, 7)
    a.put(other, B, 5, 7)
    fabric.run()
    fabric.clock.now += 2.5
    a.tick(fabric.clock.now)
    fabric.run()
    assert "UNLINK" not in events.kinds
    fabric.clock.now += 2.5
    a.tick(fabric.clock.now)
    assert events.kinds[-1] == "UNLINK"
    assert (a.memory.count_awaited(), a.state.deadlines.next_deadline()) == (0, None)


# Answers that nobody asked for -------------------------------------------------------------------


def test_a_reply_cannot_write_into_the_memory_of_a_put(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    attach(b, bytearray(8), None, options=TARGET | MdOption.ACK_DISABLE)
    data, events = bytearray(b"precious"), Recorder()
    for memory in (data, b"precious"):
        md = a.memory.md_bind(memory, events, threshold=3)
        a.put(md, B, 5, 7)
        fabric.run()
        assert arrive(a, A, kind=MsgType.REPLY, src=B, wmd=md.wmd) == 0
        a.memory.md_unlink(md)
    assert events.kinds == ["SEND", "UNLINK"] * 2
    assert a.stats.drops["answer to nothing that waits"] == 2


def test_an_ack_cannot_end_a_get(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    attach(b, bytearray(b"12345678"), None)
    events = Recorder()
    md = a.memory.md_bind(bytearray(8), events, threshold=2)
    a.get(md, B, 5, 7)
    assert arrive(a, A, kind=MsgType.ACK, src=B, wmd=md.wmd) == 0
    fabric.run()
    assert sorted(events.kinds) == ["REPLY", "SEND"]


def test_one_put_takes_one_ack_only(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    attach(b, bytearray(8), None)
    events = Recorder()
    md = a.memory.md_bind(b"1", events)
    a.put(md, B, 5, 7)
    fabric.run()
    assert arrive(a, A, kind=MsgType.ACK, src=B, wmd=md.wmd) == 0
    assert sorted(events.kinds) == ["ACK", "SEND"]
    a.memory.md_unlink(md)


def test_round_trips_are_measured_only_where_responses_are_tracked(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    attach(b, bytearray(8), None)
    a.settings.response_tracking = 0
    a.put(a.memory.md_bind(b"1", None, threshold=2), B, 5, 7)
    fabric.run()
    assert a.nis[A].latency_ack.samples == 0
    a.settings.response_tracking = 3
    a.put(a.memory.md_bind(b"1", None, threshold=2), B, 5, 7)
    fabric.run()
    assert a.nis[A].latency_ack.samples == 1


# Requests that make no sense ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        *(("put", field) for field in ("portal", "match_bits", "offset", "hdr_data", "pid")),
        *(("get", field) for field in ("portal", "match_bits", "offset", "pid")),
    ],
)
@pytest.mark.parametrize("value", [-1, 1 << 64])
def test_numbers_that_no_header_can_carry_are_refused(fabric, kind, field, value):
    a = fabric.node(str(A))
    attach(a, bytearray(100), None, portal=63, options=TARGET | MdOption.MANAGE_REMOTE)
    md = a.memory.md_bind(bytearray(4), None, threshold=2)
    request = {"portal": 63, "match_bits": 7} | {field: value}
    refused(errno.EINVAL, field, getattr(a, kind), md, LO_NID, **request)
    assert (md.threshold, md.refs) == (2, 0)


def test_memory_that_cannot_be_written_takes_no_get(fabric):
    a, _ = fabric.node(str(A)), fabric.node(str(B))
    md = a.memory.md_bind(b"read-only", None, threshold=2)
    refused(errno.EINVAL, "read-only", a.get, md, B, 5, 7)
    assert (md.threshold, md.refs) == (2, 0)


@pytest.mark.parametrize("timeout", [math.inf, math.nan, -1.0])
def test_timeouts_are_finite(fabric, timeout):
    a = fabric.node(str(A))
    refused(errno.EINVAL, "timeout", a.memory.md_bind, b"1", None, timeout=timeout)


def test_thresholds_below_minus_one_are_refused(fabric):
    a = fabric.node(str(A))
    refused(errno.EINVAL, "threshold -2", a.memory.md_bind, b"1", None, threshold=-2)


@pytest.mark.parametrize("dest", [ANY_NID, Nid.of(LO_NET, 1), Nid.of(Net.of(NetType.LO, 3), 0)])
def test_nids_of_no_interface_are_no_destination(fabric, dest):
    a = fabric.node(str(A))
    sent = Recorder()
    a.put(a.memory.md_bind(b"1", sent, threshold=1), dest, 5, 7, ack=False)
    fabric.run()
    assert (sent[0].status, sent[0].unlinked) == (-errno.EINVAL, True)
    assert str(dest) in sent[0].reason
    assert len(a.peers) == 0


def test_an_entry_takes_one_descriptor_and_an_unlinked_one_none(fabric):
    a = fabric.node(str(A))
    me = a.memory.me_attach(5, match_bits=7)
    md = a.memory.md_attach(me, bytearray(1), None, options=TARGET)
    refused(errno.EBUSY, "has its memory", a.memory.md_attach, me, bytearray(1), None, options=TARGET)
    assert md.linked
    assert me.md is md
    a.memory.me_unlink(me)
    refused(errno.ENOENT, "unlinked", a.memory.md_attach, me, bytearray(1), None, options=TARGET)
    assert len(a.memory.mds) == 2  # ping and push


def test_memory_of_the_wrong_type_takes_the_entry_along(fabric):
    a = fabric.node(str(A))
    me = a.memory.me_attach(5, match_bits=7)
    words = "memory of type str: give bytes"
    refused(errno.EINVAL, words, a.memory.md_attach, me, ["text"], None, options=TARGET)
    assert not me.linked


def test_an_ni_is_of_its_net_and_there_is_one_loopback(fabric):
    a = fabric.node(str(A))
    refused(errno.EINVAL, "10.1.0.2@tcp1 is not on net tcp", a.add_ni, B.net, B1)
    refused(errno.EINVAL, "wildcard", a.add_ni, ANY_NID.net, ANY_NID)
    refused(errno.EINVAL, "0@lo", a.add_ni, LO_NET, Nid.of(LO_NET, 1))
    assert list(a.nis) == [LO_NID, A]


def test_send_events_repeat_the_request(fabric):
    a, b = fabric.node(str(A), str(A1)), fabric.node(str(B), str(B1))
    a.peers.add(B, [B1])
    attach(b, bytearray(64), None, options=TARGET | MdOption.MANAGE_REMOTE)
    sent = Recorder()
    for _ in range(2):
        a.put(a.memory.md_bind(b"x", sent, threshold=1), B, 5, 7, ack=False, offset=33, hdr_data=9, pid=77)
    a.get(a.memory.md_bind(bytearray(4), sent, threshold=2), B, 5, 7, offset=44)
    fabric.run()
    sends = [event for event in sent if event.kind is EventKind.SEND]
    assert [(e.target, e.portal, e.match_bits, e.offset, e.hdr_data) for e in sends] == [
        (B, 5, 7, 33, 9),
        (B, 5, 7, 33, 9),
        (B, 5, 7, 44, 0),
    ]
    assert all(e.initiator == e.source == e.sender == ANY_NID and e.source_pid == 12345 for e in sends)
    assert (sends[0].data, sends[2].data) == (b"x", bytearray(4))


def test_a_put_without_ack_can_time_out_too(fabric):
    a, _ = fabric.node(str(A)), fabric.node(str(B))
    sent = Recorder()
    a.put(a.memory.md_bind(b"1", sent, threshold=1, timeout=1.0), B, 5, 7, ack=False)
    fabric.clock.now += 2
    a.tick(fabric.clock.now)
    assert [(event.kind.name, event.status) for event in sent] == [("UNLINK", -errno.ETIMEDOUT)]
    fabric.run()
    assert [event.unlinked for event in sent] == [False, True]
    md = a.memory.md_bind(b"1", sent, threshold=2, timeout=1.0)
    a.put(md, B, 5, 7, ack=False)
    fabric.run()
    assert a.next_deadline() is None
    a.memory.md_unlink(md)


# Hostile and misguided peers ---------------------------------------------------------------------


@pytest.mark.parametrize("src", [ANY_NID, LO_NID, Nid.of(LO_NET, 1)])
def test_sources_that_are_no_node_are_dropped(fabric, src):
    b = fabric.node(str(B))
    attach(b, bytearray(8), got := Recorder())
    assert arrive(b, B, src=src, wmd=b"1" * 16) == 0
    assert arrive(b, B, src=src, kind=MsgType.GET) == 0
    fabric.run()
    assert not got
    assert b.stats.drop_count == 2
    assert len(b.peers) == 0


def test_a_sender_from_a_net_we_are_not_on_is_not_answered_on_another(fabric):
    b = fabric.node(str(B))
    attach(b, bytearray(8), got := Recorder())
    assert arrive(b, B, src=FOREIGN, wmd=b"1" * 16) == 0
    sent = Recorder()
    b.put(b.memory.md_bind(b"1", sent, threshold=1), FOREIGN, 5, 7, ack=False)
    fabric.run()
    assert len(got) == 1
    assert [event.status for event in sent] == [-errno.EHOSTUNREACH]


def push_of(fabric, core, nids, source=A):
    info = PingInfo(0x1E, 12345, 4, [NiEntry(nid) for nid in nids])
    md = core.memory.md_bind(info.pack(), None, threshold=1)
    core.put(md, B, 0, PING_MATCH_BITS, ack=False, source=source)
    fabric.run()


def test_a_push_cannot_list_loopback_or_wildcard_nids(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B), discovery=True)
    push_of(fabric, a, [LO_NID, A, A1])
    assert list(b.peers.find(A).nids()) == [A]
    push_of(fabric, a, [A, Nid.of(LO_NET, 1), ANY_NID, LO_NID, A1])
    assert list(b.peers.find(A).nids()) == [A, A1]
    sent = Recorder()
    for _ in range(4):
        b.put(b.memory.md_bind(b"1", sent, threshold=1), A, 5, 7, ack=False)
    fabric.run()
    assert [event.status for event in sent] == [0] * 4


def test_pushes_cannot_grow_the_table_without_bound(fabric, monkeypatch):
    monkeypatch.setattr(peer_module, "MAX_UNCONFIGURED", 56)
    a, b = fabric.node(str(A)), fabric.node(str(B), discovery=True)
    push_of(fabric, a, [A, *(Nid.of(A.net, 1000 + n) for n in range(40))])
    push_of(fabric, a, [A, *(Nid.of(A.net, 1000 + n) for n in range(40))])
    assert len(list(b.peers.find(A).nids())) == 41
    c = fabric.node(str(C))
    listed = [C, *(Nid.of(A.net, 2000 + n) for n in range(60))]
    for _ in range(2):
        push_of(fabric, c, listed, source=C)
    assert sum(len(list(peer.nids())) for peer in b.peers) == 42  # what else C lists is not known yet
    send(fabric, a)
    assert b.peers.find(A) is not None


def test_strangers_who_fill_the_table_do_not_shut_out_others(fabric, monkeypatch):
    monkeypatch.setattr(peer_module, "MAX_UNCONFIGURED", 5)
    b = fabric.node(str(B))
    b.memory.set_lazy(5)
    attach(b, bytearray(1), None, bits=8)
    assert arrive(b, B, src=Nid.of(A.net, 7)) == 0  # waits: not to be forgotten
    for n in range(100):
        assert arrive(b, B, src=Nid.of(A.net, 1000 + n), match_bits=8) == 0
    assert len(b.peers) == 5
    assert b.peers.find(Nid.of(A.net, 1099)) is not None
    assert b.peers.find(Nid.of(A.net, 7)) is not None
    assert not b.stats.drop_count
    b.memory.set_lazy(5, False)


def test_who_was_heard_is_forgotten_after_all_who_were_not(fabric, monkeypatch):
    """Whoever invented sources had idle peers forgotten, and could list their NIDs then."""
    monkeypatch.setattr(peer_module, "MAX_UNCONFIGURED", 48)
    b = fabric.node(str(B), discovery=True)
    idle = [Nid.parse(f"10.0.2.{n}@tcp") for n in range(1, 21)]
    for nid in idle:
        attach(fabric.node(str(nid), discovery=True), bytearray(1), None)
        send(fabric, b, nid)
    foe = Nid.parse("10.0.3.1@tcp")
    for n in range(200):
        arrive(b, B, src=Nid.of(FOREIGN.net, 1000 + n), hop=foe, match_bits=8)
    assert len(list(b.peers.nis())) == 48
    push_of(fabric, fabric.node(str(foe)), [foe, *(Nid.of(A.net, 2000 + n) for n in range(60))], source=foe)
    assert all(b.peers.find(nid) is not None for nid in idle)


def test_who_calls_finds_room_beside_what_others_list(fabric, monkeypatch):
    monkeypatch.setattr(peer_module, "MAX_UNCONFIGURED", 48)
    b = fabric.node(str(B), discovery=True)
    for number in range(1, 4):
        foe = Nid.parse(f"10.0.3.{number}@tcp")
        listed = [foe, *(Nid.of(A.net, 1000 * number + n) for n in range(30))]
        push_of(fabric, fabric.node(str(foe)), listed, source=foe)
    assert len(list(b.peers.nis())) <= 39
    honest = [Nid.parse(f"10.0.2.{number}@tcp") for number in range(1, 10)]
    for nid in honest:
        arrive(b, B, src=nid, match_bits=8)
    assert all(b.peers.find(nid) is not None for nid in honest)
    assert all(b.peers.find(Nid.parse(f"10.0.3.{number}@tcp")) is not None for number in range(1, 4))


def test_who_lists_few_nids_finds_room_beside_who_lists_very_many(fabric, monkeypatch):
    """Lists of 14 addresses left no room for the rails of all peers that were discovered later."""
    monkeypatch.setattr(peer_module, "MAX_UNCONFIGURED", 1200)
    b = fabric.node(str(B), discovery=True)
    for number in (1, 2, 3):
        foe = Nid.parse(f"10.0.3.{number}@tcp")
        listed = [foe, *(Nid.of(A.net, 1000 * number + n) for n in range(500))]
        push_of(fabric, fabric.node(str(foe)), listed, source=foe)
        for _ in range(10):
            fabric.run()
    assert len(list(b.peers.nis())) >= 900
    for number in range(1, 20):
        nid = Nid.parse(f"10.0.2.{number}@tcp")
        rails = [nid, *(Nid.parse(f"10.0.{rail}.{number}@tcp") for rail in range(10, 16))]
        push_of(fabric, fabric.node(str(nid)), rails, source=nid)
        assert list(b.peers.find(nid).nids()) == rails
    assert len(list(b.peers.nis())) <= 920
    listing = [len(list(b.peers.find(Nid.parse(f"10.0.3.{number}@tcp")).nids())) for number in (1, 2, 3)]
    assert sum(listing) < 800
    assert max(listing) < 501


def test_memory_of_strangers_who_made_room_is_free_at_once(fabric, monkeypatch):
    """lnetd looks for cycles seldom: half a million sources took 1.8 GB, though 65,536 were in the table."""
    monkeypatch.setattr(peer_module, "MAX_UNCONFIGURED", 50)
    b = fabric.node(str(B))
    gc.collect()
    before = sum(type(one) is PeerNi for one in gc.get_objects())
    gc.disable()
    try:
        for n in range(400):
            arrive(b, B, src=Nid.of(A.net, 1000 + n), match_bits=8)
        fabric.all_peer_nis.clear()
        after = sum(type(one) is PeerNi for one in gc.get_objects())
    finally:
        gc.enable()
    assert len(list(b.peers.nis())) <= 50
    assert after - before < 150


@pytest.mark.pure
def test_who_never_reads_answers_gets_no_more_of_them(fabric, monkeypatch):
    monkeypatch.setattr(receiver, "MAX_PEER_ANSWERS", 20)
    monkeypatch.setattr(receiver, "MIN_ANSWERS", 1)
    b, c = fabric.node(str(B)), fabric.node(str(C))
    attach(b, bytearray(8), None, options=TARGET | MdOption.MANAGE_REMOTE)
    c.put(c.memory.md_bind(b"", None, threshold=2), B, 5, 7)
    for _ in range(100):
        assert arrive(b, B, kind=MsgType.GET, length=4, wmd=b"1" * 16) == 0
        assert arrive(b, B, wmd=b"1" * 16) == 0
    assert b.stats.msgs_alloc <= 21
    assert b.stats.drops["too many answers wait for this peer"] == 180
    fabric.run()
    assert c.stats.recv_count == 1


@pytest.mark.pure
def test_gets_that_name_no_handle_wait_within_the_same_bound(fabric, monkeypatch):
    """They are answered all the same. A million and a half of them waited, and nobody else was served."""
    monkeypatch.setattr(receiver, "MAX_PEER_ANSWERS", 20)
    monkeypatch.setattr(receiver, "MIN_ANSWERS", 1)
    b = fabric.node(str(B))
    attach(b, bytearray(8), None, options=TARGET | MdOption.MANAGE_REMOTE)
    for _ in range(100):
        assert arrive(b, B, kind=MsgType.GET, length=4) == 0
    assert b.stats.msgs_alloc <= 21
    assert b.stats.drops["too many answers wait for this peer"] == 80
    assert arrive(b, B) == 0  # what wants no answer is taken
    assert b.stats.drop_count == 80


def test_merging_a_large_peer_is_linear():
    counted = 0

    class Counting(Nid):
        __slots__ = ()
        __hash__ = Nid.__hash__

        def __eq__(self, other):
            nonlocal counted
            counted += 1
            return bytes.__eq__(self, other)

    table = PeerTable(lambda net: 8, lambda nid: False, quiet_parts())
    nids = [Counting(Nid.of(A.net, 5000 + n)) for n in range(2000)]
    peer = table.learn(nids[0]).peer
    peer.mark(PeerFlag.MULTI_RAIL)
    merge(table, peer, nids[0], nids)
    merge(table, peer, nids[0], nids[:1000])
    assert len(list(table.find(nids[0]).nids())) == 1000
    assert counted < 60_000


# Peer table --------------------------------------------------------------------------------------


@pytest.fixture
def table():
    return PeerTable(lambda net: 8 if net == A.net else 0, lambda nid: False, quiet_parts())


def test_naming_a_nid_twice_is_naming_it_once(table):
    table.add(A, [B, B, A])
    assert list(table.find(A).nids()) == [A, B]
    table.delete(A, [B, B])
    assert list(table.find(A).nids()) == [A]
    table.add(C, [B1, B1], multi_rail=False)
    assert list(table.find(C).nids()) == [C, B1]


@pytest.mark.parametrize("nid", [Nid.of(LO_NET, 1), Nid.of(Net.of(NetType.LO, 3), 0)])
def test_no_kind_of_loopback_is_a_peer(table, nid):
    refused(errno.EINVAL, "cannot name a peer", table.add, nid)
    refused(errno.EINVAL, "cannot name a peer", table.add, A, [nid])
    assert table.learn(nid) is None
    assert len(table) == 0


# Shutting down -----------------------------------------------------------------------------------

KINDS = ["PUT", "GET", "REPLY", "ACK", "SEND", "UNLINK"]


def busy_pair(fabric, on_event):
    """Two nodes with every kind of event to come; on_event(core, event) sees those of both."""
    a, b = fabric.node(str(A), str(A1)), fabric.node(str(B), str(B1))
    for core in (a, b):
        core.memory.set_lazy(6)
        for _ in range(2):
            attach(core, bytearray(64), lambda event, core=core: on_event(core, event))
    ended = []

    def start(core, target):
        def handler(event):
            if event.unlinked:
                ended.append(event.md)
            on_event(core, event)

        def bind(buffer, threshold):
            return core.memory.md_bind(buffer, handler, threshold=threshold)

        mds = [bind(bytearray(8), 2), bind(bytearray(8), 2), bind(bytearray(0), 1), bind(bytearray(4), 2)]
        core.put(mds[0], target, 5, 7)
        core.get(mds[1], target, 5, 7)
        core.put(mds[2], target, 6, 7, ack=False)
        core.put(mds[3], target, 6, 7)
        return mds

    mds = [md for core, target in ((a, B), (b, A), (a, LO_NID)) for md in start(core, target)]
    return a, b, mds, ended


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["shutdown", "del_ni", "unlink all", "attach", "tick", "peer del"])
@pytest.mark.parametrize("steps", [0, 1, 3, 100])
def test_handlers_may_do_anything_in_any_event(fabric, kind, what, steps):
    depth = 0

    def on_event(core, event):
        nonlocal depth
        if event.kind.name != kind or depth > 3:
            return
        depth += 1
        if what == "shutdown":
            core.shutdown()
        elif what == "del_ni":
            for nid in list(core.nis):
                if not nid.is_lo and nid in core.nis:  # the events of one deletion may bring others
                    core.del_ni(nid)
        elif what == "unlink all":
            for md in list(core.memory.mds.values()):
                core.memory.md_unlink(md)
        elif what == "attach":
            if core.state.running:
                attach(core, bytearray(8), None, portal=6)
        elif what == "tick":
            core.tick(fabric.clock.now)
        else:
            for peer in core.peers:
                if not peer.primary_nid.is_lo:
                    core.peers.delete(peer.primary_nid)
        depth -= 1

    a, b, mds, ended = busy_pair(fabric, on_event)
    for _ in range(steps):
        fabric.step()
    a.shutdown()
    fabric.run()
    b.shutdown()
    fabric.run()
    assert sorted(map(id, ended)) == sorted(map(id, mds))
    assert not a.memory.mds
    assert not b.memory.mds


def test_a_node_that_is_shut_down_takes_nothing_new(fabric):
    a = fabric.node(str(A))
    me = a.memory.me_attach(5, match_bits=1)
    a.shutdown()
    refused(errno.ESHUTDOWN, "shut", a.add_ni, A.net, A)
    refused(errno.ESHUTDOWN, "shut", a.memory.me_attach, 5, match_bits=7)
    refused(errno.ESHUTDOWN, "shut", a.memory.md_attach, me, bytearray(1), options=TARGET)
    refused(errno.ESHUTDOWN, "shut", a.memory.md_bind, b"1")
    assert not fabric.nis
    a.shutdown()


def test_an_ni_added_while_shutting_down_does_not_stay(fabric):
    a, _ = fabric.node(str(A)), fabric.node(str(B))
    errors = []

    def again(event):
        try:
            a.add_ni(C.net, C)
        except LNetError as error:
            errors.append(error.errno)

    a.put(a.memory.md_bind(b"1", again, threshold=1), B, 5, 7, ack=False)
    a.shutdown()
    assert errors == [errno.ESHUTDOWN]
    assert not a.nis
    assert list(fabric.nis) == [B]


def test_a_call_that_breaks_holds_up_nothing_that_is_deferred_or_due_and_is_told():
    fabric = Fabric()
    a = fabric.node(str(A))

    def broken():
        raise RuntimeError("a bug of ours")

    done = []
    a.state.defer(broken)
    a.state.defer(done.append, "deferred")
    a.state.timers.at(fabric.clock.now, broken)
    a.state.timers.at(fabric.clock.now, lambda: done.append("due"))
    a.tick(fabric.clock.now + 1)
    assert done == ["deferred", "due"]
    assert len(fabric.reports) == 2
    for line in fabric.reports:
        assert line.startswith("call failed: RuntimeError('a bug of ours') in broken, ")
        assert "test_core_regressions.py:" in line


def test_broken_pushes_are_counted_not_reported(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    for _ in range(3):
        send(fabric, a, portal=0, bits=PING_MATCH_BITS, data=b"garbage")
    assert b.stats.drops["push that is no ping info"] == 3


# NIs and nets that come and go -------------------------------------------------------------------


def rails(fabric):
    a, b = fabric.node(str(A), str(A1)), fabric.node(str(B), str(B1))
    a.peers.add(B, [B1])
    attach(b, bytearray(64), None, options=TARGET | MdOption.MANAGE_REMOTE)
    return a, b


def test_what_a_handler_sends_while_an_ni_goes_takes_another(fabric):
    a, _ = rails(fabric)
    ended = []

    def once_more(event):
        if event.status == -errno.ENETDOWN:
            a.put(a.memory.md_bind(b"again", ended.append, threshold=1), B, 5, 7, ack=False)

    for _ in range(6):
        a.put(a.memory.md_bind(b"first", once_more, threshold=1), B, 5, 7, ack=False)
    a.del_ni(A1)
    fabric.run()
    assert [event.status for event in ended] == [0] * 3


def test_an_ni_that_is_gone_is_forgotten_by_its_peers(fabric):
    a, _ = rails(fabric)
    for _ in range(3):
        for _ in range(4):
            send(fabric, a)
        a.del_ni(A1)
        a.add_ni(A1.net, A1)
    living = set(a.nis.values())
    for peer in a.peers:
        assert peer.path_loads.keys() <= living
        assert all(pni.path_loads.keys() <= living for pni in peer.nis())
        for pni in peer.nis():
            kept = [path for paths in pni.path_sets.values() for path in paths.paths.values()]
            assert {path.ni for path in kept} <= living


def test_a_net_that_comes_back_brings_its_credits(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    attach(b, bytearray(64), None)
    send(fabric, a)
    a.del_ni(A)
    a.add_ni(A.net, A, tunables=NetTunables(peer_credits=2, credits=3))
    pni = a.peers.find_ni(B)
    assert (pni.tx_credits, pni.min_tx_credits, pni.max_tx_credits) == (2, 2, 2)
    for _ in range(5):
        a.put(a.memory.md_bind(b"1", None, threshold=1), B, 5, 7, ack=False)
    assert len(fabric.wire) == 2
    a.del_ni(A)
    a.add_ni(A.net, A, tunables=NetTunables(peer_credits=8, credits=8))  # while messages still end
    fabric.run()
    assert b.stats.recv_count == 1 + 3  # the driver had two of the five; the others took the new NI
    send(fabric, a)
    assert b.stats.recv_count == 5


def test_nids_without_an_ip_address_are_no_nodes(fabric):
    """The driver called them, and kept one of its places for calls each."""
    bad, foreign = (Nid.of(nid.net, bytes((10, 0, 0, 9, 1, 2, 3, 4))) for nid in (A, FOREIGN))
    a, b, router = fabric.node(str(A)), fabric.node(str(B)), fabric.node(str(C), str(A1))
    router.router.enable(True)
    got = Recorder()
    a.put(a.memory.md_bind(b"", got, threshold=1), bad, 5, 7, ack=False)
    fabric.run()
    assert got[-1].status == -errno.EINVAL
    arrive(b, B, src=foreign, hop=A)
    onward = Header(int(MsgType.PUT), bad, B1, dest_pid=12345, src_pid=12345)
    router.receiver(router.nis[A1], B1).begin(onward, NO_PAYLOAD)
    fabric.run()
    assert b.state.stats.drops["its source is no node"] == 1
    assert router.state.stats.drops["its destination is no node"] == 1
    known = a.peers.learn(B).peer
    known.mark(PeerFlag.MULTI_RAIL)
    assert merge(a.peers, known, B, [B, bad]) == {bad: errno.EINVAL}
