"""Random worlds of bonding NIs: slaves, paths, peers and servers fail, modes change, and all recovers."""

from __future__ import annotations

from typing import Any, Final

from ulnet.sim.dice import PORTAL, Dice, config_text
from ulnet.sim.plan import LinkPlan, NodePlan, Plan
from ulnet.sim.recipe import Recipe, register

__all__ = ["RECIPE", "random_bonds"]

_SERVERS: Final = ("10.0.0.1@tcp", "10.1.0.2@tcp1")
_POLICIES: Final = ("roundrobin", "weights", "dynamic", "congestion")
_KINDS: Final = ("flap", "flap", "cut", "kill", "switch", "mode", "failover")
_SIZES: Final = (0, 100, 5000, 200_000)


def random_bonds(seed: int) -> Plan:
    """Some nodes with two or three slaves each, of which two are servers."""
    return _Dice(seed).plan()


class _Dice(Dice):
    """Draws one plan."""

    def __init__(self, seed: int) -> None:
        super().__init__("bonds", seed)
        self.nodes: dict[str, NodePlan] = {}

    def plan(self) -> Plan:
        """All of it."""
        rng = self.rng
        link = LinkPlan(ordered=rng.random() < 0.7, loss=rng.choice([0.0, 0.0, 0.01]))
        for number in range(1, rng.randint(2, 4) + 1):
            self._node(number)
        at = 0.0
        for _ in range(rng.randint(5, 30)):
            for _ in range(rng.randint(1, 6)):
                self._message(at)
            if rng.random() < 0.6:
                self._fault(at, rng.choice(_KINDS))
            at += rng.choice([0.0005, 0.01, 0.3, 3.0])
        bonds = [self._bond(name) for name in self.nodes]
        recovers = {"nodes": list(self.nodes), "targets": bonds, "after": 60.0, "rounds": 20, "size": 100}
        return Plan(
            seed=self.seed,
            link=link,
            nodes=self.nodes,
            events=self.in_order(),
            expect=[{"recovers": recovers}],
        )

    def _node(self, number: int) -> None:
        rng = self.rng
        options: dict[str, Any] = {"keepalive": 1, "bds": dict(enumerate(_SERVERS))}
        if rng.random() < 0.5:
            options |= {"mode": "loadbalance", "policy": rng.choice(_POLICIES)}
        else:
            options["failback"] = rng.choice(["return", "stay"])
        nids = [f"10.{rail}.0.{number}@tcp{rail or ''}" for rail in range(rng.choice([2, 3]))]
        bond = {"slaves": dict(enumerate(nids)), "bond": options}
        config = config_text({"net": [{"net type": "bond0", "local NI(s)": [bond]}]})
        self.nodes[f"n{number}"] = NodePlan(nids=nids, config=config, portals=[PORTAL])

    def _bond(self, name: str) -> str:
        return self.nodes[name].nids[0].partition("@")[0] + "@bond0"

    def _message(self, at: float) -> None:
        rng = self.rng
        source, other = rng.choice(list(self.nodes)), rng.choice(list(self.nodes))
        to = self._bond(other) if rng.random() < 0.75 else self.nodes[other].nids[0]
        words: dict[str, Any] = {"from": source, "to": to, "size": rng.choice(_SIZES)}
        kind = "put" if rng.random() < 0.7 else "get"
        if kind == "put" and rng.random() < 0.2:
            words["ack"] = False
        self.add(at, kind, **words)

    def _fault(self, at: float, kind: str) -> None:
        rng = self.rng
        name = rng.choice(list(self.nodes))
        nid = rng.choice(self.nodes[name].nids)
        later = at + rng.choice([0.01, 1.0, 20.0]) * rng.random()
        bond = self._bond(name)
        if kind == "flap":
            self.add(at, "down", port=nid)
            self.add(later, "up", port=nid)
        elif kind == "cut":
            other = rng.choice([other for other in self.nodes if other != name])
            self.add(at, "partition", between=[nid], **{"and": [other]}, one_way=rng.random() < 0.3)
            self.add(later, "heal")
        elif kind == "kill":
            self.add(at, "kill", node=name, silent=rng.random() < 0.5)
            self.add(later, "restart", node=name)
        elif kind == "switch":
            self.ask(at, name, "bond.switch", nid=bond, slave=nid, on=False)
            self.ask(later, name, "bond.switch", nid=bond, slave=nid, on=True)
        elif kind == "mode":
            mode = rng.choice(["standby", "loadbalance"])
            self.ask(at, name, "bond.set", nid=bond, options={"mode": mode})
        else:
            self.ask(at, name, "bond.failover", nid=bond)


RECIPE: Final = Recipe(random_bonds, (), "bonding NIs whose slaves, peers and servers fail")
register("bonds", RECIPE)
