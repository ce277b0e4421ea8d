"""Nodes that begin anew: drivers tell the core of lost connections and of new lives, in the simulator too."""

from __future__ import annotations

import pytest

from ulnet.core.peer import Peer
from ulnet.core.status import LNetError
from ulnet.nid import Nid
from ulnet.sim import LinkParams, SimNode, Simulation
from ulnet.sim.discovering import discovery_in_order, knows

RAILS = range(3)
A, B = ([f"10.{rail}.0.{host}@tcp{rail or ''}" for rail in RAILS] for host in (1, 2))
SEEDS = range(6)


def met(seed: int) -> tuple[Simulation, SimNode, SimNode]:
    """Two nodes that know each other, with a connection on each rail."""
    sim = Simulation(seed, link=LinkParams(delay=5e-5), thorough=True)
    sim.properties.append(discovery_in_order)
    a, b = sim.node("a", *A), sim.node("b", *B)
    a.attach(30)
    b.attach(30)
    for _ in range(6):
        puts = [a.put(nid, 30, data=b"x") for nid in B]
        sim.run_until_quiet()
        assert all(put.ok for put in puts)
    return sim, a, b


def ask(sim: Simulation, node: SimNode, nid: str) -> LNetError | None:
    """Discover once."""
    told: list[LNetError | None] = []

    def done(error: LNetError | None, peer: Peer | None) -> None:
        told.append(error)

    node.loop.enter(lambda: node.core.discover(Nid.parse(nid), force=True, done=done))
    sim.run_until_quiet()
    (error,) = told
    return error


@pytest.mark.requirement("dyn-065")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_that_lost_its_power_is_found_at_the_first_question(seed: int) -> None:
    """The connections on all rails are dead, and nobody was told: each ping over one of them is lost."""
    sim, a, b = met(seed)
    b.kill(silent=True)
    sim.run(1.0)
    b.restart()
    sim.run(1.0)
    assert ask(sim, a, B[0]) is None
    assert not knows(a, b)
    assert not knows(b, a)


@pytest.mark.requirement("dyn-065")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_hello_tells_of_a_new_life_before_data_goes_there(seed: int) -> None:
    sim, a, b = met(seed)
    b.kill()
    sim.run(1.0)
    b.restart()
    b.attach(30)
    put = a.put(B[0], 30, data=b"x")
    sim.run_until_quiet()
    assert put.ok
    assert b.core.peers.find(Nid.parse(A[0])) is not None
    assert not knows(b, a)  # it was told who we are, though we knew it as settled
