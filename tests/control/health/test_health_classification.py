"""What each status does to both ends, to the message and to the counters (spec health.md §3)."""

from __future__ import annotations

import errno

import pytest

from support.rails import A0, A1, B0, Rails
from ulnet.control.health.classify import RULES
from ulnet.core.states import PeerNiState
from ulnet.core.status import HealthStatus as S
from ulnet.nid import Nid

# The table of the specification, written down a second time: local suffers, peer suffers, resent.
TABLE = {
    S.LOCAL_INTERRUPT: (True, False, True),
    S.LOCAL_DROPPED: (True, False, True),
    S.LOCAL_ABORTED: (True, False, True),
    S.LOCAL_NO_ROUTE: (True, False, True),
    S.LOCAL_ERROR: (True, False, False),
    S.LOCAL_TIMEOUT: (True, False, True),
    S.REMOTE_ERROR: (False, True, False),
    S.REMOTE_DROPPED: (False, True, True),
    S.REMOTE_TIMEOUT: (False, True, False),
    S.NETWORK_TIMEOUT: (True, True, False),
}


def test_the_table_has_every_status():
    assert TABLE.keys() == set(S) - {S.OK}
    assert len(RULES) == len(S)


@pytest.mark.requirement("HEALTH-resend", "HEALTH-value", "snd-050")
@pytest.mark.parametrize("status", TABLE, ids=lambda status: status.name)
def test_a_failure_is_charged_resent_or_reported(status):
    rails = Rails()
    local, peer, resent = TABLE[status]
    rails.put()
    ni, pni = rails.end(status, number=errno.ETIMEDOUT)
    assert ni.health == (900 if local else 1000)
    assert pni.health == (900 if peer else 1000)
    assert [
        one.health for one in rails.a.nis.values() if one not in (ni, rails.a.nis[Nid.parse("0@lo")])
    ] == [1000]
    assert rails.a.stats.by_status[status] == 1
    assert ni.health_stats.by_status[status] == pni.health_stats.by_status[status] == 1
    if resent:
        assert not rails.events
        ((other, msg),) = rails.on_wire()
        assert (other, msg.peer_ni) != (ni, pni)
        rails.end(S.OK)
        assert rails.a.stats.resend_count == rails.a.stats.successful_resends == 1
        assert ni.health_stats.resends[status] == pni.health_stats.resends[status] == 1
    else:
        assert not rails.on_wire()
        assert rails.a.stats.resend_count == 0
    (event,) = rails.events
    assert event.unlinked
    assert event.status == (0 if resent else -errno.ETIMEDOUT)
    assert event.health == (S.OK if resent else status)


@pytest.mark.requirement("HEALTH-resend")
@pytest.mark.parametrize("status", TABLE, ids=lambda status: status.name)
def test_what_certainly_has_not_left_is_resent_whatever_the_status(status):
    rails = Rails()
    rails.put()
    first = rails.end(status, unsent=True)
    ((ni, msg),) = rails.on_wire()
    assert (ni, msg.peer_ni) != first


@pytest.mark.parametrize("status", TABLE, ids=lambda status: status.name)
def test_with_one_ni_local_failures_are_reported_and_still_charged(status):
    rails = Rails(own=(A0,), others=(B0, Nid.parse("10.0.1.2@tcp")))
    local, _, resent = TABLE[status]
    rails.put()
    ni, _ = rails.end(status)
    assert ni.health == (900 if local else 1000)
    assert bool(rails.on_wire()) == (resent and not local)


@pytest.mark.parametrize("status", TABLE, ids=lambda status: status.name)
def test_a_peer_of_one_nid_is_not_charged_and_not_tried_again_for_its_failures(status):
    rails = Rails(own=(A0, Nid.parse("10.0.1.1@tcp")), others=(B0,))
    local, _, resent = TABLE[status]
    rails.put()
    _, pni = rails.end(status)
    assert pni.health == 1000
    assert bool(rails.on_wire()) == (resent and local)


def test_a_failure_past_the_deadline_is_counted_and_changes_nothing():
    rails = Rails()
    rails.put()
    rails.pass_time(152, step=1)  # 50 s of the driver, three times, and one more
    ni, pni = rails.end(S.REMOTE_DROPPED)
    assert (ni.health, pni.health) == (1000, 1000)
    assert rails.events[-1].status == -errno.EIO
    assert rails.a.stats.by_status[S.REMOTE_DROPPED] == 1


@pytest.mark.parametrize("unsent", [True, False], ids=["not sent", "perhaps sent"])
def test_nobody_is_charged_for_what_was_given_up_before_it_left(unsent: bool):
    """Questions to NIDs that a neighbour had invented took all health from this node's own NIs."""
    rails = Rails()
    rails.put()
    ((_, msg),) = rails.on_wire()
    assert msg.md is not None
    rails.a.memory.md_unlink(msg.md)
    ni, pni = rails.end(S.NETWORK_TIMEOUT, unsent=unsent)
    assert (ni.health, pni.health) == ((1000, 1000) if unsent else (900, 900))
    assert rails.a.stats.by_status[S.NETWORK_TIMEOUT] == 1
    assert not rails.on_wire()


@pytest.mark.requirement("HEALTH-value")
def test_sensitivity_0_switches_all_off():
    rails = Rails(health_sensitivity=0, retry_count=0)
    rails.put()
    ni, pni = rails.end(S.NETWORK_TIMEOUT)
    assert (ni.health, pni.health) == (1000, 1000)
    assert not rails.a.health.recovery.busy
    assert rails.a.next_deadline() is None
    assert rails.events[-1].health == S.NETWORK_TIMEOUT


@pytest.mark.requirement("HEALTH-value")
def test_values_stay_within_0_and_1000_and_status_follows_with_a_lag():
    rails = Rails(health_sensitivity=600, retry_count=0)
    ni = rails.ni(A0)
    sequence = rails.a.info.sequence
    rails.put(source=A0)
    rails.end(S.LOCAL_ERROR)
    assert (ni.health, ni.up) == (400, True)
    rails.put(source=A0)
    rails.end(S.LOCAL_ERROR)
    assert (ni.health, ni.up) == (0, False)
    assert rails.a.info.sequence == sequence + 1  # ping info tells DOWN
    hear_from(rails)
    assert (ni.health, ni.up) == (600, False)  # DOWN until it is wholly well
    hear_from(rails)
    assert (ni.health, ni.up) == (1000, True)
    assert rails.a.info.sequence == sequence + 2


def test_the_epoch_moves_only_when_a_value_does():
    rails = Rails()
    epoch = rails.a.state.generation.number
    for _ in range(3):
        rails.put()
        rails.end(S.OK)
    assert rails.a.state.generation.number == epoch
    rails.put()
    rails.end(S.LOCAL_ERROR)
    assert rails.a.state.generation.number > epoch


def test_what_is_received_heals_both_ends_and_what_is_sent_none():
    rails = Rails(retry_count=0)
    rails.put(source=A0)
    ni, pni = rails.end(S.NETWORK_TIMEOUT)
    ni.health_stats.ping_count = pni.health_stats.ping_count = 3
    rails.put(source=A0)
    rails.end(S.OK)
    assert (ni.health, pni.health) == (900, 900)
    assert (ni.health_stats.ping_count, pni.health_stats.ping_count) == (3, 3)
    hear_from(rails)
    assert (ni.health, pni.health) == (1000, 1000)
    assert (ni.health_stats.ping_count, pni.health_stats.ping_count) == (0, 0)


def hear_from(rails):
    rails.b.put(rails.b.memory.md_bind(b"", None, threshold=1), A0, 5, 7, ack=False, source=B0)
    while rails.on_wire(pings=False):
        rails.fabric.wire.rotate(-rails.fabric.wire.index(rails.on_wire(pings=False)[0]))
        rails.fabric.step()


def test_a_payload_that_never_came_is_charged_to_its_sender():
    rails = Rails()
    rails.fabric.slow = True
    buffer = bytearray(8)
    me = rails.a.memory.me_attach(5, match_bits=7)
    rails.a.memory.md_attach(me, buffer, rails.events, options=1)
    rails.b.put(rails.b.memory.md_bind(b"12345678", None, threshold=1), A0, 5, 7, ack=False, source=B0)
    rails.fabric.step()
    rails.fabric.arrive(rails.fabric.arriving[0], broken=True)
    assert (rails.ni(A0).health, rails.pni(B0).health) == (1000, 900)
    assert rails.pni(B0).health_stats.by_status[S.REMOTE_ERROR] == 1


def test_own_nids_are_never_charged_as_peers():
    rails = Rails(retry_count=0)
    rails.a.peers.name([A0, A1])
    rails.put(A0, source=A0)
    rails.end(S.REMOTE_ERROR)
    assert rails.pni(A0).health == rails.pni(A1).health == 1000
    assert rails.pni(A0).state is PeerNiState.ACTIVATING
