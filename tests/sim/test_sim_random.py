"""Thousands of random clusters with faults: no invariant is ever broken. Failures found earlier stay here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ulnet.sim.plan import Plan
from ulnet.sim.random_run import RECIPES, Shape, find_failure, random_plan, replay
from ulnet.sim.scenario import scenario_text

SLICES = 6
PER_SLICE = 75
PER_SLICE_OF_REQUESTS = 50
# Seeds that once failed, with what was wrong then.
REGRESSIONS = {
    181: "frames behind a lost one waited for ever after a restart",
    1192: "a message behind one that its dead sender could not send again was kept",
    2195: "bulk that a dead node had not taken was kept",
    2398: "two links of 0.5 loss lost everything",
}


def run_all(seeds: range, tmp_path: Path, recipe: str = "mixed") -> None:
    found = find_failure(RECIPES[recipe], seeds)
    if found is not None:
        seed, plan, why = found
        path = tmp_path / "failed.yaml"
        path.write_text(scenario_text(plan))
        pytest.fail(
            f"{why}\nThe same again: ulnet sim --recipe {recipe} --seed {seed}; cut down: {path}\n"
            f"{scenario_text(plan)}"
        )


@pytest.mark.parametrize("part", range(SLICES))
@pytest.mark.parametrize("recipe", ["plain", "mixed"])
def test_random_clusters_keep_all_invariants(recipe: str, part: int, tmp_path: Path) -> None:
    run_all(range(part * PER_SLICE, (part + 1) * PER_SLICE), tmp_path, recipe)


@pytest.mark.requirement("LND-o2ib")
@pytest.mark.parametrize("part", range(4))
def test_worlds_over_rdma_keep_all_invariants(part: int, tmp_path: Path) -> None:
    run_all(range(part * 40, (part + 1) * 40), tmp_path, "o2ib")


def test_a_node_that_begins_anew_has_its_rdma_device_again() -> None:
    """It died while that was out, and began without that NI, and without what it attaches after that."""
    assert replay(RECIPES["o2ib"], 30009059).ok


@pytest.mark.parametrize("recipe", ["policies", "faults", "dlc", "access"])
def test_each_kind_of_world_keeps_all_invariants(recipe: str, tmp_path: Path) -> None:
    run_all(range(1000, 1030), tmp_path, recipe)


@pytest.mark.parametrize("part", range(SLICES))
def test_requests_in_between_break_nothing_either(part: int, tmp_path: Path) -> None:
    seeds = range(part * PER_SLICE_OF_REQUESTS, (part + 1) * PER_SLICE_OF_REQUESTS)
    run_all(seeds, tmp_path, "administrators")


def test_requests_of_administrators_are_mostly_taken() -> None:
    asked = refused = 0
    for seed in range(20):
        run = replay(RECIPES["administrators"], seed).run
        asked += sum(event.kind == "lnetctl" for event in run.plan.events)
        refused += len(run.refusals)
    assert asked > 100
    assert refused < asked / 2


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
@pytest.mark.parametrize("recipe", ["mixed", "administrators"])
def test_very_many_random_clusters_keep_all_invariants(recipe: str, part: int, tmp_path: Path) -> None:
    """ULNET_SIM_RUNS says how many there are of each recipe (100,000 unless told otherwise)."""
    count = int(os.environ.get("ULNET_SIM_RUNS", "100000")) // 20
    run_all(range(1_000_000 + part * count, 1_000_000 + (part + 1) * count), tmp_path, recipe)


OF_REQUESTS = {
    2: "an operation that a shutdown cancels ended without a status",
    286: "the shutdown that a dead node was in went on after its restart",
}
OF_CHANGES = {
    1611: "the ledger took the counter of resends at its word, which an administrator had reset",
    9009128: "who waited for credits was counted while it was deferred to serve it",
}


@pytest.mark.parametrize(
    ("recipe", "seed"),
    [
        *(("plain", seed) for seed in REGRESSIONS),
        *(("administrators", seed) for seed in OF_REQUESTS),
        *(("dlc", seed) for seed in OF_CHANGES),
    ],
)
def test_what_failed_once_does_well(recipe: str, seed: int) -> None:
    outcome = replay(RECIPES[recipe], seed, thorough=True)
    assert outcome.ok, outcome.failure


@pytest.mark.parametrize("seed", [7009240, 7010146])
def test_every_portal_that_waits_for_memory_is_closed_at_the_end(seed: int) -> None:
    """Else a message waits there for ever, and the run is never quiet."""
    plan = RECIPES["mixed"].plan(seed)
    lazy = [event for event in plan.events if event.kind == "lazy"]
    assert lazy
    last = {(event.words["node"], event.words["portal"]): event for event in lazy}
    assert not any(event.words.get("lazy", True) for event in last.values())


def test_a_seed_gives_one_plan_and_seeds_differ() -> None:
    plans = [random_plan(seed) for seed in range(30)]
    assert plans == [random_plan(seed) for seed in range(30)]
    assert len({scenario_text(plan) for plan in plans}) == 30
    kinds = {event.kind for plan in plans for event in plan.events}
    assert {"put", "get", "ping", "down", "partition", "kill", "restart", "del_ni", "link"} <= kinds


def test_shapes_bound_what_chance_makes() -> None:
    shape = Shape(nodes=(7, 7), rails=(1, 1), faults=(0, 0), messages=(2, 2), foreign=0.0, configured=0.0)
    plan: Plan = random_plan(1, shape)
    assert len(plan.nodes) == 7
    assert [event.kind for event in plan.events if event.kind not in ("put", "get", "ping")] == ["repair"]


def test_most_random_messages_do_well() -> None:
    """A simulator in which nothing works would break no invariant either."""
    done = total = 0
    for seed in range(40):
        operations = replay(RECIPES["mixed"], seed).run.operations
        total += len(operations)
        done += sum(operation.ok for operation in operations)
    assert done > total * 0.7
