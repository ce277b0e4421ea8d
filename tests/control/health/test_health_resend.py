"""Resends: paths, number, pace, end; the documents' cases (spec health.md §3, selection.md §10)."""

from __future__ import annotations

import errno

import pytest

from support.fabric import Fabric
from support.rails import A0, A1, B0, B1, Rails
from ulnet.core.drops import NOT_ASKED
from ulnet.core.lnd import NiEvent
from ulnet.core.status import HealthStatus as S
from ulnet.core.tunables import LndTunables
from ulnet.nid import Nid
from ulnet.wire.lnet import MsgType

C0, C1 = Nid.parse("10.0.1.1@tcp"), Nid.parse("10.0.1.2@tcp")


def path(ni, pni):
    return ni.nid, pni.nid


# The cases of the documents: source given or not x peer Multi-Rail or not, of a destination on a local net.


@pytest.mark.requirement("HEALTH-cases", "snd-070")
def test_case_a1c_source_given_multi_rail_first_as_asked_then_another_nid_from_that_ni():
    rails = Rails(own=(A0, A1), others=(B0, C1, B1))
    rails.put(B0, source=A0)
    assert path(*rails.end(S.REMOTE_DROPPED)) == (A0, B0)
    assert path(*rails.end(S.REMOTE_DROPPED)) == (A0, C1)
    rails.pass_time(0.5)  # only tried pairs are left for that source
    assert path(*rails.end(S.OK))[0] == A0
    assert rails.events[-1].status == 0


@pytest.mark.requirement("HEALTH-cases")
def test_case_a1d_source_given_one_rail_sticks_to_both_ends():
    rails = Rails(own=(A0, A1), others=(B0, B1), multi_rail=False)
    rails.put(B0, source=A0)
    assert path(*rails.end(S.LOCAL_DROPPED)) == (A0, B0)
    assert path(*rails.end(S.LOCAL_DROPPED)) == (A0, B0)
    rails.pass_time(0.5)
    assert path(*rails.end(S.OK)) == (A0, B0)


@pytest.mark.requirement("HEALTH-cases", "snd-050", "snd-055")
def test_case_b1c_any_source_multi_rail_takes_each_pair_once():
    rails = Rails(own=(A0, C0), others=(B0, C1), retry_count=5)
    rails.put(B0)
    tried = [path(*rails.end(S.REMOTE_DROPPED)) for _ in range(4)]
    assert sorted(tried) == sorted((one, other) for one in (A0, C0) for other in (B0, C1))
    assert not rails.events
    rails.pass_time(0.5)
    rails.end(S.OK)
    assert rails.events[-1].status == 0


@pytest.mark.requirement("HEALTH-cases")
def test_case_b1d_any_source_one_rail_keeps_the_ni_that_the_peer_knows():
    rails = Rails(own=(A0, C0), others=(B0, B1), multi_rail=False)
    rails.put(B0)
    first = path(*rails.end(S.LOCAL_DROPPED))
    assert path(*rails.end(S.LOCAL_DROPPED)) == first
    rails.pass_time(0.5)
    assert path(*rails.end(S.OK)) == first


@pytest.mark.requirement("HEALTH-resend", "snd-050")
def test_a_pair_that_was_tried_is_left_alone_while_a_worse_one_is_not():
    rails = Rails(own=(A0, A1), others=(B0, B1))
    rails.a.health.values.set_peer(rails.a.peers.find_ni(B1), 100)
    rails.put()
    assert path(*rails.end(S.REMOTE_DROPPED)) == (A0, B0)
    assert rails.a.peers.find_ni(B0).health > rails.a.peers.find_ni(B1).health
    assert path(*rails.end(S.REMOTE_DROPPED)) == (A1, B1)
    rails.pass_time(0.2)
    assert path(*rails.end(S.OK)) == (A0, B0)


# How often, how soon, until when


@pytest.mark.requirement("snd-055", "HEALTH-resend")
def test_retries_end_at_the_count_and_the_last_failure_is_told():
    rails = Rails(retry_count=1)
    rails.put()
    rails.end(S.REMOTE_DROPPED)
    rails.end(S.LOCAL_TIMEOUT, number=errno.ETIMEDOUT)
    (event,) = rails.events
    assert (event.status, event.health, event.unlinked) == (-errno.ETIMEDOUT, S.LOCAL_TIMEOUT, True)
    assert event.reason == "as the test says (sent 2 times, over 1 path)"
    assert (rails.a.stats.resend_count, rails.a.stats.failed_resends) == (1, 1)
    assert rails.a.stats.msgs_alloc == 0


def test_retry_count_0_reports_the_first_failure():
    rails = Rails(retry_count=0)
    rails.put()
    rails.end(S.REMOTE_DROPPED)
    assert rails.events[-1].status == -errno.EIO
    assert rails.a.stats.failed_resends == 0


@pytest.mark.requirement("HEALTH-resend", "HEALTH-monitor")
def test_an_instant_failure_cannot_spin():
    rails = Rails(retry_count=1000, transaction_timeout=150)
    rails.put()
    attempts = 0
    start = rails.fabric.clock.now
    while rails.fabric.clock.now < start + 60:
        while rails.on_wire(pings=False):
            rails.end(S.REMOTE_DROPPED)
            attempts += 1
        rails.pass_time(0.1)
    assert 15 < attempts < 25  # both pairs at once; then after 0.1 s, 0.2 s, ... and every 5 s


@pytest.mark.requirement("HEALTH-timeouts", "snd-055")
def test_the_transaction_timeout_ends_it_and_a_callers_own_is_honoured():
    for timeout, seconds in ((None, 20), (4.0, 4)):
        rails = Rails(retry_count=1000, transaction_timeout=20)
        md = rails.a.memory.md_bind(b"x", rails.events, threshold=1, timeout=timeout)
        rails.a.put(md, B0, 5, 7, ack=False)
        start = rails.fabric.clock.now
        while not rails.events:
            while rails.on_wire(pings=False):
                rails.end(S.REMOTE_DROPPED)
            rails.pass_time(0.1)
        assert seconds - 5.1 <= rails.fabric.clock.now - start <= seconds + 0.2
        assert rails.events[-1].unlinked


@pytest.mark.requirement("HEALTH-timeouts")
def test_the_lnd_timeout_trickles_down():
    rails = Rails()
    settings = rails.a.settings
    assert settings.lnd_timeout == 49
    settings.transaction_timeout, settings.retry_count = 10, 2
    assert settings.lnd_timeout == 3
    settings.transaction_timeout = 2
    assert settings.lnd_timeout == 1


@pytest.mark.requirement("HEALTH-timeouts")
@pytest.mark.parametrize(
    ("settings", "timeout", "fit"),
    [({}, 50, 2), ({"retry_count": 3}, 50, 2), ({"transaction_timeout": 20}, 50, 0), ({}, 75, 1)],
)
def test_more_resends_than_the_time_outs_allow_are_told(settings, timeout, fit):
    rails = Rails(own=(A0,), others=(B0,), **settings)
    ni = rails.a.nis[A0]
    ni.lnd_tunables = LndTunables(timeout=timeout)
    rails.a.settings_changed()
    count, seconds = rails.a.settings.retry_count, rails.a.settings.transaction_timeout
    assert rails.log == (
        [
            f"{A0}: retry_count {count} with a time-out of {timeout} s: in transaction_timeout {seconds} s "
            f"what times out is sent again {fit} times at most"
        ]
        if fit < count
        else []
    )
    rails.log.clear()
    ni.lnd_tunables = LndTunables(timeout=0)  # it follows from the others, whatever they are
    for count, seconds in ((149, 150), (4, 5), (0, 1)):
        rails.a.settings.retry_count, rails.a.settings.transaction_timeout = count, seconds
        rails.a.settings_changed()
    assert not rails.log


# What stays as it was


@pytest.mark.requirement("HEALTH-resend")
def test_memory_stays_bound_until_the_last_attempt_and_is_sent_unchanged():
    rails = Rails()
    data = bytearray(range(256)) * 16
    md = rails.a.memory.md_bind([data[:1000], data[1000:]], rails.events, threshold=2)
    buffer = bytearray(5000)
    rails.serve(rails.b, buffer, portal=6)
    rails.a.put(md, B0, 6, 7, offset=100)
    rails.end(S.REMOTE_DROPPED)
    assert md.linked
    assert md.refs == 1
    rails.fabric.run()
    assert buffer[100 : 100 + len(data)] == data
    assert [event.kind.name for event in rails.events] == ["SEND", "ACK"]
    assert rails.events[0].target == B0
    rails.fabric.assert_conserved()


def test_an_md_unlinked_while_its_message_pauses_ends_with_ecanceled():
    rails = Rails(others=(B0, B1), retry_count=9)
    rails.put()
    rails.end(S.REMOTE_DROPPED)
    rails.end(S.REMOTE_DROPPED)
    rails.end(S.REMOTE_DROPPED)  # a third time at once: the first failure of a path says little of it later
    assert len(rails.a.health.resender.pausing) == 1
    (md,) = [md for md in rails.a.memory.mds.values() if md.handler is rails.events]
    rails.a.memory.md_unlink(md)
    rails.pass_time(1)
    assert rails.events[-1].status == -errno.ECANCELED
    assert rails.events[-1].unlinked


def test_shutdown_ends_messages_that_pause():
    rails = Rails(multi_rail=False, retry_count=9)
    rails.put(B0)
    rails.end(S.LOCAL_DROPPED)
    rails.end(S.LOCAL_DROPPED)
    assert len(rails.a.health.resender.pausing) == 1
    rails.a.shutdown()
    assert rails.events[-1].status == -errno.ESHUTDOWN
    assert rails.a.stats.msgs_alloc == 0
    assert rails.a.next_deadline() is None


# Answers


def answer_pending(rails, *, get=True):
    """b holds an answer for a on its wire; the others' put or get came over the first rail."""
    served = rails.serve(rails.b, bytearray(b"answer"), portal=6)
    md = rails.a.memory.md_bind(bytearray(6), rails.events, threshold=2)
    if get:
        rails.a.get(md, B0, 6, 7, source=A0)
    else:
        rails.a.put(md, B0, 6, 7, source=A0)
    rails.fabric.wire.rotate(1)
    rails.fabric.step()
    rails.ticks()
    return md, served


@pytest.mark.requirement("snd-070", "snd-075")
@pytest.mark.parametrize("get", [True, False], ids=["REPLY", "ACK"])
def test_an_answer_falls_back_to_another_ni_when_its_own_fails(get):
    rails = Rails()
    md, served = answer_pending(rails, get=get)
    assert path(*rails.end(S.LOCAL_TIMEOUT)) == (B0, A0)
    if get:
        assert served.refs == 1  # its memory stays in use
    ((ni, msg),) = rails.on_wire()
    assert (ni.nid, msg.peer_ni.nid) == (B1, A1)
    rails.fabric.run()
    assert rails.events[-1].kind.name == ("REPLY" if get else "ACK")
    assert rails.events[-1].status == 0
    if get:
        assert bytes(md.fragments[0]) == b"answer"
    rails.fabric.assert_conserved()


@pytest.mark.requirement("snd-070")
@pytest.mark.parametrize("get", [True, False], ids=["REPLY", "ACK"])
def test_an_answer_whose_ni_is_deleted_leaves_by_another(get):
    rails = Rails()
    for _ in range(8):  # of all credits: the answer waits
        rails.b.put(rails.b.memory.md_bind(b"", None, threshold=1), A0, 5, 7, ack=False, source=B0)
    answer_pending(rails, get=get)
    assert len(rails.on_wire()) == 8
    rails.b.del_ni(B0)
    ((ni, msg),) = rails.on_wire()
    assert (ni.nid, msg.peer_ni.nid) == (B1, A1)
    rails.fabric.run()
    assert rails.events[-1].kind.name == ("REPLY" if get else "ACK")


@pytest.mark.requirement("snd-075")
def test_an_answer_to_a_peer_without_multi_rail_leaves_by_another_ni_when_its_own_is_deleted():
    """A kernel node takes it; a ulnet node only where it knows that NID as one of the node asked."""
    fabric = Fabric()
    a, b = fabric.node(str(A0)), fabric.node(str(C0), str(C1))
    Rails.serve(b, bytearray(b"answer"))
    for _ in range(8):  # of all credits: the answer waits
        b.put(b.memory.md_bind(b"", None, threshold=1), A0, 5, 7, ack=False, source=C0)
    md = a.memory.md_bind(bytearray(6), None, threshold=2)
    a.get(md, C0, 5, 7)
    fabric.wire.rotate(1)
    fabric.step()
    b.tick(0.0)
    b.del_ni(C0)
    fabric.run()
    assert (b.nis[C1].stats.sent[MsgType.REPLY], a.nis[A0].stats.dropped[MsgType.REPLY]) == (1, 1)
    assert a.stats.drops[NOT_ASKED] == 1
    assert bytes(md.fragments[0]) == bytes(6)


# What waits leaves a failed path


def fill(rails, count):
    """That many PUTs to b, most of them waiting for credits."""
    for _ in range(count):
        rails.put()


@pytest.mark.requirement("snd-080", "snd-085", "hlt-005")
def test_what_waits_on_a_failed_ni_moves_to_others():
    rails = Rails()
    fill(rails, 40)
    assert len(rails.on_wire()) == 16
    waiting = [msg for pni in (rails.pni(B0), rails.pni(B1)) for msg in pni.tx_queue]
    assert {msg.ni.nid for msg in waiting} == {A0, A1}
    rails.a.ni_event(rails.ni(A0), NiEvent.FATAL)
    rails.ticks()
    assert not rails.pni(B0).tx_queue
    assert len(rails.pni(B1).tx_queue) == 24
    rails.fabric.run()
    assert len(rails.events) == 40
    assert all(event.status == 0 for event in rails.events)
    rails.fabric.assert_conserved()


@pytest.mark.requirement("snd-085")
def test_net_del_under_traffic_fails_only_what_the_driver_had():
    rails = Rails()
    fill(rails, 40)
    rails.a.del_ni(A0)
    rails.fabric.run()
    ends = [event.status for event in rails.events]
    assert (ends.count(0), ends.count(-errno.ENETDOWN)) == (32, 8)
    rails.fabric.assert_conserved()


def test_a_message_bound_to_a_deleted_ni_ends():
    rails = Rails()
    for _ in range(9):
        rails.put(B0, source=A0)
    rails.a.del_ni(A0)
    rails.fabric.run()
    assert [event.status for event in rails.events] == [-errno.ENETDOWN] * 9
    assert "was removed" in rails.events[-1].reason


@pytest.mark.requirement("HEALTH-resend")
def test_one_failure_makes_what_waits_for_that_pair_leave_it():
    rails = Rails()
    fill(rails, 40)
    rails.end(S.NETWORK_TIMEOUT, to=B0)
    assert not rails.pni(B0).tx_queue
    assert len(rails.pni(B1).tx_queue) == 24


@pytest.mark.requirement("dbg-115", "dbg-110")
def test_a_switch_to_another_pair_is_logged_with_both_and_not_in_floods():
    rails = Rails(retry_count=1)
    for _ in range(30):
        rails.put()
        rails.end(S.LOCAL_NO_ROUTE)
        rails.end(S.OK)
    lines = [line for line in rails.log if line.startswith("resending over")]
    pairs = {f"{a} -> {b}" for a, b in ((A0, B0), (A1, B1))}
    assert 1 <= len(lines) <= 2
    for line in lines:
        new, old = line.removeprefix("resending over ").removesuffix(" failed").split(": ")
        assert {new, old} == pairs


@pytest.mark.requirement("HEALTH-timeouts", "HEALTH-monitor")
def test_what_waited_past_its_deadline_is_not_sent_any_more():
    rails = Rails(own=(A0,), others=(B0,))
    own = rails.a.memory.md_bind(b"x", rails.events, threshold=1, timeout=1000.0)
    fill(rails, 20)
    rails.a.put(own, B0, 5, 7, ack=False)  # its owner has patience
    assert rails.ni(A0).patience == 151
    rails.pass_time(152, step=4)
    assert [event.status for event in rails.events] == [-errno.ETIMEDOUT] * 12
    rails.fabric.run()
    ends = [event.status for event in rails.events]
    assert (ends.count(0), ends.count(-errno.ETIMEDOUT)) == (8 + 1, 12)
    assert "waited too long for its turn" in next(event.reason for event in rails.events if event.status)
    assert rails.ni(A0).health == 1000
    rails.fabric.assert_conserved()


# Paths without progress


def test_a_path_without_progress_is_left_and_comes_back():
    rails = Rails()
    fill(rails, 40)
    rails.a.path_stalled(rails.ni(A0), B0)
    rails.ticks()
    assert not rails.pni(B0).tx_queue
    assert sum(msg.peer_ni.nid == B0 for _, msg in rails.on_wire()) == 8  # the driver keeps what it has
    rails.fabric.run()
    assert len(rails.events) == 40
    for _ in range(4):
        rails.put()
        assert path(*rails.end(S.OK)) == (A1, B1)
    assert rails.pni(B0).health == rails.ni(A0).health == 1000
    told = rails.a.explain(B0)
    assert "progress" in [step.criterion for stage in told.stages for step in stage.steps]
    rails.a.path_moving(rails.ni(A0), B0)
    used = set()
    for _ in range(4):
        rails.put()
        used.add(path(*rails.end(S.OK)))
    assert used == {(A0, B0), (A1, B1)}
    assert [line for line in rails.log if line.startswith("path")] == [
        f"path {A0} -> {B0}: no progress: other paths are preferred",
        f"path {A0} -> {B0}: it is not avoided any more",
    ]


def test_when_all_paths_stall_they_are_used_all_the_same():
    rails = Rails()
    fill(rails, 2)
    rails.a.path_stalled(rails.ni(A0), B0)
    rails.a.path_stalled(rails.ni(A1), B1)
    rails.a.path_stalled(rails.ni(A0), Nid.parse("10.9.9.9@tcp"))  # unknown: ignored
    fill(rails, 4)
    assert {path(ni, msg.peer_ni) for ni, msg in rails.on_wire()} == {(A0, B0), (A1, B1)}


@pytest.mark.parametrize("unsent", [False, True], ids=["perhaps sent", "not sent"])
def test_what_nobody_is_charged_for_is_sent_again_where_nothing_had_left(unsent: bool):
    """Plain connections end so where a net requires secured ones: what had not left failed with them."""
    rails = Rails()
    rails.put()
    ni, msg = rails.on_wire(pings=False)[0]
    rails.fabric.wire.remove((ni, msg))
    msg.unsent = unsent
    rails.a.completed([msg], S.OK, errno.EACCES, "secured connections only")
    rails.ticks()
    assert len(rails.on_wire(pings=False)) == unsent
    assert all(one.health == 1000 for one in rails.a.nis.values())
    assert len(rails.events) == (not unsent)
