"""A router and a next hop that is known to be down: `peer_timeout` (spec routing.md §6, selection.md §8)."""

from __future__ import annotations

import pytest

from support.routed import PORTAL, SETTLED, add_route, gate_at_rest, make_router
from ulnet.core import peer_table
from ulnet.core.routing.forward import DEAD
from ulnet.sim import SimNode, Simulation

LND_TIMEOUT = 60.0  # seconds, by which a message to a silent host has failed


class World:
    """A client, a router, and a server behind it that was spoken with and fell silent."""

    def __init__(self, peer_timeout: int, *, recovery: bool = True) -> None:
        self.sim = Simulation(seed=1)
        self.sim.properties.append(gate_at_rest)
        self.router = make_router(self.sim.node("r", "10.1.0.9@tcp1", "10.2.0.9@tcp2"))
        self.client = self.sim.node("c", "10.1.0.1@tcp1")
        self.server = self.sim.node("s", "10.2.0.1@tcp2")
        add_route(self.client, "tcp2", "10.1.0.9@tcp1")
        checker = self.sim.node("o", "10.2.0.2@tcp2")  # when the server is dead
        for end in (self.server, checker):
            add_route(end, "tcp1", "10.2.0.9@tcp2")
        for ni in self.router.core.nis.values():
            ni.tunables.peer_timeout = peer_timeout
        if not recovery:
            self.router.core.settings.health_sensitivity = 0
        self.sim.run(SETTLED)
        self.server.attach(PORTAL)
        assert self.reaches(self.client)
        self.server.kill(silent=True)
        self.put()
        self.sim.run(LND_TIMEOUT)

    def put(self) -> None:
        self.client.put(self.server.nid, PORTAL, data=bytes(50_000), ack=False)

    def reaches(self, client: SimNode) -> bool:
        put = client.put(self.server.nid, PORTAL, data=b"x")
        self.sim.run(1)
        return put.ok

    def dropped(self) -> int:
        """What the router dropped, since the next hop is down."""
        return self.router.core.stats.drops[DEAD]

    def held(self) -> int:
        """What the router holds."""
        return self.router.core.stats.msgs_alloc


@pytest.mark.requirement("RTR")
def test_what_is_for_a_host_that_is_down_holds_no_buffer() -> None:
    world = World(peer_timeout=180)
    assert not world.dropped()
    for _ in range(20):
        world.put()
    world.sim.run(0.1)
    assert world.dropped() == 20
    assert world.held() <= 1  # a ping, which asks how it is


@pytest.mark.requirement("RTR")
def test_it_is_sent_on_as_soon_as_the_host_is_heard() -> None:
    world = World(peer_timeout=180)
    world.server.restart()
    world.sim.run(SETTLED)
    world.server.attach(PORTAL)
    assert world.reaches(world.client)


@pytest.mark.requirement("RTR")
@pytest.mark.parametrize("peer_timeout", [0, 30])
def test_what_is_known_for_longer_than_peer_timeout_is_not_believed(peer_timeout: int) -> None:
    world = World(peer_timeout, recovery=False)
    world.put()
    world.sim.run(0.1)
    assert world.dropped() == (1 if peer_timeout else 0)
    world.sim.run(LND_TIMEOUT)
    before = world.dropped()
    world.put()
    world.sim.run(0.1)
    assert world.dropped() == before
    assert world.held() == 1


@pytest.mark.requirement("RTR")
def test_a_router_keeps_few_destinations_that_nobody_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two neighbours filled its table with 65,536 of them: 0.6 GiB, and searches for cycles of 0.3 s."""
    monkeypatch.setattr(peer_table, "_UNHEARD", 8)
    sim = Simulation(seed=1)
    sim.properties.append(gate_at_rest)
    router = make_router(sim.node("r", "10.1.0.9@tcp1", "10.2.0.9@tcp2"))
    client = sim.node("c", "10.1.0.1@tcp1")
    server, checker = sim.node("s", "10.2.0.1@tcp2"), sim.node("o", "10.2.0.2@tcp2")
    add_route(client, "tcp2", "10.1.0.9@tcp1")
    for end in (server, checker):
        add_route(end, "tcp1", "10.2.0.9@tcp2")
    client.core.settings.discovery = 0
    sim.run(SETTLED)
    server.attach(PORTAL)
    seen = 0
    for number in range(1, 65):
        client.put(f"10.2.1.{number}@tcp2", PORTAL, data=b"x", ack=False)
        sim.run(1)
        seen = max(seen, len(router.core.peers))
    assert seen <= 8 + 3  # and those that were heard
    put = client.put(server.nid, PORTAL, data=b"x")
    sim.run(1)
    assert put.ok
