"""Requests take NIs away and give them back while messages flow, seed by seed: nothing is lost, or twice."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from support.routed import PORTAL as ROUTED
from support.routed import SETTLED, add_route, make_router
from ulnet.dlc import model
from ulnet.sim import LinkParams, Simulation
from ulnet.sim.node import SimNode

PORTAL = 30
A = ("10.0.0.1@tcp", "10.1.0.1@tcp1")
B = ("10.0.0.2@tcp", "10.1.0.2@tcp1")
SEEDS = 60


def world(seed: int) -> None:
    """Two or three nodes with two or three rails; both ends change while both send."""
    rng = Random(seed)
    link = LinkParams(rate=rng.choice([1e7, 1e8, 1e9]), delay=rng.choice([1e-5, 1e-3]))
    sim = Simulation(seed=seed, link=link)
    rails = rng.randint(2, 3)
    nodes = [
        sim.node(f"n{number}", *(f"10.{rail}.0.{number}@tcp{rng.choice([0, rail])}" for rail in range(rails)))
        for number in range(1, rng.randint(2, 3) + 1)
    ]
    for node in nodes:
        node.attach(PORTAL)
    operations = []

    def send(count: int) -> None:
        for _ in range(count):
            one, other = rng.sample(nodes, 2)
            size = rng.choice([0, 100, 4096, 100_000])
            if rng.random() < 0.6:
                operations.append(one.put(other.nid, PORTAL, data=bytes(size)))
            else:
                operations.append(one.get(other.nid, PORTAL, size=size))

    send(10)
    sim.run(0.05)
    for _ in range(4):
        node = rng.choice(nodes)
        nid = rng.choice(node.nids[1:])
        send(20)
        deleting = node.spawn(node.admin.handle(model.NetDel(nids=[str(nid)])))
        while not deleting.done():
            send(2)
            sim.run(rng.choice([1e-4, 1e-3, 1e-2]))
        assert deleting.exception() is None
        assert nid not in node.nids
        send(10)
        node.request(model.NetAdd(nids=[str(nid)]))
    sim.run_until_quiet()
    failed = [f"{one}: {one.status} {one.reason}" for one in operations if not one.ok]
    assert failed == [], f"seed {seed}"
    assert sim.ledger.duplicates == 0


def met(
    seed: int, link: LinkParams, a: tuple[str, ...] = A, b: tuple[str, ...] = B, **memory: Any
) -> tuple[Simulation, SimNode, SimNode]:
    """Two nodes that have met over all rails; the second one has memory."""
    sim = Simulation(seed=seed, link=link)
    one, other = sim.node("a", *a), sim.node("b", *b)
    other.attach(PORTAL, **memory)
    for _ in range(6):
        one.put(other.nid, PORTAL, data=b"x")
        sim.run_until_quiet()
    return sim, one, other


@pytest.mark.requirement("HLD-dyn", "cfg-020")
@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_nothing_is_lost_when_nis_go_and_come_back(first: int) -> None:
    for seed in range(first, first + 20):
        world(seed)


@pytest.mark.requirement("HEALTH-resend", "cfg-020")
@pytest.mark.parametrize("size", [500, 100_000])
@pytest.mark.parametrize("seed", range(3))
def test_puts_go_over_the_other_rail_when_an_ni_is_deleted_by_force(size: int, seed: int) -> None:
    """What was half sent failed, and what had left waited for its time-out."""
    sim = Simulation(seed=seed, link=LinkParams(rate=1e8))
    a = sim.node("a", "10.0.0.1@tcp", "10.1.0.1@tcp1")
    b = sim.node("b", "10.0.0.2@tcp", "10.1.0.2@tcp1")
    b.attach(PORTAL)
    for _ in range(4):
        a.put(b.nid, PORTAL, data=b"hello")
        sim.run_until_quiet()
    puts = [a.put(b.nid, PORTAL, data=bytes(size)) for _ in range(2_000_000 // size)]
    before = b.host.ports["eth1"].received
    sim.run_until(lambda: b.host.ports["eth1"].received > before + 120_000 + 7919 * seed)
    assert not all(put.ended for put in puts)
    a.request(model.NetDel(nids=["10.1.0.1@tcp1"], force=True))
    sim.run_until(lambda: all(put.ended for put in puts), 1.0, must=False)
    assert [f"{put}: {put.status} {put.reason}" for put in puts if not put.ok] == []
    assert a.core.stats.resend_count > 0
    sim.run_until_quiet()
    assert sim.ledger.duplicates == 0


@pytest.mark.requirement("HEALTH-resend", "cfg-020")
@pytest.mark.parametrize("kind", ["put", "get"])
def test_what_no_other_ni_can_send_fails_at_once_when_its_ni_is_deleted_by_force(kind: str) -> None:
    """It waited for its time-out, and the error spoke of the peer."""
    sim = Simulation(seed=1, link=LinkParams(rate=1e8, delay=0.01))
    a = sim.node("a", "10.0.0.1@tcp")
    b = sim.node("b", "10.0.0.2@tcp")
    b.attach(PORTAL)
    a.put(b.nid, PORTAL, data=b"hello")
    sim.run_until_quiet()
    if kind == "put":
        asked = [a.put(b.nid, PORTAL, data=bytes(100)) for _ in range(20)]
    else:
        asked = [a.get(b.nid, PORTAL, size=100) for _ in range(20)]
    sim.run(0.011)  # all have left
    a.request(model.NetDel(nids=["10.0.0.1@tcp"], force=True))
    sim.run_until(lambda: all(one.ended for one in asked), 1.0, must=False)
    assert not any(one.ok for one in asked)
    why = "the local interface 10.0.0.1@tcp was removed: the message may have arrived"
    assert {one.reason for one in asked} == {why}


@pytest.mark.requirement("HEALTH-resend", "cfg-020")
@pytest.mark.parametrize("delay", [1e-5, 1e-4, 1e-3])
@pytest.mark.parametrize("seed", range(3))
def test_puts_to_an_ni_that_its_node_deletes_by_force_go_to_another_one(delay: float, seed: int) -> None:
    """Its push over the other rail may come before the reset: the lost PUTs' hop is nobody's NID then."""
    sim, a, b = met(seed, LinkParams(rate=1e9, delay=delay))
    b.request(model.NetDel(nids=["10.1.0.2@tcp1"], force=True))
    puts = [a.put(b.nid, PORTAL, data=bytes(100)) for _ in range(40)]
    b.request(model.NetAdd(nids=["10.1.0.2@tcp1"]))
    sim.run_until(lambda: all(put.ended for put in puts), 20, must=False)
    assert [put for put in puts if not put.ok] == []
    assert sim.ledger.duplicates == 0


@pytest.mark.requirement("HEALTH-resend", "cfg-020")
@pytest.mark.parametrize("delay", [1e-5, 1e-3])
def test_a_node_with_one_ni_sends_again_what_went_to_an_ni_that_is_deleted(delay: float) -> None:
    """The only pair that is left is that of its NI and the peer's other NID, which is well."""
    link = LinkParams(rate=1e9, delay=delay)
    sim, a, b = met(1, link, a=("10.0.0.1@tcp",), b=("10.0.0.2@tcp", "10.0.0.3@tcp"))
    b.request(model.NetDel(nids=["10.0.0.3@tcp"], force=True))
    puts = [a.put(b.nid, PORTAL, data=bytes(100)) for _ in range(40)]
    sim.run_until(lambda: all(put.ended for put in puts), 20, must=False)
    assert [put for put in puts if not put.ok] == []
    assert sim.ledger.duplicates == 0


@pytest.mark.requirement("HEALTH-resend", "cfg-020")
@pytest.mark.parametrize("seed", range(3))
def test_puts_that_may_not_be_sent_again_fail_when_the_only_nid_of_their_peer_is_deleted(seed: int) -> None:
    """Their attempts are over in a millisecond; they waited for their time-out, though the NID was back."""
    link = LinkParams(rate=1e9, delay=1e-4)
    sim, a, b = met(seed, link, a=("10.0.0.1@tcp", "10.0.0.3@tcp"), b=("10.0.0.2@tcp",))
    puts = [a.put(b.nid, PORTAL, data=bytes(100)) for _ in range(40)]
    b.request(model.NetDel(nids=["10.0.0.2@tcp"], force=True))
    sim.run(0.3)
    b.request(model.NetAdd(nids=["10.0.0.2@tcp"]))
    sim.run(0.7)
    told: dict[int | None, str] = {
        -errno.EHOSTUNREACH: "(sent 3 times, over 2 paths)",
        -errno.ECONNREFUSED: "the peer is gone",
    }
    assert all(told[put.status] in put.reason for put in puts)  # that one of copies that failed for good
    assert sum(put.status == -errno.EHOSTUNREACH for put in puts) > 20
    again = a.put(b.nid, PORTAL, data=b"y")
    sim.run_until_quiet()
    assert again.ok
    assert sim.ledger.duplicates == 0
    assert a.core.stats.msgs_alloc == 0


@pytest.mark.requirement("HEALTH-resend", "cfg-020")
@pytest.mark.parametrize("first", range(0, 30, 10))
def test_puts_end_soon_whichever_ni_is_deleted_by_force(first: int) -> None:
    for seed in range(first, first + 10):
        forced(seed)


@pytest.mark.requirement("HEALTH-resend", "cfg-020")
@pytest.mark.parametrize("seed", [35, 68])
def test_a_half_sent_put_goes_to_the_other_nid_of_a_peer_that_has_lost_one(seed: int) -> None:
    """Of the two pairs that there were, the one that is gone was taken for the one that is left."""
    forced(seed)


def forced(seed: int) -> None:
    """Nodes with two or three rails, from which NIs are taken by force under PUTs, and given back."""
    rng = Random(seed)
    link = LinkParams(rate=rng.choice([1e7, 1e8, 1e9]), delay=rng.choice([1e-5, 1e-3]))
    sim = Simulation(seed=seed, link=link)
    rails = rng.randint(2, 3)
    nodes = [
        sim.node(f"n{number}", *(f"10.{rail}.0.{number}@tcp{rng.choice([0, rail])}" for rail in range(rails)))
        for number in range(1, rng.randint(2, 3) + 1)
    ]
    for node in nodes:
        node.attach(PORTAL)
    puts = []

    def send(count: int) -> None:
        for _ in range(count):
            one, other = rng.sample(nodes, 2)
            puts.append(one.put(other.nid, PORTAL, data=bytes(rng.choice([0, 100, 4096, 100_000]))))

    send(10)
    sim.run(0.05)
    for _ in range(5):
        node = rng.choice(nodes)
        nid = rng.choice(node.nids[1:])
        send(40)
        sim.run(rng.choice([1e-4, 1e-3, 1e-2]))
        node.request(model.NetDel(nids=[str(nid)], force=True))
        if rng.random() < 0.5:
            sim.run(rng.choice([1e-4, 0.1, 1.0]))
        node.request(model.NetAdd(nids=[str(nid)]))
        send(10)
    sim.run_until(lambda: all(put.ended for put in puts), 60, must=False)
    assert [put for put in puts if not put.ended] == [], f"seed {seed}"
    # Who has lost as many attempts as it had, by NIs that went one after the other, is told so.
    assert {put.status for put in puts if not put.ok} <= {-errno.ENETDOWN}, f"seed {seed}"
    sim.run_until_quiet()
    assert sim.ledger.duplicates == 0
    assert [node.core.stats.msgs_alloc for node in nodes] == [0] * len(nodes)


@pytest.mark.requirement("HEALTH-resend", "cfg-020")
@pytest.mark.parametrize("at", [0.1, 0.5, 3, 8])
def test_puts_of_an_ni_that_is_deleted_by_force_wait_for_a_rail_that_is_silent_for_a_while(at: float) -> None:
    """There was no path in that moment: they failed, and what had arrived would have been sent again anew."""
    sim, a, b = met(1, LinkParams(rate=1e8, delay=1e-3))
    for rail in (0, 1):
        sim.partition([f"a.eth{rail}"], [f"b.eth{rail}"])
    puts = [a.put(b.nid, PORTAL, data=bytes(100)) for _ in range(40)]
    sim.run(at)
    a.request(model.NetDel(nids=["10.1.0.1@tcp1"], force=True))
    sim.run(1.5)
    assert [put for put in puts if put.ended] == []
    sim.heal()
    sim.run_until(lambda: all(put.ended for put in puts), 20, must=False)
    assert [put for put in puts if not put.ok] == []
    assert sim.ledger.duplicates == 0


@pytest.mark.requirement("HEALTH-resend", "cfg-020")
def test_gets_are_answered_by_another_ni_where_theirs_is_deleted_by_force() -> None:
    """They failed while their REPLYs, which had not left, were on their way to the other NI."""
    sim, a, b = met(1, LinkParams(rate=1e8, delay=1e-3), size=1_000_000, keep_data=False)
    gets = [a.get(b.nid, PORTAL, size=1_000_000) for _ in range(100)]
    sim.run(0.0022)  # all have left, half of them by either NI
    a.request(model.NetDel(nids=["10.1.0.1@tcp1"], force=True))
    sim.run_until(lambda: all(get.ended for get in gets), 2, must=False)
    assert sum(get.ok for get in gets) > len(gets) // 2
    why = "the local interface 10.1.0.1@tcp1 was removed: the message may have arrived"
    assert {get.reason for get in gets if not get.ok} == {why}


@pytest.mark.requirement("HEALTH-resend", "cfg-020")
@pytest.mark.parametrize("ack", [True, False])
def test_what_waits_for_credits_of_a_nid_that_its_peer_has_deleted_goes_elsewhere(ack: bool) -> None:
    """The peer's push came over the other rail, and the reset never: half of all waited 50 s."""
    sim, a, b = met(1, LinkParams(rate=1e8, delay=1e-3), keep_data=False)
    sim.partition(["a.eth1"], ["b.eth1"])
    puts = [a.put(b.nid, PORTAL, data=bytes(100_000), ack=ack) for _ in range(100)]
    sim.run(0.01)
    b.request(model.NetDel(nids=["10.1.0.2@tcp1"], force=True))
    sim.run(3)
    waiting = [put for put in puts if put.status is None]
    assert len(waiting) <= (0 if ack else 8)  # these have begun to leave, and nobody acknowledges them


@pytest.mark.requirement("HEALTH-resend", "cfg-020")
def test_puts_go_over_another_gateway_when_the_ni_towards_theirs_is_deleted_by_force() -> None:
    """Copies are made in turns of the loop: those whose turn was to come failed."""
    sim = Simulation(seed=1, link=LinkParams(rate=1e9, delay=0.02))
    make_router(sim.node("r1", "10.1.0.9@tcp1", "10.2.0.9@tcp2"))
    make_router(sim.node("r2", "10.4.0.8@tcp4", "10.2.0.8@tcp2"))
    client = sim.node("client", "10.1.0.1@tcp1", "10.4.0.1@tcp4")
    server = sim.node("server", "10.2.0.1@tcp2")
    for node, net, gateway in (
        (client, "tcp2", "10.1.0.9@tcp1"),
        (client, "tcp2", "10.4.0.8@tcp4"),
        (server, "tcp1", "10.2.0.9@tcp2"),
        (server, "tcp4", "10.2.0.8@tcp2"),
    ):
        add_route(node, net, gateway)
    sim.run(SETTLED)
    server.attach(ROUTED, keep_data=False)
    for _ in range(8):
        client.put(server.nid, ROUTED, data=b"x")
        sim.run(1)
    puts = [client.put(server.nid, ROUTED, data=b"x") for _ in range(400)]
    sim.run(0.03)
    client.request(model.NetDel(nids=["10.1.0.1@tcp1"], force=True))
    sim.run_until(lambda: all(put.ended for put in puts), 20, must=False)
    assert [put for put in puts if not put.ok] == []
    assert sim.ledger.duplicates == 0


def rails(count: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The NIDs of two nodes with so many nets."""
    nets = ["tcp", *(f"tcp{number}" for number in range(1, count))]
    one, other = (tuple(f"10.{number}.0.{last}@{net}" for number, net in enumerate(nets)) for last in (1, 2))
    return one, other


@pytest.mark.requirement("HEALTH-resend", "cfg-020")
@pytest.mark.parametrize(("count", "retries", "delay", "gap"), [(2, 0, 0.05, 0.06), (5, 2, 0.2, 0.1)])
def test_puts_that_may_not_be_sent_again_end_when_their_ni_is_deleted_by_force(
    count: int, retries: int, delay: float, gap: float
) -> None:
    """They were left to the guard, which looked at them no more: they waited for their time-out."""
    nids = rails(count)
    sim, a, b = met(1, LinkParams(rate=1e9, delay=delay), *nids, keep_data=False)
    a.core.settings.retry_count = retries
    for _ in range(count):
        a.put(b.nid, PORTAL, data=b"x")
        sim.run_until_quiet()
    puts = [a.put(b.nid, PORTAL, data=bytes(100)) for _ in range(8 * count)]
    sim.run(gap)
    for nid in nids[0][:-1]:
        a.request(model.NetDel(nids=[nid], force=True))
        sim.run(gap)
    sim.run_until(lambda: all(put.ended for put in puts), 3)
    assert {put.status for put in puts} <= {0, -errno.ENETDOWN}
    sim.run_until_quiet()
    assert sim.ledger.duplicates == 0


@pytest.mark.requirement("HEALTH-resend", "cfg-020")
@pytest.mark.parametrize("gap", [0.2, 1.5, 3.0])
def test_puts_end_with_the_last_ni_wherever_they_left(gap: float) -> None:
    """Those of the NI that was deleted first waited for their time-out, on a node without any."""
    sim, a, b = met(1, LinkParams(rate=1e8, delay=1e-3))
    for rail in (0, 1):
        sim.partition([f"a.eth{rail}"], [f"b.eth{rail}"])
    puts = [a.put(b.nid, PORTAL, data=bytes(100)) for _ in range(40)]
    sim.run(0.5)
    a.request(model.NetDel(nids=[A[1]], force=True))
    sim.run(gap)
    a.request(model.NetDel(nids=[A[0]], force=True))
    sim.run_until(lambda: all(put.ended for put in puts), 2)
    assert {put.status for put in puts} == {-errno.ENETDOWN}


@pytest.mark.requirement("HEALTH-resend", "cfg-020")
@pytest.mark.parametrize("gap", [0.6, 0.9])
def test_the_grace_of_an_ni_that_was_deleted_before_ends_nothing_of_another_one(gap: float) -> None:
    """What waited for answers to the NI that went last ended with the grace of the first one."""
    nids = rails(3)
    sim, a, b = met(1, LinkParams(rate=1e8, delay=1e-3), *nids, size=1_000_000, keep_data=False)
    sim.partition(["a.eth1"], ["b.eth1"])
    lost = a.get(nids[1][1], PORTAL, size=10, source=nids[0][1])
    sim.run(0.01)
    a.request(model.NetDel(nids=[nids[0][1]], force=True))
    first = sim.now
    sim.run(gap)
    gets = [a.get(b.nid, PORTAL, size=1_000_000) for _ in range(100)]
    sim.run(0.0022)  # all have left, half of them by either NI
    a.request(model.NetDel(nids=[nids[0][2]], force=True))
    second = sim.now
    sim.run_until(lambda: lost.ended, 2)
    assert sim.now - first < 1.1
    assert not any(get.ended and not get.ok for get in gets)
    sim.run_until(lambda: all(get.ended for get in gets), 2)
    assert 1 <= sim.now - second < 1.2
    assert sum(get.ok for get in gets) > len(gets) // 2
