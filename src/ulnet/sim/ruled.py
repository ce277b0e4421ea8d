"""Random worlds with selection policies, on machines with several CPTs, while both change."""

from __future__ import annotations

from typing import Any, Final

from ulnet.core.selection import Balance
from ulnet.sim.dice import PORTAL, Dice, config_text
from ulnet.sim.plan import LinkPlan, NodePlan, Plan
from ulnet.sim.recipe import Recipe, register

__all__ = ["RECIPE", "random_policies"]

_TOPOLOGIES: Final = (
    "",
    "nodes:\n- {cpus: 0-3, distances: [10, 21], interfaces: eth0}\n"
    "- {cpus: 4-7, distances: [21, 10], interfaces: eth1}\n",
    "nodes:\n- {cpus: 0, distances: [10, 16, 32]}\n"
    "- {cpus: 1, distances: [16, 10, 22], interfaces: [eth0, eth2]}\n"
    "- {cpus: 2, distances: [32, 22, 10], interfaces: eth1}\n",
)
_CPUS: Final = (1, 8, 3)
_BALANCES: Final[tuple[Balance, ...]] = ("expected", "documents")


def random_policies(seed: int) -> Plan:
    """Two or three nodes with several rails, and rules about which to take."""
    return _Dice(seed).plan()


class _Dice(Dice):
    """Draws one plan."""

    def __init__(self, seed: int) -> None:
        super().__init__("policies", seed)
        self.nids: dict[str, list[str]] = {}
        self.cpus: dict[str, int] = {}

    def plan(self) -> Plan:
        """All of it."""
        rng = self.rng
        link = LinkPlan(rate=rng.choice([1e7, 1.25e9]), jitter=rng.choice([0.0, 10e-6]))
        nodes = {}
        own_nets = rng.random() < 0.5
        for number in range(1, rng.randint(2, 3) + 1):
            name = f"n{number}"
            rails = range(rng.randint(2, 3))
            self.nids[name] = [
                f"10.{rail}.0.{number}@tcp{rail if rail and own_nets else ''}" for rail in rails
            ]
            kind = rng.randrange(len(_TOPOLOGIES))
            self.cpus[name] = _CPUS[kind]
            nodes[name] = NodePlan(
                nids=self.nids[name],
                portals=[PORTAL],
                topology=_TOPOLOGIES[kind],
                config=config_text({"udsp": self._first_rules(name)}),
                balance=rng.choice(_BALANCES),
            )
        at = 0.0
        for _ in range(rng.randint(5, 25)):
            self._message(at)
            if rng.random() < 0.5:
                self._change(at)
            at += rng.choice([0.0, 1e-4, 0.01, 1.0])
        return Plan(seed=self.seed, link=link, nodes=nodes, events=self.in_order())

    def _patterns(self, name: str) -> tuple[str, str]:
        """What a rule may say of a node's own NIDs: of nets, and of NIDs."""
        nid = self.rng.choice(self.nids[name])
        net = nid.partition("@")[2]
        return net, self.rng.choice([nid, f"10.[0-2].0.*@{net}"])

    def _first_rules(self, name: str) -> list[dict[str, Any]]:
        rules = [self._rule(name) for _ in range(self.rng.randint(1, 3))]
        return list({(rule.get("src"), rule.get("dst")): rule for rule in rules}.values())

    def _rule(self, name: str) -> dict[str, Any]:
        rng = self.rng
        net, nid = self._patterns(name)
        _, far = self._patterns(rng.choice(list(self.nids)))
        rule: dict[str, Any] = rng.choice(
            [{"src": net}, {"src": nid}, {"dst": net}, {"dst": far}, {"src": nid, "dst": far}]
        )
        if rng.random() < 0.5 or len(rule) == 1:
            rule["action"] = {rng.choice(["priority", "weight"]): rng.randint(1, 8)}
        return rule

    def _message(self, at: float) -> None:
        rng = self.rng
        source, other = rng.choice(list(self.nids)), rng.choice(list(self.nids))
        words: dict[str, Any] = {"from": source, "to": rng.choice(self.nids[other])}
        words |= {"size": rng.choice([0, 100, 5000, 100_000]), "count": rng.choice([1, 10, 40])}
        words["every"] = rng.choice([0.0, 1e-4, 1e-3])
        self.add(at, "put" if rng.random() < 0.7 else "get", **words)

    def _change(self, at: float) -> None:
        rng = self.rng
        name = rng.choice(list(self.nids))
        kind = rng.choice(["rule", "rule", "gone", "selection", "cpts", "cpu", "look", "flap"])
        net, nid = self._patterns(name)
        if kind == "rule":
            self._add_rule(at, name)
        elif kind == "gone":
            words: dict[str, Any] = rng.choice([{"idx": 0}, {"all": True}, {"src": net}, {"src": nid}])
            self.ask(at, name, "udsp.del", **words)
        elif kind == "selection":
            self._selection(at, name, net, nid)
        elif kind == "cpts":
            cpts = rng.choice(["[0]", "[0,1]", "[1]", "[7]"])
            self.ask(at, name, "net.set", nids=[rng.choice(self.nids[name])], cpts=cpts)
        elif kind == "cpu":
            self.add(at, "cpu", node=name, cpu=rng.randrange(self.cpus[name]), memory=rng.choice([-1, 0, 1]))
        elif kind == "flap":
            port = rng.choice(self.nids[name])
            self.add(at, "down", port=port)
            self.add(at + rng.choice([1e-3, 0.5]), "up", port=port)
        else:
            op = rng.choice(["udsp.show", "numa.show", "export", "explain", "cpt-of-nid"])
            fields: dict[str, Any] = {"verbosity": 3} if op == "udsp.show" else {}
            target = rng.choice(self.nids[rng.choice(list(self.nids))])
            if op == "explain":
                fields = {"target": target, "size": 5000}
            elif op == "cpt-of-nid":
                fields = {"nids": [target]}
            self.ask(at, name, op, **fields)

    def _add_rule(self, at: float, name: str) -> None:
        rule = self._rule(name)
        rule |= rule.pop("action", {})
        if self.rng.random() < 0.3:
            rule["idx"] = 0
        self.ask(at, name, "udsp.add", **rule)

    def _selection(self, at: float, name: str, net: str, nid: str) -> None:
        rng = self.rng
        other = rng.choice([other for other in self.nids if other != name])
        about: dict[str, Any] = rng.choice(
            [
                {"kind": "net", "net": net},
                {"kind": "nid", "nid": nid},
                {"kind": "peer", "local": nid, "remote": rng.choice(self.nids[other])},
            ]
        )
        op = rng.choice(["selection.add", "selection.add", "selection.del", "selection.show"])
        if op == "selection.add":
            about[rng.choice(["priority", "weight"])] = rng.randint(1, 8)
        self.ask(at, name, op, **about)


RECIPE: Final = Recipe(random_policies, (), "selection policies and CPTs, which change under traffic")
register("policies", RECIPE)
