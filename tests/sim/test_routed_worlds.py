"""Routers and end nodes with and without multi-rail, in every combination; two routers in a row."""

from __future__ import annotations

from itertools import product

import pytest

from support.routed import (
    PORTAL,
    SETTLED,
    OldEnd,
    SingleRailRouter,
    add_route,
    gate_at_rest,
    make_router,
    old_end,
    old_router,
    why_down,
)
from ulnet.core.event import EventKind
from ulnet.sim import SimNode, Simulation

KINDS = ("two rails", "one rail", "old")
WORLDS = [world for world in product(KINDS, repeat=3) if world[0] != "old" or world[2] != "old"]
NEAR, FAR = ("tcp1", "tcp2"), ("tcp11", "tcp12")


class World:
    """A client on tcp1 (and tcp2), a router, a server on tcp11 (and tcp12)."""

    def __init__(self, client: str, router: str, server: str, seed: int = 1) -> None:
        self.sim = Simulation(seed)
        self.sim.properties.append(gate_at_rest)
        sides = (NEAR, FAR)
        nets = [net for side in sides for net in side[: 2 if router == "two rails" else 1]]
        nids = [f"10.{net[3:]}.0.9@{net}" for net in nets]
        self.router: SimNode | SingleRailRouter
        if router == "old":
            self.router = old_router(self.sim, "r", *nids)
        else:
            self.router = make_router(self.sim.node("r", *nids))
        self.client = self._end("c", client, NEAR, FAR, nets)
        self.server = self._end("s", server, FAR, NEAR, nets)
        self.sim.run(SETTLED)

    def _end(
        self, name: str, kind: str, here: tuple[str, ...], there: tuple[str, ...], routed: list[str]
    ) -> SimNode | OldEnd:
        nets = here[: 2 if kind == "two rails" else 1]
        nids = [f"10.{net[3:]}.0.1@{net}" for net in nets]
        gateway = f"10.{here[0][3:]}.0.9@{here[0]}"
        if kind == "old":
            return old_end(self.sim, name, nids[0], gateway)
        node = self.sim.node(name, *nids)
        for net in there:
            if net in routed:
                add_route(node, net, gateway)
        return node

    @property
    def forwarded(self) -> int:
        router = self.router
        return router.forwarded if isinstance(router, SingleRailRouter) else router.core.stats.route_count


def exchange(world: World, one: SimNode, other: SimNode | OldEnd) -> None:
    """PUTs with and without ACK, GETs and a ping go over the router, whole and unharmed."""
    target = other.nid
    inbox = None if isinstance(other, OldEnd) else other.attach(PORTAL)
    operations = [
        *(
            one.put(target, PORTAL, data=bytes([n]) * size)
            for n, size in enumerate((0, 1, 4096, 4097, 200_000) * 4)
        ),
        *(one.put(target, PORTAL, data=b"no ack", ack=False) for _ in range(3)),
        *(one.get(target, PORTAL, size=size) for size in (0, 5000, 100_000)),
        one.ping(target),
    ]
    world.sim.run_until_quiet()
    assert [(one.kind, one.status, one.reason) for one in operations if not one.ok] == []
    if inbox is not None:
        assert [delivery.kind for delivery in inbox.deliveries].count(EventKind.PUT) == 23


@pytest.mark.requirement("RTR", "bck-025", "bck-030")
@pytest.mark.parametrize(("client", "router", "server"), WORLDS)
def test_messages_pass(client: str, router: str, server: str) -> None:
    world = World(client, router, server)
    ends = (world.client, world.server)
    for one, other in (ends, ends[::-1]):
        before = world.forwarded
        if isinstance(one, OldEnd):
            assert isinstance(other, SimNode)
            inbox = other.attach(PORTAL)
            one.put_over(other.nid, b"from the old one")
            one.ping(one.nid, world.router.nids[0 if one is world.client else len(world.router.nids) // 2])
            world.sim.run_until_quiet()
            assert [delivery.data for delivery in inbox.deliveries] == [b"from the old one"]
        else:
            assert [why for way, why in why_down(one).items() if way.startswith(f"{other.nid.net} ")] == [""]
            exchange(world, one, other)
        assert world.forwarded > before
    for node in ends:
        if isinstance(node, SimNode):
            assert not node.core.stats.drops
    if isinstance(world.router, SimNode):
        assert not world.router.core.stats.drops
