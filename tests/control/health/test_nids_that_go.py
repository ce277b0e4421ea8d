"""NIDs that a peer has no longer: who waits for others is not looked at for each of them."""

from __future__ import annotations

import pytest

from support.fabric import Fabric
from ulnet.core.peer import PeerFlag
from ulnet.core.tunables import NetTunables
from ulnet.nid import Nid

NIDS = 200
PRIMARY = Nid.parse("10.0.0.2@tcp")
OTHERS = [Nid.parse(f"10.0.1.{number}@tcp") for number in range(NIDS)]


@pytest.mark.requirement("dyn-055", "HEALTH-resend")
def test_what_waits_for_others_is_let_alone_and_what_waits_for_them_sets_out_anew() -> None:
    """4,000 messages waited for credits of the NI, and a peer dropped 1,000 NIDs: 450 ms in one turn."""
    fabric = Fabric()
    core = fabric.node("10.0.0.1@tcp", tunables=NetTunables(peer_credits=1, credits=4))
    pni = core.peers.learn(PRIMARY)
    assert pni is not None
    peer = pni.peer
    peer.mark(PeerFlag.MULTI_RAIL)
    assert not any(core.peers.adopt(peer, nid, OTHERS) for nid in OTHERS)
    for number in range(20):
        core.put(core.memory.md_bind(b"x", threshold=2), Nid.parse(f"10.0.2.{number}@tcp"), 30, 1)
    core.put(core.memory.md_bind(b"x", threshold=2), OTHERS[0], 30, 1)
    core.tick(fabric.clock.now)
    (queue,) = core.nis[Nid.parse("10.0.0.1@tcp")].tx_queues
    assert len(queue.waiting) == 20 + 1 - 4
    core.peers.keep_only(peer, [PRIMARY])
    assert list(peer.members) == [PRIMARY]
    assert len(core.state._deferred) < 10
    for _ in range(30):
        core.tick(fabric.clock.now)
        while fabric.wire:
            core.completed([fabric.wire.popleft()[1]])
    assert not queue.waiting
    assert queue.credits == 4
    assert [pni.tx_queued_bytes for pni in core.peers.nis()] == [0] * len(list(core.peers.nis()))
