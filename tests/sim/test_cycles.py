"""What is over is freed at once: a daemon's searches for cycles hold up everybody."""

from __future__ import annotations

import pytest

from support.cycles import left_in_cycles
from ulnet.core.status import LNetError
from ulnet.sim import Simulation

ENDED = {"Exchange", "Md", "Peer", "PeerNet", "PeerNi", "Latency", "Generation"}


@pytest.mark.pure  # compiled code makes cycles of its own
@pytest.mark.requirement("bck-025")
def test_peers_that_were_never_there_leave_no_cycles() -> None:
    """Each had left some thirty objects: the exchange that asked it who it is had it for ever."""
    sim = Simulation(seed=1)
    a = sim.node("a", "10.0.0.1@tcp")
    a.configure("global: {transaction_timeout: 2, retry_count: 0}")

    async def ask() -> None:
        for number in range(100):
            with pytest.raises(LNetError):
                await a.node.discover(f"10.0.1.{number}@tcp")

    with left_in_cycles() as found:
        asked = a.spawn(ask())
        sim.run_until(asked.done, 3000)
        asked.result()
        for peer in a.core.peers:
            a.core.peers.forget(peer)
    assert len(a.core.peers) < 2  # the last one waits for its turn yet
    for one in ENDED:  # a few may be of what other tests had
        assert found.count(one) < 50, one
