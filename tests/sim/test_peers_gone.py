"""Peers that are gone: their processes were killed, and their hosts say so."""

from __future__ import annotations

import errno

import pytest

from ulnet.sim import SimNode, Simulation

PORTAL, LAZY = 30, 31
A, B = ([f"10.{rail}.0.{host}@tcp{rail or ''}" for rail in range(3)] for host in (1, 2))
Told = list[tuple[str, bool]]


def met(rails: int) -> tuple[Simulation, SimNode, SimNode, Told]:
    """Two nodes with connections on all rails, and what the first is told of peers."""
    sim = Simulation(1)
    a, b = sim.node("a", *A[:rails]), sim.node("b", *B[:rails])
    for node in (a, b):
        node.attach(PORTAL)
    b.core.memory.set_lazy(LAZY)
    for _ in range(4):
        for nid in B[:rails]:
            a.put(nid, PORTAL, data=b"x")
        sim.run_until_quiet()
    told: Told = []
    a.core.health.presence.watchers[lambda nid, there, reason: told.append((str(nid), there))] = None
    return sim, a, b, told


@pytest.mark.parametrize("rails", [1, 2, 3])
def test_who_waits_for_a_peer_that_is_gone_is_told_at_once(rails: int) -> None:
    sim, a, b, told = met(rails)
    waiting = [a.put(nid, LAZY, data=b"nobody takes it") for nid in B[:rails] for _ in range(2)]
    sim.run(1)
    assert not any(one.ended for one in waiting)
    b.kill()
    sim.run_until(lambda: all(one.ended for one in waiting), 10)
    assert {one.status for one in waiting} == {-errno.ECONNREFUSED}
    assert "the peer is gone" in waiting[0].reason
    sim.run(1)
    assert told == [(B[0], False)]
    b.restart()
    sim.run(5)
    again = a.put(B[0], PORTAL, data=b"hello again")
    sim.run_until_quiet()
    assert again.ok
    assert told == [(B[0], False), (B[0], True)]


def test_a_peer_one_of_whose_rails_refuses_is_there() -> None:
    sim, a, b, told = met(2)
    waiting = [a.put(nid, LAZY, data=b"later") for nid in B[:2] for _ in range(2)]
    sim.run(1)
    b.del_ni(B[1])
    sim.run(20)
    assert told == []
    b.attach(LAZY)
    sim.run_until_quiet()
    assert any(one.ok for one in waiting)
    assert told == []


def test_a_silent_peer_is_not_gone() -> None:
    sim, a, b, told = met(1)
    waiting = [a.put(B[0], LAZY, data=b"nobody takes it", timeout=20)]
    sim.run(1)
    b.kill(silent=True)
    sim.run(15)
    assert [one.ended for one in waiting] == [False]
    sim.run_until_quiet()
    assert [one.ended for one in waiting] == [True]
    assert told == []
