"""Random runs with access lists: who is denied gets nothing to a handler, while lists and cables change."""

from __future__ import annotations

from typing import Final

import msgspec

from ulnet.core.event import Event
from ulnet.sim.dice import PORTAL, Dice
from ulnet.sim.node import SimNode
from ulnet.sim.plan import NodePlan, Plan
from ulnet.sim.random_plan import random_plan
from ulnet.sim.recipe import Recipe, register
from ulnet.sim.run import Run

__all__ = ["RECIPE", "denied_gets_nothing", "random_access_lists"]

_WHAT: Final = ("", "connect=", "ping=", "push=", f"portal{PORTAL}=", "portal[29-31]=", "portal*=")
_INTERFACE: Final = "eth0"
_WHOLE: Final = 8192  # bytes: of larger messages the lists are asked as the header comes, not as all is there


def denied_gets_nothing(node: SimNode, event: Event) -> str:
    """What a handler was told of that the lists deny, by their texts; a node may do all at itself."""
    if event.rlength > _WHOLE or event.source in node.core.state.nis:
        return ""
    access, source = node.core.access, str(event.source)
    for of in (_is_of_portal, _is_of_connecting):
        if any(of(rule) and _names(rule, source) for rule in access.deny):
            return f"portal {event.portal} was reached from {source}, which {access.deny} deny"
        allowed = [rule for rule in access.allow if of(rule)]
        if allowed and not any(_names(rule, source) or _INTERFACE in rule for rule in allowed):
            return f"portal {event.portal} was reached from {source}, which is not among {access.allow}"
    return ""


def _is_of_portal(rule: str) -> bool:
    return rule.startswith("portal")


def _is_of_connecting(rule: str) -> bool:
    return "=" not in rule


def _names(rule: str, source: str) -> bool:
    """Whether a rule of this recipe names that NID."""
    who = rule.rpartition("=")[2].split(",")
    return source in who or f"*{source[source.index('@') :]}" in who


def prepare(run: Run) -> None:
    """Look at each message that a handler is told of."""
    run.sim.deliveries.append(denied_gets_nothing)


def random_access_lists(seed: int) -> Plan:
    """A run on one network, whose nodes get access lists, and lose them again; then all may do all."""
    plan = random_plan(seed)
    dice = Dice("access", seed)
    rng = dice.rng
    ours = [name for name, node in plan.nodes.items() if node.kind == "node"]
    for _ in range(rng.randint(1, 8)):
        name = rng.choice(ours)
        at = round(rng.choice([0.0, 0.01, 20.0]) * rng.random(), 9)
        kind = rng.choice(["allow", "deny"])
        rules = [_rule(dice, plan.nodes) for _ in range(rng.choice([1, 1, 3]))]
        dice.ask(at, name, "access.add", **{kind: rules})
        later = at + rng.choice([1e-4, 0.01, 5.0, 60.0])
        if rng.random() < 0.3:
            dice.ask(later * 0.9, name, "access.show")
        if rng.random() < 0.5:
            dice.ask(later, name, "access.del", **{kind: rules[:1]})
        else:
            dice.ask(later, name, "access.del", all=True)
    last = max(event.at for event in plan.events)
    for name in ours:
        dice.ask(last, name, "access.del", all=True)
        other = rng.choice(list(plan.nodes))
        words = {"from": name, "to": rng.choice(plan.nodes[other].nids), "portal": PORTAL, "size": 900}
        dice.add(last + 500.0, "put", **words)  # calls are tried again by then
    events = sorted([*plan.events, *dice.events], key=lambda event: event.at)
    return msgspec.structs.replace(plan, events=events)


def _rule(dice: Dice, nodes: dict[str, NodePlan]) -> str:
    rng = dice.rng
    nids = nodes[rng.choice(list(nodes))].nids
    who = rng.choice([nids, nids[:1], [f"*@{nids[0].partition('@')[2]}"], [*nids[-1:], "10.9.[0-3].*@tcp"]])
    what = rng.choice(_WHAT)
    if what in ("", "connect=") and rng.random() < 0.2:
        who = [_INTERFACE]
    return what + ",".join(who)


RECIPE: Final = Recipe(random_access_lists, (prepare,), "messages and faults, and access lists on the nodes")
register("access", RECIPE)
