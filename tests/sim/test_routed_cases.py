"""The documents' four routed cases (source given or not × peer multi-rail or not): first send and resend."""

from __future__ import annotations

import pytest

from support.routed import PORTAL, SETTLED, OldEnd, add_route, gate_at_rest, make_router, old_end
from ulnet.nid import Nid
from ulnet.sim import SimNode, Simulation
from ulnet.wire.ping import Feature, PingInfo

NEAR, FAR = ("tcp1", "tcp2"), ("tcp11", "tcp12")
SOURCE = "10.2.0.1@tcp2"


class World:
    """A client with two rails, two routers with two on each side, and a server."""

    def __init__(self, server: str) -> None:
        self.sim = sim = Simulation(1)
        sim.properties.append(gate_at_rest)
        self.routers = [
            make_router(sim.node(f"r{n}", *(f"10.{net[3:]}.0.{n}@{net}" for net in (*NEAR, *FAR))))
            for n in (8, 9)
        ]
        self.client = sim.node("c", *(f"10.{net[3:]}.0.1@{net}" for net in NEAR))
        self.gateways = [f"10.1.0.{n}@tcp1" for n in (8, 9)]
        for net in FAR:
            add_route(self.client, net, self.gateways)
        self.server: SimNode | OldEnd
        if server == "old":
            self.server = old_end(sim, "s", "10.11.0.1@tcp11", "10.11.0.8@tcp11", "10.11.0.9@tcp11")
        else:
            self.server = sim.node("s", *(f"10.{net[3:]}.0.1@{net}" for net in FAR))
            self.inbox = self.server.attach(PORTAL)
            for net in NEAR:
                add_route(self.server, net, [f"10.11.0.{n}@tcp11" for n in (8, 9)])
        sim.run(SETTLED)

    def put(self, count: int, source: str | None = None) -> set[str]:
        """Send so many PUTs; the NIDs from which they came."""
        known = len(self._sources())
        puts = [
            self.client.put(self.server.nid, PORTAL, data=bytes(5000), source=source) for _ in range(count)
        ]
        self.sim.run(30)
        assert [(put.status, put.reason) for put in puts if not put.ok] == []
        sources = self._sources()[known:]
        assert len(sources) >= count
        return set(sources)

    def _sources(self) -> list[str]:
        if isinstance(self.server, SimNode):
            return [str(one.source) for one in self.inbox.deliveries]
        return [str(heard.hdr.src_nid) for heard in self.server.puts]

    def took(self) -> list[int]:
        return [router.core.stats.route_count for router in self.routers]

    def lose_first_router(self) -> None:
        """It is gone, which no check has found yet: the next message to it fails and sets out again."""
        self.routers[0].kill()
        self.sim.run(0.01)
        gateways = self.client.core.gateways
        assert len(gateways.usable(self.server.nid.net)) == 2


@pytest.mark.requirement("HEALTH-cases", "RTR")
@pytest.mark.parametrize("server", ["multi-rail", "old"], ids=["A2C", "A2D"])
def test_source_given(server: str) -> None:
    """From that NI, over a gateway that its net reaches; so also after a gateway failed."""
    world = World(server)
    assert world.put(10, source=SOURCE) == {SOURCE}
    world.lose_first_router()
    took = world.took()
    assert world.put(10, source=SOURCE) == {SOURCE}
    assert world.took()[1] > took[1]


@pytest.mark.requirement("HEALTH-cases", "RTR")
def test_source_any_peer_with_rails() -> None:
    """B2C: any NI, any rail of a gateway, any NI of the peer; after a failure another gateway."""
    world = World("multi-rail")
    both = {"10.1.0.1@tcp1", SOURCE}
    assert world.put(40) == both
    assert isinstance(world.server, SimNode)
    received = [ni.stats.received[1] for nid, ni in world.server.core.nis.items() if not nid.is_lo]
    assert min(received) > 5
    world.lose_first_router()
    assert world.put(20) == both


@pytest.mark.requirement("HEALTH-cases", "RTR", "bck-025")
def test_source_any_peer_without_rails() -> None:
    """B2D: such a peer hears from one NI only, whatever the gateway."""
    world = World("old")
    first = world.put(20)
    assert len(first) == 1
    world.lose_first_router()
    assert world.put(20) == first


@pytest.mark.pure
@pytest.mark.requirement("bck-030", "RTR")
def test_a_router_is_upgraded_and_downgraded() -> None:
    """Configuration changes 3 and 4 of the documents: the end nodes go on before and after."""
    sim = Simulation(1)
    client, server = sim.node("c", "10.1.0.1@tcp1"), sim.node("s", "10.11.0.1@tcp11")
    add_route(client, "tcp11", "10.1.0.9@tcp1")
    add_route(server, "tcp1", "10.11.0.9@tcp11")
    server.attach(PORTAL)
    nids = ("10.1.0.9@tcp1", "10.11.0.9@tcp11")

    generation = "old"

    def forget_rails() -> None:
        """In its old lives the router tells of no rails, and does no discovery."""
        if generation == "old":
            core, info = router.core, router.core.info.info

            def old_info() -> PingInfo:
                told = info()
                features = told.features & ~int(Feature.MULTI_RAIL | Feature.DISCOVERY)
                return PingInfo(features, told.pid, told.sequence, told.entries)

            core.set_discovery(0)
            core.info.info = old_info  # type: ignore[method-assign]
            core.info.rebuild()
            core.discovery.tell_peers()

    router = sim.node("r", *nids)
    router._startup.append(forget_rails)
    router.loop.enter(forget_rails)
    make_router(router)

    for now in ("old", "new", "old"):
        if now != generation:
            generation = now
            router.restart()
        sim.run(4 * SETTLED)
        puts = [client.put(server.nid, PORTAL, data=bytes(3000)) for _ in range(5)]
        sim.run_until_quiet()
        assert [(put.status, put.reason) for put in puts if not put.ok] == []
        gateway = client.core.peers.find(Nid.parse(nids[0]))
        assert gateway is not None
        assert gateway.multi_rail == (now == "new")
