"""Over several rails, too, what handlers of a run send is posted in sum, and ACKs of a run land in sum."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.lanes import A, B, RailWorld
from support.runs import Chain, RunFabric, WireOutlet, gathering
from ulnet.core.event import EventKind
from ulnet.core.gather import Gather
from ulnet.core.lane import Lane
from ulnet.core.peer import Peer

CHAINS = st.lists(  # left, first, each, ack
    st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(1, 3), st.booleans()),
    min_size=1,
    max_size=4,
)
SHAPES = [(2, 1), (4, 4), (5, 2)]  # rails, and nets that they are on


def rail_world(shape: tuple[int, int], credits: int, *, runs: bool = True) -> RailWorld:
    world = RailWorld(True, *shape, "expected", credits, True)
    if runs:
        world.fabric.__class__ = RunFabric
    return world


def ways_of(world: RailWorld) -> list[Lane]:
    pni = world.a.peers.find_ni(B)
    assert pni is not None
    if pni.rails is None:
        return []
    return [way for ways in pni.rails.ways.values() for way in ways.values()]


def peer_of(world: RailWorld) -> Peer:
    peer = world.a.peers.find(B)
    assert peer is not None
    return peer


def open_outlets(world: RailWorld) -> None:
    """The driver has said where small messages are queued."""
    assert isinstance(world.fabric, RunFabric)
    for way in ways_of(world):
        if way.outlet is None:
            way.outlet = WireOutlet(world.fabric, way.ni)


def play(world: RailWorld, chains: list[tuple[int, int, int, bool]], outlets: bool) -> tuple[object, ...]:
    """All that can be seen of a program whose handlers send, while it runs and at its end."""
    played, seen = [], []
    for left, first, each, ack in chains:
        chain = Chain(world, left, EventKind.ACK if ack else EventKind.SEND, each)
        chain.also = lambda: seen.append([flow.outstanding for flow in settled(world).flows.values()])
        played.append(chain)
        for _ in range(first):
            chain.send()
            if outlets:
                open_outlets(world)
        world.fabric.run()
        assert not chain.left
        assert not chain.md.flights
    world.fabric.assert_conserved()
    assert not world.fabric.complaints
    return seen, [chain.seen.seen for chain in played], world.seen(True), world.arrived.seen


def settled(world: RailWorld) -> Peer:
    world.a.state.settle()
    return peer_of(world)


@pytest.mark.pure  # whose outlet a test may make
@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=12, deadline=None)
@given(chains=CHAINS, credits=st.sampled_from([4, 9, 300]))
def test_in_sum_or_one_by_one(
    shape: tuple[int, int], credits: int, chains: list[tuple[int, int, int, bool]]
) -> None:
    in_sum = play(rail_world(shape, credits), chains, True)
    with patch.object(Gather, "gather", lambda self, lane, now: None):
        assert in_sum == play(rail_world(shape, credits, runs=False), chains, False)


@pytest.mark.parametrize("kind", [EventKind.SEND, EventKind.ACK])
def test_handlers_of_a_run_send_together_by_each_rail(kind: EventKind) -> None:
    world = rail_world((4, 4), 300)
    chain = Chain(world, 600, kind)
    together: set[Lane] = set()
    chain.also = lambda: together.update(way for way in ways_of(world) if way.gathered)
    for _ in range(64):
        chain.send()
    world.fabric.run()
    assert together == set(ways_of(world))
    assert len(together) == 4
    assert not gathering(world)
    assert not any(way.gathered for way in ways_of(world))
    world.fabric.assert_conserved()


@pytest.mark.parametrize("one_ni", [False, True])  # which has fewer credits than the NIDs it leads to
def test_no_more_are_gathered_than_there_are_credits(one_ni: bool) -> None:
    world = rail_world((5, 2) if one_ni else (2, 2), 6)
    if one_ni:
        for ni in world.a.nis.values():
            ni.open = ni.nid == A
        world.a.settings_changed()
    chain = Chain(world, 300, EventKind.SEND, 3)
    most = 0

    def look() -> None:
        nonlocal most
        for way in ways_of(world):
            if way.gathered:
                most = max(most, len(way.gathered))
                assert len(way.gathered) <= way.pni.tx_credits

    chain.also = look
    for _ in range(18 if one_ni else 12):
        chain.send()
    world.fabric.run()
    assert not world.fabric.complaints
    assert most > 1 or one_ni
    world.fabric.assert_conserved()


def test_acks_of_a_run_have_landed_for_all_who_look() -> None:
    """What is under way shrinks by a message with each ACK, though they are counted together."""
    world = rail_world((2, 2), 300)
    chain = Chain(world, 0, EventKind.ACK)
    loads: list[int] = []
    chain.also = lambda: loads.append(sum(flow.outstanding for flow in settled(world).flows.values()))
    for _ in range(16):
        chain.send()
    world.fabric.run()
    assert loads == [136 * count for count in range(15, -1, -1)]


@pytest.mark.parametrize("change", ["unlink", "remove", "shut down", "flags"])
@pytest.mark.parametrize("kind", [EventKind.SEND, EventKind.ACK])
def test_a_handler_changes_all_behind_what_it_sent(change: str, kind: EventKind) -> None:
    world = rail_world((3, 3), 300)
    chain = Chain(world, 200, kind)
    calls = 0

    def act() -> None:
        nonlocal calls
        calls += 1
        if calls != 5:
            return
        if change != "flags":
            chain.left = 0
        if change == "unlink":
            world.a.memory.md_unlink(chain.md)
        elif change == "remove":
            world.a.del_ni(next(way.ni.nid for way in ways_of(world) if way.gathered is not None))
        elif change == "shut down":
            world.a.shutdown()
        else:
            peer_of(world).mark()

    chain.also = act
    for _ in range(20):
        chain.send()
    world.fabric.run()
    sends = [one for one in chain.seen.seen if one[0] is EventKind.SEND]
    assert len(sends) == (220 if change == "flags" else 30)
    assert not gathering(world)
    assert world.a.stats.msgs_alloc == 0
    if change in ("unlink", "flags"):
        world.fabric.assert_conserved()
        assert all(flow.outstanding == 0 for flow in peer_of(world).flows.values())
