"""What becomes of one peer leaves the ways to all others as they are: there may be thousands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.lanes import BITS, PORTAL, A, B, World, lane_is_open, small_puts
from ulnet.core.instance import LNet
from ulnet.core.peer import PeerNi
from ulnet.nid import Nid

OTHER = Nid.parse("10.0.0.3@tcp")

CHANGES: dict[str, Callable[[LNet, PeerNi], None]] = {
    "stall": lambda a, pni: a.path_stalled(a.nis[A], pni.nid),
    "health": lambda a, pni: a.health.values.set_peer(pni, 500),
}
BACK: dict[str, Callable[[LNet, PeerNi], None]] = {
    "stall": lambda a, pni: a.path_moving(a.nis[A], pni.nid),
    "health": lambda a, pni: a.health.values.set_peer(pni, 1000),
}


@pytest.mark.parametrize("what", CHANGES)
def test_only_its_own_lanes_are_made_anew(what: str) -> None:
    world = World(True)
    world.fabric.node(str(OTHER), discovery=True)
    world.warm()
    small_puts(world, 3, ack=True)
    assert lane_is_open(world)
    here = world.a.peers.find_ni(B)
    assert here is not None
    lane = here.lane
    md = world.bind(b"to the other")
    for _ in range(3):
        world.put(md, OTHER, PORTAL, BITS, ack=False)
        world.fabric.run()
    other = world.a.peers.find_ni(OTHER)
    assert other is not None
    for change in (CHANGES, BACK):
        before = other.peer.paces.changes
        change[what](world.a, other)
        assert other.peer.paces.changes > before
        assert not other.peer.standings
        small_puts(world, 3, ack=True)
        assert lane_is_open(world) and here.lane is lane


@pytest.mark.parametrize("what", CHANGES)
def test_the_peer_itself_is_chosen_anew(what: str) -> None:
    world = World(True)
    world.warm()
    small_puts(world, 3, ack=True)
    here = world.a.peers.find_ni(B)
    assert here is not None
    CHANGES[what](world.a, here)
    assert not lane_is_open(world)
    small_puts(world, 2, ack=True)
    BACK[what](world.a, here)
    md = small_puts(world, 3, ack=True)
    assert lane_is_open(world)
    world.a.memory.md_unlink(md)
    world.fabric.assert_conserved()
