"""A router of two is lost with messages under way, in every way: all are delivered once, none is reported."""

from __future__ import annotations

import pytest

from sim.test_routed_hazards import forwarded, simulation, two_routers
from support.routed import INTERVAL, PORTAL, SETTLED, add_route, make_router, why_down
from ulnet.nid import Nid
from ulnet.sim import SimNode, Simulation

WAYS = ("killed", "silent", "near link", "far link", "cut from the client", "cut from the server")


def lose(sim: Simulation, router: SimNode, how: str) -> None:
    if how in ("killed", "silent"):
        router.kill(silent=how == "silent")
    elif how.startswith("cut"):
        sim.partition([router.name], ["c" if how.endswith("client") else "s"])
    else:
        sim.link_down(f"{router.name}.eth{how.startswith('far'):d}")


@pytest.mark.requirement("RTR", "HEALTH-cases")
@pytest.mark.parametrize(
    ("size", "after"), [(100, 0.0002), (50_000, 0.0002), (50_000, 0.0005), (50_000, 0.001)]
)
@pytest.mark.parametrize("how", WAYS)
def test_acknowledged_puts_survive_a_router(how: str, after: float, size: int) -> None:
    sim = simulation()
    client, one, other, server = two_routers(sim)
    inbox = server.attach(PORTAL)
    warm = client.put(server.nid, PORTAL, data=b"so that both know what the other keeps")
    sim.run(1)
    assert warm.ok
    puts = [client.put(server.nid, PORTAL, data=number.to_bytes(4) * (size // 4)) for number in range(40)]
    sim.run(after)
    under_way = sum(not put.ended for put in puts)
    lose(sim, one, how)
    sim.run(3 * INTERVAL)
    assert under_way
    assert [(put.status, put.reason) for put in puts if not put.ok] == []
    taken = [delivery.data for delivery in inbox.deliveries]
    assert len(taken) == len(set(taken)) == 41
    assert forwarded(other)


@pytest.mark.requirement("RTR")
@pytest.mark.parametrize("how", ["silent", "near link", "cut from the client"])
def test_a_silent_gateway_is_dead_after_a_check_and_the_time_for_its_answer(how: str) -> None:
    sim = simulation()
    client, one, _, _ = two_routers(sim)
    assert why_down(client)["tcp2 10.1.0.8@tcp1"] == ""
    lose(sim, one, how)
    sim.run(client.core.gateways.settings.settling_time + 2)
    assert why_down(client)["tcp2 10.1.0.8@tcp1"] == "gateway dead"
    down = "gateway 10.1.0.8@tcp1 is down: no NID of it answers; its routes are not used"
    assert [line for line in client.reports if line.startswith("gateway")] == [down]
    if how == "near link":
        sim.link_up(f"{one.name}.eth0")
        sim.run(3 * INTERVAL)
        assert [line for line in client.reports if line.startswith("gateway")][1:] == [
            "gateway 10.1.0.8@tcp1 is up: it answers"
        ]


@pytest.mark.requirement("RTR")
@pytest.mark.parametrize("interval", [1, 5])
def test_a_silent_gateway_with_two_rails_is_dead_when_both_were_asked(interval: int) -> None:
    """Also where checks are due again before the one before has failed."""
    sim = simulation()
    router = make_router(sim.node("r", "10.1.0.9@tcp1", "10.4.0.9@tcp4", "10.2.0.9@tcp2"))
    client = sim.node("c", "10.1.0.1@tcp1", "10.4.0.1@tcp4")
    add_route(client, "tcp2", "10.1.0.9@tcp1")
    add_route(sim.node("s", "10.2.0.1@tcp2"), "tcp1", "10.2.0.9@tcp2")
    sim.run(SETTLED)
    pace = {"alive_router_check_interval": interval, "router_ping_timeout": 4}
    client.loop.enter(client.core.gateways.set, pace)
    sim.run(2)
    assert why_down(client) == {"tcp2 10.1.0.9@tcp1": ""}
    router.kill(silent=True)
    sim.run(interval + 2 * 4 + 3)
    assert why_down(client) == {"tcp2 10.1.0.9@tcp1": "gateway dead"}


@pytest.mark.requirement("RTR", "HEALTH-cases")
def test_what_left_for_another_nid_than_was_named_is_sent_again_when_its_net_is_lost() -> None:
    """A server with two rails behind both routers, one of which loses one of the rails."""
    sim = simulation()
    for number in (8, 9):
        make_router(sim.node(f"r{number}", *(f"10.{net}.0.{number}@tcp{net}" for net in (1, 2, 3))))
    client = sim.node("c", "10.1.0.1@tcp1")
    server = sim.node("s", "10.2.0.1@tcp2", "10.3.0.1@tcp3")
    for net in (2, 3):
        add_route(client, f"tcp{net}", [f"10.1.0.{number}@tcp1" for number in (8, 9)])
        add_route(server, "tcp1", [f"10.{net}.0.{number}@tcp{net}" for number in (8, 9)])
    sim.run(SETTLED)
    inbox = server.attach(PORTAL)
    for _ in range(4):
        client.put(server.nid, PORTAL, data=b"so that both know each other")
        sim.run(1)
    puts = [client.put(server.nid, PORTAL, data=number.to_bytes(4) * 12_500) for number in range(16)]
    sim.run(0.0005)
    sim.partition(["r8.eth2"], ["s.eth1"])
    sim.run(0.01)
    sim.link_down("r8.eth2")
    sim.run(4 * INTERVAL)
    assert [(put.status, put.reason) for put in puts if not put.ok] == []
    assert len({delivery.data for delivery in inbox.deliveries}) == len(inbox.deliveries) - 3 == 17


@pytest.mark.requirement("RTR", "HEALTH-cases")
@pytest.mark.parametrize("how", ["far link", "cut from the server"])
def test_only_what_has_left_is_sent_twice_when_a_router_is_lost(how: str) -> None:
    sim = simulation()
    client, one, _, server = two_routers(sim)
    server.attach(PORTAL)
    client.put(server.nid, PORTAL, data=b"so that both know what the other keeps")
    sim.run(1)
    puts = [client.put(server.nid, PORTAL, data=number.to_bytes(4) * 12_500) for number in range(200)]
    sim.run(0.0005)
    lose(sim, one, how)
    sim.run(3 * INTERVAL)
    assert [(put.status, put.reason) for put in puts if not put.ok] == []
    assert 0 < client.core.stats.resend_count < 70
    assert server.core.stats.drops["sent again, and was taken or may have been"] < 20


def near_and_far(*, configured: bool) -> tuple[Simulation, SimNode, SimNode]:
    """A client and a server on tcp1; each is on a net of its own, too, with a router between these."""
    sim = simulation()
    make_router(sim.node("r", "10.3.0.9@tcp3", "10.2.0.9@tcp2"))
    client = sim.node("c", "10.1.0.1@tcp1", "10.3.0.1@tcp3")
    server = sim.node("s", "10.1.0.2@tcp1", "10.2.0.2@tcp2")
    server.attach(PORTAL)
    add_route(client, "tcp2", "10.3.0.9@tcp3")
    add_route(server, "tcp3", "10.2.0.9@tcp2")
    if configured:
        client.loop.enter(lambda: client.core.peers.add(server.nids[0], server.nids[1:]))
    sim.run(SETTLED)
    warm = client.put(server.nid, PORTAL, data=b"so that both know each other")
    sim.run(1)
    assert warm.ok
    return sim, client, server


@pytest.mark.requirement("RTR", "snd-050")
@pytest.mark.parametrize("configured", [False, True], ids=["discovered", "configured"])
@pytest.mark.parametrize("how", ["link", "silent", "refused"])
def test_a_peer_whose_net_here_is_dead_is_reached_over_a_gateway(how: str, configured: bool) -> None:
    sim, client, server = near_and_far(configured=configured)
    if how == "link":
        sim.link_down("10.1.0.2@tcp1")
    elif how == "silent":
        sim.partition(["c"], ["10.1.0.2@tcp1"])
    else:
        server.loop.enter(lambda: server.core.del_ni(Nid.parse("10.1.0.2@tcp1")))
    first = [client.put(server.nid, PORTAL, data=bytes(5000)) for _ in range(4)]
    sim.run(5)
    told = client.core.explain(server.nid)  # the gateway is what others take at once
    assert told.peer_ni is not None
    assert str(told.peer_ni.nid) == "10.3.0.9@tcp3"
    sim.run(55)
    assert [(put.status, put.reason) for put in first if not put.ok] == []
    puts = [client.put(server.nid, PORTAL, data=bytes(5000)) for _ in range(20)]
    sim.run(10)
    assert [(put.status, put.reason) for put in puts if not put.ok] == []


@pytest.mark.requirement("RTR")
def test_a_peer_is_reached_directly_again_when_its_net_here_carries_again() -> None:
    sim, client, server = near_and_far(configured=False)
    sim.link_down("10.1.0.2@tcp1")
    sim.run(10)
    client.put(server.nid, PORTAL, data=bytes(5000))
    sim.run(60)
    sim.link_up("10.1.0.2@tcp1")
    sim.run(60)
    routed = sim.nodes["r"].core.stats.route_count
    puts = [client.put(server.nid, PORTAL, data=bytes(5000)) for _ in range(20)]
    sim.run(5)
    assert all(put.ok for put in puts)
    assert sim.nodes["r"].core.stats.route_count == routed
