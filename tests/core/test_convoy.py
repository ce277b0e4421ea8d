"""Small messages join the way that was chosen for those before them, until these have been written."""

from __future__ import annotations

from collections import Counter

import pytest

from support.lanes import BITS, PORTAL, A, B, RailWorld
from ulnet.core.ni import NI
from ulnet.core.peer import Peer
from ulnet.core.selection import Balance

SAME_BATCH = "same batch"


def rail_world(
    lanes: bool, balance: Balance = "expected", credits: int = 300, batches: bool = True
) -> RailWorld:
    return RailWorld(lanes, 4, 4, balance, credits, batches)


@pytest.fixture(params=[True, False], ids=["lanes", "generally"])
def world(request: pytest.FixtureRequest) -> RailWorld:
    return rail_world(request.param)


def peer_of(world: RailWorld) -> Peer:
    peer = world.a.peers.find(B)
    assert peer is not None
    return peer


def loads(world: RailWorld) -> list[int]:
    """Bytes under way, of each rail with any."""
    return sorted(flow.outstanding for flow in peer_of(world).flows.values() if flow.outstanding)


def put(world: RailWorld, count: int, size: int = 64) -> None:
    md = world.a.memory.md_bind(b"c" * size, None)
    for _ in range(count):
        world.put(md, B, PORTAL, BITS, ack=False)


def joined(world: RailWorld) -> int:
    """Messages for which that criterion decided."""
    counts = sum((Counter(ni.choices) for ni in world.a.nis.values()), Counter())
    return counts[SAME_BATCH]


def last_way(world: RailWorld) -> NI:
    return max(world.a.nis.values(), key=lambda ni: ni.seq)


def test_sixty_four_go_one_way_then_the_next_has_its_turn(world: RailWorld) -> None:
    before = joined(world)
    put(world, 150, 24)
    assert loads(world) == [22 * 96, 64 * 96, 64 * 96]
    assert joined(world) - before == 63 + 63 + 21
    world.fabric.run()
    assert loads(world) == []


def test_together_they_are_4_kib_at_most(world: RailWorld) -> None:
    put(world, 6, 2000)
    assert loads(world) == [2 * 2072] * 3
    world.fabric.run()
    put(world, 2, 4096)
    assert loads(world) == [4096 + 72] * 2


def test_larger_ones_neither_join_nor_part_them(world: RailWorld) -> None:
    put(world, 1)
    put(world, 2, 4097)
    put(world, 2)
    assert loads(world) == [3 * 136, 4097 + 72, 4097 + 72]


def test_one_at_a_time_they_take_turns(world: RailWorld) -> None:
    before = {ni: ni.stats.sent[1] for ni in world.a.nis.values()}
    for _ in range(8):
        put(world, 1)
        world.fabric.run()
    assert sorted(ni.stats.sent[1] - sent for ni, sent in before.items()) == [0, 2, 2, 2, 2]


def test_who_lacks_credits_is_left(world: RailWorld) -> None:
    scarce = rail_world(world.put == world.a.put, credits=4)
    put(scarce, 16)
    assert loads(scarce) == [4 * 136] * 4
    assert min(pni.tx_credits for pni in peer_of(scarce).nis()) == 0  # nobody waits


def test_nobody_joins_where_the_ni_has_no_credits() -> None:
    """The peer has three NIDs there, with more credits together than that one NI."""
    told: list[list[int]] = []
    for lanes in (True, False):
        world = RailWorld(lanes, 5, 2, "expected", 4, True)
        for ni in world.a.nis.values():
            ni.open = ni.nid == A
        world.a.settings_changed()
        put(world, 3)
        world.fabric.run()
        put(world, 12)
        assert world.a.nis[A].tx_credits == -4
        told.append([pni.choices[SAME_BATCH] for pni in peer_of(world).nis()])
        world.fabric.run()
        world.fabric.assert_conserved()
    assert told[0] == told[1]


def test_nobody_joins_a_way_that_became_worse(world: RailWorld) -> None:
    put(world, 2)
    chosen = last_way(world)
    world.a.health.values.set_ni(chosen, 900)
    put(world, 2)
    assert last_way(world) is not chosen
    assert loads(world) == [2 * 136, 2 * 136]


@pytest.mark.parametrize("lanes", [True, False])
@pytest.mark.parametrize(("balance", "batches"), [("documents", True), ("expected", False)])
def test_the_documents_and_other_drivers_know_no_batches(
    lanes: bool, balance: Balance, batches: bool
) -> None:
    world = rail_world(lanes, balance, batches=batches)
    put(world, 8)
    assert loads(world) == [2 * 136] * 4
    assert joined(world) == 0


def test_weights_decide_message_by_message(world: RailWorld) -> None:
    for ni in world.a.nis.values():
        ni.weight = 1
    world.a.settings_changed()
    before = joined(world)
    put(world, 8)
    assert joined(world) == before


def test_it_is_told_where_it_would_decide(world: RailWorld) -> None:
    put(world, 1)
    chosen = last_way(world)
    told = world.a.explain(B, size=64)
    stage = next(one for one in told.stages if one.name == "local NI, by load")
    assert (told.ni, stage.decided_by) == (chosen, SAME_BATCH)
    assert [(one.criterion, one.least) for one in stage.steps] == [(SAME_BATCH, 0.0)]
    large = world.a.explain(B, size=5000)
    assert large.ni is not chosen
    assert all(step.criterion != SAME_BATCH for stage in large.stages for step in stage.steps)
    put(world, 1)  # nothing was changed by asking
    assert loads(world) == [2 * 136]
    world.fabric.run()
    assert world.a.explain(B, size=64).ni is not chosen
