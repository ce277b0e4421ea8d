"""One path for all messages: batches and their corks, path sets, and what comes in runs."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fabric import Fabric, Recorder
from support.pair import BITS, PORTAL, A, B, Calls, Pair, Watching, counters
from support.rails import A0, A1, B0, B1, Rails
from support.stream import Connection, StreamFabric
from ulnet.control.policy import Descriptor
from ulnet.core.event import EventKind
from ulnet.core.faults import Fault, FaultKind
from ulnet.core.md import MANAGE_REMOTE, OP_GET, OP_PUT, TRUNCATE
from ulnet.core.peer import PeerFlag
from ulnet.core.receiver import RUN
from ulnet.core.refusals import is_refusal
from ulnet.core.status import HealthStatus
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.lnet import HEADER_SIZE, NO_WMD, PING_PORTAL, Header, MsgType, pack_header

PUT, GET, ACK = MsgType.PUT, MsgType.GET, MsgType.ACK


def named(number):
    return number.to_bytes(8, "big") + bytes(8)


def sends(pair, count, handler, *, ack=False, size=8):
    """So many PUTs of one descriptor are with the driver: their messages."""
    md = pair.bind(bytes(size), handler)
    for _ in range(count):
        pair.a.put(md, B, PORTAL, BITS, ack=ack)
    return pair.take_off()


def finish(pair):
    pair.fabric.run()
    for md in pair.mds:
        pair.a.memory.md_unlink(md)
    pair.fabric.run()
    pair.fabric.assert_conserved()


# Batches and corks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 6, 40])
@pytest.mark.parametrize("ack", [False, True])
def test_what_handlers_send_while_a_batch_is_completed_leaves_together(count, ack):
    pair = Pair()
    pair.lend(bytearray(64))
    answer = [pair.bind(bytes(8)) for _ in range(count)]
    todo = iter(answer)
    batch = sends(pair, count, lambda event: pair.a.put(next(todo), B, PORTAL, BITS, ack=ack))
    calls = Calls(pair.a, A)
    pair.a.completed(batch)
    assert calls.sizes == ([1, count - 1] if count > 1 else [1])
    assert [msg.md for msg in pair.on_wire()] == answer
    finish(pair)


def test_what_is_sent_while_no_batch_is_completed_leaves_at_once():
    pair = Pair()
    pair.lend(bytearray(64))
    calls = Calls(pair.a, A)
    batch = sends(pair, 3, None)
    assert calls.sizes == [1, 1, 1]
    pair.a.completed(batch)
    sends(pair, 2, None)
    assert calls.sizes == [1] * 5
    assert len(pair.on_wire()) == 0
    pair.fabric.wire.clear()


@pytest.mark.parametrize("credits", [1, 2, 3, 5])
def test_what_has_no_credits_waits_in_order(credits):
    pair = Pair(credits=credits)
    order = []
    pair.lend(bytearray(64))
    number = 0

    def again(event):
        nonlocal number
        if number < 30:
            for _ in range(3):
                number += 1
                pair.a.put(md, B, PORTAL, BITS, ack=False, hdr_data=number)

    md = pair.bind(bytes(8), again)
    for _ in range(2 * credits):
        pair.a.put(md, B, PORTAL, BITS, ack=False)
    while pair.fabric.wire:
        batch = pair.take_off()
        order += [msg.hdr.hdr_data for msg in batch if msg.hdr.hdr_data]
        pair.a.completed(batch)
        assert len(pair.fabric.wire) <= credits
    assert order == sorted(order) == list(range(1, number + 1))
    finish(pair)


def look_at_nis(core):
    return core.nis[A].tx_credits, core.nis[A].stats.sent[PUT]


def look_at_peers(core):
    pni = core.peers.find_ni(B)
    return pni.tx_credits, pni.stats.sent[PUT]


@pytest.mark.parametrize("look", [look_at_nis, look_at_peers])
def test_a_cork_is_emptied_before_anybody_looks_at_counters(look):
    pair = Pair()
    pair.lend(bytearray(64))
    found = []
    md = pair.bind(bytes(8))
    credits, sent = look(pair.a)

    def handler(event):
        for _ in range(3):
            pair.a.put(md, B, PORTAL, BITS, ack=False)
        found.append((look(pair.a), len(pair.fabric.wire)))

    pair.a.completed(sends(pair, 4, handler))
    assert found == [((credits - 3 * n, sent + 4), 3 * n) for n in range(1, 5)]
    finish(pair)


@pytest.mark.parametrize("what", ["get", "other target", "other size", "source", "failure"])
def test_nothing_overtakes_what_is_in_the_cork(what):
    pair = Pair()
    pair.lend(bytearray(64))
    there = Nid.parse("10.0.0.3@tcp")
    pair.fabric.node(str(there), discovery=True)
    mine, other, sink = pair.bind(bytes(8)), pair.bind(bytes(9)), pair.bind(bytearray(8))
    pair.a.put(other, there, PORTAL, BITS, ack=False)  # who is there is known then
    pair.fabric.run()

    def between():
        if what == "get":
            pair.a.get(sink, B, PORTAL, BITS)
        elif what == "other target":
            pair.a.put(other, there, PORTAL, BITS, ack=False)
        elif what == "source":
            pair.a.put(other, B, PORTAL, BITS, ack=False, source=A)
        elif what == "failure":
            pair.a.put(other, Nid.parse("10.9.9.9@tcp7"), PORTAL, BITS, ack=False)
        else:
            pair.a.put(other, B, PORTAL, BITS, ack=False)

    def handler(event):
        for md in (mine, mine, mine):
            pair.a.put(md, B, PORTAL, BITS, ack=False)
        between()
        pair.a.put(mine, B, PORTAL, BITS, ack=False)

    pair.a.completed(sends(pair, 2, handler))
    once = [mine, mine, mine, *([] if what == "failure" else [sink if what == "get" else other]), mine]
    assert [msg.md for msg in pair.on_wire()] == once * 2
    finish(pair)


def test_a_handler_may_end_the_ni_that_its_cork_is_for():
    rails = Rails()
    ended = Recorder()
    md = rails.a.memory.md_bind(bytes(8), ended)
    count = 0

    def handler(event):
        nonlocal count
        count += 1
        for _ in range(2):
            rails.a.put(md, B0, 5, 7, ack=False)
        if count == 2:
            rails.a.del_ni(A0)

    first = rails.a.memory.md_bind(bytes(8), handler)
    for _ in range(4):
        rails.a.put(first, B0, 5, 7, ack=False, source=A0)
    batch = [msg for _, msg in rails.fabric.wire]
    rails.fabric.wire.clear()
    rails.a.completed(batch)
    rails.fabric.run()
    assert len(ended) == 8
    assert count == 4
    assert A0 not in rails.a.nis
    rails.fabric.assert_conserved()


def test_messages_of_several_paths_and_templates_in_one_batch():
    rails = Rails()
    events = Recorder()
    sizes = [1, 2000, 3, 3, 40, 40, 0]
    for size in sizes:
        for source in (A0, A1):
            md = rails.a.memory.md_bind(bytes(size), events, threshold=1)
            rails.a.put(md, B0 if source is A0 else B1, 5, 7, ack=False, source=source)
    batch = [msg for _, msg in rails.fabric.wire]
    rails.fabric.wire.clear()
    before = rails.a.stats.send_length
    rails.a.completed(batch)
    assert [event.mlength for event in events] == [size for size in sizes for _ in range(2)]
    assert [event.target for event in events] == [B0, B1] * len(sizes)
    assert all(event.unlinked and not event.status for event in events)
    assert rails.a.stats.send_length - before == 2 * sum(sizes)
    rails.fabric.assert_conserved()


def test_a_template_changes_in_the_middle_of_a_batch():
    pair = Pair()
    got = Watching()
    memory = bytearray(64)
    pair.lend(memory, got)
    pair.lend(bytearray(64), got, bits=BITS + 1)
    mds = [pair.bind(b"a" * 4), pair.bind(b"b" * 6), pair.bind(b"c" * 6)]
    asked = []

    def handler(event):
        for md, bits, offset in ((0, 0, 0), (0, 0, 0), (1, 0, 0), (2, 0, 0), (2, 1, 0), (2, 1, 8), (0, 0, 0)):
            asked.append((mds[md].length, BITS + bits, offset))
            pair.a.put(mds[md], B, PORTAL, BITS + bits, ack=False, offset=offset)

    pair.a.completed(sends(pair, 5, handler))
    wire = pair.on_wire()
    assert [(msg.hdr.payload_length, msg.hdr.match_bits, msg.hdr.offset) for msg in wire] == asked
    pair.fabric.run()
    assert [(seen[2], seen[5], seen[4]) for seen in got.seen] == asked
    assert memory[:6] == b"aaaacc"
    finish(pair)


def test_a_message_that_comes_back_does_not_change_what_others_weigh():
    """A driver gives back one of another template than those that were sent since."""
    pair = Pair()
    pair.lend(bytearray(1 << 12))
    small, large = pair.bind(bytes(10)), pair.bind(bytes(1000))
    pair.a.put(small, B, PORTAL, BITS, ack=False)
    (back,) = pair.take_off()
    pair.a.put(large, B, PORTAL, BITS, ack=False)
    pair.a.completed(pair.take_off())
    pair.a.take_back(back)
    pair.a.tick(pair.fabric.clock.now)
    (again,) = pair.take_off()
    assert again.hdr.payload_length == 10
    before = pair.pni().tx_queued_bytes
    pair.a.put(large, B, PORTAL, BITS, ack=False)
    assert pair.pni().tx_queued_bytes - before == 1072
    pair.a.completed([again])
    finish(pair)


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["put", "ack", "get"]),
        st.sampled_from([0, 8, 9, 5000]),
        st.sampled_from([BITS, BITS, BITS + 1, 99]),
        st.sampled_from([True, False]),
    ),
    max_size=5,
)


@given(
    operations=st.lists(OPERATIONS, min_size=1, max_size=6),
    credits=st.sampled_from([1, 2, 4, 64]),
    stream=st.booleans(),
)
def test_whatever_handlers_send_all_comes_to_its_end(operations, credits, stream):
    """Of the events and counters of both nodes nothing depends on what is told together."""
    found = []
    for batches in (False, True):
        pair = Pair(stream=stream and batches, credits=credits)
        got, mine = Watching(), Watching()
        for bits in (BITS, BITS + 1):
            pair.lend(bytearray(1 << 14), got, bits=bits)
        left = [list(several) for several in operations]

        def act(several, pair=pair):
            for kind, size, bits, again in several:
                handler = wrap(again)
                if kind == "get":
                    pair.a.get(pair.bind(bytearray(size), handler), B, PORTAL, bits)
                else:
                    pair.a.put(pair.bind(bytes(size), handler), B, PORTAL, bits, ack=kind == "ack")

        def wrap(again, mine=mine, left=left, act=act):
            def handler(event):
                mine(event)
                if again and left:
                    act(left.pop())

            return handler

        while left:
            act(left.pop())
            pair.fabric.run()
        finish(pair)
        found.append((sorted(mine.seen), sorted(got.seen), counters(pair.a), counters(pair.b)))
    assert found[0] == found[1]


# Path sets --------------------------------------------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["looked at each time", "ready"])
def make(request):
    """Rails to a peer of which discovery says nothing, or all: in between the same must be true."""

    def rails(**how):
        made = Rails(**how)
        if request.param:
            made.pni(B0).peer.mark(PeerFlag.DISCOVERED | PeerFlag.NIDS_UPTODATE)
        return made

    return rails


def by(rails, count=8, target=B0):
    """The pairs that so many PUTs take, which arrive."""
    start = len(rails.fabric.wire)
    for _ in range(count):
        rails.a.put(rails.a.memory.md_bind(bytes(8), rails.events, threshold=1), target, 5, 7, ack=False)
    wire = list(rails.fabric.wire)[start:]
    found = {(str(ni.nid), str(msg.next_nid)) for ni, msg in wire}
    rails.fabric.run()
    assert not any(event.status for event in rails.events[-count:])
    return found


FIRST, SECOND = (str(A0), str(B0)), (str(A1), str(B1))


def test_a_new_ni_is_used_from_the_next_message_on(make):
    rails = make(own=(A0,))
    assert by(rails) == {FIRST}
    rails.a.add_ni(A1.net, A1)
    assert by(rails) == {FIRST, SECOND}
    rails.a.del_ni(A0)
    assert by(rails) == {SECOND}
    rails.a.add_ni(A0.net, A0)
    assert by(rails) == {FIRST, SECOND}


def test_paths_follow_health(make):
    rails = make()
    assert by(rails) == {FIRST, SECOND}
    rails.a.health.values.set_ni(rails.ni(A0), 500)
    assert by(rails) == {SECOND}
    rails.a.health.values.set_ni(rails.ni(A0), 1000)
    assert by(rails) == {FIRST, SECOND}
    rails.a.health.values.set_peer(rails.pni(B1), 500)
    assert by(rails) == {FIRST}
    rails.put()
    rails.end(HealthStatus.LOCAL_ERROR)  # A0 is no better than B1 now: what counts first is the peer's
    rails.a.health.values.set_peer(rails.pni(B1), 1000)
    assert by(rails) == {SECOND}


def test_paths_follow_policies(make):
    rails = make()
    assert by(rails) == {FIRST, SECOND}
    rails.a.policies.add(src=Descriptor.parse("tcp1"), priority=0)
    assert by(rails) == {SECOND}
    rails.a.policies.add(src=Descriptor.parse("tcp"), priority=0)
    assert by(rails) == {FIRST, SECOND}
    rails.a.policies.delete(1)
    assert by(rails) == {SECOND}
    rails.a.policies.clear()
    assert by(rails) == {FIRST, SECOND}


def test_paths_follow_what_is_known_of_the_peer(make):
    rails = make()
    assert by(rails) == {FIRST, SECOND}
    rails.a.peers.delete(B0)
    assert by(rails) == {FIRST}  # who is not configured has one NID
    rails.a.peers.add(B0, (B1,))
    assert by(rails) == {FIRST, SECOND}
    rails.a.peers.delete(B0, (B1,))
    assert by(rails) == {FIRST}
    rails.a.peers.add(B0, (B1,), multi_rail=True)
    assert by(rails) == {FIRST, SECOND}


def test_paths_follow_routes():
    fabric = Fabric()
    far = Nid.parse("10.9.0.9@tcp9")
    a = fabric.node("10.0.0.1@tcp")
    a.set_discovery(0)
    gateways = [Nid.parse("10.0.0.5@tcp"), Nid.parse("10.0.0.6@tcp")]
    for gateway in gateways:
        a.peers.add(gateway)
    a.peers.add(far)
    events = Recorder()

    def hops(count=6):
        for _ in range(count):
            a.put(a.memory.md_bind(b"", events, threshold=1), far, 5, 7, ack=False)
        for core in fabric.cores:
            core.tick(fabric.clock.now)
        left = [msg for _, msg in fabric.wire]
        fabric.wire.clear()
        found = [msg for msg in left if msg.hdr.portal != PING_PORTAL]  # gateways are asked if they are there
        a.completed(left)
        assert all(msg.hdr.dest_nid == far for msg in found)
        return {gateways.index(msg.next_nid) for msg in found}

    assert hops() == set()
    assert {event.status for event in events} == {-errno.EHOSTUNREACH}
    a.gateways.add(far.net, gateways[0], 1, 0)
    assert hops() == {0}
    a.gateways.add(far.net, gateways[1], 1, 0)
    assert hops() == {0, 1}
    a.gateways.remove(a.gateways.table.find(far.net, gateways[0]))
    assert hops() == {1}
    a.gateways.remove(a.gateways.table.find(far.net, gateways[1]))
    assert hops() == set()
    assert events[-1].status == -errno.EHOSTUNREACH
    fabric.assert_conserved()


@pytest.mark.parametrize("change", ["ni", "health", "policy", "peer", "settings"])
def test_a_handler_changes_paths_in_the_middle_of_a_batch(make, change):
    rails = make()
    count = 0
    mine = rails.a.memory.md_bind(bytes(8), None)
    by_now = []

    def handler(event):
        nonlocal count
        count += 1
        rails.a.put(mine, B0, 5, 7, ack=False)
        rails.a.put(mine, B0, 5, 7, ack=False)
        if count != 3:
            return
        by_now.append(len(rails.on_wire()))
        if change == "ni":
            rails.a.del_ni(A1)
        elif change == "health":
            rails.a.health.values.set_ni(rails.ni(A1), 1)
        elif change == "policy":
            rails.a.policies.add(src=Descriptor.parse("tcp"), priority=0)
        elif change == "peer":
            rails.a.peers.delete(B0, (B1,))
        else:
            rails.a.settings_changed()

    md = rails.a.memory.md_bind(bytes(8), handler)
    for _ in range(6):
        rails.a.put(md, B0, 5, 7, ack=False, source=A0)
    batch = [msg for _, msg in rails.fabric.wire]
    rails.fabric.wire.clear()
    rails.a.completed(batch)
    after = [msg.next_nid for _, msg in rails.on_wire()][-6:]
    assert set(after) == ({B0, B1} if change == "settings" else {B0})
    rails.fabric.run()
    rails.a.memory.md_unlink(md)
    rails.a.memory.md_unlink(mine)
    rails.fabric.run()
    rails.fabric.assert_conserved()


# Runs -------------------------------------------------------------------------------------------------


def message(kind=PUT, data=b"12345678", wmd=b"W" * 16, bits=BITS, portal=PORTAL, **more):
    """One message from A to B, on the wire."""
    hdr = Header(kind, B, A, LNET_PID, LNET_PID, len(data), wmd, bits, portal=portal, **more)
    return pack_header(hdr, False) + data


def incoming(pair):
    return Connection(pair.b.receiver(pair.b.nis[B], A))


def acks(pair):
    """The handles that ACKs on the wire are for, and the length that each tells."""
    assert all(msg.hdr.type == ACK for msg in pair.on_wire())
    return [(msg.wmd, msg.hdr.length) for msg in pair.on_wire()]


@pytest.mark.parametrize("count", [1, 2, RUN, RUN + 1, 3 * RUN + 5])
@pytest.mark.parametrize("options", [MANAGE_REMOTE, 0])
def test_equal_messages_are_taken_in_runs_with_one_ack_each(count, options):
    pair = Pair(credits=1024)
    got = Watching()
    memory = bytearray(8 * count)
    pair.lend(memory, got, options=OP_PUT | options)
    calls = Calls(pair.b, B)
    connection = incoming(pair)
    before = pair.b.stats.recv_count
    connection.feed(message() * count)
    assert sum(connection.runs) == count
    assert max(connection.runs) <= RUN
    assert not connection.begun
    assert acks(pair) == [(b"W" * 16, 8)] * count
    assert len(calls.sizes) == len(connection.runs)
    assert [seen[4] for seen in got.seen] == [0 if options else 8 * n for n in range(count)]
    assert memory == b"12345678" * (1 if options else count) + bytes(0 if not options else 8 * (count - 1))
    assert pair.b.stats.recv_count - before == count
    pair.b.completed(pair.take_off())
    pair.fabric.assert_conserved()


def test_runs_may_differ_in_their_handle():
    pair = Pair()
    got = Watching()
    pair.lend(bytearray(64), got)
    connection = incoming(pair)
    connection.feed(b"".join(message(wmd=named(n)) for n in range(1, 31)))
    assert connection.runs == [30]
    assert acks(pair) == [(named(n), 8) for n in range(1, 31)]
    assert len(got.seen) == 30
    pair.b.completed(pair.take_off())
    pair.fabric.assert_conserved()


@given(st.lists(st.sampled_from([b"W" * 16, named(1), named(2)]), min_size=1, max_size=20))
def test_each_ack_is_for_the_handle_of_its_message(handles):
    pair = Pair()
    pair.lend(bytearray(64))
    connection = incoming(pair)
    connection.feed(b"".join(message(wmd=handle) for handle in handles))
    assert acks(pair) == [(handle, 8) for handle in handles]
    pair.b.completed(pair.take_off())
    pair.fabric.assert_conserved()


def test_messages_that_want_no_ack_get_none():
    pair = Pair()
    got = Watching()
    pair.lend(bytearray(64), got)
    connection = incoming(pair)
    connection.feed(message(wmd=NO_WMD) * 3 + message() * 2 + message(wmd=NO_WMD) * 2)
    assert connection.runs == [3, 2, 2]
    assert len(got.seen) == 7
    assert acks(pair) == [(b"W" * 16, 8)] * 2
    pair.b.completed(pair.take_off())
    pair.fabric.assert_conserved()


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("kind", [PUT, GET])
def test_the_first_answers_may_be_of_nothing(kind, count):
    pair = Pair()
    pair.b.peers.find_ni(A).close_paths()
    pair.lend(bytearray(64), bits=0)
    incoming(pair).feed(message(kind, b"", bits=0) * count)
    answer = ACK if kind == PUT else MsgType.REPLY
    assert [(msg.hdr.type, msg.hdr.dest_nid, msg.hdr.payload_length) for msg in pair.on_wire()] == [
        (answer, A, 0)
    ] * count
    pair.b.completed(pair.take_off())
    pair.fabric.assert_conserved()


def test_gets_in_runs_are_answered_one_by_one():
    pair = Pair()
    got = Recorder()
    pair.lend(bytearray(b"abcdefgh"), got, threshold=3, options=OP_GET | MANAGE_REMOTE)
    connection = incoming(pair)
    connection.feed(b"".join(message(GET, b"", named(n), length=4, offset=2) for n in range(1, 6)))
    assert connection.runs == [3]
    assert pair.b.stats.drop_count == 2  # there were more than it is for
    answers = pair.on_wire()
    assert [(msg.wmd, b"".join(msg.payload)) for msg in answers[:3]] == [
        (named(n), b"cdef") for n in range(1, 4)
    ]
    assert [msg.wmd for msg in answers[3:]] == [named(4), named(5)]
    assert all(is_refusal(msg.hdr.length) for msg in answers[3:])
    pair.b.completed(pair.take_off())
    assert [event.kind.name for event in got] == ["GET"] * 3
    assert [event.unlinked for event in got] == [False, False, True]
    pair.fabric.assert_conserved()


def test_one_reply_of_a_run_fails_and_no_other_is_told_so():
    pair = Pair()
    got = Recorder()
    pair.lend(bytearray(b"abcdefgh"), got, options=OP_GET | MANAGE_REMOTE)
    connection = incoming(pair)
    connection.feed(message(GET, b"", named(1), length=4) * 3)
    assert connection.runs == [3]
    replies = pair.take_off()
    pair.b.completed(replies[:1])
    pair.b.completed(replies[1:2], HealthStatus.REMOTE_ERROR, errno.EIO, "broken")
    pair.b.completed(replies[2:])
    connection.feed(message(GET, b"", named(1), length=4))
    pair.b.completed(pair.take_off())
    assert [event.status for event in got] == [0, -errno.EIO, 0, 0]
    assert [event.reason != "" for event in got] == [False, True, False, False]
    pair.fabric.assert_conserved()


def test_acks_in_runs_are_told_to_whom_they_are_for():
    pair = Pair(stream=True)
    pair.lend(bytearray(64))
    watching = [Watching() for _ in range(4)]
    mds = [pair.bind(bytes(8), one, threshold=-1 if n < 2 else 2) for n, one in enumerate(watching)]
    for n in (0, 0, 0, 1, 0, 2, 3, 1, 1, 0):
        pair.a.put(mds[n], B, PORTAL, BITS)
    pair.fabric.run()
    assert [sorted(one.kinds) for one in watching] == [
        ["ACK"] * count + ["SEND"] * count for count in (5, 3, 1, 1)
    ]
    assert [mds[n].linked for n in range(4)] == [True, True, False, False]
    assert max(pair.fabric.connections[B, A].runs) >= 8
    finish(pair)


@given(
    order=st.lists(st.integers(0, 3), min_size=1, max_size=24),
    gets=st.booleans(),
    thresholds=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_each_descriptor_hears_of_its_own_answers(order, gets, thresholds):
    pair = Pair(stream=True)
    pair.lend(bytearray(range(64)))
    watching = [Watching() for _ in range(4)]
    mds = [
        pair.bind(bytearray(8), one, threshold=2 * order.count(n) if limited and n in order else -1)
        for n, (one, limited) in enumerate(zip(watching, thresholds, strict=True))
    ]
    for n in order:
        if gets:
            pair.a.get(mds[n], B, PORTAL, BITS)
        else:
            pair.a.put(mds[n], B, PORTAL, BITS)
    pair.fabric.run()
    answer = "REPLY" if gets else "ACK"
    for n, one in enumerate(watching):
        assert sorted(one.kinds) == [answer] * order.count(n) + ["SEND"] * order.count(n)
        assert mds[n].linked == (not thresholds[n] or n not in order)
        assert [seen[-1] for seen in one.seen].count(True) == (not mds[n].linked)
    finish(pair)


@pytest.mark.parametrize("nth", range(1, 6))
def test_a_run_ends_where_its_memory_is_unlinked(nth):
    pair = Pair()
    got = []

    def handler(event):
        got.append(event)
        if len(got) == nth:
            pair.b.memory.md_unlink(md)

    md = pair.lend(bytearray(64), handler)
    connection = incoming(pair)
    connection.feed(message() * 6)
    assert sum(connection.runs) == nth
    assert [event.kind.name for event in got] == ["PUT"] * nth + ["UNLINK"]
    assert [is_refusal(length) for _, length in acks(pair)] == [False] * nth + [True] * (6 - nth)
    assert pair.b.stats.drop_count == 6 - nth
    pair.b.completed(pair.take_off())
    pair.fabric.assert_conserved()


@pytest.mark.parametrize("threshold", [1, 2, 5])
def test_a_run_ends_where_the_threshold_is_exhausted(threshold):
    pair = Pair()
    first, second = Watching(), Watching()
    pair.lend(bytearray(64), first, threshold=threshold)
    pair.lend(bytearray(64), second)
    connection = incoming(pair)
    connection.feed(message() * 6)
    assert len(first.seen) == threshold
    assert [seen[-1] for seen in first.seen] == [False] * (threshold - 1) + [True]
    assert len(second.seen) == 6 - threshold
    assert acks(pair) == [(b"W" * 16, 8)] * 6
    pair.b.completed(pair.take_off())
    pair.fabric.assert_conserved()


def test_a_run_ends_where_moving_memory_is_full():
    pair = Pair()
    got = Watching()
    memory = bytearray(20)
    pair.lend(memory, got, options=OP_PUT | TRUNCATE)
    connection = incoming(pair)
    connection.feed(message() * 4)
    assert connection.runs == [2]
    assert [seen[2:5] for seen in got.seen] == [(8, 8, 0), (8, 8, 8), (4, 8, 16), (0, 8, 20)]
    assert memory == b"12345678" * 2 + b"1234"
    assert [length for _, length in acks(pair)] == [8, 8, 4, 0]
    pair.b.completed(pair.take_off())
    pair.fabric.assert_conserved()


@pytest.mark.parametrize(
    "more", [{"bits": 8}, {"data": b"123"}, {"offset": 8}, {"hdr_data": 5}, {"portal": 9}]
)
def test_a_run_ends_at_another_header(more):
    pair = Pair()
    got = Watching()
    pair.lend(bytearray(64), got)
    pair.lend(bytearray(64), got, bits=8)
    pair.lend(bytearray(64), got, portal=9)
    connection = incoming(pair)
    connection.feed(message() * 3 + message(**more) * 2 + message() * 2)
    assert connection.runs == [3, 2, 2]
    assert not connection.begun
    assert len(got.seen) == len(acks(pair)) == 7
    pair.b.completed(pair.take_off())
    pair.fabric.assert_conserved()


def test_a_run_ends_where_a_handler_sets_a_rule_for_faults():
    pair = Pair()
    got = []

    def handler(event):
        got.append(event)
        if len(got) == 2:
            pair.b.faults.add(Fault(FaultKind.DROP, A, B, rate=1))

    pair.lend(bytearray(64), handler)
    connection = incoming(pair)
    connection.feed(message(wmd=NO_WMD) * 5)
    assert len(got) == 2
    assert pair.b.stats.drops["a fault rule"] == 3
    pair.fabric.assert_conserved()


def test_a_part_of_a_message_is_not_taken():
    pair = Pair()
    got = Watching()
    pair.lend(bytearray(64), got)
    receiver = pair.b.receiver(pair.b.nis[B], A)
    raw = message()
    buf = bytearray(b"junk" + raw * 2 + raw[:-1])
    hdr = Header(PUT, B, A, LNET_PID, LNET_PID, 8, b"W" * 16, BITS, portal=PORTAL)
    view = memoryview(buf)
    behind = receiver.deliver(hdr, raw[:72], buf, view, 4, len(buf))
    assert behind == 4 + 2 * len(raw)
    assert receiver.deliver(hdr, raw[:72], buf, view, behind, len(buf)) == behind
    assert len(got.seen) == 2
    pair.b.completed(pair.take_off())
    pair.fabric.assert_conserved()


def test_what_handlers_send_while_a_run_is_taken_leaves_together_and_before_its_acks():
    pair = Pair()
    back = pair.b.memory.md_bind(b"back", None)
    pair.lend(bytearray(64), lambda event: pair.b.put(back, A, PORTAL, BITS, ack=False))
    pair.a.memory.md_attach(
        pair.a.memory.me_attach(PORTAL, match_bits=BITS), bytearray(8), options=OP_PUT | MANAGE_REMOTE
    )
    calls = Calls(pair.b, B)
    connection = incoming(pair)
    connection.feed(message() * 10)
    assert connection.runs == [10]
    assert calls.sizes == [1, 9, 10]
    assert [msg.hdr.type for msg in pair.on_wire()] == [PUT] * 10 + [ACK] * 10
    pair.b.completed(pair.take_off())
    pair.b.memory.md_unlink(back)
    pair.fabric.assert_conserved()


HANDLES = NO_WMD, b"W" * 16, b"V" * 15 + b"\0"
MESSAGES = st.lists(
    st.tuples(
        st.lists(st.sampled_from(HANDLES), min_size=1, max_size=6),  # alike but for these
        st.sampled_from([PUT, PUT, PUT, GET]),
        st.sampled_from([b"", b"12345678", b"x" * 30]),
        st.sampled_from([BITS, BITS, BITS + 1, 99]),
        st.sampled_from([0, 8]),
    ),
    max_size=8,
)
REACTIONS = st.dictionaries(
    st.integers(1, 20), st.sampled_from(["unlink", "attach", "send", "forbid"]), max_size=3
)


@given(
    messages=MESSAGES,
    reactions=REACTIONS,
    threshold=st.sampled_from([-1, 1, 3, 7]),
    options=st.sampled_from([0, MANAGE_REMOTE, TRUNCATE, MANAGE_REMOTE | TRUNCATE]),
)
def test_what_comes_in_runs_has_the_outcome_of_one_by_one(messages, reactions, threshold, options):
    data = [
        message(kind, b"" if kind == GET else data, wmd, bits, offset=offset, **length(kind, data))
        for wmds, kind, data, bits, offset in messages
        for wmd in wmds
    ]
    assert outcome([b"".join(data)], reactions, threshold, options) == outcome(
        data, reactions, threshold, options
    )


def length(kind, data):
    return {"length": len(data)} if kind == GET else {}


def outcome(pieces, reactions, threshold, options):
    """What B's memory, handlers and counters say when messages come in these pieces, and what it sends."""
    pair = Pair()
    got = Watching()
    memories = []
    mds = []

    def attach(bits, **more):
        memories.append(bytearray(range(64)))
        mds.append(pair.lend(memories[-1], handler, bits=bits, options=OP_PUT | OP_GET | options, **more))

    def handler(event):
        got(event)
        reaction = reactions.get(len(got.seen))
        if event.kind.name == "UNLINK":
            return
        if reaction == "unlink" and mds[0].linked:
            pair.b.memory.md_unlink(mds[0])
        elif reaction == "attach":
            attach(BITS)
        elif reaction == "forbid":
            pair.b.faults.add(Fault(FaultKind.DROP, A, B, rate=1))
        elif reaction == "send":
            pair.b.put(pair.b.memory.md_bind(b"back", None, threshold=1), A, PORTAL, 1, ack=False)

    attach(BITS, threshold=threshold)
    attach(BITS + 1)
    connection = incoming(pair)
    for piece in pieces:
        if piece:
            connection.feed(piece)
    # Memory that a GET lends is told of when its REPLY has left: so late, nothing depends on the pieces.
    replies = sorted((msg.hdr.type, msg.wmd, msg.hdr.length, b"".join(msg.payload)) for msg in pair.on_wire())
    pair.b.completed(pair.take_off())
    pair.fabric.run()
    pair.fabric.assert_conserved()
    assert not connection.refused
    return got.seen, memories, replies, counters(pair.b)


@pytest.mark.parametrize("names", ["aaaaaaaaa", "ab", "aabb", "aaabaaaab", "abababab", "aaaaaaabc"])
def test_acks_with_equal_handles_in_a_row_are_each_told(names):
    pair = Pair()
    pair.lend(bytearray(64))
    told = []
    mds = {
        name: pair.bind(bytes(8), lambda event, name=name: told.append((name, event.kind.name)))
        for name in "abc"
    }
    for name in names:
        pair.a.put(mds[name], B, PORTAL, BITS)
    pair.a.completed(pair.take_off())
    connection = Connection(pair.a.receiver(pair.a.nis[A], B))
    told.clear()
    answers = [Header(ACK, A, B, LNET_PID, LNET_PID, 0, mds[name].wmd, BITS, length=8) for name in names]
    connection.feed(b"".join([pack_header(hdr, False) for hdr in answers]))
    assert told == [(name, "ACK") for name in names]
    assert sum(connection.runs) == len(names)
    finish(pair)


def test_a_handler_within_a_run_of_acks_sees_what_is_under_way():
    fabric = StreamFabric()
    a = fabric.node("10.0.0.1@tcp", "10.1.0.1@tcp1")
    b = fabric.node("10.0.0.2@tcp", "10.1.0.2@tcp1")
    peer = a.peers.add(B0, [B1])
    options = OP_PUT | MANAGE_REMOTE
    b.memory.md_attach(b.memory.me_attach(PORTAL, match_bits=BITS), bytearray(8), None, options=options)
    seen = []

    def handler(event):
        if event.kind is EventKind.ACK:
            a.settle()
            seen.append(sum(load.outstanding for load in peer.path_loads.values()))

    md = a.memory.md_bind(bytes(8), handler)
    for _ in range(12):
        a.put(md, B0, PORTAL, BITS)
    fabric.run()
    assert seen == [(11 - nth) * (8 + HEADER_SIZE) for nth in range(12)]
    a.memory.md_unlink(md)
    fabric.assert_conserved()
