"""Answers to pings, and pushes of others (spec wire-lnet.md §5, §6)."""

from __future__ import annotations

import pytest

from support.fabric import Fabric, Recorder
from ulnet.core.lnd import NiEvent
from ulnet.core.md import TRUNCATE
from ulnet.nid import LO_NID, Nid
from ulnet.wire.lnet import PING_MATCH_BITS
from ulnet.wire.ping import Feature, NiEntry, NiStatus, PingInfo

A, B, B1 = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.0.0.2@tcp"), Nid.parse("10.1.0.2@tcp1")


def ping(fabric, core, target=B, size=272):
    buffer = bytearray(size)
    got = Recorder()
    core.get(core.memory.md_bind(buffer, got, threshold=2, options=TRUNCATE), target, 0, PING_MATCH_BITS)
    fabric.run()
    (reply,) = (event for event in got if event.kind.name == "REPLY")
    return PingInfo.unpack(buffer[: reply.mlength])


def push(fabric, core, info, target=B):
    got = Recorder()
    core.put(core.memory.md_bind(info.pack(), got, threshold=2), target, 0, PING_MATCH_BITS)
    fabric.run()
    return got


@pytest.mark.requirement("dyn-015", "dyn-025", "dyn-030")
def test_ping_lists_the_nis_as_an_ordinary_client():
    fabric = Fabric()
    a, b = fabric.node(str(A)), fabric.node(str(B), str(B1))
    info = ping(fabric, a)
    assert info.features == 0x1E
    assert info.entries == [NiEntry(B, NiStatus.UP), NiEntry(B1, NiStatus.UP)]
    assert info.primary == B
    assert info.sequence == b.info.sequence
    alone = ping(fabric, a, LO_NID)
    assert alone.primary == A and alone.features == 0x1E  # able to have more rails
    fabric.assert_conserved()


@pytest.mark.requirement("dyn-050")
def test_sequence_grows_with_every_change_and_status_is_told():
    fabric = Fabric()
    a, b = fabric.node(str(A)), fabric.node(str(B), str(B1))
    before = ping(fabric, a).sequence
    b.ni_event(b.nis[B1], NiEvent.FATAL)
    b.ni_event(b.nis[B1], NiEvent.FATAL)
    info = ping(fabric, a)
    assert info.sequence == before + 1
    assert info.entries[1].status == NiStatus.DOWN
    b.del_ni(B1)
    info = ping(fabric, a)
    assert info.sequence == before + 2
    assert [entry.nid for entry in info.entries] == [B]


def test_an_ni_that_was_unlisted_before_it_is_deleted_is_told_of_once():
    fabric = Fabric()
    a, b = fabric.node(str(A), discovery=True), fabric.node(str(B), str(B1), discovery=True)
    b.discover(A, done=lambda error, peer: None)
    fabric.run()
    peer = b.peers.find(A)
    sequence, sent = b.info.sequence, b.stats.send_count
    assert peer.pushed_sequence == sequence
    b.leaving.begin([b.nis[B1]])
    b.leaving.unlist([b.nis[B1]])
    fabric.run()
    assert (peer.pushed_sequence, b.stats.send_count) == (sequence + 1, sent + 1)
    b.del_ni(B1)
    fabric.run()
    assert (b.info.sequence, b.stats.send_count) == (sequence + 1, sent + 1)
    assert [entry.nid for entry in ping(fabric, a).entries] == [B]


@pytest.mark.requirement("HLD-dyn")
def test_an_ni_holds_what_is_under_way():
    fabric = Fabric()
    a, _ = fabric.node(str(A)), fabric.node(str(B))
    assert a.leaving.held(a.nis[A]) == ""
    for _ in range(2):
        a.put(a.memory.md_bind(b"1", None, threshold=1), B, 5, 7, ack=False)
    assert a.leaving.held(a.nis[A]) == f"2 messages under way to {B}"
    fabric.run()
    assert a.leaving.held(a.nis[A]) == ""


def test_short_ping_buffers_get_what_fits():
    fabric = Fabric()
    a, _ = fabric.node(str(A)), fabric.node(str(B), str(B1))
    info = ping(fabric, a, size=32)
    assert info.truncated
    assert info.entries == []


def test_ipv6_nids_are_listed_as_large_entries():
    fabric = Fabric()
    six = Nid.parse("fd00::2@tcp")
    a, _ = fabric.node(str(A)), fabric.node(str(six), str(B))
    info = ping(fabric, a)
    assert info.features == 0x7E
    assert info.primary == six
    assert {entry.nid for entry in info.entries} == {six, B}


@pytest.mark.requirement("dyn-005", "dyn-040")
def test_a_push_groups_the_senders_nids_and_is_acknowledged():
    fabric = Fabric()
    a, b = fabric.node(str(A), "10.1.0.1@tcp1"), fabric.node(str(B), discovery=True)
    size = len(a.info.info().pack())
    for _ in range(3):  # the buffer is posted anew each time
        got = push(fabric, a, a.info.info())
        assert [(event.kind.name, event.mlength) for event in got][-1] == ("ACK", size)
    peer = b.peers.find(A)
    assert peer.multi_rail
    assert list(peer.nids()) == [A, Nid.parse("10.1.0.1@tcp1")]
    fabric.assert_conserved()


@pytest.mark.parametrize("features", [Feature.NI_STATUS, Feature.NI_STATUS | Feature.MULTI_RAIL])
def test_pushes_of_others_generations_change_nothing(features):
    fabric = Fabric()
    a, b = fabric.node(str(A)), fabric.node(str(B), discovery=True)
    push(fabric, a, PingInfo(int(features), 12345, 4, [NiEntry(A), NiEntry(B1)]))
    assert list(b.peers.find(A).nids()) == [A]


def test_a_push_that_does_not_list_its_sender_is_ignored():
    fabric = Fabric()
    a, b = fabric.node(str(A)), fabric.node(str(B), discovery=True)
    push(fabric, a, PingInfo(0x1E, 12345, 4, [NiEntry(B1)]))
    assert b.peers.find(B1) is None


def test_garbage_and_oversize_pushes_are_survived():
    fabric = Fabric()
    a, b = fabric.node(str(A)), fabric.node(str(B), discovery=True)
    for data in (b"", b"garbage", bytes(300), b"gnip" * 100, bytes(1 << 20)):
        a.put(a.memory.md_bind(data, None, threshold=2), B, 0, PING_MATCH_BITS)
        fabric.run()
    assert ping(fabric, a).primary == B
    many = PingInfo(0x1E, 12345, 4, [NiEntry(A), *(NiEntry(Nid.of(A.net, 1000 + n)) for n in range(40))])
    push(fabric, a, many)  # grows the buffer …
    push(fabric, a, many)  # … and is understood then
    assert len(list(b.peers.find(A).nids())) == 41
    b.shutdown()


@pytest.mark.requirement("RTR")
def test_a_router_that_pings_itself_is_pinged_by_nobody():
    fabric = Fabric()
    a, b = fabric.node(str(A)), fabric.node(str(B), str(B1))
    b.router.enable(True)
    for _ in range(130):
        fabric.clock.now += 1
        fabric.run()
    assert b.router.silent_nids == {B, B1}
    b.health.values.set_ni(b.nis[B], 500)  # it is pinged until it is well
    for _ in range(3):
        fabric.clock.now += 1
        fabric.run()
    assert b.nis[B].health > 500
    assert b.router.silent_nids == {B, B1}
    assert ping(fabric, a).entries[0] == NiEntry(B, NiStatus.UP)
    assert b.router.silent_nids == {B1}


@pytest.mark.requirement("RTR")
def test_a_ping_after_silence_lifts_the_ni_that_it_came_to():
    """It lifted all NIs of the net: also one whose cable nobody can reach."""
    fabric = Fabric()
    second = Nid.parse("10.0.0.3@tcp")
    a, b = fabric.node(str(A)), fabric.node(str(B), str(second))
    b.router.enable(True)

    def pass_time(seconds):
        for _ in range(seconds):
            fabric.clock.now += 1
            fabric.run()

    def down():
        return [entry.nid for entry in b.info.info().entries if entry.status == NiStatus.DOWN]

    pass_time(109)
    assert down() == []
    pass_time(2)
    assert down() == [B, second], "looked for each second, as the monitor does"
    ping(fabric, a)
    assert down() == [second]
    pass_time(105)
    assert down() == [second], "its net is in use, but nobody pinged it"
    ping(fabric, a, second)
    pass_time(109)
    assert down() == [], "a ping of any NI keeps the net in use"
    pass_time(2)
    assert down() == [B, second]


@pytest.mark.requirement("RTR")
@pytest.mark.parametrize("discovers", [True, False])
def test_a_router_tells_the_status_of_its_nis_under_the_same_number(discovers):
    """Also peers that know its rails though it does no discovery."""
    fabric = Fabric()
    a, b = fabric.node(str(A), discovery=True), fabric.node(str(B), str(B1), discovery=True)
    b.set_discovery(int(discovers))
    b.peers.add(A)
    fabric.run()
    number, told = b.info.sequence, a.nis[A].stats.received[1]
    b.router.enable(True)
    b.ni_event(b.nis[B1], NiEvent.FATAL)
    fabric.run()
    assert (b.info.sequence, a.nis[A].stats.received[1] - told) == (number, 1)
    assert ping(fabric, a).entries == [NiEntry(B, NiStatus.UP), NiEntry(B1, NiStatus.DOWN)]
    b.ni_event(b.nis[B1], NiEvent.RECOVERED)
    fabric.run()
    assert (b.info.sequence, a.nis[A].stats.received[1] - told) == (number, 2)
    b.del_ni(B1)
    fabric.run()
    assert b.info.sequence == number + 1


@pytest.mark.requirement("RTR")
@pytest.mark.parametrize("lost", [NiEvent.FATAL, NiEvent.RECOVERED])
def test_a_status_that_a_peer_did_not_hear_is_told_when_it_is_discovered_anew(lost):
    """It has the number of what the peer heard before, so that nothing seemed to be due."""
    fabric = Fabric()
    a, b = fabric.node(str(A), discovery=True), fabric.node(str(B), str(B1), discovery=True)
    b.router.enable(True)
    a.discover(B, done=lambda error, peer: None)
    b.discover(A, done=lambda error, peer: None)
    fabric.run()

    def said_down():
        return [member.nid for member in a.peers.find(B).members.values() if member.said_down]

    for event in (NiEvent.FATAL, NiEvent.RECOVERED):
        b.ni_event(b.nis[B1], event)
        if event is lost:
            until = fabric.clock.now + 40
            while fabric.clock.now < until:
                if not fabric.step(lambda msg: msg.next_nid == A):
                    fabric.clock.now += 1
            break
        fabric.run()
    assert said_down() == ([] if lost is NiEvent.FATAL else [B1]), "it heard nothing"
    b.discover(A, done=lambda error, peer: None)
    for _ in range(5):
        fabric.run()
        fabric.clock.now += 1
    assert said_down() == ([B1] if lost is NiEvent.FATAL else [])
