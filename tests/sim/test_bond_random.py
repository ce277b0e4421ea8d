"""Random failures of slaves, paths, peers and servers: the invariants hold, and all recovers."""

from __future__ import annotations

import pytest

from ulnet.sim.random_run import RECIPES, replay


def run(seed: int) -> None:
    outcome = replay(RECIPES["bonds"], seed)
    assert outcome.ok, outcome.failure


@pytest.mark.requirement("BOND-health", "LND-bond")
@pytest.mark.parametrize("seed", range(12))
def test_random_failures(seed: int) -> None:
    run(seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_many_random_failures(seed: int) -> None:
    run(seed)


def test_most_messages_to_bonds_do_well() -> None:
    done = total = 0
    for seed in range(12):
        operations = replay(RECIPES["bonds"], seed).run.operations
        total += len(operations)
        done += sum(operation.ok for operation in operations)
    assert done > total * 0.7
