"""What handlers of a run send is posted in sum behind it, and nobody can tell (docs/design/hot-path.md)."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.lanes import BITS, PORTAL, A, B, World
from support.runs import Chain, RunFabric, WireOutlet, gathering
from ulnet.core import peer_table
from ulnet.core.event import EventKind
from ulnet.core.gather import Gather
from ulnet.core.status import LNetError
from ulnet.nid import Nid

STRANGER = Nid.parse("10.0.0.9@tcp")


class RunWorld(World):
    def __init__(self, credits: int = 4) -> None:
        super().__init__(True, credits=credits)
        self.fabric.__class__ = RunFabric


def play(world: World, chains: list[tuple[int, int, int, bool]], outlet: bool) -> tuple[object, ...]:
    world.warm()
    played = []
    for left, first, each, ack in chains:
        chain = Chain(world, left, EventKind.ACK if ack else EventKind.SEND, each)
        played.append(chain)
        for _ in range(first):
            chain.send()
            pni = world.a.peers.find_ni(B)
            if outlet and pni is not None and pni.lane is not None and pni.lane.outlet is None:
                assert isinstance(world.fabric, RunFabric)
                pni.lane.outlet = WireOutlet(world.fabric, world.a.nis[A])
        world.fabric.run()
        assert not chain.left
    world.fabric.assert_conserved()
    assert not world.fabric.complaints
    told = [sorted(map(repr, chain.seen.seen)) for chain in played]
    ni, pni = world.a.nis[A], world.a.peers.find_ni(B)
    assert pni is not None
    low = [(one.min_tx_credits, one.tx_credits, one.refs) for one in (ni, pni)]
    return told, low, world.counters(), bytes(world.inbox), len(world.arrived.seen)


CHAINS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(1, 3), st.booleans()),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(CHAINS)
def test_runs_of_handlers_send_as_the_general_way_does(chains: list[tuple[int, int, int, bool]]) -> None:
    told, _, counters, inbox, arrived = play(RunWorld(), chains, False)
    expected = play(World(False), chains, False)
    assert (told, counters, inbox, arrived) == (expected[0], expected[2], expected[3], expected[4])


@pytest.mark.pure  # whose outlet a test may make
@settings(max_examples=60, deadline=None)
@given(CHAINS, st.sampled_from([4, 64]))
def test_in_sum_or_one_by_one(chains: list[tuple[int, int, int, bool]], credits: int) -> None:
    in_sum = play(RunWorld(credits), chains, True)
    with patch.object(Gather, "gather", lambda self, lane, now: None):
        assert in_sum == play(RunWorld(credits), chains, True)


@pytest.fixture
def world() -> World:
    world = RunWorld(64)
    world.warm()
    return world


@pytest.mark.parametrize("kind", [EventKind.SEND, EventKind.ACK])
def test_handlers_of_a_run_send_together(world: World, kind: EventKind) -> None:
    chain = Chain(world, 60, kind)
    seen: list[tuple[bool, int, int]] = []
    ni = world.a.nis[A]

    def look() -> None:
        seen.append((gathering(world), ni.tx_credits, world.a.stats.msgs_alloc))

    chain.also = look
    for _ in range(8):
        chain.send()
    world.fabric.run()
    assert any(now for now, _, _ in seen)
    assert not gathering(world)
    assert len(chain.seen.seen) == 68 * (2 if kind is EventKind.ACK else 1)
    assert isinstance(world.fabric, RunFabric)
    assert world.fabric.runs
    world.fabric.assert_conserved()


def test_a_peer_that_handlers_have_sent_to_makes_no_room_for_strangers(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = world.a
    chain = Chain(world, 30, EventKind.SEND, 1)
    peer = core.peers.find(B)
    assert peer is not None
    refused: list[str] = []

    def discover() -> None:
        """Somebody unknown, while nothing is under way to B but what was asked for just now."""
        if refused or not gathering(world) or not peer.idle:
            return
        monkeypatch.setattr(peer_table, "MAX_UNCONFIGURED", len(core.peers))
        try:
            core.discover(STRANGER, done=lambda error, peer: None)
        except LNetError as error:
            refused.append(str(error))

    chain.also = discover
    for _ in range(8):
        chain.send()
    world.fabric.run()
    assert core.peers.find(B) is peer
    assert refused == [f"too many unknown peers: cannot remember {STRANGER}"]
    world.fabric.assert_conserved()


def test_what_else_a_handler_sends_comes_behind_what_it_sent_before(world: World) -> None:
    chain = Chain(world, 30, EventKind.SEND, 1)
    other = world.a.memory.md_bind(bytearray(8), None)
    order: list[str] = []
    pni = world.a.peers.find_ni(B)
    assert pni is not None
    left: list[int] = []

    def fetch() -> None:
        if chain.left:
            before = pni.tx_credits - (len(pni.lane.gathered or ()) if pni.lane else 0)
            world.a.get(other, B, PORTAL + 1, BITS)
            left.append(before - pni.tx_credits)
            assert not gathering(world)

    chain.also = fetch
    for _ in range(6):
        chain.send()
    wire = world.fabric.wire
    while world.fabric.step():
        order = [
            ("put", "get")[msg.hdr.type == 2] for ni, msg in wire if ni.nid == A and msg.hdr.type in (1, 2)
        ]
        if order.count("get") > 2:
            break
    assert order[:4] in (["put", "get"] * 2, ["get", "put"] * 2)
    assert set(left) == {1}
    world.fabric.run()
    world.fabric.assert_conserved()


def test_other_requests_keep_their_place(world: World) -> None:
    chain = Chain(world, 8, EventKind.SEND, 1)
    behind = world.a.memory.md_bind(b"behind", None)
    asked: list[int] = []

    def number() -> None:
        if chain.left:
            asked.append(len(asked) + 1)
            world.put(behind, B, PORTAL, BITS, ack=False, hdr_data=asked[-1])

    chain.also = number
    start = len(world.arrived.seen)
    for _ in range(2):
        chain.send()
    world.fabric.run()
    assert asked == list(range(1, 8))
    numbers = [one[6] for one in world.arrived.seen[start:]]
    assert [one for one in numbers if one] == asked
    assert numbers[2:6] == [0, 1, 0, 2]
    world.fabric.assert_conserved()


@pytest.mark.parametrize("kind", [EventKind.SEND, EventKind.ACK])
@pytest.mark.parametrize("change", ["unlink", "remove", "shut down", "other memory", "flags"])
def test_a_handler_changes_all_behind_what_it_sent(world: World, change: str, kind: EventKind) -> None:
    chain = Chain(world, 30, kind, 1)
    other = Chain(world, 5, kind)
    calls = 0

    def act() -> None:
        nonlocal calls
        calls += 1
        if calls != 3:
            return
        if change in ("unlink", "remove", "shut down"):
            chain.left = 0
        if change == "unlink":
            world.a.memory.md_unlink(chain.md)
        elif change == "remove":
            world.a.del_ni(A)
        elif change == "shut down":
            world.a.shutdown()
        elif change == "flags":
            pni = world.a.peers.find_ni(B)
            assert pni is not None
            pni.peer.mark()
        else:
            other.send()

    chain.also = act
    for _ in range(6):
        chain.send()
    world.fabric.run()
    sends = [one for one in chain.seen.seen if one[0] is EventKind.SEND]
    assert len(sends) == 6 + (3 if change in ("unlink", "remove", "shut down") else 30)
    assert not gathering(world)
    assert world.a.stats.msgs_alloc == 0
    assert not world.fabric.complaints
    if change in ("unlink", "other memory", "flags"):
        world.fabric.assert_conserved()
        assert world.a.stats.rst_alloc == 0


def test_times_are_those_of_each_if_they_are_evenly_apart(world: World) -> None:
    chain = Chain(world, 8, EventKind.SEND, 1)
    clock = world.fabric.clock

    def later() -> None:
        clock.now += 0.001

    chain.also = later
    latency = world.a.nis[A].latency_egress
    for _ in range(8):
        chain.send()
    while world.fabric.wire:  # its sender is told when all are taken
        world.fabric.step()
    before = latency.total
    began = clock.now
    world.fabric.tell()  # type: ignore[attr-defined]
    told = clock.now
    assert told - began == pytest.approx(0.008)
    clock.now += 1
    least = clock.now - told
    world.fabric.run()
    spread = latency.total - before - 8 * int(least * 1e9)
    assert spread == pytest.approx(8 * 4e6, rel=0.01)
    assert latency.max >= int((least + 0.0079) * 1e9)
