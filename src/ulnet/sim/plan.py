"""A plan: nodes, cables, and what happens when; whether written as YAML, made by chance, or shrunk.

Names of fields are the words of scenario files (docs/manual.md): a field `source` is written `from`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import msgspec

from ulnet.core.selection import Balance
from ulnet.node.node import Recovery
from ulnet.sim.cables import LinkParams
from ulnet.sim.errors import PlanError

__all__ = ["Event", "InterfacePlan", "LinkPlan", "NodePlan", "Plan", "plan_of", "words_of"]


Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class _Part(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """Written as a mapping; what is left out has its default."""


class LinkPlan(_Part):
    """What differs from the usual cable: bytes per second, seconds, shares of messages."""

    rate: Annotated[float, msgspec.Meta(ge=0, le=1e15)] | None = None
    delay: Seconds | None = None
    jitter: Seconds | None = None
    loss: Annotated[float, msgspec.Meta(ge=0, lt=1)] | None = None
    ordered: bool | None = None

    def on(self, usual: LinkParams) -> LinkParams:
        """The cable. Raises PlanError."""
        values = {field.name: getattr(usual, field.name) for field in fields(LinkParams)}
        values |= {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        return LinkParams(**values)


class InterfacePlan(_Part):
    """An interface: one address, the switch it is on, its cable."""

    address: str
    switch: str | None = None
    link: LinkPlan = msgspec.field(default_factory=LinkPlan)


class NodePlan(_Part):
    """A node: `nids` each get an interface and an NI; `interfaces` only an address; `config` is lnetctl YAML.

    `topology` is YAML as in a file for `lnetd --topology`: its NUMA nodes. `balance` and `recovery` are
    those of `ulnet.Node`.
    `kind` is node, single-rail (the generation before multi-rail) or silent (answers nothing).
    """

    kind: str = "node"
    nids: list[str] = []
    interfaces: dict[str, str | InterfacePlan] = {}
    config: str = ""
    topology: str = ""
    balance: Balance = "expected"
    recovery: Recovery = "backoff"
    portals: list[int] = []  # where it has memory


class Event(_Part):
    """What happens at `at` (virtual seconds): one kind of action, and its words."""

    at: Seconds = 0.0
    kind: str = ""
    words: Any = None


class Plan(_Part):
    """All of a run but its seed's chances. `settle`: virtual seconds until all must be quiet at the end."""

    name: str = ""
    seed: int = 0
    link: LinkPlan = msgspec.field(default_factory=LinkPlan)
    nodes: dict[str, NodePlan] = {}
    events: list[Event] = []
    expect: list[dict[str, Any]] = []
    settle: Seconds = 1000.0

    def with_events(self, events: list[Event]) -> Plan:
        """A copy of the plan with other events."""
        return msgspec.structs.replace(self, events=events)


_TOP = {"scenario": "name", "seed": "seed", "link": "link", "nodes": "nodes", "expect": "expect"}


def plan_of(data: object) -> Plan:
    """The plan that a mapping (of a YAML file) describes. Raises PlanError."""
    if not isinstance(data, dict):
        raise PlanError("a scenario is a mapping with 'nodes' and 'events'")
    known = (*_TOP, "events", "settle")
    for key in data:
        if key not in known:
            raise PlanError(f"{key!r} is no part of a scenario: it has {', '.join(known)}")
    values = {name: data[key] for key, name in _TOP.items() if key in data}
    if "settle" in data:
        values["settle"] = data["settle"]
    events = [] if data.get("events") is None else data["events"]
    if not isinstance(events, list):
        raise PlanError("'events' is a list: begin each event with '- at: SECONDS'")
    values["events"] = [_event(number, item) for number, item in enumerate(events, 1)]
    try:
        return msgspec.convert(values, Plan, strict=False)
    except msgspec.ValidationError as bad:
        raise PlanError(f"the scenario does not fit: {bad}") from None


def _event(number: int, item: object) -> dict[str, object]:
    if not isinstance(item, dict):
        raise PlanError(f"event {number} is no mapping: write '- at: 1.5' and then what happens")
    kinds = [key for key in item if key != "at"]
    if len(kinds) != 1:
        raise PlanError(f"event {number} has {len(kinds)} actions: give each event exactly one")
    return {"at": item.get("at", 0.0), "kind": str(kinds[0]), "words": item[kinds[0]]}


def words_of(plan: Plan) -> dict[str, object]:
    """The mapping that `plan_of` reads back: what a scenario file holds."""
    data: dict[str, object] = msgspec.to_builtins(plan)
    words: dict[str, object] = {key: data[name] for key, name in _TOP.items() if name in data}
    words["events"] = [
        {"at": event.at, event.kind: msgspec.to_builtins(event.words)} for event in plan.events
    ]
    if "settle" in data:
        words["settle"] = data["settle"]
    return words
