"""Random runs with fault rules: messages are dropped, delayed, or fail when they are sent."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ulnet.sim.dice import Dice
from ulnet.sim.plan import Plan
from ulnet.sim.random_plan import random_plan
from ulnet.sim.recipe import Recipe, register

__all__ = ["RECIPE", "random_fault_rules"]

_HEALTH: Final = ("local_dropped", "local_timeout", "remote_dropped", "network_timeout", "random")


def random_fault_rules(seed: int) -> Plan:
    """A run on one network, whose nodes get fault rules, and lose them again."""
    plan = random_plan(seed)
    dice = Dice("faults", seed)
    rng = dice.rng
    nodes = {name: node.nids for name, node in plan.nodes.items() if node.kind == "node"}
    every = [nid for node in plan.nodes.values() for nid in node.nids]
    for _ in range(rng.randint(1, 6)):
        name = rng.choice(list(nodes))
        at = round(rng.choice([0.0, 0.01, 5.0]) * rng.random(), 9)
        kind = rng.choice(["drop", "delay"])
        places = ["*", "*", "*@tcp", rng.choice(every)]
        words: dict[str, Any] = {"kind": kind, "source": rng.choice(places), "dest": rng.choice(places)}
        words[rng.choice(["rate", "interval"])] = rng.choice([1, 2, 5])
        if kind == "delay":
            words["latency"] = latency = rng.choice([0.001, 0.5, 3.0])
            if rng.random() < 0.3:  # an NI goes while messages are kept from leaving by it
                nid = rng.choice(nodes[name])
                dice.add(at + 1e-3, "put", **{"from": name, "to": rng.choice(every), "burst": 20})
                dice.ask(at + latency * rng.random(), name, "net.del", nids=[nid])
                dice.ask(at + latency + rng.random(), name, "net.add", nids=[nid])
        elif rng.random() < 0.5:
            words["health_errors"] = [rng.choice(_HEALTH)]
        if rng.random() < 0.3:
            words["messages"] = [rng.choice(["PUT", "GET", "ACK", "REPLY"])]
        if rng.random() < 0.3:
            words["portals"] = [30]
        if kind == "drop" and rng.random() < 0.1:
            words = {"kind": kind, "source": "*", "dest": "*", "drop_all": True}
        dice.ask(at, name, "fault.add", **words)
        later = at + rng.choice([0.01, 1.0, 30.0])
        if rng.random() < 0.3:
            dice.ask(later * 0.9, name, "fault.show", kind=kind)
            dice.ask(later * 0.95, name, "fault.reset", kind=kind)
        dice.ask(later, name, "fault.del", kind=kind)
    last = max(event.at for event in plan.events)
    for name in nodes:
        for kind in ("drop", "delay"):
            dice.ask(last, name, "fault.del", kind=kind)
    events = sorted([*plan.events, *dice.events], key=lambda event: event.at)
    return msgspec.structs.replace(plan, events=events)


RECIPE: Final = Recipe(random_fault_rules, (), "messages and faults, and fault rules on the nodes")
register("faults", RECIPE)
