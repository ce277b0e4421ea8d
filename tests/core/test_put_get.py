"""PUT, ACK, GET, REPLY between cores: events, truncation, offsets, thresholds (spec md-me-eq.md)."""

from __future__ import annotations

import errno

import pytest

from support.fabric import Fabric, Recorder
from support.stream import NO_PAYLOAD, Connection
from ulnet.core.event import EventKind
from ulnet.core.md import MAX_SIZE, MdOption
from ulnet.core.status import HealthStatus, LNetError
from ulnet.nid import LNET_PID, LO_NID, Nid
from ulnet.wire.lnet import LNET_MTU, Header, MsgType, pack_header

A, B = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.0.0.2@tcp")
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


@pytest.mark.requirement("MD", "snd-045")
def test_put_with_ack_and_its_events(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    memory, got, sent = bytearray(64), Recorder(), Recorder()
    attach(b, memory, got)
    md = a.memory.md_bind(b"x" * 40, sent, threshold=2)
    a.put(md, B, 5, 7, hdr_data=0xABCD)
    fabric.run()
    assert memory[:40] == b"x" * 40
    (put,) = got
    assert put.kind is EventKind.PUT
    assert (put.mlength, put.rlength, put.offset, put.hdr_data, put.match_bits) == (40, 40, 0, 0xABCD, 7)
    assert (put.initiator, put.source, put.sender, put.target) == (A, A, A, B)
    assert sorted(sent.kinds) == ["ACK", "SEND"]
    ack = next(event for event in sent if event.kind is EventKind.ACK)
    assert (ack.mlength, ack.match_bits, ack.initiator) == (40, 7, B)
    assert [event.unlinked for event in sent] == [False, True]
    assert not md.linked


@pytest.mark.parametrize("wanted", [LNET_MTU, LNET_MTU + 1, (1 << 32) - 1])
@pytest.mark.parametrize("truncate", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_no_get_is_answered_with_more_than_a_message_carries(fabric, wanted, truncate, whole):
    """Our own nodes cannot ask for more; others may."""
    a, b = fabric.node(str(A)), fabric.node(str(B))
    asked = Recorder()
    options = MdOption.OP_GET | MdOption.MANAGE_REMOTE | (MdOption.TRUNCATE if truncate else 0)
    attach(b, bytearray(LNET_MTU + 4096), asked, options=options)
    hdr = Header(MsgType.GET, B, A, LNET_PID, LNET_PID, 0, b"w" * 16, 7, portal=5, length=wanted)
    receiver = b.receiver(b.nis[B], A)
    connection = Connection(receiver)
    for _ in range(3):
        if whole:
            connection.feed(pack_header(hdr, False))
        else:
            assert receiver.begin(hdr, NO_PAYLOAD) == 0
        fabric.run()
    assert not connection.refused
    assert not fabric.protocol_errors
    if wanted == LNET_MTU or truncate:
        assert [event.mlength for event in asked] == [LNET_MTU] * 3
        assert a.stats.drop_length == 3 * LNET_MTU
    else:
        assert not asked
        assert b.stats.drops["GET of more than one message carries"] == 3


@pytest.mark.requirement("MD")
def test_put_without_ack_is_one_event(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    memory, sent = bytearray(8), Recorder()
    attach(b, memory, None)
    a.put(a.memory.md_bind(b"12345678", sent, threshold=1), B, 5, 7, ack=False)
    fabric.run()
    assert sent.kinds == ["SEND"]
    assert sent[0].unlinked
    assert sent[0].source.is_any
    assert memory == b"12345678"


@pytest.mark.requirement("MD")
def test_get_and_its_events(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    served, got = Recorder(), Recorder()
    attach(b, b"0123456789", served, options=MdOption.OP_GET | MdOption.MANAGE_REMOTE)
    buffer = bytearray(4)
    a.get(a.memory.md_bind(buffer, got, threshold=2), B, 5, 7, offset=3)
    fabric.run()
    assert buffer == b"3456"
    assert served.kinds == ["GET"]
    assert (served[0].mlength, served[0].offset, served[0].initiator) == (4, 3, A)
    assert sorted(got.kinds) == ["REPLY", "SEND"]
    reply = next(event for event in got if event.kind is EventKind.REPLY)
    assert (reply.mlength, reply.rlength) == (4, 4)


def test_truncated_put_reports_both_lengths(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    memory, got, sent = bytearray(10), Recorder(), Recorder()
    attach(b, memory, got)
    a.put(a.memory.md_bind(b"y" * 25, sent, threshold=2), B, 5, 7)
    fabric.run()
    assert (got[0].mlength, got[0].rlength) == (10, 25)
    assert next(event for event in sent if event.kind is EventKind.ACK).mlength == 10


@pytest.mark.requirement("dbg-025")
def test_too_long_put_is_dropped_not_tried_elsewhere(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    first, second = Recorder(), Recorder()
    attach(b, bytearray(10), first, options=MdOption.OP_PUT)
    attach(b, bytearray(100), second, options=MdOption.OP_PUT)
    a.put(a.memory.md_bind(b"y" * 25, None, threshold=1), B, 5, 7, ack=False)
    fabric.run()
    assert not first
    assert not second
    assert (b.stats.drop_count, b.stats.drop_length) == (1, 25)
    assert b.nis[B].stats.dropped[1] == 1
    assert "longer" in next(iter(b.stats.drops))


def test_local_offsets_run_on_and_threshold_ends_the_md(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    memory, got = bytearray(100), Recorder()
    md = attach(b, memory, got, threshold=3)
    for text in (b"one", b"two2", b"three"):
        a.put(a.memory.md_bind(text, None, threshold=1), B, 5, 7, ack=False)
        fabric.run()
    assert bytes(memory[:12]) == b"onetwo2three"
    assert [event.offset for event in got] == [0, 3, 7]
    assert [event.unlinked for event in got] == [False, False, True]
    assert not md.linked
    a.put(a.memory.md_bind(b"four", None, threshold=1), B, 5, 7, ack=False)
    fabric.run()
    assert b.stats.drop_count == 1


def test_max_size_exhausts_an_md_before_it_is_full(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    got = Recorder()
    attach(b, bytearray(100), got, options=MdOption.OP_PUT | MAX_SIZE, max_size=40)
    for _ in range(3):
        a.put(a.memory.md_bind(bytes(35), None, threshold=1), B, 5, 7, ack=False)
        fabric.run()
    assert [event.unlinked for event in got] == [False, True]
    assert b.stats.drop_count == 1


def test_remote_offset_beyond_the_md_is_dropped(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    got = Recorder()
    attach(b, bytearray(100), got, options=TARGET | MdOption.MANAGE_REMOTE)
    a.put(a.memory.md_bind(b"abc", None, threshold=1), B, 5, 7, ack=False, offset=1 << 31)
    a.put(a.memory.md_bind(b"abc", None, threshold=1), B, 5, 7, ack=False, offset=97)
    a.put(a.memory.md_bind(b"abc", None, threshold=1), B, 5, 7, ack=False, offset=99)
    fabric.run()
    assert [(event.offset, event.mlength) for event in got] == [(97, 3), (99, 1)]
    assert b.stats.drop_count == 1


def test_ack_disable(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    sent = Recorder()
    attach(b, bytearray(8), None, options=TARGET | MdOption.ACK_DISABLE)
    md = a.memory.md_bind(b"12", sent, threshold=2)
    a.put(md, B, 5, 7)
    fabric.run()
    assert sent.kinds == ["SEND"]
    a.memory.md_unlink(md)
    assert sent.kinds == ["SEND", "UNLINK"]
    assert sent[-1].unlinked
    assert sent[-1].status == 0


@pytest.mark.requirement("MD")
def test_fragments_on_both_sides(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    parts = [bytearray(3), bytearray(0), bytearray(7), bytearray(5)]
    attach(b, parts, None, options=TARGET | MdOption.MANAGE_REMOTE)
    a.put(a.memory.md_bind([b"ab", b"", b"cdefgh"], None, threshold=1), B, 5, 7, ack=False, offset=2)
    fabric.run()
    assert b"".join(parts) == b"\0\0abcdefgh\0\0\0\0\0"
    into = [bytearray(1), bytearray(5)]
    a.get(a.memory.md_bind(into, None, threshold=2), B, 5, 7, offset=2)
    fabric.run()
    assert b"".join(into) == b"abcdef"


@pytest.mark.requirement("LND-lo")
def test_loopback_never_waits_for_credits(fabric):
    a = fabric.node(str(A))
    memory, got, sent = bytearray(8), Recorder(), Recorder()
    attach(a, memory, got)
    a.put(a.memory.md_bind(b"self", sent, threshold=2), LO_NID, 5, 7)
    fabric.run()
    assert memory[:4] == b"self"
    assert got[0].source == LO_NID
    assert sorted(sent.kinds) == ["ACK", "SEND"]
    assert a.nis[LO_NID].stats.sent[:2] == [1, 1]
    buffer = bytearray(4)
    a.get(a.memory.md_bind(buffer, None, threshold=2), LO_NID, 5, 7)
    fabric.run()
    md = a.memory.md_bind(b"self", None)
    for _ in range(2000):
        a.put(md, LO_NID, 5, 7)
    me = a.peers.find_ni(LO_NID)
    assert not me.tx_queue
    assert not any(queue.waiting for queue in a.nis[LO_NID].tx_queues)
    fabric.run()
    assert len(got) == 2002
    assert a.nis[LO_NID].min_tx_credits > 0
    assert me.min_tx_credits > 0


@pytest.mark.requirement("LND-lo")
@pytest.mark.parametrize("into", [[6], [1, 2, 3], [4, 1, 1], [2, 6]])
def test_fragments_over_loopback(fabric, into):
    a = fabric.node(str(A))
    buffers = [bytearray(size) for size in into]
    me = a.memory.me_attach(5, match_bits=7)
    a.memory.md_attach(me, buffers, options=TARGET)
    a.put(a.memory.md_bind([b"ab", b"c", b"def"], None, threshold=2), LO_NID, 5, 7)
    fabric.run()
    assert b"".join(buffers)[:6] == b"abcdef"


def test_handlers_may_send_at_once_without_recursion(fabric):
    a = fabric.node(str(A))
    memory = bytearray(1)
    count = 0

    def again(event):
        nonlocal count
        memory_md.offset = 0
        count += 1
        if count < 3000:
            a.put(a.memory.md_bind(b"!", None, threshold=1), LO_NID, 5, 7, ack=False)

    memory_md = attach(a, memory, again)
    a.put(a.memory.md_bind(b"!", None, threshold=1), LO_NID, 5, 7, ack=False)
    for _ in range(4000):
        a.tick(0.0)
    assert count == 3000


def test_failing_handler_is_reported_and_harms_nothing(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))

    def broken(event):
        raise RuntimeError("user bug")

    attach(b, bytearray(4), broken)
    sent = Recorder()
    a.put(a.memory.md_bind(b"1", sent, threshold=2), B, 5, 7)
    fabric.run()
    assert sorted(sent.kinds) == ["ACK", "SEND"]
    assert "user bug" in fabric.reports.pop()


def test_failed_send_tells_why(fabric):
    a = fabric.node(str(A))
    sent = Recorder()
    md = a.memory.md_bind(b"1", sent, threshold=2)
    a.put(md, B, 5, 7)
    assert not sent  # never from inside the call
    fabric.run()
    (event,) = sent
    assert event.kind is EventKind.SEND
    assert event.status == -errno.ECONNREFUSED
    assert event.health is HealthStatus.REMOTE_DROPPED
    assert event.reason == "nobody there"
    assert a.stats.by_status[HealthStatus.REMOTE_DROPPED] == 1
    a.memory.md_unlink(md)


@pytest.mark.parametrize(
    ("target", "source", "code", "words"),
    [
        (
            "10.0.0.2@tcp9",
            None,
            errno.EHOSTUNREACH,
            "no route to 10.0.0.2@tcp9: this node is on lo, tcp, and knows no gateway to tcp9; "
            "add a net on tcp9 or a route to it: 'lnetctl route add --net tcp9 --gateway NID'",
        ),
        ("10.0.0.2@o2ib", None, errno.EHOSTUNREACH, "no route to 10.0.0.2@o2ib"),
        ("10.0.0.2@tcp", "1.2.3.4@tcp", errno.EINVAL, "source NID 1.2.3.4@tcp"),
    ],
)
def test_unsendable_messages_fail_with_a_sentence(fabric, target, source, code, words):
    a = fabric.node(str(A))
    sent = Recorder()
    md = a.memory.md_bind(b"1", sent, threshold=1)
    a.put(md, Nid.parse(target), 5, 7, ack=False, source=Nid.parse(source) if source else None)
    fabric.run()
    assert sent[0].status == -code
    assert words in sent[0].reason
    assert sent[0].unlinked


def test_unlink_while_queued_cancels(fabric):
    from ulnet.core.tunables import NetTunables

    a = fabric.node(str(A), tunables=NetTunables(credits=1, peer_credits=1))
    b = fabric.node(str(B))
    got = Recorder()
    attach(b, bytearray(100), got)
    first, second = Recorder(), Recorder()
    a.put(a.memory.md_bind(b"1", first, threshold=1), B, 5, 7, ack=False)
    md = a.memory.md_bind(b"2", second, threshold=1)
    a.put(md, B, 5, 7, ack=False)
    a.memory.md_unlink(md)
    assert not second
    fabric.run()
    assert second[0].status == -errno.ECANCELED
    assert second[0].unlinked
    assert len(got) == 1


@pytest.mark.requirement("HEALTH-timeouts")
def test_overdue_response_reaches_the_owner(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    attach(b, bytearray(8), None, options=TARGET | MdOption.ACK_DISABLE)
    sent = Recorder()
    md = a.memory.md_bind(b"1", sent, threshold=2, timeout=3.0)
    a.put(md, B, 5, 7)
    fabric.run()
    assert sent.kinds == ["SEND"]
    assert fabric.clock.now + 3 <= a.next_deadline() <= fabric.clock.now + 3.2
    fabric.clock.now += 2.9
    fabric.run()
    assert sent.kinds == ["SEND"]
    fabric.clock.now += 0.3
    fabric.run()
    assert sent.kinds == ["SEND", "ACK", "UNLINK"]
    assert [event.status for event in sent] == [0, -errno.ETIMEDOUT, -errno.ETIMEDOUT]
    assert [event.unlinked for event in sent] == [False, False, True]
    assert sent[1].reason == sent[2].reason
    assert sent[1].md is md
    assert a.stats.response_timeout_count == 1
    assert a.memory.count_awaited() == 0
    assert a.next_deadline() is None


def test_overdue_while_still_being_sent(fabric):
    a, _ = fabric.node(str(A)), fabric.node(str(B))
    sent = Recorder()
    md = a.memory.md_bind(b"1", sent, threshold=2, timeout=1.0)
    a.put(md, B, 5, 7)
    fabric.clock.now += 5
    a.tick(fabric.clock.now)
    assert sent.kinds == ["ACK", "UNLINK"]
    assert not sent[1].unlinked  # the driver still holds the memory
    fabric.run()
    assert sent.kinds == ["ACK", "UNLINK", "SEND"]
    assert sent[-1].unlinked


@pytest.mark.requirement("HEALTH-timeouts")
def test_an_overdue_reply_is_told_as_one(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    sent = Recorder()
    a.get(a.memory.md_bind(bytearray(8), sent, threshold=2, timeout=3.0), B, 5, 7)
    fabric.run()
    fabric.clock.now += 4
    fabric.run()
    assert sent.kinds == ["SEND", "REPLY", "UNLINK"]
    assert [(event.status, event.mlength) for event in sent[1:]] == [(-errno.ETIMEDOUT, 0)] * 2
    assert [event.unlinked for event in sent] == [False, False, True]
    assert b.stats.drop_count == 1


@pytest.mark.requirement("HEALTH-timeouts")
def test_each_answer_that_did_not_come_is_told(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    inbox = bytearray(8)
    attach(b, inbox, None)
    sent = Recorder()
    md = a.memory.md_bind(b"1", sent, timeout=3.0)
    a.put(md, B, 5, 7)
    fabric.run()
    for _ in range(3):
        a.put(md, B, 5, 8)  # nothing is attached for these bits
    fabric.run()
    assert sent.kinds == ["SEND", "ACK", "SEND", "SEND", "SEND"]
    fabric.clock.now += 4
    fabric.run()
    assert sent.kinds[5:] == ["ACK", "ACK", "ACK", "UNLINK"]
    assert [event.status for event in sent[5:]] == [-errno.ETIMEDOUT] * 4
    assert sent[-1].unlinked


def test_a_handler_may_end_and_bind_anew_when_an_answer_is_overdue(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    attach(b, bytearray(8), None)
    told = []

    def handle(event):
        told.append((event.kind.name, event.status, event.unlinked))
        if event.kind.name == "ACK" and event.status:
            a.memory.md_unlink(event.md)
            a.put(a.memory.md_bind(b"2", handle, threshold=2), B, 5, 7)

    a.put(a.memory.md_bind(b"1", handle, threshold=2, timeout=3.0), B, 5, 8)
    fabric.run()
    fabric.clock.now += 4
    fabric.run()
    late = -errno.ETIMEDOUT
    assert told == [
        *(("SEND", 0, False), ("ACK", late, False), ("UNLINK", late, True)),
        *(("SEND", 0, False), ("ACK", 0, True)),
    ]


def test_late_answers_are_dropped_and_counted(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    attach(b, bytearray(b"12345678"), None)
    md = a.memory.md_bind(bytearray(8), None, threshold=2)
    a.get(md, B, 5, 7)
    fabric.step()
    a.memory.md_unlink(md)
    fabric.run()
    assert a.stats.drops["answer to nothing that waits"] == 1
    assert a.stats.drop_length == 8


def test_answers_of_an_earlier_life_are_refused(fabric):
    a, b = fabric.node(str(A)), fabric.node(str(B))
    md = a.memory.md_bind(bytearray(8), None, threshold=2)
    assert b.memory.find_wmd(md.wmd) is None
    assert a.memory.find_wmd(md.wmd) is md
    assert a.memory.find_wmd(b"\xff" * 16) is None


@pytest.mark.parametrize(
    ("buffer", "options", "words"),
    [
        (bytes((1 << 20) + 1), 0, "at most 1048576"),
        (b"", MdOption.OP_PUT, "belong to attached"),
        ([b""] * 257, 0, "257 fragments"),
        (memoryview(bytes(8))[::2], 0, "contiguous"),
    ],
)
def test_bind_refuses(fabric, buffer, options, words):
    a = fabric.node(str(A))
    before = len(a.memory.mds)
    with pytest.raises(LNetError, match=words) as refused:
        a.memory.md_bind(buffer, None, options=options)
    assert refused.value.errno == errno.EINVAL
    assert len(a.memory.mds) == before


@pytest.mark.parametrize(
    ("buffer", "options", "words"),
    [
        (bytearray(1), 0, "needs OP_PUT or OP_GET"),
        (b"read-only", MdOption.OP_PUT, "read-only"),
        (bytearray(4), MdOption.OP_PUT | MdOption.MAX_SIZE, "max_size"),
    ],
)
def test_attach_refuses_and_takes_the_entry_along(fabric, buffer, options, words):
    a = fabric.node(str(A))
    me = a.memory.me_attach(5, match_bits=7)
    with pytest.raises(LNetError, match=words):
        a.memory.md_attach(me, buffer, None, options=options, max_size=5)
    assert not me.linked
    assert not a.memory.portal(5).entries()


def test_used_up_descriptors_are_refused(fabric):
    a, _ = fabric.node(str(A)), fabric.node(str(B))
    md = a.memory.md_bind(b"1", None, threshold=1)
    a.put(md, B, 5, 7, ack=False)
    with pytest.raises(LNetError) as refused:
        a.put(md, B, 5, 7, ack=False)
    assert refused.value.errno == errno.ENOENT
