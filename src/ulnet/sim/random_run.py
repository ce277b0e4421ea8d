"""Random runs: all recipes that there are, one run of a seed, and many until one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from ulnet.sim import (  # noqa: F401 - register their recipes
    administering,
    admitting,
    bonded,
    changing,
    discovering,
    faulty,
    mixed,
    naming,
    over_rdma,
    ruled,
)
from ulnet.sim.dice import PORTAL
from ulnet.sim.plan import Plan
from ulnet.sim.random_plan import Shape, random_plan
from ulnet.sim.recipe import RECIPES, Recipe, register
from ulnet.sim.run import Outcome, Run, play
from ulnet.sim.shrink import fails_alike, shrink

__all__ = ["PORTAL", "RECIPES", "Recipe", "Shape", "find_failure", "random_plan", "register", "replay"]


def replay(
    recipe: Recipe, seed: int, *, plan: Plan | None = None, trace: bool = False, thorough: bool = False
) -> Outcome:
    """The run of one seed, with its own plan or a shrunk one."""
    return play(plan or recipe.plan(seed), seed=seed, trace=trace, thorough=thorough, prepare=recipe.prepare)


def find_failure(
    recipe: Recipe,
    seeds: Iterable[int],
    *,
    shrink_runs: int = 300,
    after: Callable[[int, Run], None] = lambda seed, run: None,
) -> tuple[int, Plan, str] | None:
    """Run many seeds; the first that fails as (seed, shrunk plan, what is wrong). None: all did well."""
    for seed in seeds:
        outcome = replay(recipe, seed)
        after(seed, outcome.run)
        if outcome.ok:
            continue
        smallest = outcome.run.plan
        if shrink_runs:
            smallest = shrink(smallest, fails_alike(outcome, partial(_again, recipe, seed)), shrink_runs)
        why = replay(recipe, seed, plan=smallest, thorough=True).failure or outcome.failure
        return seed, smallest, why
    return None


def _again(recipe: Recipe, seed: int, plan: Plan) -> Outcome:
    return replay(recipe, seed, plan=plan)
