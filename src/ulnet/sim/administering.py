"""Random runs with administrators: requests of all kinds while messages flow and faults happen."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from ulnet.sim.plan import Event, Plan
from ulnet.sim.random_plan import random_plan
from ulnet.sim.recipe import Recipe, register

__all__ = ["RECIPE", "random_administration"]

Request = dict[str, Any]


def random_administration(seed: int) -> Plan:
    """A mixed run, and up to twenty requests to its nodes."""
    plan = random_plan(seed)
    rng = Random(f"administration/{seed}")
    nodes = {name: node.nids for name, node in plan.nodes.items() if node.kind == "node"}
    requests = []
    for _ in range(rng.randint(1, 20)):
        name = rng.choice(list(nodes))
        others = [nid for other, nids in nodes.items() if other != name for nid in nids] or ["10.0.0.99@tcp"]
        at = round(rng.choice([1e-3, 0.05, 1.0, 20.0]) * rng.random(), 9)
        for later, request in rng.choice(_KINDS)(rng, nodes[name], others):
            words = {"node": name, "request": request}
            requests.append(Event(at=round(at + later, 9), kind="lnetctl", words=words))
    events = sorted([*plan.events, *requests], key=lambda event: event.at)
    return msgspec.structs.replace(plan, events=events)


def _some(rng: Random, nids: list[str]) -> list[str]:
    return rng.sample(nids, rng.randint(1, min(len(nids), 3)))


def _settings(rng: Random, own: list[str], others: list[str]) -> list[tuple[float, Request]]:
    values = rng.choice(
        [
            {"discovery": rng.randint(0, 2)},
            {"health_sensitivity": rng.choice([0, 1, 100, 1000])},
            {"retry_count": rng.choice([0, 1, 5])},
            {"transaction_timeout": rng.choice([10, 50, 150])},
            {"recovery_limit": rng.choice([0, 5])},
            {"max_recovery_ping_interval": rng.choice([1, 900])},
        ]
    )
    return [(0.0, {"op": "global.set", "values": values})]


def _peers(rng: Random, own: list[str], others: list[str]) -> list[tuple[float, Request]]:
    nids = _some(rng, others)
    request: Request = {"op": rng.choice(["peer.add", "peer.del"]), "primary": nids[0], "nids": nids[1:]}
    if request["op"] == "peer.add":
        request["multi_rail"] = rng.random() < 0.8
        request["lock_primary"] = rng.random() < 0.2
    else:
        request["force"] = rng.random() < 0.3
    return [(0.0, request)]


def _nets(rng: Random, own: list[str], others: list[str]) -> list[tuple[float, Request]]:
    nid = rng.choice(own)
    tunables = {"peer_credits": rng.choice([1, 8]), "credits": rng.choice([8, 256])}
    add = {"op": "net.add", "nids": [nid], "tunables": tunables}
    return [(0.0, {"op": "net.del", "nids": [nid]}), (rng.choice([0.0, 1e-3, 2.0]), add)]


def _anew(rng: Random, own: list[str], others: list[str]) -> list[tuple[float, Request]]:
    """LNet is shut down, and comes up with the same NIs."""
    begin = rng.choice([0.0, 0.1, 7.0])
    return [
        (0.0, {"op": "lnet.unconfigure"}),
        (begin, {"op": "lnet.configure"}),
        (begin + 1e-6, {"op": "net.add", "nids": own}),
    ]


def _rules(rng: Random, own: list[str], others: list[str]) -> list[tuple[float, Request]]:
    source = rng.choice([None, rng.choice(own)])
    add = {"op": "udsp.add", "src": source, "dst": rng.choice(others), "priority": rng.randint(0, 3)}
    return [(0.0, add), (rng.choice([1e-3, 3.0]), {"op": "udsp.del", "all": True})]


def _discoveries(rng: Random, own: list[str], others: list[str]) -> list[tuple[float, Request]]:
    return [(0.0, {"op": rng.choice(["discover", "ping"]), "nids": _some(rng, others), "timeout": 2.0})]


def _questions(rng: Random, own: list[str], others: list[str]) -> list[tuple[float, Request]]:
    return [
        (0.0, {"op": "net.show", "verbosity": 4}),
        (0.0, {"op": "peer.show", "verbosity": 4}),
        (0.0, {"op": "explain", "target": rng.choice(others), "size": 5000}),
        (0.0, {"op": "export"}),
    ]


def _health(rng: Random, own: list[str], others: list[str]) -> list[tuple[float, Request]]:
    if rng.random() < 0.5:
        return [(0.0, {"op": "net.set", "nids": [rng.choice(own)], "health": rng.choice([0, 500, 1000])})]
    return [(0.0, {"op": "peer.set", "nids": [rng.choice(others)], "health": rng.choice([0, 500, 1000])})]


_KINDS: list[Callable[[Random, list[str], list[str]], list[tuple[float, Request]]]] = [
    _settings,
    _peers,
    _nets,
    _anew,
    _rules,
    _discoveries,
    _questions,
    _health,
]

RECIPE = Recipe(plan=random_administration, about="messages, faults, and requests of all kinds")
register("administrators", RECIPE)
