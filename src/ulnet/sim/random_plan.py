"""Clusters on one network, their traffic and their faults, made by chance from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ulnet.sim.dice import PORTAL, Dice
from ulnet.sim.plan import LinkPlan, NodePlan, Plan

__all__ = ["Shape", "random_plan"]

_SIZES = (0, 1, 100, 900, 1100, 5000, 20_000, 100_000)


@dataclass(frozen=True, slots=True)
class Shape:
    """How large random plans are. Times are virtual seconds."""

    nodes: tuple[int, int] = (2, 4)
    rails: tuple[int, int] = (1, 3)
    messages: tuple[int, int] = (3, 25)
    faults: tuple[int, int] = (0, 6)
    seconds: float = 20.0
    kinds: tuple[str, ...] = ("flap", "partition", "kill", "del_ni", "loss")
    foreign: float = 0.1  # how often a node is of the single-rail generation
    configured: float = 0.5  # how often a node knows its peers' rails from the start


def random_plan(seed: int, shape: Shape = Shape()) -> Plan:
    """The plan of that seed and shape."""
    return _Dice(seed, shape).plan()


class _Dice(Dice):
    """Draws one plan."""

    def __init__(self, seed: int, shape: Shape) -> None:
        super().__init__("plan", seed)
        self.shape = shape
        self.nids: dict[str, list[str]] = {}
        self.ours: list[str] = []

    def plan(self) -> Plan:
        """All of it."""
        rng, shape = self.rng, self.shape
        link = LinkPlan(
            rate=rng.choice([1e7, 1.25e9, 1.25e10]),
            delay=rng.choice([5e-6, 50e-6, 5e-3]),
            jitter=rng.choice([0.0, 10e-6, 5e-3]),
            loss=rng.choice([0.0, 0.0, 0.02]),
            ordered=rng.random() < 0.8,
        )
        nodes = self._nodes()
        self._peers()
        for _ in range(rng.randint(*shape.messages)):
            self._message()
        for _ in range(rng.randint(*shape.faults)):
            self._fault(rng.choice(shape.kinds))
        self.events.sort(key=lambda event: event.at)
        self.add(shape.seconds + 100.0, "repair")
        return Plan(seed=self.seed, link=link, nodes=nodes, events=self.events)

    def _nodes(self) -> dict[str, NodePlan]:
        rng = self.rng
        rails = rng.randint(*self.shape.rails)
        own_nets = rng.random() < 0.5  # rails are nets of their own, or share one
        nodes = {}
        for number in range(1, rng.randint(*self.shape.nodes) + 1):
            name = f"n{number}"
            foreign = number > 1 and rng.random() < self.shape.foreign
            count = 1 if foreign else rng.randint(1, rails)
            nets = [f"tcp{rail}" if rail and own_nets else "tcp" for rail in range(count)]
            self.nids[name] = [f"10.{rail}.0.{number}@{net}" for rail, net in enumerate(nets)]
            if foreign:
                nodes[name] = NodePlan(kind="single-rail", nids=self.nids[name])
            else:
                self.ours.append(name)
                nodes[name] = NodePlan(nids=self.nids[name], portals=[PORTAL])
        return nodes

    def _peers(self) -> None:
        for name in self.ours:
            for other in self.ours:
                if other != name and self.rng.random() < self.shape.configured:
                    self.add(0.0, "add_peer", node=name, nids=self.nids[other])

    def _message(self) -> None:
        rng = self.rng
        name = rng.choice(self.ours)
        other = rng.choice(list(self.nids))
        kind = rng.choice(["put", "put", "get", "ping"])
        words: dict[str, Any] = {"from": name, "to": rng.choice(self.nids[other])}
        if kind != "ping":
            words |= {"portal": PORTAL, "size": rng.choice(_SIZES)}
        if rng.random() < 0.3:
            words |= {"count": rng.randint(2, 30), "every": rng.choice([0.0, 1e-4, 0.05])}
        if kind == "put" and rng.random() < 0.2:
            words["ack"] = False
        self.add(self._moment(), kind, **words)

    def _fault(self, kind: str) -> None:
        rng = self.rng
        at = self._moment()
        later = at + rng.choice([1e-4, 0.01, 0.5, 5.0, 70.0])
        name = rng.choice(self.ours)
        nids = self.nids[name]
        if kind == "flap":
            self.add(at, "down", port=rng.choice(nids))
            self.add(later, "up", port=rng.choice(nids))
        elif kind == "partition":
            other = rng.choice(list(self.nids))
            sides = {"between": [rng.choice([name, *nids])], "and": [rng.choice([other, *self.nids[other]])]}
            self.add(at, "partition", **sides, one_way=rng.random() < 0.3)
            self.add(later, "heal")
        elif kind == "kill":
            self.add(at, "kill", node=name, silent=rng.random() < 0.3)
            self.add(later, "restart", node=name)
        elif kind == "del_ni":
            nid = rng.choice(nids)
            self.add(at, "del_ni", node=name, nid=nid)
            self.add(later, "add_ni", node=name, nid=nid)
        elif kind == "loss":
            self.add(at, "link", port=rng.choice(nids), link={"loss": rng.choice([0.0, 0.05, 0.5])})

    def _moment(self) -> float:
        """Most things happen close together, where the races are."""
        seconds = self.shape.seconds
        return round(self.rng.choice([0.0, 1e-4, 0.01, seconds]) * self.rng.random(), 9)
