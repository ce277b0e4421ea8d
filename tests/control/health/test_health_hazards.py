"""What may happen between a failure and its end: sick again while asked, stalled while merged."""

from __future__ import annotations

import errno

import pytest

from support.merging import merge
from support.rails import A0, A1, B0, B1, Rails
from ulnet.core.lnd import NiEvent
from ulnet.core.peer import PeerFlag
from ulnet.core.status import HealthStatus as S
from ulnet.nid import Nid


def speak(rails: Rails) -> None:
    """B0 sends something, which arrives: nothing else on the wire does."""
    md = rails.b.memory.md_bind(b"", None, threshold=1)
    rails.b.put(md, A0, 5, 7, ack=False, source=B0)
    rails.fabric.wire.rotate(1)
    rails.fabric.step()
    rails.ticks()


@pytest.mark.requirement("HEALTH-monitor")
def test_who_falls_ill_again_while_a_ping_is_under_way_is_pinged_one_at_a_time() -> None:
    rails = Rails(retry_count=0)
    speak(rails)
    pni = rails.pni(B0)
    for _ in range(5):
        rails.a.health.values.lower_peer(pni)
        rails.pass_time(1.5)
        rails.a.health.values.set_peer(pni, 1000)  # well, by what it sent itself
        assert not rails.a.health.recovery.busy
        rails.a.health.values.lower_peer(pni)
        rails.pass_time(0.3)
        (older, newer) = rails.on_wire(pings=True)
        for ping, left in ((older, [newer]), (newer, [])):
            rails.fabric.wire.remove(ping)
            rails.a.completed([ping[1]], S.REMOTE_DROPPED, errno.EHOSTUNREACH)
            assert rails.on_wire(pings=True) == left
        rails.pass_time(20)
        (again,) = rails.on_wire(pings=True)
        rails.fabric.wire.remove(again)
        rails.a.health.values.set_peer(pni, 1000)
        rails.a.completed([again[1]], S.LOCAL_ERROR)
        rails.a.health.values.set_ni(again[0], 1000)
    rails.ticks()
    assert rails.a.next_deadline() is None


@pytest.mark.requirement("HEALTH-monitor", "HEALTH-value")
def test_who_was_silent_for_long_and_speaks_is_asked_within_a_second() -> None:
    rails = Rails(retry_count=0)
    speak(rails)
    pni = rails.pni(B0)
    rails.a.health.values.set_peer(pni, 0)
    for _ in range(400):
        rails.pass_time(1, step=1)
        for _, msg in rails.on_wire(pings=True):
            rails.fabric.wire.clear()
            rails.a.completed([msg], S.REMOTE_DROPPED, errno.EHOSTUNREACH)
    assert pni.health_stats.next_ping > rails.fabric.clock.now + 30
    speak(rails)
    rails.pass_time(2)
    assert len(rails.on_wire(pings=True)) == 1


@pytest.mark.requirement("HEALTH-value")
def test_who_was_well_meanwhile_is_asked_within_a_second_when_it_fails_again() -> None:
    rails = Rails(retry_count=0)
    speak(rails)
    pni = rails.pni(B0)
    rails.a.health.values.set_peer(pni, 0)
    for _ in range(400):
        rails.pass_time(1, step=1)
        for _, msg in rails.on_wire(pings=True):
            rails.fabric.wire.clear()
            rails.a.completed([msg], S.REMOTE_DROPPED, errno.EHOSTUNREACH)
    rails.a.health.values.set_peer(pni, 1000)
    rails.a.health.values.lower_peer(pni)
    rails.pass_time(2)
    assert len(rails.on_wire(pings=True)) == 1


def chosen(rails: Rails) -> set[tuple[Nid, Nid | None]]:
    for _ in range(8):
        rails.put()
    pairs = {(ni.nid, msg.next_nid) for ni, msg in rails.on_wire(pings=False)}
    rails.fabric.run()
    return pairs


@pytest.mark.requirement("snd-050")
def test_a_path_that_stalled_before_its_first_counted_message_is_avoided() -> None:
    rails = Rails()
    rails.a.path_stalled(rails.ni(A0), B0)
    assert chosen(rails) == {(A1, B1)}
    rails.a.path_moving(rails.ni(A0), B0)
    assert (A0, B0) in chosen(rails)


@pytest.mark.requirement("snd-050")
def test_a_stalled_path_stays_one_when_its_nid_turns_out_to_be_another_peers() -> None:
    rails = Rails()
    peers = rails.a.peers
    peers.delete(B0)
    first, second = peers.learn(B0), peers.learn(B1)
    assert first is not None
    assert second is not None
    for _ in range(2):
        rails.put()
    rails.a.path_stalled(rails.ni(A0), B0)
    rails.fabric.run()
    second.peer.mark(int(PeerFlag.MULTI_RAIL))
    merge(peers, second.peer, B1, [B0, B1])
    assert peers.find(B0) is second.peer
    assert chosen(rails) == {(A1, B1)}
    rails.a.path_moving(rails.ni(A0), B0)
    assert (A0, B0) in chosen(rails)


@pytest.mark.requirement("dbg-115")
@pytest.mark.parametrize("why", ["device fails", "path stalls", "driver gives it back", "NI is deleted"])
def test_what_moves_without_having_been_sent_is_logged_with_both_pairs(why: str) -> None:
    rails = Rails()
    for _ in range(40):
        rails.put()
    wire = rails.on_wire()
    if why == "device fails":
        rails.a.ni_event(rails.ni(A0), NiEvent.FATAL)
    elif why == "NI is deleted":
        rails.a.del_ni(A0)
    else:
        rails.a.path_stalled(rails.ni(A0), B0)
        if why == "driver gives it back":
            for entry in [one for one in wire if one[0].nid == A0]:
                rails.fabric.wire.remove(entry)
                rails.a.take_back(entry[1])
    rails.fabric.run()
    moved = [line for line in rails.log if line.startswith("sending over")]
    assert moved == [f"sending over {A1} -> {B1}: left {A0} -> {B0}"]
    rails.fabric.assert_conserved()


@pytest.mark.requirement("HEALTH-timeouts")
@pytest.mark.parametrize("timeout", [None, 60.0])
def test_who_has_a_timeout_of_its_own_is_sent_again_past_the_common_deadline(timeout: float | None) -> None:
    rails = Rails()
    for ni in rails.a.nis.values():
        ni.patience = 4.0
    events = rails.events
    rails.a.put(rails.a.memory.md_bind(b"x", events, threshold=1, timeout=timeout), B0, 5, 7, ack=False)
    rails.pass_time(10)
    _, pni = rails.end(S.LOCAL_ERROR, unsent=True)
    assert (rails.ni(A0).health, pni.health) == (1000, 1000)
    if timeout is None:
        assert events[-1].status == -errno.EIO
    else:
        assert not events
        assert rails.end(S.OK)[1] is not pni
        assert events[-1].status == 0


@pytest.mark.requirement("HEALTH-monitor")
def test_a_lower_limit_between_pings_counts_at_once() -> None:
    rails = Rails(retry_count=0)
    speak(rails)
    rails.a.health.values.set_peer(rails.pni(B0), 0)
    for _ in range(400):
        rails.pass_time(1, step=1)
        for _, msg in rails.on_wire(pings=True):
            rails.fabric.wire.clear()
            rails.a.completed([msg], S.REMOTE_DROPPED, errno.EHOSTUNREACH)
    rails.a.settings.max_recovery_ping_interval = 3
    rails.a.settings_changed()
    rails.pass_time(2)
    assert not rails.on_wire(pings=True)
    rails.pass_time(2)
    assert len(rails.on_wire(pings=True)) == 1


def test_an_ni_that_is_deleted_and_added_while_a_message_pauses_is_one_not_tried() -> None:
    rails = Rails(retry_count=9)
    rails.put()
    for _ in range(3):
        rails.end(S.REMOTE_DROPPED)
    assert len(rails.a.health.resender.pausing) == 1
    for own in (A0, A1):
        rails.a.del_ni(own)
    rails.pass_time(0.05)
    for own in (A0, A1):
        rails.a.add_ni(own.net, own)
    rails.pass_time(1)
    rails.end(S.OK)
    assert rails.events[-1].status == 0
    rails.fabric.assert_conserved()


def test_who_pauses_when_all_nis_are_gone_is_told() -> None:
    rails = Rails(retry_count=9)
    rails.put()
    for _ in range(3):
        rails.end(S.REMOTE_DROPPED)
    for own in (A0, A1):
        rails.a.del_ni(own)
    rails.a.peers.delete(B0)
    rails.pass_time(1)
    assert rails.events[-1].status == -errno.EHOSTUNREACH
    assert not rails.a.health.resender.pausing
    rails.fabric.assert_conserved()
