"""Random runs whose nodes are configured and questioned all the time, by requests that few others make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ulnet.sim.dice import PORTAL, Dice
from ulnet.sim.plan import Plan
from ulnet.sim.random_plan import Shape, random_plan
from ulnet.sim.recipe import Recipe, register

__all__ = ["RECIPE", "random_changes"]

_SHOWN: Final[tuple[dict[str, Any], ...]] = (
    {"op": "net.show", "verbosity": 4, "load": True},
    {"op": "peer.show", "verbosity": 4, "load": True},
    {"op": "peer.list"},
    {"op": "route.show", "verbosity": 3},
    {"op": "routing.show"},
    {"op": "udsp.show", "verbosity": 3},
    {"op": "global.show"},
    {"op": "numa.show"},
    {"op": "stats.show"},
    {"op": "sums.show", "of": "nets"},
    {"op": "sums.show", "of": "peers"},
    {"op": "use.show", "of": "nets"},
    {"op": "use.show", "of": "peers", "top": 3},
    {"op": "recovery.show", "local": True, "peer": True},
    {"op": "export", "backup": True},
)


def random_changes(seed: int) -> Plan:
    """A run on one network with few faults, and up to forty requests to its nodes."""
    return _Dice(seed).plan()


class _Dice(Dice):
    """Draws one plan."""

    def __init__(self, seed: int) -> None:
        super().__init__("changes", seed)

    def plan(self) -> Plan:
        """All of it."""
        rng = self.rng
        plan = random_plan(self.seed, Shape(faults=(0, 2)))
        self.nids = {name: node.nids for name, node in plan.nodes.items() if node.kind == "node"}
        self.every = [nid for node in plan.nodes.values() for nid in node.nids]
        for _ in range(rng.randint(2, 25)):
            at = round(rng.choice([1e-3, 0.05, 1.0, 20.0]) * rng.random(), 9)
            rng.choice(_KINDS)(self, at, rng.choice(list(self.nids)))
        events = sorted([*plan.events, *self.events], key=lambda event: event.at)
        return msgspec.structs.replace(plan, events=events)

    def nis(self, at: float, name: str) -> None:
        """Tunables of an NI."""
        rng = self.rng
        if rng.random() < 0.25:
            self.ask(at, name, "net.set", net="tcp", lnd_timeout=rng.choice([0, 20, 60]))
            return
        value: dict[str, Any] = rng.choice(
            [{"tunables": {"conns_per_peer": 2}}, {"health": 700}, {"cpts": "[0]"}]
        )
        value |= {"nids": [rng.choice(self.nids[name])]} if rng.random() < 0.7 else {"all": True}
        self.ask(at, name, "net.set", **value)

    def matched(self, at: float, name: str) -> None:
        """An NI that a rule of ip2nets makes, and that goes again."""
        rules = [{"net": "tcp7", "ranges": ["10.0.*.*"]}]
        self.ask(at, name, "net.match", rules=rules)
        self.ask(at + self.rng.choice([1e-3, 0.5]), name, "net.match", rules=rules, delete=True)

    def peers(self, at: float, name: str) -> None:
        """NIDs of a peer, as files configure them."""
        rng = self.rng
        nids = rng.sample(self.every, rng.randint(1, min(3, len(self.every))))
        if rng.random() < 0.6:
            self.ask(at, name, "peer.refresh", primary=nids[0], nids=nids, lock_primary=rng.random() < 0.3)
        else:
            self.ask(at, name, "peer.remove", primary=nids[0], nids=nids[1:])

    def doubts(self, at: float, name: str) -> None:
        """Health, and what a node knows of a peer."""
        nid = self.rng.choice(self.every)
        self.ask(at, name, "peer.debug", nid=nid)
        self.ask(at, name, "peer.set", all=True, health=self.rng.choice([0, 900]))

    def routes(self, at: float, name: str) -> None:
        """A route over another node, which may not route."""
        rng = self.rng
        gateway = rng.choice(self.every)
        self.ask(at, name, "route.add", net="tcp9", gateway=gateway, hop=rng.choice([-1, 1, 4]))
        self.add(at + 1e-3, "put", **{"from": name, "to": "10.9.0.1@tcp9", "size": 10, "timeout": 5})
        if rng.random() < 0.7:
            later = at + rng.choice([0.1, 30.0])
            self.ask(later, name, "route.del", net="tcp9", gateway=gateway)

    def routing(self, at: float, name: str) -> None:
        """A node that routes for a while."""
        rng = self.rng
        interval = rng.choice([0, 5, 60])
        self.ask(at, name, "router.set", values={"alive_router_check_interval": interval})
        self.ask(at, name, "routing.set", enable=True)
        self.ask(at + 0.01, name, "buffers.set", small=rng.choice([2, 512]))
        self.ask(at + rng.choice([0.1, 40.0]), name, "routing.set", enable=False)

    def traces(self, at: float, name: str) -> None:
        """A program follows which pairs carry messages."""
        every = self.rng.random() < 0.5
        for number in range(self.rng.randint(1, 4)):
            self.ask(at + number * 0.5, name, "trace", every_message=every)

    def counters(self, at: float, name: str) -> None:
        """Counters go back to zero."""
        self.ask(at, name, "stats.reset", all=self.rng.random() < 0.5)

    def questions(self, at: float, name: str) -> None:
        """What there is to be seen."""
        for shown in self.rng.sample(_SHOWN, 3):
            self.add(at, "lnetctl", node=name, request=dict(shown))
        self.ask(at, name, "cpt-of-nid", nids=[self.rng.choice(self.every)])
        self.ask(at, name, "explain", target=self.rng.choice(self.every), size=100_000)

    def discoveries(self, at: float, name: str) -> None:
        """Peers are asked, and only compared with what they say."""
        rng = self.rng
        words = {"verify": True} if rng.random() < 0.5 else {"force": True}
        self.ask(at, name, "discover", nids=[rng.choice(self.every)], timeout=5.0, **words)

    def few_credits(self, at: float, name: str) -> None:
        """NIs with so few credits that messages wait for them, and one of which goes meanwhile."""
        rng = self.rng
        own = self.nids[name]
        self.ask(at, name, "net.del", nids=own)
        self.ask(at, name, "net.add", nids=own, tunables={"peer_credits": 2, "credits": 2})
        others = [nid for nid in self.every if nid not in own] or self.every
        for target in rng.sample(others, min(3, len(others))):
            self.add(at + 1e-3, "ping", **{"from": name, "to": target})
            words = {"from": name, "to": target, "size": rng.choice([4096, 100_000])}
            self.add(at + 0.1, "put", **words, portal=PORTAL, burst=10)
        gone = at + 0.1 + rng.choice([1e-5, 1e-4, 5e-3])
        change: dict[str, Any] = rng.choice([{"op": "net.del"}, {"op": "net.set", "cpts": "[0]"}])
        self.ask(gone, name, change.pop("op"), nids=[rng.choice(own)], **change)
        self.ask(at + 2.0, name, "net.del", nids=own)
        self.ask(at + 2.0, name, "net.add", nids=own)

    def settings(self, at: float, name: str) -> None:
        """Settings of the whole node."""
        rng = self.rng
        values = rng.choice(
            [
                {"numa_range": rng.choice([0, 20])},
                {"drop_asym_route": 1},
                {"router_sensitivity": 50},
                {"degraded_below": rng.choice([0, 30])},
                {"response_tracking": 3},  # else nobody ends what is never answered
                {"recovery_interval": 2},
                {"max_interfaces": rng.choice([2, 200])},
            ]
        )
        self.ask(at, name, "global.set", values=values)


_KINDS: Final[tuple[Callable[[_Dice, float, str], None], ...]] = (
    _Dice.nis,
    _Dice.matched,
    _Dice.peers,
    _Dice.doubts,
    _Dice.routes,
    _Dice.routing,
    _Dice.traces,
    _Dice.counters,
    _Dice.questions,
    _Dice.discoveries,
    _Dice.few_credits,
    _Dice.settings,
)

RECIPE: Final = Recipe(random_changes, (), "settings, NIs, peers and routes that change")
register("dlc", RECIPE)
