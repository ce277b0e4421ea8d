"""Weights of policies: how many messages go one way before the next has its turn (cfg-145)."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fabric import Fabric
from ulnet.control.policy import Descriptor
from ulnet.core.selection.paths import Key
from ulnet.core.selection.weights import turns_of
from ulnet.nid import Nid
from ulnet.wire.lnet import HEADER_SIZE, MsgType

A1, A2, A3 = "10.0.0.1@tcp", "10.0.0.2@tcp", "10.1.0.1@tcp1"
B1, B2, B3 = "10.0.1.1@tcp", "10.0.1.2@tcp", "10.1.1.1@tcp1"


def node(*rules, balance="expected"):
    """Two NIs on tcp, one on tcp1, a peer with the same; rules are (src, dst, weight)."""
    fabric = Fabric()
    core = fabric.node(A1, A2, A3)
    core.selector.balance = balance
    peer = core.peers.add(Nid.parse(B1), [Nid.parse(B2), Nid.parse(B3)])
    for src, dst, weight in rules:
        add(core, src, dst, weight=weight)
    return fabric, core, peer


def add(core, src, dst, **actions):
    core.policies.add(
        src=None if src is None else Descriptor.parse(src),
        dst=None if dst is None else Descriptor.parse(dst),
        **actions,
    )


def send(core, count, size=1000):
    """The pairs of so many requests that are all under way at once."""
    pairs = []
    for _ in range(count):
        md = core.memory.md_bind(bytes(size), None, threshold=1)
        before = {ni.nid: ni.seq for ni in core.nis.values()}
        core.put(md, Nid.parse(B1), 5, 7, ack=False)
        (here,) = (ni.nid for ni in core.nis.values() if ni.seq != before[ni.nid])
        there = max((pni for peer in core.peers for pni in peer.nis()), key=lambda pni: pni.seq)
        pairs.append((str(here), str(there.nid)))
    return pairs


def runs(names):
    return [(name, len(list(same))) for name, same in groupby(names)]


@pytest.mark.requirement("cfg-145")
@pytest.mark.parametrize("balance", ["expected", "documents"])
@pytest.mark.parametrize(
    ("rules", "lengths"),
    [
        ([("tcp", None, 3), ("tcp1", None, 2)], {"tcp": 3, "tcp1": 2}),
        ([(None, "tcp", 4), (None, "tcp1", 1)], {"tcp": 4, "tcp1": 1}),
        ([("tcp*", None, 2)], {"tcp": 2, "tcp1": 2}),
    ],
)
def test_nets_take_so_many_messages_in_a_row(rules, lengths, balance):
    _, core, _ = node(*rules, balance=balance)
    nets = [here.partition("@")[2] for here, _ in send(core, 30)]
    assert [length for _, length in runs(nets)] == [lengths[name] for name, _ in runs(nets)]
    assert len(runs(nets)) > 4


@pytest.mark.requirement("cfg-145")
@pytest.mark.parametrize("balance", ["expected", "documents"])
def test_interfaces_take_so_many_messages_in_a_row_whatever_their_load(balance):
    _, core, _ = node((A1, None, 5), (A2, None, 2), (A3, None, 1), balance=balance)
    assert runs(here for here, _ in send(core, 24)) == [(A1, 5), (A2, 2), (A3, 1)] * 3


@pytest.mark.requirement("cfg-145")
@pytest.mark.parametrize("balance", ["expected", "documents"])
def test_pairs_take_so_many_messages_in_a_row(balance):
    rules = [(A1, B1, 3), (A1, B2, 2), (A2, B2, 1), (A3, B3, 4)]
    _, core, _ = node(*rules, balance=balance)
    assert runs(send(core, 20)) == [((A1, B1), 3), ((A1, B2), 2), ((A2, B2), 1), ((A3, B3), 4)] * 2


@pytest.mark.requirement("cfg-145")
def test_a_pattern_gives_each_of_many_pairs_its_messages():
    _, core, _ = node(("10.0.0.*@tcp", "10.0.1.*@tcp", 2), (A3, B3, 1))
    carried = Counter(send(core, 18))
    assert carried == {(A1, B1): 4, (A1, B2): 4, (A2, B1): 4, (A2, B2): 4, (A3, B3): 2}


def test_a_rule_without_a_weight_counts_one_beside_those_that_have_one():
    _, core, _ = node()
    add(core, A1, None, weight=3)
    add(core, A2, None)
    add(core, A3, None)
    assert Counter(here for here, _ in send(core, 10)) == {A1: 6, A2: 2, A3: 2}


def test_priority_goes_before_weight():
    _, core, _ = node()
    add(core, A1, None, weight=1, priority=1)
    add(core, A2, None, weight=9, priority=2)
    add(core, "tcp", None, priority=0)
    assert {here for here, _ in send(core, 12)} == {A1}


@pytest.mark.requirement("HLD-order")
def test_who_is_out_has_no_turn_and_nothing_to_catch_up_on():
    third = "10.0.0.3@tcp"
    core = Fabric().node(A1, A2, third)
    core.peers.add(Nid.parse(B1))
    add(core, "10.0.0.*@tcp", None, weight=2)
    ni = core.nis[Nid.parse(A2)]
    assert runs(here for here, _ in send(core, 3)) == [(A1, 2), (A2, 1)]
    ni.health = 0
    core.state.generation.invalidate("the test")
    assert runs(here for here, _ in send(core, 8)) == [(third, 2), (A1, 2), (third, 2), (A1, 2)]
    ni.health = 1000
    core.state.generation.invalidate("the test")
    assert runs(here for here, _ in send(core, 10)) == [(A2, 2), (third, 2), (A1, 2), (A2, 2), (third, 2)]


def test_load_decides_again_once_the_rules_are_gone():
    _, core, _ = node((A1, None, 100), (A2, None, 1), (A3, None, 1))
    assert {here for here, _ in send(core, 20)} == {A1}
    core.policies.clear()
    assert {here for here, _ in send(core, 20)} == {A2, A3}


def test_answers_and_bound_messages_take_no_turns():
    _, core, peer = node((A1, None, 2), (A2, None, 2), (A3, None, 1))
    for _ in range(7):
        md = core.memory.md_bind(b"1", None, threshold=1)
        core.put(md, Nid.parse(B1), 5, 7, ack=False, source=Nid.parse(A2))
    told = core.selector.choose(next(peer.nis()), Key(int(MsgType.ACK), bound=True), HEADER_SIZE)
    assert told.peer_ni_by == "response"
    assert runs(here for here, _ in send(core, 5)) == [(A1, 2), (A2, 2), (A3, 1)]


def test_explain_tells_of_turns_and_takes_none():
    _, core, peer = node((A1, None, 2), (A2, None, 1), (A3, None, 1))
    for _ in range(3):
        told = core.explain(Nid.parse(B1), size=1 << 20)
        stages = {stage.name: stage for stage in told.stages}
        assert stages["net, by weight"].decided_by == "weighted turn"
        assert stages["local NI, by load"].decided_by == "weighted turn"
        assert [cost for _, cost in stages["local NI, by load"].steps[0].costs] == [0, 1]
        assert str(told.ni.nid) == A1
    assert runs(here for here, _ in send(core, 4)) == [(A1, 2), (A2, 1), (A3, 1)]
    assert core.nis[Nid.parse(A1)].choices == {"weighted turn": 2}
    core.peers.delete(peer.primary_nid, [Nid.parse(B2)])
    assert peer.turns == {}


@given(
    weights=st.lists(st.integers(1, 4), min_size=2, max_size=5),
    present=st.lists(st.integers(1, 31), min_size=1, max_size=60),
)
def test_turns_are_those_of_a_queue_that_is_filled_each_round(weights, present):
    """`present` tells, for each message, who may take it (bits)."""
    names = list(range(len(weights)))
    kept: dict[object, dict[object, int]] = {}
    queue: list[int] = []
    for bits in present:
        here = [name for name in names if bits >> name & 1]
        turns = turns_of(here, [weights[name] for name in here], kept, "stage")
        if turns is None:
            continue
        if not any(name in here for name in queue):
            queue = [name for name in names for _ in range(weights[name])]
        expected = next(name for name in queue if name in here)
        queue.remove(expected)
        places = turns.places(here)
        assert here[places.index(min(places))] == expected
        turns.take(expected)
