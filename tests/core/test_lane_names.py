"""PUTs by lanes have the handles of the general way: some of their own, where a node keeps names."""

from __future__ import annotations

import pytest

from support.lanes import BITS, PORTAL, B, World, lane_is_open
from ulnet.core.guard.identity import is_identity
from ulnet.core.md import Md


def _handles(lanes: bool, guarded: bool) -> list[bytes]:
    """Those of PUTs from two descriptors: some when all were answered, some before."""
    world = World(lanes)
    world.warm()
    here = world.a.peers.find_ni(B)
    assert here is not None
    assert here.peer.guard
    if not guarded:
        here.peer.guard = b""
    found: list[bytes] = []

    def put(md: Md, ack: bool = True) -> None:
        world.put(md, B, PORTAL, BITS, ack=ack)
        found.append(world.fabric.wire[-1][1].wmd)

    one, other = world.bind(b"one"), world.bind(b"other")
    put(one)
    put(one)
    world.fabric.run()
    put(one)
    put(other, ack=False)
    put(other)
    put(one)
    world.fabric.run()
    put(other)
    world.fabric.run()
    assert lane_is_open(world) is lanes
    for md in (one, other):
        world.a.memory.md_unlink(md)
    world.fabric.assert_conserved()
    return found


@pytest.mark.parametrize("guarded", [True, False])
def test_the_handles_of_a_lane_are_those_of_the_general_way(guarded: bool) -> None:
    handles = _handles(True, guarded)
    assert handles == _handles(False, guarded)
    named = [is_identity(handle) for handle in handles]  # not while an answer to that descriptor is due
    assert named == [guarded, False, guarded, False, guarded, False, guarded]
