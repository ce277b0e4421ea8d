"""Routers in a row and in a ring, loaded from both sides: their buffers never wait for each other."""

from __future__ import annotations

import pytest

from support.routed import PORTAL, SETTLED, add_route, gate_at_rest, make_router
from ulnet.core.tunables import LndTunables
from ulnet.sim import SimNode, Simulation

_SIZE = 50_000  # of a message: it takes a large buffer


def _world(seed: int = 1) -> Simulation:
    sim = Simulation(seed)
    sim.properties.append(gate_at_rest)
    return sim


def row(sim: Simulation, length: int, ends: int) -> tuple[list[SimNode], list[SimNode], list[SimNode]]:
    """Routers between tcp1 and the last net, and so many ends on each of these two."""
    last = length + 1
    routers = [
        make_router(sim.node(f"r{n}", f"10.{n}.0.9@tcp{n}", f"10.{n + 1}.0.8@tcp{n + 1}"))
        for n in range(1, last)
    ]
    for n, router in enumerate(routers, 1):
        for there in range(n + 2, last + 1):
            add_route(router, f"tcp{there}", f"10.{n + 1}.0.9@tcp{n + 1}")
        for there in range(1, n):
            add_route(router, f"tcp{there}", f"10.{n}.0.8@tcp{n}")
    near = [sim.node(f"a{n}", f"10.1.1.{n}@tcp1") for n in range(1, ends + 1)]
    far = [sim.node(f"b{n}", f"10.{last}.1.{n}@tcp{last}") for n in range(1, ends + 1)]
    for there in range(1, last + 1):
        for node in near if there > 1 else ():
            add_route(node, f"tcp{there}", "10.1.0.9@tcp1")
        for node in far if there < last else ():
            add_route(node, f"tcp{there}", f"10.{last}.0.8@tcp{last}")
    sim.run(SETTLED)
    return routers, near, far


def _buffers(routers: list[SimNode], count: int) -> None:
    for router in routers:
        router.loop.enter(router.core.router.set_buffers, count, count, count)


@pytest.mark.requirement("RTR")
@pytest.mark.parametrize("buffers", [1, 2, 3, 16])
@pytest.mark.parametrize("length", [2, 3, 4])
def test_a_row_of_routers_loaded_from_both_sides_goes_on(length: int, buffers: int) -> None:
    """Each router's buffers hold messages for the next one, in both directions."""
    sim = _world()
    routers, near, far = row(sim, length, ends=4)
    _buffers(routers, buffers)
    for node in (*near, *far):
        node.attach(PORTAL)
    pairs = [pair for one, other in zip(near, far, strict=True) for pair in ((one, other), (other, one))]
    puts = [one.put(other.nid, PORTAL, data=bytes(_SIZE)) for one, other in pairs for _ in range(24)]
    sim.run_until(lambda: all(put.ended for put in puts), 40)
    assert [(put.status, put.reason) for put in puts if not put.ok] == []
    assert sum(router.core.stats.drop_length for router in routers) == 0
    sim.run_until_quiet()


@pytest.mark.requirement("RTR")
@pytest.mark.parametrize("buffers", [1, 4])
@pytest.mark.parametrize("seed", range(3))
def test_a_ring_of_routers_in_which_all_goes_one_way_round_goes_on(seed: int, buffers: int) -> None:
    """Each router has messages for the next one from the one before, and all of them go on."""
    sim = _world(seed)
    count, away = 6, 5  # nets, and how many routers a message passes
    routers = []
    for n in range(count):
        after = (n + 1) % count
        routers.append(make_router(sim.node(f"r{n}", f"10.{n}.0.9@tcp{n}", f"10.{after}.0.8@tcp{after}")))
    for n, router in enumerate(routers):
        after = (n + 1) % count
        for there in range(count):
            if there not in (n, after):
                add_route(router, f"tcp{there}", f"10.{after}.0.9@tcp{after}")
                add_route(router, f"tcp{there}", f"10.{n}.0.8@tcp{n}", priority=1)
    ends = [sim.node(f"e{n}.{k}", f"10.{n}.1.{k}@tcp{n}") for n in range(count) for k in range(1, 5)]
    for at, node in enumerate(ends):
        n = at // 4
        for there in range(count):
            if there != n:
                add_route(node, f"tcp{there}", f"10.{n}.0.9@tcp{n}")
                add_route(node, f"tcp{there}", f"10.{n}.0.8@tcp{n}", priority=1)
        node.attach(PORTAL)
    sim.run(SETTLED)
    _buffers(routers, buffers)
    puts = [
        node.put(ends[(at + 4 * away) % len(ends)].nid, PORTAL, data=bytes(_SIZE), ack=False)
        for at, node in enumerate(ends)
        for _ in range(24)
    ]
    inboxes = [node.inboxes[-1] for node in ends]
    sim.run_until(lambda: sum(len(inbox.deliveries) for inbox in inboxes) == len(puts), 120)
    assert sum(router.core.stats.drop_length for router in routers) == 0
    sim.run_until_quiet()


@pytest.mark.requirement("RTR")
@pytest.mark.parametrize(("size", "buffers"), [(100, 30), (_SIZE, 30), (_SIZE, 8)])
def test_what_waits_in_a_router_is_dropped_when_its_time_is_up(size: int, buffers: int) -> None:
    """Wherever it waits: for a router credit, for a buffer, or for credits of the way on.

    Of eight buffers the driver has all that one node may hold: nothing moves where the others wait.
    """
    sim = _world()
    router = sim.node("r")
    for nid in ("10.1.0.9@tcp1", "10.2.0.9@tcp2"):
        router.add_ni(nid, lnd_tunables=LndTunables(timeout=100))
    make_router(router)
    ends = [sim.node(f"a{n}", f"10.1.1.{n}@tcp1") for n in range(1, 4)]
    far, well = sim.node("b", "10.2.1.1@tcp2"), sim.node("w", "10.2.1.2@tcp2")
    for node in ends:
        add_route(node, "tcp2", "10.1.0.9@tcp1")
    for node in (far, well):
        add_route(node, "tcp1", "10.2.0.9@tcp2")
        node.attach(PORTAL)
    sim.run(SETTLED)
    _buffers([router], buffers)
    for node in ends:
        node.put(far.nid, PORTAL, data=b"so that it is known")
        node.put(well.nid, PORTAL, data=b"so that it is known")
    sim.run_until_quiet()
    router.core.settings.transaction_timeout = 5
    cut = sim.partition(["r"], ["b"])
    for node in ends:
        for _ in range(10):
            node.put(far.nid, PORTAL, data=bytes(size), ack=False, timeout=60)
    stats, gate = router.core.stats, router.core.router.gate
    sim.run(60)
    pni = router.core.peers.find_ni(far.nid)
    assert pni is not None
    assert not pni.tx_queue
    assert len(gate) <= pni.max_tx_credits  # only those that their driver has
    if size == _SIZE:  # small ones count as sent once they have left
        assert stats.drop_count >= 16
    if buffers < 30:
        assert stats.drops["its time was up before it could be sent on"] >= 9
    good = [node.put(well.nid, PORTAL, data=bytes(size), timeout=5) for node in ends]
    sim.run(5)
    assert all(put.ok for put in good)
    sim.heal(cut)
    sim.run(200)
    sim.run_until_quiet()
