"""Random runs of all kinds of worlds."""

from __future__ import annotations

from random import Random
from typing import Final

from ulnet.sim import routed
from ulnet.sim.plan import Plan
from ulnet.sim.random_plan import random_plan
from ulnet.sim.recipe import Recipe, register

__all__ = ["RECIPE", "random_world"]


def random_world(seed: int) -> Plan:
    """A world of one kind or another."""
    rng = Random(f"world/{seed}")
    if rng.random() < 0.2:
        return routed.random_routes(seed)
    return random_plan(seed)


RECIPE: Final = Recipe(random_world, (routed.prepare,), "worlds of all kinds: one network, routers")
register("mixed", RECIPE)
