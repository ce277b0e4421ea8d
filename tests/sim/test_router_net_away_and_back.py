"""A net of the next router goes and comes back under traffic: it is one peer again, and its route is used."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from ulnet.nid import Nid
from ulnet.sim import Simulation
from ulnet.sim.actions import request_of
from ulnet.sim.node import SimNode

CHECKS = "routing:\n  alive_router_check_interval: 5\n  router_ping_timeout: 5\n"
NEAR, BETWEEN, FAR = "10.1.0.11@tcp1", "10.5.0.11@tcp5", "10.2.0.20@tcp2"
NEXT = "10.5.0.20@tcp5"
CLIENT, SERVER = Nid.parse("10.1.0.1@tcp1"), Nid.parse("10.2.0.1@tcp2")


def over(net: str, gateway: str) -> str:
    return f"{CHECKS}route:\n  - net: {net}\n    gateway: {gateway}\n"


def change(node: SimNode, **request: object) -> Callable[[], Coroutine[Any, Any, None]]:
    async def run() -> None:
        await node.admin.handle(request_of(request))

    return run


@pytest.mark.parametrize("away", [0.001, 30.0], ids=["at once", "30 s later"])
def test_the_next_router_is_one_peer_again_and_its_route_is_used(away: float) -> None:
    """It stayed two peers for good: the NID behind it was to be asked first, and only it leads there."""
    sim = Simulation(9)
    enable = "  enable: 1\n"
    first = sim.node(
        "first", NEAR, BETWEEN, config=over("tcp2", NEXT).replace("route:", enable + "route:", 1)
    )
    second = sim.node(
        "second", FAR, NEXT, config=over("tcp1", BETWEEN).replace("route:", enable + "route:", 1)
    )
    client = sim.node("client", CLIENT, config=over("tcp2", NEAR))
    server = sim.node("server", SERVER, config=over("tcp1", FAR))
    for node in (client, server):
        node.attach(30, size=1 << 20, keep_data=False)
    sim.run(24.25)
    for _ in range(40):
        client.put(SERVER, 30, data=bytes(200_000))
        server.put(CLIENT, 30, data=bytes(200_000))
    sim.run(0.007)
    second.spawn(change(second, op="net.del", net="tcp5")())
    sim.run(away)
    second.spawn(change(second, op="net.add", nids=[NEXT])())
    sim.run(120)
    assert Nid.parse(NEXT) in second.core.nis
    seen = first.core.peers.find(Nid.parse(NEXT))
    assert seen is not None
    assert sorted(map(str, seen.members)) == [FAR, NEXT]
    sent = client.put(SERVER, 30, data=b"x", timeout=20)
    sim.run_until_quiet()
    assert sent.ok, sent.reason
