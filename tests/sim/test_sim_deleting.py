"""Requests take NIs away and give them back while messages flow, seed by seed: nothing is lost, or twice."""

from __future__ import annotations

from random import Random

import pytest

from ulnet.dlc import model
from ulnet.sim import LinkParams, Simulation

PORTAL = 30
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


@pytest.mark.requirement("HLD-dyn", "cfg-020")
@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_nothing_is_lost_when_nis_go_and_come_back(first: int) -> None:
    for seed in range(first, first + 20):
        world(seed)
