"""Random routed worlds: routers side by side or in a row, small buffers, and every kind of trouble at once.

In the end everything is mended: then all router buffers and credits are back, and messages pass.
"""

from __future__ import annotations

from typing import Any, Final

from ulnet.sim.dice import PORTAL, Dice, config_text
from ulnet.sim.node import SimNode
from ulnet.sim.plan import NodePlan, Plan
from ulnet.sim.recipe import Recipe, register
from ulnet.sim.run import Run

__all__ = ["RECIPE", "gate_at_rest", "prepare", "random_routes"]

_CHECKS: Final = {"alive_router_check_interval": 5, "router_ping_timeout": 5}  # so that runs are short
_SETTLED: Final = 22.0  # seconds: by then a router is announced, and all have seen it
_SIZES: Final = (0, 100, 4096, 20_000, 200_000)
_KINDS: Final = ("kill", "flap", "cut", "routing", "buffers", "ni", "route", "end")


def gate_at_rest(node: SimNode) -> str:
    """Router buffers and credits are all back while a node has no message; "" or what is wrong."""
    core = node.core
    gate = core.router.gate
    if core.stats.msgs_alloc or core.state.work_pending:
        return ""
    if len(gate) or gate.pools.in_use or any(True for _ in gate.waiting()):
        return f"{len(gate)} messages are counted at the gate, {gate.pools.in_use} buffers in use"
    for pool in gate.pools:
        if pool.credits != pool.count:
            return f"a pool has {pool.credits} of {pool.count} credits"
    for pni in core.peers.nis():
        local = core.nets.get(pni.nid.net)
        if local is not None and pni.rtr_credits != core.gateways.router_credits(pni.nid.net):
            return f"{pni.nid} has {pni.rtr_credits} router credits at rest"
    return ""


def prepare(run: Run) -> None:
    """Look at router buffers and credits all the time."""
    run.sim.properties.append(gate_at_rest)


def random_routes(seed: int) -> Plan:
    """Clients on tcp1 and tcp11, servers on tcp2 and tcp12; one or two rows of routers between them."""
    return _Dice(seed).plan()


class _Dice(Dice):
    """Draws one plan."""

    def __init__(self, seed: int) -> None:
        super().__init__("routes", seed)
        self.nodes: dict[str, NodePlan] = {}
        self.routes: dict[str, list[dict[str, Any]]] = {}
        self.routers: list[str] = []
        self.ends: list[str] = []

    def plan(self) -> Plan:
        """All of it."""
        rng = self.rng
        near = ["tcp1", "tcp11"][: rng.randint(1, 2)]
        far = ["tcp2", "tcp12"][: rng.randint(1, 2)]
        middle = ["tcp5"] if rng.random() < 0.4 else []
        first = self._row("r", near, middle or far, 10)
        second = self._row("m", middle, far, 20) if middle else []
        self.routers = [*first, *second]
        hops = 2 if middle else 1
        for side, nets, others, row in (("c", near, far, first), ("s", far, near, second or first)):
            for number in (1, 2):
                self._end(f"{side}{number}", nets, number, others, row, hops)
        for row, others, nets in ((first, second, far), (second, first, near)):
            for router in row if middle else ():
                self.routes[router] = [
                    {"net": net, "gateway": self._on(other, "tcp5")} for other in others for net in nets
                ]
        self._traffic()
        nodes = {name: self._configured(name, node) for name, node in self.nodes.items()}
        return Plan(
            seed=self.seed,
            nodes=nodes,
            events=self.in_order(),
            expect=[{"recovers": {"nodes": self.ends, "after": 60.0, "rounds": 5}}],
        )

    def _row(self, name: str, one: list[str], other: list[str], start: int) -> list[str]:
        row = []
        for at in range(self.rng.randint(1, 3)):
            row.append(f"{name}{at}")
            nids = [f"10.{net[3:]}.0.{start + at}@{net}" for net in (*one, *other)]
            self.nodes[row[-1]] = NodePlan(nids=nids)
        return row

    def _end(
        self, name: str, nets: list[str], number: int, there: list[str], row: list[str], hops: int
    ) -> None:
        rng = self.rng
        rails = nets[: rng.randint(1, len(nets))]
        self.nodes[name] = NodePlan(
            nids=[f"10.{net[3:]}.0.{number}@{net}" for net in rails], portals=[PORTAL]
        )
        self.ends.append(name)
        self.routes[name] = [
            {
                "net": net,
                "gateway": self._on(router, rng.choice(rails)),
                "hop": rng.choice([-1, hops]),
                "priority": rng.choice([0, 0, 1]),
            }
            for net in there
            for router in row
        ]

    def _on(self, name: str, net: str) -> str:
        return next(nid for nid in self.nodes[name].nids if nid.endswith(f"@{net}"))

    def _configured(self, name: str, node: NodePlan) -> NodePlan:
        sections: dict[str, Any] = {}
        routing: dict[str, int] = dict(_CHECKS)
        if name in self.routers:
            routing["enable"] = 1
        elif len(node.nids) == 1 and self.rng.random() < 0.3:  # else its routes had to be on each of its nets
            sections["global"] = {"discovery": 0}
        sections["routing"] = routing
        if self.routes.get(name):
            sections["route"] = self.routes[name]
        return NodePlan(nids=node.nids, portals=node.portals, config=config_text(sections))

    # What happens -------------------------------------------------------------------------------------

    def _traffic(self) -> None:
        rng = self.rng
        at = _SETTLED
        for router in self.routers:
            self._few_buffers(at, router)
        for _ in range(rng.randint(10, 60)):
            self._message(at)
            if rng.random() < 0.15:
                self._trouble(at, rng.choice(_KINDS))
            at += rng.choice([0.0, 1e-4, 1e-3, 0.1, 2.0])

    def _message(self, at: float) -> None:
        rng = self.rng
        source = rng.choice(self.ends)
        target = rng.choice([end for end in self.ends if end[0] != source[0]])
        words: dict[str, Any] = {"from": source, "to": self.nodes[target].nids[0], "size": rng.choice(_SIZES)}
        words["timeout"] = rng.choice([5, 20])
        kind = "put" if rng.random() < 0.7 else "get"
        if kind == "put" and rng.random() < 0.3:
            words["ack"] = False
        self.add(at, kind, **words)

    def _trouble(self, at: float, kind: str) -> None:
        rng = self.rng
        router = rng.choice(self.routers)
        end = rng.choice(self.ends)
        later = at + rng.choice([0.01, 1.0, 10.0]) * rng.random()
        if kind in ("kill", "end"):
            node = end if kind == "end" else router
            self.add(at, "kill", node=node, silent=rng.random() < 0.5)
            self.add(later + rng.choice([0.0, 20.0]), "restart", node=node)
        elif kind == "flap":
            nid = rng.choice(self.nodes[router].nids)
            self.add(at, "down", port=nid)
            self.add(later, "up", port=nid)
        elif kind == "cut":
            self.add(at, "partition", between=[router], **{"and": [end]})
            self.add(later, "heal")
        elif kind == "routing":
            self.ask(at, router, "routing.set", enable=False)
            self.ask(later, router, "routing.set", enable=True)
        elif kind == "buffers":
            self._few_buffers(at, router)
        elif kind == "ni":
            nid = rng.choice(self.nodes[router].nids)
            self.add(at, "del_ni", node=router, nid=nid)
            self.add(later, "add_ni", node=router, nid=nid)
        else:
            route = rng.choice(self.routes[end])
            self.ask(at, end, "route.del", net=route["net"], gateway=route["gateway"])
            self.ask(later, end, "route.add", **route)

    def _few_buffers(self, at: float, router: str) -> None:
        tiny, small, large = (self.rng.choice([0, 1, 2, 7]) for _ in range(3))
        self.ask(at, router, "buffers.set", tiny=tiny, small=small, large=large)


RECIPE: Final = Recipe(random_routes, (prepare,), "routers side by side or in a row, and their troubles")
register("routed", RECIPE)
