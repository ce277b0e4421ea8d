"""Router buffers and credits come back, whatever ends what passes through."""

from __future__ import annotations

import pytest

from sim.test_routed_hazards import simulation, two_routers
from support.routed import PORTAL
from ulnet.nid import Net, Nid


@pytest.mark.requirement("RTR", "HLD-dyn")
@pytest.mark.parametrize("how", ["del_ni", "shutdown", "connection"])
def test_what_passes_gives_everything_back_whatever_ends_it(how: str) -> None:
    """In the middle of a stream an NI of the router goes, the router shuts down, or a sender's connection."""
    sim = simulation()
    client, one, other, server = two_routers(sim)
    server.attach(PORTAL)
    for router in (one, other):
        router.loop.enter(router.core.router.set_buffers, None, None, 2)
    puts = [client.put(server.nid, PORTAL, data=bytes(200_000), timeout=20) for _ in range(60)]
    core = one.core
    sim.run_until(lambda: any(True for _ in core.router.gate.waiting()), 1)
    assert core.router.gate.pools.in_use > 0
    if how == "del_ni":
        one.del_ni("10.2.0.8@tcp2")
    elif how == "shutdown":
        one.loop.enter(core.shutdown)
        assert core.stats.msgs_alloc == 0
    else:
        client.kill()
    sim.run(200)
    assert len(core.router.gate) == 0
    assert core.router.gate.pools.in_use == 0
    assert all(pool.credits == pool.count for pool in core.router.gate.pools)
    assert not core.routing._forwarding._held  # nothing is kept of connections that died
    if how != "connection":
        assert all(put.ended for put in puts)
        again = [client.put(server.nid, PORTAL, data=bytes(5000), timeout=20) for _ in range(10)]
        sim.run(100)
        assert sum(put.ok for put in again) == 10


@pytest.mark.requirement("RTR", "HLD-dyn")
def test_a_net_that_comes_and_goes_under_what_passes_leaves_its_credits_right() -> None:
    sim = simulation()
    client, one, _, server = two_routers(sim)
    server.attach(PORTAL)
    client.loop.enter(
        client.core.gateways.remove, client.core.gateways.table.find(None, Nid.parse("10.1.0.9@tcp1"))
    )
    warm = client.put(server.nid, PORTAL, data=b"so that it is known")
    sim.run(1)
    assert warm.ok
    cut = sim.partition(["r1"], ["s"])
    puts = [client.put(server.nid, PORTAL, data=bytes(200_000), timeout=20) for _ in range(20)]
    sim.run(1)
    assert one.core.router.gate.pools.in_use
    one.del_ni("10.1.0.8@tcp1")
    one.add_ni("10.1.0.8@tcp1")
    sim.heal(cut)
    sim.run(5)
    sim.run_until_quiet()  # which looks at the gate
    assert all(put.ended for put in puts)
    sender = one.core.peers.find_ni(client.nid)
    assert sender is not None
    assert sender.rtr_credits == sender.max_rtr_credits == one.core.gateways.router_credits(Net.parse("tcp1"))


@pytest.mark.requirement("RTR")
@pytest.mark.parametrize("size", [200, 20_000])
def test_without_its_route_a_message_to_a_peer_without_rails_fails_at_once(size: int) -> None:
    """The NI that such a peer hears from is on another net: without a gateway nothing may wait there."""
    sim = simulation()
    client, _, _, server = two_routers(sim)
    server.loop.enter(server.core.set_discovery, 0)
    server.attach(PORTAL)
    before = client.put(server.nid, PORTAL, data=bytes(size))
    sim.run(1)
    assert before.ok
    client.loop.enter(client.core.gateways.clear)
    after = client.put(server.nid, PORTAL, data=bytes(size), timeout=20)
    sim.run(1)
    assert after.ended
    assert "no route to 10.2.0.1@tcp2" in after.reason
    sim.run_until_quiet()
