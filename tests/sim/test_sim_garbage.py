"""The garbage collector is seldom at work while there is a simulation, and as before when there is none."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from ulnet.sim import Simulation
from ulnet.sim.garbage import SeldomCollected


@pytest.fixture(autouse=True)
def _own_thresholds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    gc.collect()
    before = gc.get_threshold()
    monkeypatch.setattr(SeldomCollected, "_living", 0)  # whatever other tests still hold
    gc.set_threshold(701, 11, 12)
    yield
    gc.set_threshold(*before)


def test_garbage_is_looked_for_seldom_while_a_simulation_lives_and_as_before_when_it_is_gone() -> None:
    sim = Simulation(1)
    sim.node("a", "10.0.0.1@tcp")
    other = Simulation(2)
    assert gc.get_threshold()[0] == 2_000
    sim.run(0.1)
    assert gc.get_threshold()[0] == 2_000
    del sim
    gc.collect()
    assert gc.get_threshold()[0] == 2_000
    del other
    gc.collect()
    assert gc.get_threshold() == (701, 11, 12)


def test_what_a_program_chose_itself_stays() -> None:
    gc.set_threshold(0)
    sim = Simulation(1)
    assert gc.get_threshold()[0] == 0
    del sim
    gc.collect()
    assert gc.get_threshold()[0] == 0
    sim = Simulation(1)
    gc.set_threshold(50, 5, 5)
    del sim
    gc.collect()
    assert gc.get_threshold() == (50, 5, 5)


@pytest.mark.parametrize("generation", [0, 1])
def test_simulations_one_after_the_other_do_not_heap_up(generation: int) -> None:
    most = 0
    for seed in range(60):
        sim = Simulation(seed)
        node = sim.node("a", "10.0.0.1@tcp")
        sim.node("b", "10.0.0.2@tcp")
        assert node.sim is sim  # in a circle: only the collector finds it
        for _ in range(20):
            gc.collect(generation)  # it is among older objects now, as that of a long run is
        most = max(most, SeldomCollected._living)
    assert most <= 20
