"""Local NIs by NUMA distance: from where a message's memory is, within the range (spec selection.md §5)."""

from __future__ import annotations

import random

import pytest

from support.fabric import Fabric
from ulnet.core.cpt import ANY_CPT, LARGE_MEMORY, CptTable, Partition
from ulnet.core.md import MdOption
from ulnet.core.status import HealthStatus
from ulnet.nid import Nid

NODES = 8
DISTANCES = {(0, 0): 10, (0, 1): 21, (1, 0): 21, (1, 1): 10}
THERE = Nid.parse("10.0.1.1@tcp")


def distance(a, b):
    """Two sockets of four nodes."""
    if a == b:
        return 10
    return 16 if a // 4 == b // 4 else 32


TABLE = CptTable(
    [Partition((2 * n, 2 * n + 1), (n,)) for n in range(NODES)],
    {(a, b): distance(a, b) for a in range(NODES) for b in range(NODES)},
)


def eight(nodes=range(NODES), multi_rail=True, current_cpu=lambda: -1, peer_nis=1, balance="expected"):
    """A node with an NI in each of some NUMA nodes, all on one net, and a peer."""
    core = Fabric().node(cpts=TABLE, current_cpu=current_cpu)
    core.selector.balance = balance
    nis = []
    for number, node in enumerate(nodes):
        nid = Nid.parse(f"10.0.0.{number + 1}@tcp")
        nis.append(core.add_ni(nid.net, nid, device_node=node))
    core.peers.add(THERE, [Nid.parse(f"10.0.1.{n + 1}@tcp") for n in range(1, peer_nis)], multi_rail)
    return core, nis


def send(core, handler=None, cpt=None, md_cpt=None):
    """Put, and tell which NI it went by."""
    md = core.memory.md_bind(b"x", handler, threshold=1, cpt=md_cpt)
    core.put(md, THERE, 5, 7, ack=False, cpt=cpt)
    fabric = core.nis[Nid.parse("10.0.0.1@tcp")].lnd.fabric
    ni, msg = fabric.wire[-1]
    fabric.wire.clear()
    core.completed([msg], HealthStatus.OK)
    return ni


def chosen(core, cpt, times=24):
    return {send(core, md_cpt=cpt) for _ in range(times)}


@pytest.mark.requirement("snd-005", "snd-010", "snd-020")
@pytest.mark.parametrize("balance", ["expected", "documents"])
@pytest.mark.parametrize("multi_rail", [True, False])
def test_the_nearest_ni_is_taken(multi_rail, balance):
    for cpt in range(NODES):
        core, nis = eight(multi_rail=multi_rail, balance=balance)
        assert chosen(core, cpt) == {nis[cpt]}


@pytest.mark.requirement("snd-005", "snd-020")
def test_of_equally_near_nis_all_are_used_in_turn():
    core, nis = eight(nodes=[1, 1, 2, 3, 4, 5])
    assert chosen(core, 1) == {nis[0], nis[1]}
    assert chosen(core, 0) == set(nis[:4])  # same socket: 16 to each
    assert chosen(core, 7) == {nis[4], nis[5]}
    turns = [send(core, md_cpt=1) for _ in range(6)]
    assert turns[:2] * 3 == turns


@pytest.mark.requirement("snd-025", "cfg-090")
@pytest.mark.parametrize(
    ("numa_range", "count"), [(0, 1), (10, 1), (15, 1), (16, 4), (31, 4), (32, 8), (2**32 - 1, 8)]
)
def test_all_nis_within_the_range_are_used(numa_range, count):
    core, nis = eight()
    core.settings.numa_range = numa_range
    assert chosen(core, 5) == set({1: nis[5:6], 4: nis[4:], 8: nis}[count])


@pytest.mark.requirement("snd-025")
def test_beyond_the_range_the_nearest_are_taken():
    core, nis = eight(nodes=[4, 5, 6])
    core.settings.numa_range = 20
    assert chosen(core, 0) == set(nis)
    core, nis = eight(nodes=[3, 4, 5])
    core.settings.numa_range = 20
    assert chosen(core, 0) == {nis[0]}


@pytest.mark.requirement("snd-020")
def test_a_message_is_where_it_says_else_where_its_memory_is_else_where_the_thread_runs():
    cpu = [11]
    core, nis = eight(current_cpu=lambda: cpu[0])
    assert send(core) is nis[5]
    assert send(core, md_cpt=2) is nis[2]
    assert send(core, md_cpt=2, cpt=7) is nis[7]
    cpu[0] = 0
    assert send(core) is nis[0]


def test_memory_stays_where_it_was_bound_when_the_thread_moves():
    cpu = [11]
    core, nis = eight(current_cpu=lambda: cpu[0])
    md = core.memory.md_bind(b"x", None)
    cpu[0] = 0
    core.put(md, THERE, 5, 7, ack=False)
    assert nis[0].lnd.fabric.wire[-1][0] is nis[5]


@pytest.mark.requirement("snd-005")
@pytest.mark.parametrize("cpt", [ANY_CPT, None])
def test_where_nothing_is_known_of_the_memory_numa_plays_no_part(cpt):
    core, nis = eight()  # CPU -1: the system does not tell
    assert chosen(core, cpt) == set(nis)


def test_a_device_that_is_nowhere_counts_as_far():
    core, nis = eight(nodes=[-1, 7])
    assert chosen(core, 0) == set(nis)  # the other one is as far
    assert chosen(core, 4) == {nis[1]}
    core, nis = eight(nodes=[-1, -1])
    assert chosen(core, 4) == set(nis)


@pytest.mark.requirement("snd-040")
def test_peer_nis_are_chosen_as_if_there_were_no_numa():
    core, _ = eight(peer_nis=4)
    rng = random.Random(4)
    told = [core.explain(THERE, cpt=rng.choice([ANY_CPT, *range(NODES)])) for _ in range(50)]
    for one in told:
        peer_stages = [stage for stage in one.stages if stage.name.startswith("peer NI")]
        assert peer_stages
        assert not any("NUMA" in step.criterion for stage in peer_stages for step in stage.steps)
    by_cpt = [[], []]
    for cpt, found in zip((0, 7), by_cpt, strict=True):
        core, _ = eight(peer_nis=4)
        for _ in range(12):
            md = core.memory.md_bind(b"x", None, threshold=1, cpt=cpt)
            core.put(md, THERE, 5, 7, ack=False)
        wire = core.nis[Nid.parse("10.0.0.1@tcp")].lnd.fabric.wire
        found += [msg.hdr.dest_nid for _, msg in wire]
    assert by_cpt[0] == by_cpt[1]


@pytest.mark.requirement("HLD-order", "snd-005")
def test_distance_comes_after_health_and_priority_and_before_credits():
    core, nis = eight(nodes=[0, 4])
    nis[0].tx_credits = -5
    assert core.explain(THERE, cpt=0).ni is nis[0]
    nis[0].priority, nis[1].priority = 2, 1
    core.state.generation.invalidate("the test")
    assert core.explain(THERE, cpt=0).ni is nis[1]
    nis[1].health = 900
    core.state.generation.invalidate("the test")
    told = core.explain(THERE, cpt=0)
    assert told.ni is nis[0]
    assert [stage.decided_by for stage in told.stages if stage.name == "local NI"] == ["health"]


@pytest.mark.requirement("snd-005")
def test_explain_tells_the_distances_that_were_compared():
    core, _ = eight(nodes=[0, 1, 4])
    told = core.explain(THERE, cpt=0)
    (step,) = [s for stage in told.stages for s in stage.steps if s.criterion == "NUMA distance"]
    assert [cost for _, cost in step.costs] == [10, 16, 32]


def test_answers_ignore_distance():
    """A REPLY goes from the NI that the request came to, wherever the memory is."""
    fabric = Fabric()
    a = fabric.node("10.0.1.1@tcp")
    b = fabric.node(cpts=TABLE, current_cpu=lambda: 0)
    for number in range(NODES):
        nid = Nid.parse(f"10.0.0.{number + 1}@tcp")
        b.add_ni(nid.net, nid, device_node=number)
    me = b.memory.me_attach(5, match_bits=7)
    b.memory.md_attach(me, bytearray(b"answer"), options=MdOption.OP_GET)
    into = bytearray(6)
    target = Nid.parse("10.0.0.7@tcp")
    a.get(a.memory.md_bind(into, None, threshold=2), target, 5, 7)
    fabric.run()
    assert into == b"answer"
    assert [str(nid) for nid, ni in b.nis.items() if ni.stats.sent[3]] == ["10.0.0.7@tcp"]


@pytest.mark.requirement("snd-020", "CPT")
def test_large_memory_is_where_its_pages_are_and_small_memory_near_the_thread():
    nodes = {b"on 5": 5, b"gone": -1, b"on 9": 9}
    core = Fabric().node("10.0.0.1@tcp", cpts=TABLE, current_cpu=lambda: 6)
    core.state.node_of_memory = lambda view: nodes[bytes(view[:4])]
    bind = core.memory.md_bind
    large = [name.ljust(LARGE_MEMORY) for name in nodes]
    assert [bind(memory, None).cpt for memory in large] == [5, 3, 3]
    assert bind([large[0], b"more"], None).cpt == 5
    assert bind(b"on 5", None).cpt == 3
    assert bind(b"", None).cpt == 3
    assert bind(large[0], None, cpt=7).cpt == 7


def test_of_several_partitions_with_the_memorys_node_it_is_that_of_the_thread():
    halves = CptTable([Partition((0,), (0,)), Partition((1,), (0,)), Partition((2,), (1,))], DISTANCES)
    assert [halves.with_node(0, cpt) for cpt in (0, 1, 2, ANY_CPT)] == [0, 1, 0, 0]
    assert [halves.with_node(node, 1) for node in (1, -1, 8)] == [2, 1, 1]


@pytest.mark.requirement("snd-005")
def test_an_ni_without_a_known_node_is_near_the_cpts_that_it_is_tied_to():
    core, (known,) = eight([0])
    tied = core.add_ni(known.nid.net, Nid.parse("10.0.0.2@tcp"), cpts=[5, 6])
    anywhere = core.add_ni(known.nid.net, Nid.parse("10.0.0.3@tcp"))
    assert chosen(core, 5) == {tied}
    assert chosen(core, 6) == {tied}
    assert chosen(core, 7) == {tied}, "of the same socket"
    assert chosen(core, 0) == {known}
    assert chosen(core, 1) == {known}
    core.set_cpts(tied.nid, range(NODES))
    assert chosen(core, 5) == {known, tied, anywhere}, "all of them are far, or nobody knows"


@pytest.mark.requirement("snd-005", "snd-020", "HLD-order")
@pytest.mark.parametrize("balance", ["expected", "documents"])
def test_nis_of_all_nets_are_compared_by_distance(balance):
    """The documents' pseudo-code keeps one least distance over all nets of the best priority."""
    core = Fabric().node(cpts=TABLE)
    core.selector.balance = balance
    nids = [Nid.parse(f"10.{node}.0.1@tcp{node or ''}") for node in range(4)]
    nis = [core.add_ni(nid.net, nid, device_node=node) for node, nid in enumerate(nids)]
    there = [Nid.parse(f"10.{node}.1.1@tcp{node or ''}") for node in range(4)]
    core.peers.add(there[0], there[1:], True)
    for node in range(4):
        found = set()
        for _ in range(8):
            md = core.memory.md_bind(b"x", None, threshold=1, cpt=node)
            core.put(md, there[0], 5, 7, ack=False)
            fabric = core.nis[nids[0]].lnd.fabric
            ni, msg = fabric.wire.pop()
            core.completed([msg], HealthStatus.OK)
            found.add(ni)
        assert found == {nis[node]}
