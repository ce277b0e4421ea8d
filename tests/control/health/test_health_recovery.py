"""Recovery: who is pinged, when, how long (spec health.md §4), and what an overdue answer does (§5)."""

from __future__ import annotations

import errno
from itertools import pairwise

import pytest

from support.fabric import Fabric
from support.rails import A0, B0, B1, Rails
from ulnet.core.md import MdOption
from ulnet.core.status import HealthStatus as S
from ulnet.nid import Net, Nid
from ulnet.wire.lnet import PING_MATCH_BITS, PING_PORTAL


def recovering(**settings):
    """A peer NI that was heard from and is at 900."""
    rails = Rails(retry_count=0, **settings)
    hear(rails)
    rails.put()
    rails.end(S.REMOTE_ERROR)
    return rails


def hear(rails):
    for source, target in ((B0, A0), (B1, next(nid for nid in rails.a.nis if str(nid) == "10.1.0.1@tcp1"))):
        md = rails.b.memory.md_bind(b"", None, threshold=1)
        rails.b.put(md, target, 5, 7, ack=False, source=source)
    rails.fabric.run()


def sick(rails):
    return next(pni for pni in (rails.pni(B0), rails.pni(B1)) if pni.health < 1000)


@pytest.mark.requirement("HEALTH-value", "HEALTH-monitor")
def test_pings_come_after_1_2_4_seconds_and_never_more_than_the_cap_apart():
    rails = recovering(max_recovery_ping_interval=10)
    pni = sick(rails)
    seen = []
    for _ in range(600):
        rails.pass_time(0.1)
        for _, msg in rails.on_wire(pings=True):
            assert (msg.next_nid, msg.hdr.length, msg.hdr.match_bits) == (pni.nid, 272, PING_MATCH_BITS)
            seen.append(rails.fabric.clock.now)
            rails.fabric.wire.clear()
            msg.unsent = True  # even so: recovery pings are never resent
            rails.a.completed([msg], S.REMOTE_DROPPED, errno.EHOSTUNREACH)
    pauses = [round(after - before) for before, after in pairwise(seen)]
    assert pauses == [1, 2, 4, 8, 10, 10, 10, 10]
    assert pni.health == 0
    assert pni.health_stats.ping_count == len(seen)
    assert rails.a.stats.resend_count == 0


@pytest.mark.requirement("HEALTH-value", "HEALTH-monitor")
def test_an_answered_ping_heals_and_then_there_is_no_timer():
    rails = recovering()
    pni = sick(rails)
    assert [one.nid for one in rails.a.health.recovery.peers.patients()] == [pni.nid]
    rails.pass_time(3, answer=True)
    assert pni.health == 1000
    assert not rails.a.health.recovery.busy
    assert pni.health_stats.ping_count == 0
    assert rails.a.next_deadline() is None
    rails.fabric.assert_conserved()


def test_one_ping_at_a_time():
    rails = recovering()
    rails.pass_time(40, step=0.5)
    assert len(rails.on_wire(pings=True)) == 1


def test_a_peer_ni_never_heard_of_is_not_pinged():
    rails = Rails(retry_count=0)
    rails.put()
    rails.end(S.REMOTE_ERROR)
    assert sick(rails).health == 900
    assert not rails.a.health.recovery.busy
    hear(rails)  # now it is, and that alone heals by one step
    assert rails.pni(B0).health == rails.pni(B1).health == 1000


@pytest.mark.requirement("HEALTH-value")
def test_after_the_recovery_limit_it_is_given_up_until_heard_again():
    rails = recovering(recovery_limit=5, health_sensitivity=400)
    pni = sick(rails)
    for _ in range(100):
        rails.pass_time(0.1)
        for _, msg in rails.on_wire(pings=True):
            rails.fabric.wire.clear()
            rails.a.completed([msg], S.REMOTE_ERROR, errno.EIO)
    assert not rails.a.health.recovery.busy
    assert pni.health == pni.health_stats.ping_count == 0
    assert rails.a.next_deadline() is None
    hear(rails)
    assert pni.health == 400
    assert rails.a.health.recovery.busy
    rails.pass_time(10, answer=True)
    assert pni.health == 1000


@pytest.mark.requirement("HEALTH-monitor")
def test_a_local_ni_pings_itself_through_its_driver():
    rails = Rails(retry_count=0)
    rails.put(source=A0)
    for _ in range(3):
        rails.put(source=A0)
        rails.end(S.LOCAL_ERROR)
    rails.end(S.LOCAL_ERROR)
    ni = rails.ni(A0)
    assert ni.health == 600
    assert rails.a.health.recovery.local.patients() == [ni]
    rails.pass_time(0.2)
    ((driver_ni, msg),) = rails.on_wire(pings=True)
    assert driver_ni is ni
    assert msg.hdr.src_nid == msg.hdr.dest_nid == msg.next_nid == A0
    rails.pass_time(5, answer=True)
    assert ni.health == 1000
    assert not rails.a.health.recovery.busy
    assert rails.a.peers.find_ni(A0).health == 1000


def sent_into_silence(rails, seconds):
    """Recovery pings leave, and nobody answers: when and from which NI each left."""
    seen = []
    for _ in range(round(seconds * 10)):
        rails.pass_time(0.1)
        for ni, msg in rails.on_wire(pings=True):
            rails.fabric.wire.remove((ni, msg))
            seen.append((rails.fabric.clock.now, ni.nid))
            rails.a.completed([msg])
    return seen


@pytest.mark.requirement("HEALTH-value", "HEALTH-monitor")
def test_a_silent_peer_ni_is_pinged_after_1_2_4_seconds_and_each_silence_is_a_failure():
    rails = recovering()
    pni = sick(rails)
    times = [at for at, _ in sent_into_silence(rails, 60)]
    assert [round(after - before) for before, after in pairwise(times)] == [1, 2, 4, 8, 16]
    assert pni.health == 900 - 100 * (len(times) - 1)
    rails.pass_time(40, answer=True)
    assert pni.health == 1000


@pytest.mark.requirement("HEALTH-value", "HEALTH-monitor")
def test_a_local_ni_whose_pings_are_not_answered_is_not_healed_by_what_it_sends():
    rails = Rails(retry_count=0)
    ni = rails.ni(A0)
    rails.a.health.values.set_ni(ni, 0)
    for _ in range(20):
        rails.put(source=A0)
        rails.end(S.OK)
        sent_into_silence(rails, 1)
    assert (ni.health, ni.up) == (0, False)
    rails.pass_time(60, answer=True)
    assert (ni.health, ni.up) == (1000, True)
    assert rails.a.next_deadline() is None


@pytest.mark.requirement("HEALTH-value", "HEALTH-monitor")
def test_a_local_ni_that_does_not_answer_itself_is_asked_by_another_by_turns():
    second = Nid.parse("10.0.0.3@tcp")
    rails = Rails((A0, second), retry_count=0)
    rails.a.health.values.set_ni(rails.ni(A0), 500)
    seen = sent_into_silence(rails, 20)
    assert [nid for _, nid in seen] == [A0, second, A0, second, A0]
    assert [round(after - before) for before, after in pairwise(at for at, _ in seen)] == [1, 2, 4, 8]
    assert rails.ni(A0).health == 100
    assert rails.ni(second).health == 1000
    for _ in range(2):  # the answer goes to who asked, and heals who was asked
        rails.pass_time(20, answer=True)
    assert rails.ni(A0).health == 1000


def test_a_ping_between_own_nis_that_fails_charges_the_one_asked():
    second = Nid.parse("10.0.0.3@tcp")
    rails = Rails((A0, second), retry_count=0)
    rails.a.health.values.set_ni(rails.ni(A0), 500)
    for status in (S.LOCAL_DROPPED, S.REMOTE_DROPPED, S.NETWORK_TIMEOUT, S.LOCAL_TIMEOUT):
        before = rails.ni(A0).health
        while not rails.on_wire(pings=True):
            rails.pass_time(0.1)
        ((_, msg),) = rails.on_wire(pings=True)
        rails.fabric.wire.clear()
        rails.a.completed([msg], status, errno.EIO)
        rails.ticks()
        assert rails.ni(A0).health == before - 100
    assert rails.ni(second).health == 1000


@pytest.mark.requirement("HEALTH-value")
def test_by_the_documents_a_local_ni_pings_itself_each_second_and_falls_or_rises_as_they_say():
    rails = Rails((A0, Nid.parse("10.0.0.3@tcp")), retry_count=0)
    rails.a.health.follow_documents()
    ni = rails.ni(A0)
    rails.a.health.values.set_ni(ni, 950)
    seen = sent_into_silence(rails, 5)
    assert {nid for _, nid in seen} == {A0}
    assert {round(after - before) for before, after in pairwise(at for at, _ in seen)} == {1}
    assert ni.health == 950 - 100 * (len(seen) - 1)  # the last one may be answered yet
    health, sent = ni.health, rails.a.stats.send_count
    rails.pass_time(10, answer=True)
    pings = (rails.a.stats.send_count - sent) // 2  # each with its answer
    assert 9 <= pings <= 11
    assert ni.health in (health - 100 + pings, health - 100 + pings - 1, health - 100 + pings + 1)


def test_a_deleted_ni_leaves_recovery_with_its_timer():
    rails = Rails(retry_count=0)
    rails.put(source=A0)
    rails.end(S.LOCAL_ERROR)
    assert rails.a.health.recovery.busy
    rails.a.del_ni(A0)
    rails.ticks()
    assert not rails.a.health.recovery.busy
    assert rails.a.next_deadline() is None


def test_a_deleted_peer_is_not_pinged():
    rails = recovering()
    rails.a.peers.delete(B0)
    rails.pass_time(5)
    assert not rails.on_wire(pings=True)
    assert not rails.a.health.recovery.busy


@pytest.mark.requirement("HEALTH-value")
def test_turning_health_off_and_on_again_stops_and_resumes_recovery():
    rails = recovering()
    rails.a.settings.health_sensitivity = 0
    rails.a.health.settings_changed()
    assert rails.a.next_deadline() is None
    rails.a.settings.health_sensitivity = 100
    rails.a.health.settings_changed()
    assert rails.a.health.recovery.busy


def test_the_log_tells_who_is_in_recovery_less_and_less_often():
    rails = recovering()
    rails.pass_time(500, step=1)
    lines = [line for line in rails.log if "in recovery" in line]
    assert lines == [f"1 peer NIs in recovery (showing 1): {sick(rails).nid}"] * 3  # after 60, 180, 420 s


@pytest.mark.requirement("HEALTH-value")
def test_the_documents_recovery_pings_each_second_and_raises_by_one():
    rails = recovering()
    rails.a.health.follow_documents()
    pni = sick(rails)
    rails.pass_time(5, answer=True)
    assert 902 < pni.health < 907
    seen = rails.a.stats.send_count
    rails.pass_time(10, answer=True)
    assert 9 <= rails.a.stats.send_count - seen <= 11
    rails.pass_time(150, answer=True)
    assert pni.health == 1000
    assert rails.a.next_deadline() is None


# Answers that do not come


@pytest.mark.requirement("HEALTH-monitor", "HEALTH-timeouts")
def test_an_overdue_answer_lowers_the_next_hop_and_is_told_once():
    rails = Rails(transaction_timeout=20)
    rails.put(ack=True)
    ni, pni = rails.end(S.OK)
    assert rails.events.kinds == ["SEND"]
    rails.pass_time(21, step=1)
    assert rails.events.kinds == ["SEND", "ACK", "UNLINK"]
    assert [event.status for event in rails.events] == [0, -errno.ETIMEDOUT, -errno.ETIMEDOUT]
    assert (ni.health, pni.health) == (1000, 900)
    assert rails.a.stats.response_timeout_count == 1
    assert any(f"by way of {pni.nid}" in line for line in rails.log)


@pytest.mark.requirement("HEALTH-timeouts")
@pytest.mark.parametrize("tracking", [0, 1, 2, 3])
def test_response_tracking_says_which_answers_are_awaited(tracking):
    rails = Rails(response_tracking=tracking)
    rails.put(ack=True)
    put = rails.a.memory.count_awaited()
    rails.a.get(rails.a.memory.md_bind(bytearray(4), None, threshold=2), B0, 5, 7)
    get = rails.a.memory.count_awaited() - put
    assert (get, put) == (tracking & 1, tracking >> 1)
    track = int(MdOption.TRACK_RESPONSE)
    rails.a.get(rails.a.memory.md_bind(bytearray(4), None, threshold=2, options=track), B0, 5, 7)
    assert rails.a.memory.count_awaited() == get + put + 1
    rails.a.get(rails.a.memory.md_bind(bytearray(4), None, threshold=2), B0, 0, PING_MATCH_BITS)
    assert rails.a.memory.count_awaited() == get + put + 2


# What the peer says of itself


def test_a_peer_that_says_an_ni_is_down_counts_as_one_failure():
    rails = Rails()
    rails.a.health.peer_told(rails.pni(B0), False)
    assert rails.pni(B0).health == 900
    rails.a.health.peer_told(rails.pni(B0), True)  # never heard of: what it says is all there is
    assert rails.pni(B0).health == 1000
    hear(rails)
    rails.a.health.peer_told(rails.pni(B0), False)
    rails.a.health.peer_told(rails.pni(B0), True)
    assert rails.pni(B0).health == 900


@pytest.mark.requirement("RTR", "HEALTH-value")
def test_a_router_takes_whoever_it_hears_for_well():
    fabric = Fabric()
    a, b = fabric.node("10.0.0.1@tcp"), fabric.node("10.0.0.2@tcp")
    (nid,) = [nid for nid in b.nis if not nid.is_lo]
    (to,) = [nid for nid in a.nis if not nid.is_lo]

    def health_after_a_ping():
        a.health.values.set_peer(a.state.peers.learn(nid), 300)
        b.get(b.memory.md_bind(bytearray(272), threshold=2), to, PING_PORTAL, PING_MATCH_BITS)
        fabric.run()
        return a.state.peers.find_ni(nid).health

    assert health_after_a_ping() == 400
    a.router.enable(True)
    assert health_after_a_ping() == 1000
    a.health.follow_documents()
    assert health_after_a_ping() == 301


@pytest.mark.requirement("RTR", "HEALTH-value")
def test_what_a_router_passes_on_heals_its_sender_and_the_ni_that_it_came_to():
    fabric = Fabric()
    router = fabric.node("10.0.0.9@tcp", "10.1.0.9@tcp1")
    near, far = fabric.node("10.0.0.1@tcp"), fabric.node("10.1.0.1@tcp1")
    router.router.enable(True)
    for end, net, gateway in ((near, "tcp1", "10.0.0.9@tcp"), (far, "tcp", "10.1.0.9@tcp1")):
        end.gateways.add(Net.parse(net), Nid.parse(gateway), -1, 0)
    fabric.run()
    fabric.clock.now += 120
    fabric.run()
    ni, pni = router.nis[Nid.parse("10.0.0.9@tcp")], router.peers.learn(Nid.parse("10.0.0.1@tcp"))
    router.health.values.set_ni(ni, 500)
    router.health.values.set_peer(pni, 300)
    md = near.memory.md_bind(b"", threshold=1)
    near.put(md, Nid.parse("10.1.0.1@tcp1"), 5, 7, ack=False)
    fabric.run()
    assert (ni.health, pni.health) == (600, 1000)
