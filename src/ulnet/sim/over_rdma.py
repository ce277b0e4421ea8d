"""Worlds over RDMA: those of other recipes with some or all of their nets turned into o2ib nets.

Devices vanish and come back besides.
"""

from __future__ import annotations

import re
from random import Random
from typing import Any, Final

import msgspec

from ulnet.sim import bonded, faulty, routed
from ulnet.sim.plan import Event, Plan
from ulnet.sim.programs import with_programs
from ulnet.sim.random_plan import Shape, random_plan
from ulnet.sim.recipe import Recipe, register

__all__ = ["RECIPE", "over_rdma", "random_rdma"]

_NET: Final = re.compile(r"\btcp(\d*)\b")
_WORLDS: Final = {"plain": 50, "routed": 25, "bonds": 10, "faults": 15}


def over_rdma(plan: Plan, rng: Random) -> Plan:
    """The plan with some of its tcp nets as o2ib nets, one at least."""
    words: dict[str, Any] = msgspec.to_builtins(plan)
    names = sorted(set(_NET.findall(str(words))))
    chosen = [name for name in names if rng.random() < 0.7] or [rng.choice(names)]

    def turn(one: Any) -> Any:
        if isinstance(one, str):
            return _NET.sub(lambda net: f"{'o2ib' if net[1] in chosen else 'tcp'}{net[1]}", one)
        if isinstance(one, dict):
            return {key: turn(value) for key, value in one.items()}
        return [turn(value) for value in one] if isinstance(one, list) else one

    return msgspec.convert(turn(words), Plan)


def random_rdma(seed: int) -> Plan:
    """A world of some kind, over RDMA."""
    rng = Random(f"rdma/{seed}")
    (kind,) = rng.choices(list(_WORLDS), list(_WORLDS.values()))
    if kind == "routed":
        plan = routed.random_routes(seed)
    elif kind == "bonds":
        plan = bonded.random_bonds(seed)
    elif kind == "faults":
        plan = faulty.random_fault_rules(seed)
    else:
        plan = random_plan(seed, Shape(foreign=0.0))
    if any(node.kind != "node" for node in plan.nodes.values()):  # they speak no o2iblnd
        plan = random_plan(seed, Shape(foreign=0.0))
    plan = over_rdma(plan, rng)
    nids = [nid for node in plan.nodes.values() for nid in node.nids]
    if kind == "plain":
        plan = with_programs(plan, list(plan.nodes), nids)
    last = max((event.at for event in plan.events), default=0.0)
    events = []
    # A bond whose slave is not there when its node restarts is made later, and that is no matter of RDMA.
    for _ in range(rng.choice([0, 0, 1, 2]) if kind != "bonds" else 0):
        at, port = last * rng.random(), rng.choice(nids)
        events.append(Event(at=at, kind="remove_device", words={"port": port}))
        events.append(
            Event(at=min(at + rng.choice([0.1, 5.0]), last), kind="restore_device", words={"port": port})
        )
    return plan.with_events(sorted([*plan.events, *events], key=lambda event: event.at))


RECIPE: Final = Recipe(random_rdma, routed.RECIPE.prepare, "worlds of most kinds, over RDMA and TCP")
register("o2ib", RECIPE)
