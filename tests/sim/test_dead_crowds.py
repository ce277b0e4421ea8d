"""Peers that cannot be reached hold up nobody else."""

from __future__ import annotations

import pytest

from ulnet.sim import SimNode, Simulation

PORTAL = 30
LIVE, DEAD = 10, 1000


def crowd(sim: Simulation, silent: bool) -> tuple[SimNode, list[SimNode], list[SimNode]]:
    """A server, clients that it knows, and far more that are gone."""
    server = sim.node("s", "10.0.0.1@tcp")
    live = [sim.node(f"c{n}", f"10.0.1.{n}@tcp") for n in range(1, LIVE + 1)]
    dead = [sim.node(f"d{n}", f"10.1.{n // 250}.{n % 250 + 1}@tcp") for n in range(DEAD)]
    for node in (server, *live):
        node.attach(PORTAL)
    for client in live:
        client.put(server.nid, PORTAL, data=b"hello")
    sim.run_until_quiet()
    for node in dead:
        node.kill(silent=silent)
    return server, live, dead


def slowest_ping(sim: Simulation, server: SimNode, live: list[SimNode]) -> float:
    """Seconds, of pings by the clients and of answers that the server sends them unasked."""
    worst = 0.0
    for _ in range(20):
        began = sim.now
        operations = [client.ping(server.nid, timeout=20) for client in live]
        operations += [server.put(client.nid, PORTAL, data=b"news", timeout=20) for client in live]
        sim.run_until(lambda these=operations: all(one.ended for one in these), 30)  # type: ignore[misc]
        assert [one.reason for one in operations if not one.ok] == []
        worst = max(worst, sim.now - began)
        sim.run(0.1)
    return worst


@pytest.mark.requirement("dbg-060")
@pytest.mark.parametrize("silent", [True, False])
def test_a_thousand_dead_clients_hold_up_none_of_ten(silent: bool) -> None:
    """What is sent to the dead waits for connections: with credits of the dead, not with those of the NI."""
    sim = Simulation(1)
    server, live, dead = crowd(sim, silent)
    before = slowest_ping(sim, server, live)
    lost = [server.put(node.nid, PORTAL, data=b"answer") for node in dead]
    sim.run(0.5)
    assert slowest_ping(sim, server, live) <= 2 * before
    sim.run_until(lambda: all(put.ended for put in lost), 400)
    assert not any(put.ok for put in lost)
    sim.run_until_quiet()
