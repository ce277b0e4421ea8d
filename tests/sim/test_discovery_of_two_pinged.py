"""Two NIDs of one node were pinged, and so are two peers: `discover` of one waits until they are one."""

from __future__ import annotations

import asyncio

import pytest

from ulnet.core.status import LNetTimeoutError
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


def test_a_discovery_asks_again_whoever_was_asked_some_seconds_ago() -> None:
    """It told of one NID where the peer had told of two, until the other peer might be asked again."""
    sim = Simulation(seed=1, link=LinkParams(rate=1e9, delay=1e-4))
    a, b = sim.node("a", *A), sim.node("b", *B)

    async def discovered() -> tuple[list[str], list[str]]:
        for nid in reversed(B):
            await a.node.ping(nid)
        first = await a.node.discover(B[1])
        before = sorted(str(nid) for nid in first.nids())
        await asyncio.sleep(1)
        b.node.del_ni(B[0])
        await asyncio.sleep(1)
        b.node.add_ni(B[0])  # b tells of itself by a push from there
        await asyncio.sleep(0.5)
        peer = await a.node.discover(B[0])
        return before, sorted(str(nid) for nid in peer.nids())

    asked = a.spawn(discovered())
    sim.run_until(asked.done, 12)
    assert asked.result() == (list(B), list(B))


@pytest.mark.parametrize("timeout", [None, 60.0])
def test_a_discovery_that_timed_out_says_what_failed(timeout: float | None) -> None:
    """Without a time of its own it ended with a TypeError."""
    sim = Simulation(seed=1)
    a, b = sim.node("a", *A), sim.node("b", *B)
    b.kill(silent=True)
    asked = a.spawn(a.node.discover(B[0], timeout=timeout))
    sim.run_until(asked.done, 300)
    with pytest.raises(LNetTimeoutError, match="does not answer"):
        asked.result()
