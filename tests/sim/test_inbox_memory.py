"""Memory of messages that were read is free at once, not when Python looks for cycles."""

from __future__ import annotations

import gc

import pytest

from ulnet.sim import Simulation

pytestmark = pytest.mark.requirement("ULP")


@pytest.mark.parametrize("size", [100, 20_000])
def test_an_inbox_needs_no_search_for_cycles(size: int) -> None:
    sim = Simulation(1)
    home, other = sim.node("s", "10.0.0.1@tcp"), sim.node("c", "10.0.0.2@tcp")
    lengths: list[int] = []
    inbox = home.loop.enter(
        lambda: home.node.inbox(
            30, 1, slots=4, size=20_000, handler=lambda message: lengths.append(len(message.data))
        )
    )

    async def send() -> None:
        for _ in range(200):
            await other.node.put("10.0.0.1@tcp", 30, 1, bytes(size))

    gc.collect()
    gc.disable()
    try:
        other.spawn(send())
        sim.run_until(lambda: len(lengths) == 200)
        assert inbox.dropped == 0
    finally:
        gc.enable()
    home.loop.enter(inbox.close)
