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
def test_a_new_life_seen_on_one_rail_ends_what_went_to_the_former_one_on_all(seed: int) -> None:
    """TCP would find out when it sends again, which it does more and more rarely."""
    sim, a, b = met(seed)
    b.kill(silent=True)
    puts = [a.put(nid, 30, data=b"x") for nid in B for _ in range(3)]
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
