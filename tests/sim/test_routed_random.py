"""Random routed worlds: routers side by side or in a row, small buffers, and every kind of trouble at once.

In the end everything is mended: then all router buffers and credits are back, and messages pass.
"""

from __future__ import annotations

from random import Random

import pytest

from sim.test_routed_hazards import simulation, two_routers
from support.routed import PORTAL, SETTLED
from ulnet.core.routing import RoutingState
from ulnet.sim import SimNode, Simulation
from ulnet.sim.random_run import RECIPES, replay


@pytest.mark.requirement("RTR", "tst-005")
@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1000, 1500))]
)
def test_random_routed_worlds_give_everything_back(seed: int) -> None:
    outcome = replay(RECIPES["routed"], seed)
    assert outcome.ok, outcome.failure


def test_random_routed_worlds_are_routed() -> None:
    """A world in which nothing passes a router, or all does, would find nothing."""
    passed = ended = total = 0
    for seed in range(8):
        run = replay(RECIPES["routed"], seed).run
        passed += sum(node.core.stats.route_count for node in run.sim.nodes.values())
        total += len(run.operations)
        ended += sum(operation.ok for operation in run.operations)
    assert passed > 500
    assert total / 3 < ended < total


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
