"""What `ulnet sim` does for each seed, here or in another process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib import import_module

from ulnet.cli.sim_report import Report, report_of
from ulnet.rpc import played  # noqa: F401 - registers its recipe
from ulnet.sim.errors import PlanError
from ulnet.sim.meter import Meter
from ulnet.sim.plan import Plan
from ulnet.sim.random_run import RECIPES, Recipe
from ulnet.sim.run import Outcome, play

__all__ = ["Work", "recipe_named", "report_on"]


@dataclass(frozen=True)
class Work:
    """A scenario, or none, and the name of a recipe: what a seed makes a run of."""

    plan: Plan | None
    recipe: str

    def play(
        self, seed: int, *, meter: Meter | None = None, plan: Plan | None = None, trace: bool = False
    ) -> Outcome:
        """One run; `plan` instead of that of the seed. Raises PlanError."""
        recipe = recipe_named(self.recipe)
        plan = plan or self.plan
        prepare = [*recipe.prepare, *([meter.attach] if meter is not None else [])]
        return play(
            plan if plan is not None else recipe.plan(seed),
            seed=seed,
            trace=trace,
            prepare=prepare,
        )


def report_on(work: Work, seed: int) -> Report:
    """Play a seed, and tell the facts."""
    began = time.perf_counter()
    outcome = work.play(seed)
    return report_of(outcome, seed, time.perf_counter() - began)


def recipe_named(name: str) -> Recipe:
    """One of the recipes, or MODULE:NAME. Raises PlanError."""
    if name in RECIPES:
        return RECIPES[name]
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute or "RECIPE")
    except (ImportError, AttributeError) as error:
        raise PlanError(
            f"recipe {name!r}: {error}; name one of {', '.join(RECIPES)}, or MODULE:NAME"
        ) from None
    if not isinstance(found, Recipe):
        raise PlanError(f"{name} is no recipe: it must be an ulnet.sim.random_run.Recipe")
    return found
