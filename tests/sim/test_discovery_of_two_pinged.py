"""Two NIDs of one node were pinged, and so are two peers: `discover` of one waits until they are one."""

from __future__ import annotations

import pytest

from ulnet.sim import LinkParams, Simulation

A = ("10.0.0.1@tcp", "10.1.0.1@tcp1")
B = ("10.0.0.2@tcp", "10.1.0.2@tcp1")

pytestmark = pytest.mark.requirement("HLD-fsm")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("silent", [False, True])
def test_a_discovery_ends_when_the_merge_that_is_under_way_has(seed: int, silent: bool) -> None:
    """It told of one NID, and both were there shortly after."""
    sim = Simulation(seed=seed, link=LinkParams(rate=1e9, delay=1e-4))
    a, _ = sim.node("a", *A), sim.node("b", *B)

    async def discovered() -> list[str]:
        for nid in B:
            await a.node.ping(nid)
        if silent:
            sim.partition(["a.eth1"], ["b.eth1"])
        peer = await a.node.discover(B[0])
        return sorted(str(nid) for nid in peer.nids())

    asked = a.spawn(discovered())
    sim.run_until(asked.done, 6)
    assert B[0] in asked.result()
    if not silent:
        assert asked.result() == list(B)
