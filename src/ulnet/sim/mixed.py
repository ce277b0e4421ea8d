"""Random runs of worlds of all kinds, with traffic of all kinds."""

from __future__ import annotations

from random import Random
from typing import Final

from ulnet.sim import bonded, changing, faulty, routed, ruled
from ulnet.sim.plan import Plan
from ulnet.sim.programs import with_programs
from ulnet.sim.random_plan import random_plan
from ulnet.sim.recipe import Recipe, register

__all__ = ["RECIPE", "random_world"]

_WORLDS: Final = {
    random_plan: 40,
    routed.random_routes: 12,
    bonded.random_bonds: 10,
    ruled.random_policies: 14,
    faulty.random_fault_rules: 12,
    changing.random_changes: 12,
}


def random_world(seed: int) -> Plan:
    """A world of one kind or another, and programs in it."""
    (make,) = Random(f"world/{seed}").choices(list(_WORLDS), list(_WORLDS.values()))
    plan = make(seed)
    if make is bonded.random_bonds:
        targets = [f"{node.nids[0].partition('@')[0]}@bond0" for node in plan.nodes.values()]
    else:
        targets = [nid for node in plan.nodes.values() for nid in node.nids]
    if make is routed.random_routes:
        return with_programs(plan, [name for name in plan.nodes if name[0] in "cs"], targets)
    return with_programs(plan, [name for name, node in plan.nodes.items() if node.kind == "node"], targets)


RECIPE: Final = Recipe(random_world, routed.RECIPE.prepare, "worlds of all kinds, and programs in them")
register("mixed", RECIPE)
