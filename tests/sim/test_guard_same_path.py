"""PUTs that are lost with the only path are sent again when their peer is heard there, and delivered once."""

from __future__ import annotations

import errno

import pytest

from support.resets import reset
from ulnet.sim import LinkParams, SimNode, Simulation
from ulnet.sim.traffic import Operation

B = "10.0.0.2@tcp"
A_PUT = 200_000


def ended(sim: Simulation, puts: list[Operation]) -> None:
    sim.run_until(lambda: all(put.ended for put in puts), 20)


def acquainted(seed: int, guard: bool) -> tuple[Simulation, SimNode, SimNode]:
    """Two nodes with one rail, which have discovered each other."""
    sim = Simulation(seed, link=LinkParams(rate=1e8))
    a, b = sim.node("a", "10.0.0.1@tcp"), sim.node("b", B)
    b.core.state.guards = guard
    b.core.info.rebuild()
    b.attach(30)
    for _ in range(3):
        a.put(B, 30, data=b"hello")
        sim.run_until_quiet()
    return sim, a, b


@pytest.mark.requirement("HEALTH-resend")
@pytest.mark.parametrize("size", [1, A_PUT])
@pytest.mark.parametrize("times", [1, 2])
def test_what_was_lost_with_the_only_path_is_sent_again_and_delivered_once(size: int, times: int) -> None:
    """What the driver had begun fails at once, as ever; what had left is acknowledged."""
    for step in range(30):
        sim, a, b = acquainted(step, True)
        puts = [a.put(B, 30, data=bytes(size)) for _ in range(8)]
        sim.run(step * (2e-5 if size == 1 else 8e-4))
        for _ in range(times):
            reset(b)
            sim.run(0.6)
        ended(sim, puts)
        assert [(step, put.reason) for put in puts if put.status == -errno.ETIMEDOUT] == []
        delivered = [b.inboxes[0].times[put.number] for put in puts]
        assert all(count == 1 if put.ok else count <= 1 for put, count in zip(puts, delivered, strict=True))
        assert sim.ledger.duplicates == 0


@pytest.mark.requirement("HEALTH-resend")
def test_a_peer_without_guard_gets_no_second_one() -> None:
    """What was lost there is reported, and never sent again."""
    late = 0
    for step in range(30):
        sim, a, b = acquainted(step, False)
        put = a.put(B, 30, data=b"x")
        sim.run(step * 2e-5)
        reset(b)
        sim.run_until_quiet()
        late += put.status == -errno.ETIMEDOUT
        assert b.inboxes[0].times[put.number] <= 1
        assert put.ok or put.status
    assert late


@pytest.mark.requirement("HEALTH-resend")
def test_a_path_that_only_paused_gets_nothing_twice() -> None:
    """Its connection is whole, so that all of it arrives."""
    sim, a, _ = acquainted(1, True)
    puts = [a.put(B, 30, data=bytes(A_PUT)) for _ in range(8)]
    sim.run(0.004)
    cuts = sim.partition(["a.eth0"], ["b.eth0"])
    sim.run(3.0)
    sim.heal(cuts)
    sim.run_until_quiet()
    assert all(put.ok for put in puts)
    assert a.core.stats.resend_count == 0
