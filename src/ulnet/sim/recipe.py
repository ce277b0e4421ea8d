"""Recipes of random runs: what to make of a seed, and what more to look at; by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ulnet.sim.plan import Plan
from ulnet.sim.random_plan import random_plan
from ulnet.sim.run import Prepare

__all__ = ["RECIPES", "Recipe", "register"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """A family of random runs: `plan` makes one from a seed, `prepare` adds settings, properties, judges."""

    plan: Callable[[int], Plan] = random_plan
    prepare: tuple[Prepare, ...] = ()
    about: str = "messages and faults of all kinds, on one network"


RECIPES: dict[str, Recipe] = {}


def register(name: str, recipe: Recipe) -> None:
    """Make a recipe known to `ulnet sim --recipe NAME`."""
    RECIPES[name] = recipe


register("plain", Recipe())
