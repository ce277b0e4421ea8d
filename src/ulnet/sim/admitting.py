"""Random runs whose nodes have access lists, which change under traffic: who is denied reaches nobody."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ulnet.core.event import Event, EventKind
from ulnet.core.ni import NI
from ulnet.nid import Nid, NidError, NidRange
from ulnet.sim.dice import PORTAL, Dice, config_text
from ulnet.sim.node import SimNode
from ulnet.sim.plan import Plan
from ulnet.sim.random_plan import Shape, random_plan
from ulnet.sim.recipe import Recipe, register
from ulnet.sim.run import Run

__all__ = ["RECIPE", "random_lists", "reached_although_denied"]

_WHOLE: Final = 8192  # shorter messages are judged, and reach memory, in one turn
_THINGS: Final = ("", "", "", "connect=", f"portal{PORTAL}=", "portal*=", "portal[28-31]=", "ping=", "push=")
_OF_PORTAL: Final = (f"portal{PORTAL}", "portal*", "portal[28-31]")


def reached_although_denied(node: SimNode, event: Event) -> str:
    """Judge what came to memory by the texts of the rules alone, which is not how the core does it."""
    if event.kind is not EventKind.PUT or event.status or event.hdr is None:
        return ""  # of a GET programs hear when its reply has left
    ni = node.core.nis.get(event.hdr.dest_nid)
    if ni is None or event.sender in node.core.nis or event.hdr.payload_length >= _WHOLE:
        return ""
    who = {"connect": event.sender, "portal": event.hdr.src_nid}
    access = node.core.access
    for what, nid in who.items():
        if any(_names(rule, nid, ni) for rule in _about(what, access.deny)):
            return f"a message of {nid} came to memory, which the deny list keeps from that ({what})"
        allowed = _about(what, access.allow)
        if allowed and not any(_names(rule, nid, ni) for rule in allowed):
            return f"a message of {nid} came to memory, which is not on the allow list ({what})"
    return ""


def _about(what: str, rules: tuple[str, ...]) -> list[str]:
    """Who is named by the rules about that."""
    found = []
    for rule in rules:
        thing, named, who = rule.rpartition("=")
        thing = thing if named else "connect"
        if thing == what or (what == "portal" and thing in _OF_PORTAL):
            found.append(who)
    return found


def _names(who: str, nid: Nid, ni: NI) -> bool:
    """Whether one of few items, without commas in brackets, names the NID, or our NI's interface."""
    for item in who.split(","):
        try:
            if NidRange.parse(item).match(nid):
                return True
        except NidError:
            if item == ni.interface:
                return True
    return False


def prepare(run: Run) -> None:
    """Judge each message that comes to memory."""
    run.sim.deliveries.append(reached_although_denied)


def random_lists(seed: int) -> Plan:
    """A run on one network with faults, and rules that come and go."""
    return _Dice(seed).plan()


class _Dice(Dice):
    """Draws one plan."""

    def __init__(self, seed: int) -> None:
        super().__init__("access", seed)
        self.nids: dict[str, list[str]] = {}
        self.ours: list[str] = []

    def plan(self) -> Plan:
        """All of it."""
        rng = self.rng
        plan = random_plan(self.seed, Shape(nodes=(2, 4), messages=(8, 25), faults=(0, 3)))
        self.nids = {name: node.nids for name, node in plan.nodes.items()}
        self.ours = ours = [name for name, node in plan.nodes.items() if node.kind == "node"]
        nodes = dict(plan.nodes)
        for name in ours:
            if rng.random() < 0.3:
                kind, rule = rng.choice(["allow", "deny"]), self.rule(name)
                text = config_text({"access": {kind: [rule]}})
                nodes[name] = msgspec.structs.replace(nodes[name], config=text)
        for _ in range(rng.randint(2, 12)):
            self.change(rng.choice(ours))
        events = sorted([*plan.events, *self.events], key=lambda event: event.at)
        wanted = [{"recovers": {"nodes": ours, "after": 60.0, "rounds": 20}}] if len(ours) > 1 else []
        return msgspec.structs.replace(plan, nodes=nodes, events=events, expect=wanted)

    def rule(self, name: str) -> str:
        """Who may not, or alone may, do something at that node."""
        rng = self.rng
        nid = rng.choice(self.nids[rng.choice(list(self.nids))])
        address, _, net = nid.partition("@")
        number = address.rpartition(".")[2]
        who = rng.choice(
            [nid, nid, f"10.[0-2].0.{number}@{net}", f"10.*.*.*@{net}", f"*@{net}", "eth0", f"eth1,{nid}"]
        )
        return f"{rng.choice(_THINGS)}{who}"

    def change(self, name: str) -> None:
        """A rule that comes, and mostly goes again; traffic about that time."""
        rng = self.rng
        at = round(rng.choice([1e-4, 0.01, 1.0, 20.0]) * rng.random(), 9)
        later = at + rng.choice([1e-4, 1e-3, 0.5, 30.0])
        rules: dict[str, Any] = {rng.choice(["allow", "deny", "deny"]): [self.rule(name)]}
        self.ask(at, name, "access.add", **rules)
        other = rng.choice(list(self.nids))
        for source, to in ((name, other), (other, name)):
            words: dict[str, Any] = {"from": source, "to": rng.choice(self.nids[to])}
            words |= {"size": rng.choice([0, 100, 5000, 100_000]), "count": rng.choice([1, 5, 20])}
            if source in self.ours:
                self.add(at, rng.choice(["put", "put", "get"]), **words, every=rng.choice([0.0, 1e-4, 0.1]))
        if rng.random() < 0.3:
            self.ask(at, name, "access.show")
        if rng.random() < 0.6:
            self.ask(later, name, "access.del", **rules)
        elif rng.random() < 0.5:
            self.ask(later, name, "access.del", all=True)


RECIPE: Final = Recipe(random_lists, (prepare,), "access lists, which change under traffic and faults")
register("access", RECIPE)
