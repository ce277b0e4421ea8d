"""A gateway that tells of many nets, and then of none: what waits and what has left is looked at once."""

from __future__ import annotations

import pytest

from support.fabric import Fabric
from ulnet.core.tunables import NetTunables
from ulnet.nid import Nid
from ulnet.wire.ping import NiEntry, NiStatus, PingInfo

GATEWAY, OTHER = Nid.parse("10.0.0.7@tcp"), Nid.parse("10.0.0.8@tcp")
FAR = Nid.parse("10.9.0.9@tcp9")
NETS = [Nid.parse(f"10.9.0.7@tcp{number}") for number in range(9, 400)]


@pytest.mark.requirement("HEALTH-resend", "RTR")
def test_a_gateway_that_loses_hundreds_of_nets_at_once_is_looked_behind_once() -> None:
    """Each net was a look at all that waits and all that is under way, in one turn."""
    fabric = Fabric()
    core = fabric.node("10.0.0.1@tcp", tunables=NetTunables(peer_credits=4, credits=64))
    core.gateways.add(FAR.net, GATEWAY, 1, 0)
    peer = core.peers.find(GATEWAY)
    assert peer is not None
    core.gateways.told(peer, PingInfo(0, entries=[NiEntry(nid) for nid in (GATEWAY, *NETS)]))
    for _ in range(12):
        core.put(core.memory.md_bind(b"x", threshold=2), FAR, 30, 1)
    core.tick(fabric.clock.now)
    assert {msg.next_nid for _, msg in fabric.wire} == {GATEWAY}
    core.gateways.add(FAR.net, OTHER, 1, 0)
    core.tick(fabric.clock.now)
    before = len(fabric.wire)
    assert before == 4, "8 wait for credits of the gateway"
    down = [NiEntry(nid, NiStatus.DOWN) for nid in NETS]
    core.gateways.told(peer, PingInfo(0, entries=[NiEntry(GATEWAY), *down]))
    assert len(core.state._deferred) < 12
    core.gateways.routes_changed()
    while core.state.work_pending:
        core.tick(fabric.clock.now)
    assert [msg.next_nid for _, msg in list(fabric.wire)[before:]] == [OTHER] * 4
