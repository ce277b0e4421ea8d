"""What can go wrong around routers: loops, lost sides, stuck peers, deaths, routes that are not symmetric."""

from __future__ import annotations

import errno
from random import Random

import pytest

from support.routed import (
    INTERVAL,
    PORTAL,
    SETTLED,
    add_route,
    gate_at_rest,
    make_router,
    old_end,
    why_down,
)
from ulnet.control.policy import Descriptor
from ulnet.core.md import INFINITE
from ulnet.core.ni import MAX_HEALTH
from ulnet.core.routing import RoutingState
from ulnet.core.status import LNetError
from ulnet.dlc.model import NetShow, RouteShow
from ulnet.nid import Net, Nid
from ulnet.node.admin.routes import show_routes
from ulnet.node.admin.show_nets import show_nets
from ulnet.sim import Operation, SimNode, Simulation
from ulnet.wire.lnet import MsgType


def simulation(seed: int = 1) -> Simulation:
    sim = Simulation(seed)
    sim.properties.append(gate_at_rest)
    return sim


def two_routers(sim: Simulation) -> tuple[SimNode, SimNode, SimNode, SimNode]:
    """A client on tcp1 and a server on tcp2, with two routers between them."""
    one = make_router(sim.node("r1", "10.1.0.8@tcp1", "10.2.0.8@tcp2"))
    other = make_router(sim.node("r2", "10.1.0.9@tcp1", "10.2.0.9@tcp2"))
    client = sim.node("c", "10.1.0.1@tcp1")
    server = sim.node("s", "10.2.0.1@tcp2")
    add_route(client, "tcp2", ["10.1.0.8@tcp1", "10.1.0.9@tcp1"])
    add_route(server, "tcp1", ["10.2.0.8@tcp2", "10.2.0.9@tcp2"])
    sim.run(SETTLED)
    return client, one, other, server


def forwarded(node: SimNode) -> int:
    return node.core.stats.route_count


def state(node: SimNode) -> RoutingState:
    return node.core.router.state


@pytest.mark.requirement("RTR")
def test_two_routers_in_a_row() -> None:
    sim = simulation()
    first = make_router(sim.node("r1", "10.1.0.9@tcp1", "10.2.0.8@tcp2"))
    second = make_router(sim.node("r2", "10.2.0.9@tcp2", "10.3.0.9@tcp3"))
    client, server = sim.node("c", "10.1.0.1@tcp1"), sim.node("s", "10.3.0.1@tcp3")
    add_route(client, "tcp3", "10.1.0.9@tcp1", hops=2)
    add_route(first, "tcp3", "10.2.0.9@tcp2", hops=1)
    add_route(second, "tcp1", "10.2.0.8@tcp2", hops=1)
    add_route(server, "tcp1", "10.3.0.9@tcp3", hops=2)
    sim.run(SETTLED)
    inbox = server.attach(PORTAL)
    puts = [client.put(server.nid, PORTAL, data=bytes(50_000)) for _ in range(20)]
    client.attach(PORTAL)
    gets = [server.get(client.nid, PORTAL, size=10_000) for _ in range(5)]
    sim.run_until_quiet()
    assert all(one.ok for one in (*puts, *gets))
    assert len([one for one in inbox.deliveries if one.data == bytes(50_000)]) == 20
    assert inbox.deliveries[0].source == client.nid
    assert forwarded(first) == forwarded(second)
    for node in (first, second):  # bytes that it sent or received itself, and bytes that it passed on
        stats, nis = node.core.stats, node.core.nis.values()
        assert sum(ni.stats.sent_bytes for ni in nis) == stats.send_length + stats.route_length
        assert sum(ni.stats.received_bytes for ni in nis) == stats.recv_length + stats.route_length
        assert sum(ni.stats.sent_bytes for ni in node.core.peers.nis()) > 20 * 50_000
    assert not first.core.stats.drops
    assert {route.loops for node in (first, second) for route in node.core.gateways.table} == {False}


def test_two_routers_that_send_to_each_other_drop_at_once() -> None:
    sim = simulation()
    first = make_router(sim.node("r1", "10.1.0.9@tcp1", "10.2.0.8@tcp2"))
    second = make_router(sim.node("r2", "10.2.0.9@tcp2"))
    client = sim.node("c", "10.1.0.1@tcp1")
    for node, gateway in ((client, "10.1.0.9@tcp1"), (first, "10.2.0.9@tcp2"), (second, "10.2.0.8@tcp2")):
        add_route(node, "tcp9", gateway)
    sim.run(SETTLED)
    puts = [client.put("10.9.0.1@tcp9", PORTAL, data=bytes(9000), ack=False, timeout=5) for _ in range(3)]
    ping = client.ping("10.9.0.1@tcp9", timeout=5)
    sim.run_until_quiet()
    assert not ping.ok
    assert all(one.ended for one in puts)
    assert second.core.stats.drops["no route from here"] > 0
    assert forwarded(first) + forwarded(second) < 10


def test_a_loop_of_three_routers_is_found_and_broken() -> None:
    sim = simulation()
    sim.allowed_reports = ("routing loop",)
    ring = [
        make_router(sim.node("r1", "10.1.0.9@tcp1", "10.2.0.1@tcp2")),
        make_router(sim.node("r2", "10.2.0.2@tcp2", "10.3.0.2@tcp3")),
        make_router(sim.node("r3", "10.3.0.3@tcp3", "10.2.0.3@tcp2")),
    ]
    client = sim.node("c", "10.1.0.1@tcp1")
    add_route(client, "tcp9", "10.1.0.9@tcp1")
    add_route(ring[0], "tcp9", "10.2.0.2@tcp2")
    add_route(ring[1], "tcp9", "10.3.0.3@tcp3")
    add_route(ring[2], "tcp9", "10.2.0.1@tcp2")
    sim.run(SETTLED)
    client.put("10.9.0.1@tcp9", PORTAL, data=b"round and round", ack=False, timeout=5)
    sim.run(5)
    assert any(line.startswith("routing loop") for node in ring for line in node.reports)
    assert any("routing loop" in why_down(node).values() for node in ring)
    assert sum(map(forwarded, ring)) < 20
    sim.run_until_quiet(400)


@pytest.mark.requirement("RTR")
@pytest.mark.parametrize("seed", range(8))
def test_a_loop_of_three_under_load_is_found_and_holds_nobody_else_up(seed: int) -> None:
    """Nothing counts hops: a probe finds the ring at once, and what else passes the same routers arrives."""
    sim = simulation(seed)
    sim.allowed_reports = ("routing loop",)
    rng = Random(f"loop/{seed}")
    names = [("10.1.0.9@tcp1", "10.2.0.1@tcp2"), ("10.2.0.2@tcp2", "10.3.0.2@tcp3")]
    ring = [
        make_router(sim.node(f"r{n}", *nids))
        for n, nids in enumerate([*names, ("10.3.0.3@tcp3", "10.2.0.3@tcp2")])
    ]
    client, server = sim.node("c", "10.1.0.1@tcp1"), sim.node("s", "10.3.0.1@tcp3")
    old = old_end(sim, "o", "10.1.0.2@tcp1", "10.1.0.9@tcp1")
    for net in ("tcp3", "tcp9"):
        add_route(client, net, "10.1.0.9@tcp1")
        add_route(ring[0], net, "10.2.0.2@tcp2")
    add_route(ring[1], "tcp9", "10.3.0.3@tcp3")
    add_route(ring[2], "tcp9", "10.2.0.1@tcp2")
    add_route(ring[1], "tcp1", "10.2.0.1@tcp2")
    add_route(server, "tcp1", "10.3.0.2@tcp3")
    sim.run(SETTLED)
    for router in ring:
        router.loop.enter(router.core.router.set_buffers, 8, 8, 8)
    server.attach(PORTAL)
    good = []
    for _ in range(60):
        size = rng.choice([0, 100, 50_000])
        old.put_over(Nid.parse("10.9.0.1@tcp9"), bytes(size))  # it asks nobody before
        good.append(client.put(server.nid, PORTAL, data=bytes(size), timeout=20))
        sim.run(rng.choice([0.0, 0.001, 0.1]))
    sim.run(5)
    assert any("routing loop" in why_down(node).values() for node in ring)
    assert [(put.status, put.reason) for put in good if not put.ok] == []
    assert 0 < forwarded(ring[2]) < 20  # over which nothing good goes
    assert sum(router.core.stats.drops["no route from here"] for router in ring) > 30
    sim.run_until_quiet(400)


@pytest.mark.parametrize("discovery", [1, 0])
def test_a_gateway_is_the_destination_itself(discovery: int) -> None:
    sim = simulation()
    router = make_router(sim.node("r", "10.1.0.9@tcp1", "10.2.0.9@tcp2"))
    client, other = sim.node("c", "10.1.0.1@tcp1"), sim.node("s", "10.2.0.1@tcp2")
    client.core.set_discovery(discovery)
    add_route(client, "tcp2", "10.1.0.9@tcp1")
    add_route(other, "tcp1", "10.2.0.9@tcp2")
    sim.run(SETTLED)
    inbox = router.attach(PORTAL)
    operations = [client.ping("10.2.0.9@tcp2"), client.put("10.2.0.9@tcp2", PORTAL, data=b"for you")]
    sim.run_until_quiet()
    assert [(one.status, one.reason) for one in operations] == [(0, ""), (0, "")]
    assert [one.data for one in inbox.deliveries] == [b"for you"]
    assert forwarded(router) == 0 or discovery


@pytest.mark.requirement("RTR")
def test_a_router_that_loses_one_side_is_left_for_another() -> None:
    sim = simulation()
    client, one, other, server = two_routers(sim)
    assert set(why_down(client).values()) == {""}
    server.attach(PORTAL)
    sim.link_down("r1.eth1")
    sim.run(SETTLED)
    assert why_down(client)["tcp2 10.1.0.8@tcp1"] == "gateway down on tcp2"
    before = forwarded(one)
    puts = [client.put(server.nid, PORTAL, data=bytes(20_000)) for _ in range(20)]
    sim.run_until_quiet()
    assert all(put.ok for put in puts)
    assert forwarded(one) == before
    assert forwarded(other) >= 40
    sim.link_up("r1.eth1")
    sim.run(SETTLED)
    assert set(why_down(client).values()) == {""}


@pytest.mark.requirement("RTR", "snd-045")
def test_answers_go_back_over_the_gateway_that_their_requests_came_from() -> None:
    sim = simulation()
    client, _, other, server = two_routers(sim)
    client.loop.enter(
        client.core.gateways.remove,
        client.core.gateways.table.find(Net.parse("tcp2"), Nid.parse("10.1.0.9@tcp1")),
    )
    server.attach(PORTAL)
    before = forwarded(other)
    operations = [client.put(server.nid, PORTAL, data=bytes(100)) for _ in range(10)]
    operations += [client.get(server.nid, PORTAL, size=100) for _ in range(10)]
    sim.run(0.5)
    assert all(operation.ok for operation in operations)
    assert forwarded(other) == before


@pytest.mark.requirement("RTR")
def test_load_is_shared_by_equal_gateways() -> None:
    sim = simulation()
    client, one, other, server = two_routers(sim)
    server.attach(PORTAL)
    before = [forwarded(one), forwarded(other)]
    puts = [client.put(server.nid, PORTAL, data=bytes(100_000), ack=False) for _ in range(100)]
    sim.run_until_quiet()
    assert all(put.ok for put in puts)
    shares = [forwarded(node) - was for node, was in zip((one, other), before, strict=True)]
    assert min(shares) > 30


@pytest.mark.requirement("RTR", "HLD-gw")
def test_priority_then_hops_then_policy_choose_the_gateway() -> None:
    sim = simulation()
    client, _, _, server = two_routers(sim)
    server.attach(PORTAL)
    client.put(server.nid, PORTAL, data=b"so that it is known")
    sim.run_until_quiet()

    def chosen() -> str:
        told = client.core.explain(server.nid)
        assert [stage.name for stage in told.stages][:3] == ["remote net", "final NI", "gateway"]
        assert told.final is not None
        assert told.peer_ni is not None
        assert told.final.nid == server.nid
        return str(told.peer_ni.nid)

    gateways = client.core.gateways
    second = next(route for route in gateways.table if str(route.gateway) == "10.1.0.9@tcp1")
    first = next(route for route in gateways.table if route is not second)
    first.priority = 1
    assert chosen() == "10.1.0.9@tcp1"
    first.priority, second.hops = 0, 2
    assert chosen() == "10.1.0.8@tcp1"
    client.core.policies.add(dst=Descriptor.parse("10.2.0.*@tcp2"), rte=Descriptor.parse("10.1.0.9@tcp1"))
    assert chosen() == "10.1.0.9@tcp1"
    client.core.policies.delete(0)
    assert chosen() == "10.1.0.8@tcp1"


@pytest.mark.requirement("RTR")
def test_a_peer_that_takes_nothing_stops_no_others() -> None:
    sim = simulation()
    router = make_router(sim.node("r", "10.1.0.9@tcp1", "10.2.0.9@tcp2"))
    clients = [sim.node(f"c{n}", f"10.1.0.{n}@tcp1") for n in (1, 2)]
    servers = [sim.node(f"s{n}", f"10.2.0.{n}@tcp2") for n in (1, 2)]
    for client in clients:
        add_route(client, "tcp2", "10.1.0.9@tcp1")
    for server in servers:
        add_route(server, "tcp1", "10.2.0.9@tcp2")
        server.attach(PORTAL)
    sim.run(SETTLED)
    router.loop.enter(router.core.router.set_buffers, None, None, 8)
    warm = [client.put(server.nid, PORTAL, data=b"hello") for client in clients for server in servers]
    sim.run_until_quiet()
    assert all(put.ok for put in warm)
    cut = sim.partition(["s1"], ["r"])
    stuck = [clients[0].put(servers[0].nid, PORTAL, data=bytes(50_000), ack=False) for _ in range(60)]
    sim.run(1)
    pool = router.core.router.gate.pools.by_cpt[0][2]
    assert pool.in_use <= pool.count // 2
    lively = [clients[1].put(servers[1].nid, PORTAL, data=bytes(50_000)) for _ in range(50)]
    sim.run(1)
    assert all(put.ok for put in lively)
    assert router.core.router.gate.pools.in_use > 0
    sim.heal(cut)
    sim.run_until_quiet()
    assert all(put.ended for put in stuck)


def test_drop_asym_route_takes_only_what_comes_by_our_own_gateways() -> None:
    sim = simulation()
    client, one, _, server = two_routers(sim)
    inbox = server.attach(PORTAL)
    for node in (client, server):
        node.loop.enter(
            node.core.gateways.remove, node.core.gateways.table.find(None, Nid.parse(_near(node, one)))
        )
    add_route(client, "tcp2", "10.1.0.8@tcp1")
    client.loop.enter(
        client.core.gateways.remove, client.core.gateways.table.find(None, Nid.parse("10.1.0.9@tcp1"))
    )
    sim.run(1)
    client.put(server.nid, PORTAL, data=b"allowed", ack=False)
    sim.run(1)
    assert [one.data for one in inbox.deliveries] == [b"allowed"]
    server.core.settings.drop_asym_route = 1
    client.put(server.nid, PORTAL, data=b"dropped", ack=False)
    sim.run(1)
    assert len(inbox.deliveries) == 1
    assert (
        server.core.stats.drops["it came over a router that is no gateway to its net (drop_asym_route)"] == 1
    )


def _near(node: SimNode, router: SimNode) -> str:
    return next(str(nid) for nid in router.nids if nid.net == node.nid.net)


@pytest.mark.requirement("RTR")
def test_a_killed_router_loses_nothing_silently_and_the_other_takes_over() -> None:
    sim = simulation()
    client, one, _, server = two_routers(sim)
    inbox = server.attach(PORTAL)
    puts = [client.put(server.nid, PORTAL, data=bytes(50_000)) for _ in range(40)]
    sim.run(0.0005)
    one.kill()
    sim.run(3 * INTERVAL)
    later = [client.put(server.nid, PORTAL, data=b"later") for _ in range(20)]
    sim.run_until_quiet()
    assert all(put.ended for put in puts)
    assert all(put.ok for put in later)
    assert len(inbox.deliveries) >= sum(put.ok for put in (*puts, *later))
    assert why_down(client)["tcp2 10.1.0.8@tcp1"] == "gateway dead"
    one.restart()
    sim.run(SETTLED + INTERVAL)
    assert set(why_down(client).values()) == {""}


@pytest.mark.requirement("RTR")
def test_a_router_stops_and_starts_under_traffic_without_a_loss() -> None:
    sim = simulation()
    client, one, _, server = two_routers(sim)
    server.attach(PORTAL)
    puts: list[Operation] = []

    def send_some() -> None:
        puts.extend(client.put(server.nid, PORTAL, data=bytes(5000)) for _ in range(5))

    def stream(seconds: int) -> None:
        for _ in range(seconds * 10):
            send_some()
            sim.run(0.1)

    stream(1)
    one.loop.enter(one.core.router.enable, False)
    stream(15)
    assert state(one) == RoutingState.DISABLED
    count = forwarded(one)
    stream(2)
    assert forwarded(one) == count
    one.loop.enter(one.core.router.enable, True)
    stream(15)
    assert state(one) == RoutingState.ENABLED
    stream(10)
    sim.run_until_quiet()
    assert forwarded(one) > count
    assert [(put.status, put.reason) for put in puts if not put.ok] == []
    assert not one.core.stats.drops


def test_what_holds_a_gateway_or_a_net_is_told() -> None:
    sim = simulation()
    client = two_routers(sim)[0]
    with pytest.raises(LNetError, match="it is a gateway to net tcp2; delete that route first") as busy:
        client.loop.enter(client.core.peers.delete, Nid.parse("10.1.0.8@tcp1"))
    assert busy.value.errno == errno.EBUSY
    with pytest.raises(LNetError, match="net tcp2 is known as remote") as known:
        client.add_ni("10.2.0.77@tcp2")
    assert known.value.errno == errno.EUSERS
    client.loop.enter(client.core.gateways.clear)
    failed = client.put("10.2.0.1@tcp2", PORTAL, data=b"x")
    sim.run_until_quiet()
    assert failed.status == -errno.EHOSTUNREACH
    assert "add a net on tcp2 or a route to it: 'lnetctl route add --net tcp2" in failed.reason


def test_a_route_whose_own_net_is_gone_says_so() -> None:
    sim = simulation()
    client = two_routers(sim)[0]
    client.add_ni("10.7.0.1@tcp7")
    client.del_ni("10.1.0.1@tcp1")
    failed = client.put("10.2.0.1@tcp2", PORTAL, data=b"x")
    sim.run_until_quiet()
    assert failed.status == -errno.EHOSTUNREACH
    assert "10.1.0.8@tcp1 (no NI here is on its net)" in failed.reason


def test_without_discovery_routes_follow_the_last_ping() -> None:
    sim = simulation()
    router = make_router(sim.node("r", "10.1.0.9@tcp1", "10.2.0.9@tcp2"))
    client, server = sim.node("c", "10.1.0.1@tcp1"), sim.node("s", "10.2.0.1@tcp2")
    for node, net, gateway in ((client, "tcp2", "10.1.0.9@tcp1"), (server, "tcp1", "10.2.0.9@tcp2")):
        node.core.set_discovery(0)
        add_route(node, net, gateway)
    server.attach(PORTAL)
    sim.run(SETTLED)
    assert why_down(client) == {"tcp2 10.1.0.9@tcp1": ""}
    put = client.put(server.nid, PORTAL, data=bytes(100))
    sim.run_until_quiet()
    assert put.ok
    router.loop.enter(router.core.router.enable, False)
    sim.run(2 * INTERVAL)
    assert why_down(client) == {"tcp2 10.1.0.9@tcp1": "gateway down when last pinged"}


@pytest.mark.requirement("RTR")
def test_a_last_hop_to_another_rail_changes_that_message_only() -> None:
    """Equal headers are one object for the driver: the next message must not inherit the detour."""
    sim = simulation()
    named, spare = Nid.parse("10.2.0.1@tcp2"), Nid.parse("10.2.0.2@tcp2")
    router = make_router(sim.node("r", "10.1.0.9@tcp1", "10.2.0.9@tcp2"))
    client, server = sim.node("c", "10.1.0.1@tcp1"), sim.node("s", str(named), str(spare))
    add_route(client, "tcp2", "10.1.0.9@tcp1")
    add_route(server, "tcp1", "10.2.0.9@tcp2")
    server.attach(PORTAL)
    sim.run(SETTLED)
    client.put(named, PORTAL, data=b"so that all know each other")
    sim.run(SETTLED)
    rail = router.core.peers.by_nid[named]
    md = client.core.memory.md_bind(bytes(5000), lambda event: None, threshold=INFINITE)

    def put(health: int) -> list[int]:
        """The PUTs that reached each NI, where the router holds the one that is named for so healthy."""
        rail.health = health
        router.core.state.generation.invalidate("the test changed health")
        before = [server.core.nis[nid].stats.received[MsgType.PUT] for nid in (named, spare)]
        client.loop.enter(lambda: client.core.put(md, named, PORTAL, 0, ack=False, source=client.nid))
        sim.run(0.01)
        after = [server.core.nis[nid].stats.received[MsgType.PUT] for nid in (named, spare)]
        return [now - then for now, then in zip(after, before, strict=True)]

    assert put(MAX_HEALTH) == [1, 0]
    assert put(0) == [0, 1]
    assert put(MAX_HEALTH) == [1, 0]
    client.core.memory.md_unlink(md)


@pytest.mark.requirement("RTR")
def test_the_only_client_of_a_net_is_served_again_soon_after_its_link_was_down() -> None:
    """A ping that was lost with the link is given up when a check would be, whoever sent it."""
    sim = Simulation(1)
    router = make_router(sim.node("r", "10.1.0.8@tcp1", "10.11.0.8@tcp11"))
    client, server = sim.node("c", "10.1.0.1@tcp1"), sim.node("s", "10.11.0.1@tcp11")
    server.attach(PORTAL)
    add_route(client, "tcp11", "10.1.0.8@tcp1")
    add_route(server, "tcp1", "10.11.0.8@tcp11")
    sim.run(SETTLED)
    before = client.put(server.nid, PORTAL, data=b"x")
    sim.run(3)
    assert before.ok
    sim.link_down("10.1.0.1@tcp1")
    sim.run(30)
    assert router.core.router.silent_nids == {Nid.parse("10.1.0.8@tcp1")}
    client.put(server.nid, PORTAL, data=b"x")
    sim.run(3)
    sim.link_up("10.1.0.1@tcp1")
    sim.run(60)
    assert not any(why_down(client).values())
    assert not any(why_down(server).values())
    put = client.put(server.nid, PORTAL, data=b"x")
    sim.run(10)
    assert put.ok


@pytest.mark.requirement("RTR")
@pytest.mark.parametrize("discovery", [0, 1])
@pytest.mark.parametrize("lost", [True, False])
def test_a_router_is_up_to_the_only_client_of_a_net_that_pings_it_less_often_than_it_expects(
    lost: bool, discovery: int
) -> None:
    """The ping that ends the silence is answered so: else each one was told that the NI is down, for good."""
    sim = Simulation(1)
    router = make_router(sim.node("r", "10.1.0.8@tcp1", "10.11.0.8@tcp11"))
    client, server = sim.node("c", "10.1.0.1@tcp1"), sim.node("s", "10.11.0.1@tcp11")
    server.attach(PORTAL)
    add_route(client, "tcp11", "10.1.0.8@tcp1")
    add_route(server, "tcp1", "10.11.0.8@tcp11")
    for node, seconds in ((client, 10), (server, 1)):
        node.core.set_discovery(discovery)
        node.loop.enter(node.core.gateways.set, {"alive_router_check_interval": seconds})
    pace = {"alive_router_check_interval": 3, "router_ping_timeout": 2}
    router.loop.enter(router.core.gateways.set, pace)
    sim.run(SETTLED)
    if lost:
        client.del_ni("10.1.0.1@tcp1")
        sim.run(20)
        assert Nid.parse("10.1.0.8@tcp1") in router.core.router.silent_nids
        client.add_ni("10.1.0.1@tcp1")
    sim.run(15)
    for _ in range(20):
        sim.run(7)
        assert why_down(client) == {"tcp11 10.1.0.8@tcp1": ""}
    put = client.put(server.nid, PORTAL, data=b"x")
    sim.run(10)
    assert put.ok


@pytest.mark.requirement("RTR", "snd-050")
@pytest.mark.parametrize("far", [("tcp11", "tcp12"), ("tcp11", "tcp11")], ids="-".join)
def test_a_routers_last_hop_leaves_a_path_without_progress(far: tuple[str, str]) -> None:
    sim = simulation()
    ports = [(f"10.{11 + at}.0.8@{net}", f"10.{11 + at}.0.1@{net}") for at, net in enumerate(far)]
    router = make_router(sim.node("r", "10.1.0.8@tcp1", *(ours for ours, _ in ports)))
    client, server = sim.node("c", "10.1.0.1@tcp1"), sim.node("s", *(theirs for _, theirs in ports))
    server.attach(PORTAL)
    for net in dict.fromkeys(far):
        add_route(client, net, "10.1.0.8@tcp1")
    add_route(server, "tcp1", "10.11.0.8@tcp11")
    sim.run(SETTLED)
    warm = client.put(server.nid, PORTAL, data=b"so that both know each other")
    sim.run(1)
    assert warm.ok
    lost = ports[1][1]
    sim.partition(["r"], [lost])
    for _ in range(8):  # some of them find out
        client.put(server.nid, PORTAL, data=bytes(60_000))
    sim.run(5)
    pni = router.core.peers.find_ni(Nid.parse(lost))
    assert pni is not None
    assert pni.health == MAX_HEALTH
    puts = [client.put(server.nid, PORTAL, data=bytes(5000)) for _ in range(40)]
    sim.run(10)
    assert sum(put.ok for put in puts) == 40


@pytest.mark.requirement("RTR")
def test_a_router_shows_nis_of_a_net_that_nobody_pings_as_down() -> None:
    sim = simulation()
    one = two_routers(sim)[1]
    one.add_ni("10.9.0.8@tcp9")  # nobody is there
    one.loop.enter(one.core.router.enable, True)

    def statuses() -> dict[str, str]:
        nets = show_nets(one.core, NetShow())
        return {str(ni.nid): str(ni.status) for net in nets for ni in net.local_nis}

    assert set(statuses().values()) == {"up"}
    sim.run(300)
    shown = statuses()
    assert [nid for nid, status in shown.items() if status == "down"] == ["10.9.0.8@tcp9"]


def test_no_gateway_is_shown_as_up_before_it_was_heard() -> None:
    sim = simulation()
    client = two_routers(sim)[0]
    asked = RouteShow(verbosity=1, net="tcp9")
    client.loop.enter(client.core.gateways.add, Net.parse("tcp9"), Nid.parse("10.1.0.77@tcp1"), 1, 0)
    assert [route.state for route in show_routes(client.core, asked) if route] == ["down"]
    sim.run_until_quiet()
    asked = RouteShow(verbosity=1, net="tcp2")
    assert [route.state for route in show_routes(client.core, asked) if route] == ["up", "up"]
