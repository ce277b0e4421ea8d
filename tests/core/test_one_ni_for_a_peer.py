"""A peer without Multi-Rail hears from one NI; when that one goes, from one other (spec selection.md §9)."""

from __future__ import annotations

import pytest

from support.fabric import Fabric, Recorder
from ulnet.control.instance import LNet
from ulnet.nid import Nid

LOCAL = [Nid.parse(f"10.0.0.{n}@tcp") for n in range(1, 5)]
PEER = Nid.parse("10.0.0.9@tcp")


class Sending:
    """One node with four NIs, and a peer without Multi-Rail; it notes from which NI each PUT leaves."""

    def __init__(self, *near: Nid, target: Nid = PEER) -> None:
        self.fabric = Fabric()
        self.core: LNet = self.fabric.node(*map(str, near or LOCAL))
        self.core.set_discovery(0)
        self.target = target
        self.core.peers.add(target, multi_rail=False)
        self.ends = Recorder()

    def sources(self, count: int = 6, source: Nid | None = None) -> list[Nid]:
        found = []
        for _ in range(count):
            md = self.core.memory.md_bind(b"x", self.ends, threshold=1)
            self.core.put(md, self.target, 5, 7, ack=False, source=source)
            for core in self.fabric.cores:
                core.tick(self.fabric.clock.now)
            ni, msg = self.fabric.wire.pop()
            found.append(ni.nid)
            assert msg.hdr.src_nid == ni.nid
            self.core.completed([msg])
        return found


def test_another_ni_is_chosen_once_when_the_one_that_it_knows_is_deleted() -> None:
    world = Sending()
    (first,) = set(world.sources())
    world.core.del_ni(first)
    (second,) = set(world.sources())
    assert second != first
    world.core.add_ni(first.net, first)
    assert set(world.sources()) == {second}  # it does not change once more


def test_the_same_while_it_is_about_to_go_and_stays_after_all() -> None:
    world = Sending()
    (first,) = set(world.sources())
    leaving = world.core.leaving
    leaving.begin([world.core.nis[first]])
    (second,) = set(world.sources())
    assert second != first
    leaving.stay([world.core.nis[first]])
    assert set(world.sources()) == {second}


@pytest.mark.requirement("snd-070")
def test_a_message_bound_to_another_ni_changes_nothing() -> None:
    world = Sending()
    (first,) = set(world.sources())
    other = next(nid for nid in LOCAL if nid != first)
    assert set(world.sources(source=other)) == {other}
    assert set(world.sources()) == {first}


def test_a_net_that_is_reached_directly_from_now_on_is_reached_from_one_ni() -> None:
    """The NI that the peer knew is on the net of a gateway."""
    far = Nid.parse("10.1.0.9@tcp1")
    near = [Nid.parse(f"10.1.0.{n}@tcp1") for n in range(1, 4)]
    world = Sending(LOCAL[0], target=far)
    world.core.gateways.add(far.net, PEER, -1, 0)
    assert set(world.sources()) == {LOCAL[0]}
    world.core.gateways.remove(world.core.gateways.table.find(far.net, PEER))
    for nid in near:
        world.core.add_ni(nid.net, nid)
    assert len(set(world.sources())) == 1


@pytest.mark.requirement("RTR")
def test_another_gateway_is_reached_from_one_ni() -> None:
    """The NI that the peer knew has no way there any more."""
    far, other_net = Nid.parse("10.7.0.9@tcp7"), Nid.parse("10.1.0.1@tcp1").net
    near = [Nid.parse(f"10.1.0.{n}@tcp1") for n in range(1, 4)]
    world = Sending(LOCAL[0], *near, target=far)
    gateways = world.core.gateways
    gateways.add(far.net, PEER, -1, 0)
    assert set(world.sources()) == {LOCAL[0]}
    gateways.add(far.net, Nid.parse("10.1.0.9@tcp1"), -1, 0)
    assert set(world.sources()) == {LOCAL[0]}
    gateways.remove(gateways.table.find(far.net, PEER))
    (second,) = set(world.sources())
    assert second.net == other_net
    gateways.add(far.net, PEER, -1, 0)
    assert set(world.sources()) == {second}
