"""A node begins anew: what was written to connections of its former life keeps nobody waiting."""

from __future__ import annotations

import pytest

from sim.test_discovery_restarts import SEEDS, A, B, met
from ulnet.core.ni import MAX_HEALTH
from ulnet.nid import Nid


@pytest.mark.requirement("dyn-065")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_recovery_ping_that_went_to_a_former_life_keeps_no_rail_out(seed: int) -> None:
    """It was written to a connection of the former life, whose host resets that."""
    sim, a, b = met(seed)
    b.kill(silent=True)
    sim.run(1.0)
    b.restart()
    b.attach(30)
    sim.run(1.0)
    pni = a.core.peers.find_ni(Nid.parse(B[1]))
    assert pni is not None
    a.loop.enter(a.core.health.values.set_peer, pni, 500)
    sim.run(20.0)
    assert pni.health_stats.ping_count != 1
    sim.run_until(lambda: pni.health == MAX_HEALTH, 60)
    sim.run_until_quiet()


@pytest.mark.requirement("dyn-065")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_ping_cuts_the_pause_after_a_failed_call_short(seed: int) -> None:
    sim, a, b = met(seed)
    b.kill()
    sim.run(1.0)
    for _ in range(4):  # the pauses become longer
        refused = [a.ping(nid, timeout=1.0) for nid in B]
        sim.run(1.0)
        assert not any(ping.ok for ping in refused)
    b.restart()
    pings = [a.ping(nid, timeout=1.0) for nid in B]
    sim.run_until_quiet()
    assert all(ping.ok for ping in pings)


@pytest.mark.requirement("dyn-065")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("count", [3, 30])
def test_a_new_life_seen_on_one_rail_ends_what_went_to_the_former_one_on_all(seed: int, count: int) -> None:
    """TCP would find out when it sends again, which it does more and more rarely. Many wait for credits."""
    sim, a, b = met(seed)
    b.kill(silent=True)
    puts = [a.put(nid, 30, data=b"x") for nid in B for _ in range(count)]
    sim.run(28.0)
    assert all(put.status is None for put in puts)
    b.restart()
    b.attach(30)
    ping = b.ping(A[0])
    sim.run_until(lambda: ping.status is not None, 1)
    sim.run_until(lambda: all(put.status is not None for put in puts), 0.02)
    again = [a.put(nid, 30, data=b"x") for nid in B]
    sim.run_until_quiet()
    assert all(put.ok for put in again)


@pytest.mark.requirement("dyn-065")
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("where", ["near", "far", "no NI"])
def test_what_went_to_the_former_life_ends_on_rails_that_are_dead(seed: int, where: str) -> None:
    """The NIDs there cannot be called, so that nobody tells who they are."""
    sim, a, b = met(seed)
    b.kill(silent=True)
    puts = [a.put(nid, 30, data=b"x") for nid in B for _ in range(3)]
    sim.run(20.0)
    b.restart()
    for mine, theirs in zip(A[1:], B[1:], strict=True):
        if where == "no NI":
            b.del_ni(theirs)
        else:
            sim.link_down(mine if where == "near" else theirs)
    b.attach(30)
    ping = b.ping(A[0])
    sim.run_until(lambda: ping.status is not None, 1)
    sim.run_until(lambda: all(put.status is not None for put in puts), 5)


@pytest.mark.requirement("dyn-065")
@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_sent_again_while_the_peer_was_dead_ends_with_the_former_life(seed: int) -> None:
    """It waits for credits, says that it was sent before, and to whom: the new life would drop it."""
    sim, a, b = met(seed)
    b.kill(silent=True)
    puts = [a.put(nid, 30, data=b"x") for nid in B for _ in range(4)]
    sim.run(3.0)
    puts += [a.put(nid, 30, data=b"x") for nid in B for _ in range(4)]
    b.restart()
    b.attach(30)
    puts += [a.put(nid, 30, data=b"x") for nid in B for _ in range(4)]
    sim.run_until(lambda: all(put.status is not None for put in puts), 5)
    assert not b.core.stats.drop_count


@pytest.mark.requirement("dyn-065")
@pytest.mark.parametrize("seed", SEEDS)
def test_what_waits_for_answers_of_rails_without_connections_ends_with_the_former_life(seed: int) -> None:
    """Their connections broke before the new life was there, and their NIDs cannot be called."""
    sim, a, b = met(seed)
    b.loop.enter(b.core.memory.set_lazy, 31)
    asked = [a.put(nid, 31, data=b"x") for nid in B]
    sim.run(1.0)
    b.kill(silent=True)
    for nid in B:
        a.put(nid, 30, data=b"x")
    sim.run(60.0)
    assert all(put.status is None for put in asked)
    b.restart()
    for nid in B[1:]:
        sim.link_down(nid)
    ping = b.ping(A[0])
    sim.run_until(lambda: ping.status is not None, 5)
    sim.run_until(lambda: all(put.status is not None for put in asked), 5)
