"""Random routed worlds: routers side by side or in a row, small buffers, and every kind of trouble at once.

In the end everything is mended: then all router buffers and credits are back, and messages pass.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest

from sim.test_routed_hazards import simulation, two_routers
from support.routed import INTERVAL, PORTAL, SETTLED, add_route, gate_at_rest, make_router
from ulnet.core.routing import RoutingState
from ulnet.core.status import LNetError
from ulnet.nid import Net, Nid
from ulnet.sim import Operation, SimNode, Simulation

KINDS = ("kill", "silent", "flap", "cut", "routing", "buffers", "ni", "route", "end")

FAILED_ONCE = (120, 162)  # messages waited for ever to leave for another net, their last route gone


class RandomWorld:
    """Clients on tcp1 and tcp11, servers on tcp2 and tcp12; one or two rows of routers between them."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(f"routed/{seed}")
        self.sim = sim = Simulation(seed)
        sim.properties.append(gate_at_rest)
        near = ["tcp1", "tcp11"][: rng.randint(1, 2)]
        far = ["tcp2", "tcp12"][: rng.randint(1, 2)]
        middle = ["tcp5"] if rng.random() < 0.4 else []
        first = self._row("r", near, middle or far, 10)
        second = self._row("m", middle, far, 20) if middle else []
        self.routers = [*first, *second]
        self.ends = [
            self._end(f"{name}{n}", nets, n) for name, nets in (("c", near), ("s", far)) for n in (1, 2)
        ]
        hops = 2 if middle else 1
        for end in self.ends:
            there, row = (far, first) if end.name < "r" else (near, second or first)
            for net in there:
                for router in row:
                    gateways = [nid for nid in router.nids if nid.net in end.core.nets]
                    add_route(
                        end, net, str(rng.choice(gateways)), rng.choice([-1, hops]), rng.choice([0, 0, 1])
                    )
        for row, others, nets in ((first, second, far), (second, first, near)):
            for router in row if middle else ():
                for other in others:
                    gateway = next(nid for nid in other.nids if nid.net == Net.parse("tcp5"))
                    for net in nets:
                        add_route(router, net, str(gateway))
        self.plugs = [f"{node.name}.eth{at}" for node in self.routers for at in range(len(node.nids))]
        sim.run(SETTLED)
        for router in self.routers:
            self._few_buffers(router)
        for end in self.ends:
            end.attach(PORTAL)
        self.operations: list[tuple[Operation, SimNode, int]] = []  # with whose, in which of its lives

    def _row(self, name: str, one: list[str], other: list[str], start: int) -> list[SimNode]:
        row = []
        for at in range(self.rng.randint(1, 3)):
            nids = [f"10.{net[3:]}.0.{start + at}@{net}" for net in (*one, *other)]
            row.append(make_router(self.sim.node(f"{name}{at}", *nids)))
        return row

    def _end(self, name: str, nets: list[str], number: int) -> SimNode:
        rails = nets[: self.rng.randint(1, len(nets))]
        node = self.sim.node(name, *(f"10.{net[3:]}.0.{number}@{net}" for net in rails))
        if len(rails) == 1 and self.rng.random() < 0.2:  # else its routes had to be on each of its nets
            node.loop.enter(node.core.set_discovery, 0)
        return node

    def _few_buffers(self, router: SimNode) -> None:
        tiny, small, large = (self.rng.choice([0, 1, 2, 7]) for _ in range(3))
        router.loop.enter(router.core.router.set_buffers, tiny, small, large)

    def send(self) -> None:
        source = self.rng.choice([end for end in self.ends if end.alive] or self.ends)
        if not source.alive:
            return
        target = self.rng.choice([end for end in self.ends if end.name[0] != source.name[0]])
        size = self.rng.choice([0, 100, 4096, 20_000, 200_000])
        timeout = self.rng.choice([5, 20])
        if self.rng.random() < 0.7:
            ack = self.rng.random() < 0.7
            done = source.put(target.nid, PORTAL, data=bytes(size), ack=ack, timeout=timeout)
        else:
            done = source.get(target.nid, PORTAL, size=size, timeout=timeout)
        self.operations.append((done, source, source.lives))

    def trouble(self) -> None:
        rng, sim = self.rng, self.sim
        router = rng.choice(self.routers)
        kind = rng.choice(KINDS)
        if kind == "flap":
            plug = rng.choice(self.plugs)
            sim.link_down(plug)
            sim.scheduler.after(rng.uniform(0.1, 10), sim.link_up, plug)
        elif kind == "cut":
            cut = sim.partition([router.name], [rng.choice(self.ends).name])
            sim.scheduler.after(rng.uniform(0.1, 10), sim.heal, cut)
        elif kind == "end":
            end = rng.choice(self.ends)
            end.kill(silent=rng.random() < 0.5)
            sim.scheduler.after(rng.uniform(0.1, 10), self._wake, end)
        elif not router.alive:
            self._wake(router)
        elif kind in ("kill", "silent"):
            router.kill(silent=kind == "silent")
        elif kind == "routing":
            with suppress(LNetError):
                router.loop.enter(router.core.router.enable, rng.random() < 0.5)
        elif kind == "buffers":
            self._few_buffers(router)
        elif kind == "ni":
            self._lose_ni(router)
        else:
            self._lose_route(rng.choice(self.ends))

    def _wake(self, node: SimNode) -> None:
        if not node.alive:
            node.restart()
            if node in self.ends:
                node.attach(PORTAL)

    def _lose_ni(self, router: SimNode) -> None:
        if not router.nids:  # it has lost all of them, and none is back yet
            return
        nid = self.rng.choice(router.nids)
        with suppress(LNetError):
            router.del_ni(nid)
        self.sim.scheduler.after(self.rng.uniform(0.0, 5), self._give_back, router, nid)

    def _give_back(self, router: SimNode, nid: Nid) -> None:
        if router.alive and nid not in router.core.nis:
            with suppress(LNetError):
                router.add_ni(nid)

    def _lose_route(self, end: SimNode) -> None:
        routes = list(end.core.gateways.table) if end.alive else []
        if not routes:
            return
        route = self.rng.choice(routes)
        end.loop.enter(end.core.gateways.delete, route.net, route.gateway)

        def again() -> None:
            if end.alive:
                with suppress(LNetError):
                    end.core.gateways.add(route.net, route.gateway, route.hops, route.priority)

        self.sim.scheduler.after(
            self.rng.uniform(0.0, 5), lambda: end.loop.enter(again) if end.alive else None
        )

    def mend(self) -> None:
        """All is as it was at first, but for what the nodes remember."""
        self.sim.run(20)
        for node in (*self.routers, *self.ends):
            self._wake(node)
        for plug in self.plugs:
            self.sim.link_up(plug)
        self.sim.run(300)
        for router in self.routers:
            for nid in router.nids:
                self._give_back(router, nid)
            router.loop.enter(router.core.router.enable, True)
        self.sim.run(SETTLED + INTERVAL)
        self.sim.run_until_quiet()


def run_world(seed: int) -> None:
    world = RandomWorld(seed)
    for _ in range(80):
        world.send()
        if world.rng.random() < 0.15:
            world.trouble()
        world.sim.run(world.rng.choice([0.0, 0.0001, 0.001, 0.1, 2.0]))
    world.mend()
    assert all(operation.ended for operation, node, life in world.operations if node.lives == life)
    again = [
        source.put(target.nid, PORTAL, data=bytes(5000))
        for source in world.ends
        for target in world.ends
        if source.name[0] != target.name[0]
    ]
    world.sim.run_until_quiet()
    assert [(str(put), put.status, put.reason) for put in again if not put.ok] == []


@pytest.mark.requirement("RTR", "tst-005")
@pytest.mark.parametrize(
    "seed",
    [*range(5), *FAILED_ONCE, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1000, 1500))],
)
def test_random_routed_worlds_give_everything_back(seed: int) -> None:
    run_world(seed)


@pytest.mark.requirement("RTR", "tst-005")
@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 300))]
)
def test_random_router_deaths_keep_buffers_and_credits(seed: int) -> None:
    """Routers die and come back, links flap, nets fall apart; in the end all is back and all flows."""
    sim = simulation(seed)
    rng = Random(f"routers/{seed}")
    client, one, other, server = two_routers(sim)
    for node in (client, server):
        node.attach(PORTAL)
    operations = []
    for _ in range(60):
        source, target = rng.choice([(client, server), (server, client)])
        size = rng.choice([0, 100, 4096, 20_000, 200_000])
        if rng.random() < 0.7:
            operations.append(
                source.put(target.nid, PORTAL, data=bytes(size), ack=rng.random() < 0.7, timeout=20)
            )
        else:
            operations.append(source.get(target.nid, PORTAL, size=size, timeout=20))
        if rng.random() < 0.15:
            router = rng.choice([one, other])
            _trouble(sim, rng, router)
        sim.run(rng.choice([0.0001, 0.001, 0.1, 2.0]))
    for router in (one, other):
        if not router.alive:
            router.restart()
    for port in ("r1.eth0", "r1.eth1", "r2.eth0", "r2.eth1"):
        sim.link_up(port)
    sim.run(300)
    for router in (one, other):
        router.loop.enter(router.core.router.enable, True)
    sim.run(SETTLED)
    sim.run_until_quiet()
    assert all(operation.ended for operation in operations)
    again = [client.put(server.nid, PORTAL, data=bytes(5000)) for _ in range(10)]
    sim.run_until_quiet()
    assert [(put.status, put.reason) for put in again if not put.ok] == []


def _trouble(sim: Simulation, rng: Random, router: SimNode) -> None:
    if not router.alive:
        router.restart()
        return
    kind = rng.choice(["kill", "silent", "flap", "cut", "stop"])
    if kind in ("kill", "silent"):
        router.kill(silent=kind == "silent")
    elif kind == "flap":
        port = f"{router.name}.eth{rng.randrange(2)}"
        sim.link_down(port)
        sim.scheduler.after(rng.uniform(0.1, 10), sim.link_up, port)
    elif kind == "cut":
        cuts = sim.partition([router.name], [rng.choice("cs")])
        sim.scheduler.after(rng.uniform(0.1, 10), sim.heal, cuts)
    else:
        router.loop.enter(router.core.router.enable, router.core.router.state is RoutingState.DISABLED)
