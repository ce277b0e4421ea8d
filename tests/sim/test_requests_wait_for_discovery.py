"""Requests to a peer that nobody has asked yet wait until it is known, and so do those behind them."""

from __future__ import annotations

import pytest

from ulnet.nid import Nid
from ulnet.sim import Simulation

B = Nid.parse("10.0.0.2@tcp")


@pytest.mark.requirement("dyn-020")
@pytest.mark.parametrize("ack", [False, True, None], ids=["one-way", "acknowledged", "get"])
def test_equal_requests_of_one_turn_all_wait(ack: bool | None) -> None:
    sim = Simulation(seed=7)
    a = sim.node("a", "10.0.0.1@tcp", "10.1.0.1@tcp1")
    b = sim.node("b", "10.0.0.2@tcp", "10.1.0.2@tcp1")
    b.attach(30, size=1 << 20)
    parked: list[int] = []

    def ask() -> None:
        md = a.core.memory.md_bind(bytearray(64), lambda event: None)
        for _ in range(5):
            if ack is None:
                a.core.get(md, B, 30, 0)
            else:
                a.core.put(md, B, 30, 0, ack=ack)
        found = a.core.peers.find_ni(B)
        assert found is not None
        parked.append(len(found.peer.parked))

    a.loop.enter(ask)
    assert parked == [5]
