"""CPTs: the table, and an NI's credits and queues by CPT (Multi-Rail design; spec selection.md §8)."""

from __future__ import annotations

import errno

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.fabric import Fabric, Recorder
from ulnet.core.cpt import ANY_CPT, CptTable, Partition, share_of_nid
from ulnet.core.md import MdOption
from ulnet.core.status import LNetError
from ulnet.core.tunables import NetTunables
from ulnet.nid import Nid

OWN = Nid.parse("10.0.0.1@tcp")
EIGHT = CptTable(
    [Partition((cpt,), (cpt,)) for cpt in range(8)], {(a, b): 10 for a in range(8) for b in range(8)}
)


@st.composite
def machines(draw):
    """Nodes with CPUs, their distances, and nodes divided among partitions, some of which share a node."""
    count = draw(st.integers(1, 6))
    nodes = range(count)
    between = {(a, b): draw(st.integers(10, 255)) for a in nodes for b in nodes}
    owner = [draw(st.integers(0, 4)) for _ in range(2 * count)]  # CPUs 2n and 2n + 1 are in node n
    numbers = sorted(set(owner))
    partitions = []
    for number in numbers:
        cpus = tuple(cpu for cpu, of in enumerate(owner) if of == number)
        partitions.append(Partition(cpus, tuple(sorted({cpu // 2 for cpu in cpus}))))
    return partitions, between


@pytest.mark.requirement("CPT", "snd-010")
@given(machines())
def test_the_distance_of_two_cpts_is_the_largest_between_their_nodes(machine):
    partitions, between = machine
    table = CptTable(partitions, between)
    assert table.count == len(partitions)
    everywhere = []
    for one, here in enumerate(partitions):
        for other, there in enumerate(partitions):
            expected = max(between[a, b] for a in here.nodes for b in there.nodes)
            assert table.distance(one, other) == table.distances_from(one)(other) == expected
            everywhere.append(expected)
    for cpt in range(ANY_CPT, table.count):  # what is unknown is as far as anything
        assert table.distance(cpt, ANY_CPT) == table.distance(ANY_CPT, cpt) == max(everywhere)


@pytest.mark.requirement("CPT")
@given(machines())
def test_every_cpu_and_node_is_found_in_its_cpt(machine):
    partitions, between = machine
    table = CptTable(partitions, between)
    for cpt, partition in enumerate(partitions):
        assert all(table.of_cpu(cpu) == cpt for cpu in partition.cpus)
        for node in partition.nodes:
            assert table.of_node(node) == min(n for n, one in enumerate(partitions) if node in one.nodes)
    assert table.of_cpu(-1) == table.of_cpu(999) == table.of_node(-1) == table.of_node(999) == ANY_CPT


def test_a_cpu_is_in_one_cpt_only():
    with pytest.raises(LNetError, match="CPU 3 is in CPT 0 and in CPT 1") as refused:
        CptTable([Partition((2, 3), (0,)), Partition((3,), (0,))], {(0, 0): 10})
    assert refused.value.errno == errno.EINVAL


def test_a_machine_that_nothing_is_known_of_is_one_cpt():
    table = CptTable()
    assert (table.count, table.distance(0, 0), table.distance(0, -1), table.of_node(0)) == (1, 0, 0, -1)
    assert table.checked_list(None) == (0,)


@pytest.mark.requirement("cfg-025", "cfg-035")
def test_an_ni_has_the_cpts_that_it_was_given_else_all():
    fabric = Fabric()
    core = fabric.node(cpts=EIGHT)
    ni = core.add_ni(OWN.net, OWN, cpts=[5, 2, 5], device_node=3)
    assert (ni.cpts, ni.dev_cpt) == ((2, 5), 3)
    other = Nid.parse("10.0.1.1@tcp1")
    ni = core.add_ni(other.net, other)
    assert (ni.cpts, ni.dev_cpt) == (tuple(range(8)), ANY_CPT)


@pytest.mark.parametrize(("cpts", "number"), [([8], errno.ERANGE), ([-1], errno.ERANGE), ([], errno.EINVAL)])
def test_cpts_that_do_not_exist_are_refused_and_nothing_changes(cpts, number):
    fabric = Fabric()
    core = fabric.node(cpts=EIGHT)
    with pytest.raises(LNetError) as refused:
        core.add_ni(OWN.net, OWN, cpts=cpts)
    assert refused.value.errno == number
    assert OWN not in core.nis and OWN not in fabric.nis
    ni = core.add_ni(OWN.net, OWN, cpts=[1])
    with pytest.raises(LNetError) as refused:
        core.set_cpts(OWN, cpts)
    assert (refused.value.errno, ni.cpts) == (number, (1,))


def test_a_message_from_a_cpt_that_does_not_exist_is_refused():
    core = Fabric().node(str(OWN), cpts=EIGHT)
    for cpt in (-2, 8):
        with pytest.raises(LNetError, match="does not exist") as refused:
            core.memory.md_bind(b"", None, cpt=cpt)
        assert refused.value.errno == errno.ERANGE
        md = core.memory.md_bind(bytearray(1), None)
        for send in (core.put, core.get):
            with pytest.raises(LNetError, match="does not exist"):
                send(md, Nid.parse("10.0.0.2@tcp"), 5, 7, cpt=cpt)
        assert md.refs == 0


@pytest.mark.requirement("CPT", "snd-030")
@pytest.mark.parametrize(
    ("cpts", "credits", "peer_credits", "each"),
    [
        (1, 256, 8, 256),
        (2, 256, 8, 128),
        (8, 256, 8, 64),
        (8, 256, 32, 256),
        (8, 1024, 8, 128),
        (8, 40, 8, 40),
    ],
)
def test_each_cpt_has_its_credits_and_selection_sees_their_sum(cpts, credits, peer_credits, each):
    core = Fabric().node(cpts=EIGHT)
    tunables = NetTunables(credits=credits, peer_credits=peer_credits)
    ni = core.add_ni(OWN.net, OWN, cpts=range(cpts), tunables=tunables)
    assert [queue.credits for queue in ni.tx_queues] == [each] * cpts
    assert ni.tx_credits == ni.max_tx_credits == each * cpts


def peers_by_share(count):
    """NIDs of peers, by which of `count` CPTs takes care of them."""
    found = {}
    for host in range(2, 250):
        nid = Nid.parse(f"10.0.0.{host}@tcp")
        found.setdefault(share_of_nid(nid, count), []).append(nid)
    assert len(found) == count
    return found


def busy_node(fabric, cpts, credits=1, peer_credits=1):
    core = fabric.node(cpts=EIGHT)
    tunables = NetTunables(credits=credits, peer_credits=peer_credits)
    return core, core.add_ni(OWN.net, OWN, cpts=cpts, tunables=tunables)


def listen(fabric, nid, order):
    core = fabric.node(str(nid))
    me = core.memory.me_attach(5, match_bits=7)
    core.memory.md_attach(
        me,
        bytearray(64),
        lambda event: order.append(event.hdr_data),
        options=MdOption.OP_PUT | MdOption.TRUNCATE,
    )


def put(core, target, number, handler=None):
    core.put(core.memory.md_bind(b"x", handler, threshold=1), target, 5, 7, ack=False, hdr_data=number)


@pytest.mark.requirement("CPT")
def test_a_cpt_without_credits_does_not_hold_up_another():
    fabric = Fabric()
    share = peers_by_share(2)
    core, ni = busy_node(fabric, [0, 1])
    first, second, other = share[0][0], share[0][1], share[1][0]
    order: list[int] = []
    for nid in (first, second, other):
        listen(fabric, nid, order)
    put(core, first, 1)
    put(core, second, 2)  # the credit of this CPT is taken
    put(core, other, 3)
    assert [msg.hdr.hdr_data for _, msg in fabric.wire] == [1, 3]
    assert [len(queue.waiting) for queue in ni.tx_queues] == [1, 0]
    assert ni.tx_credits == sum(queue.credits for queue in ni.tx_queues) == -1
    fabric.run()
    assert sorted(order) == [1, 2, 3]
    fabric.assert_conserved()


@pytest.mark.requirement("cfg-030")
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 3)),
            st.tuples(st.just("step"), st.integers(1, 3)),
            st.tuples(st.just("cpts"), st.sets(st.integers(0, 7), min_size=1)),
        ),
        max_size=60,
    )
)
@example([("put", 0), ("put", 0), ("put", 0), ("cpts", {0}), ("put", 0)])
@example([*[("put", 0)] * 4, ("put", 1), ("step", 1), ("cpts", {0})])
@example([*[("put", 0)] * 3, ("put", 1), ("step", 1), ("cpts", {0}), ("put", 0)])
def test_cpts_change_under_traffic_and_nothing_is_lost_or_overtakes(script):
    fabric = Fabric()
    core, ni = busy_node(fabric, [0], credits=2, peer_credits=2)
    targets = [nids[0] for nids in peers_by_share(4).values()]
    orders: list[list[int]] = [[] for _ in targets]
    for nid, order in zip(targets, orders, strict=True):
        listen(fabric, nid, order)
    sent: list[list[int]] = [[] for _ in targets]
    ended = Recorder()
    for number, (what, value) in enumerate(script):
        if what == "put":
            put(core, targets[value], number, ended)
            sent[value].append(number)
        elif what == "step":
            for _ in range(value):
                fabric.step()
        else:
            core.set_cpts(OWN, value)
            assert ni.cpts == tuple(sorted(value))
        waiting = sum(len(queue.waiting) for queue in ni.tx_queues)
        assert ni.max_tx_credits - ni.tx_credits == len(fabric.wire) + waiting
    fabric.run()
    assert orders == sent
    assert len(ended) == sum(map(len, sent))
    assert all(not event.status for event in ended)
    fabric.assert_conserved()
    assert sum(queue.credits for queue in ni.tx_queues) == ni.max_tx_credits


def test_no_message_enters_a_queue_of_former_cpts():
    """The one that waited for its peer gets a credit when the one before it sets out anew."""
    fabric = Fabric()
    core, ni = busy_node(fabric, [0])
    first, second = (nids[0] for nids in peers_by_share(2).values())
    orders: list[list[int]] = [[], []]
    for nid, order in zip((first, second), orders, strict=True):
        listen(fabric, nid, order)
    put(core, first, 1)  # has the only credit of the NI
    put(core, second, 2)  # waits for that
    put(core, second, 3)  # waits for its peer
    core.set_cpts(OWN, [1])
    waiting = sum(len(queue.waiting) for queue in ni.tx_queues)
    assert ni.max_tx_credits - ni.tx_credits == len(fabric.wire) + waiting
    fabric.run()
    assert orders == [[1], [2, 3]]
    fabric.assert_conserved()


def test_the_cpts_of_loopback_and_of_strangers_cannot_be_changed():
    core = Fabric().node(str(OWN), cpts=EIGHT)
    for nid, number in (("0@lo", errno.EINVAL), ("10.9.9.9@tcp", errno.ENOENT)):
        with pytest.raises(LNetError) as refused:
            core.set_cpts(Nid.parse(nid), [0])
        assert refused.value.errno == number
