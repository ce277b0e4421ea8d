"""The machine's NUMA nodes from /sys or a file, and their division into partitions."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.host import (
    HostError,
    Link,
    NumaNode,
    Topology,
    cpu_reader,
    device_node,
    divide,
    links,
    load_topology,
    number_text,
    parse_topology,
    placed,
    read_topology,
)
from ulnet.host.topology import number_list
from ulnet.node.machine import Machine

TWO = Topology((NumaNode(0, (0, 1, 4, 5), (10, 21)), NumaNode(1, (2, 3, 6, 7), (21, 10))))


def kernel_files(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.mark.requirement("snd-010", "CPT")
def test_this_machines_nodes_have_all_its_cpus() -> None:
    found = read_topology()
    cpus = {cpu for node in found.nodes for cpu in node.cpus}
    assert os.sched_getaffinity(0) <= cpus
    assert len(cpus) >= (os.cpu_count() or 1)
    assert {one for cpus, _ in divide(found) for one in cpus} == cpus


@pytest.mark.requirement("snd-010")
def test_nodes_as_the_kernel_lists_them(tmp_path: Path) -> None:
    kernel_files(
        tmp_path,
        node__online="0,2-3",
        node__node0__cpulist="0-1,4",
        node__node0__distance="10 20 30",
        node__node2__cpulist="2-3",
        node__node2__distance="20 10 40",
        node__node3__cpulist="",  # memory alone
        node__node3__distance="30 40 10",
    )
    found = read_topology(tmp_path)
    assert found.nodes == (
        NumaNode(0, (0, 1, 4), (10, 20, 30)),
        NumaNode(2, (2, 3), (20, 10, 40)),
        NumaNode(3, (), (30, 40, 10)),
    )
    assert found.distances()[2, 3] == 40
    assert divide(found) == [((0, 1, 4), (0,)), ((2, 3), (2,))]


def test_a_kernel_without_numa_is_one_node(tmp_path: Path) -> None:
    assert read_topology(kernel_files(tmp_path, cpu__online="0-3")) == Topology(
        (NumaNode(0, (0, 1, 2, 3), (10,)),)
    )


@pytest.mark.requirement("snd-015")
@pytest.mark.parametrize("numa", [True, False])
def test_the_first_kernels_that_told_distances_will_do_and_those_without_numa(
    tmp_path: Path, numa: bool
) -> None:
    """These files are all that is read, and they are as old as the distances."""
    kernel_files(tmp_path, cpu__online="0-3")
    nodes = {"node__node0__cpulist": "0-1", "node__node0__distance": "10 20"}
    nodes |= {"node__node1__cpulist": "2-3", "node__node1__distance": "20 10"}
    if numa:
        kernel_files(tmp_path, node__online="0-1", **nodes)
    machine = Machine(read_topology(tmp_path))
    assert machine.cpts.count == (2 if numa else 1)
    assert machine.cpts.distance(0, machine.cpts.count - 1) == (20 if numa else 10)


@pytest.mark.parametrize("distance", ["10 x", "", "10 20 30"])
def test_what_cannot_be_read_is_a_host_error(tmp_path: Path, distance: str) -> None:
    kernel_files(tmp_path, node__online="0", node__node0__cpulist="0", node__node0__distance=distance)
    with pytest.raises(HostError):
        read_topology(tmp_path)
    with pytest.raises(HostError, match="cannot be read"):
        read_topology(tmp_path / "nowhere")


@given(st.sets(st.integers(0, 8191), max_size=40))
def test_lists_of_cpus_come_back_as_they_were_written(numbers: set[int]) -> None:
    assert number_list(number_text(sorted(numbers)), "CPU") == tuple(sorted(numbers))


@pytest.mark.parametrize(
    ("pattern", "count", "expected"),
    [
        ("", 0, [((0, 1, 4, 5), (0,)), ((2, 3, 6, 7), (1,))]),
        ("N", 0, [((0, 1, 4, 5), (0,)), ((2, 3, 6, 7), (1,))]),
        ("", 1, [((0, 1, 2, 3, 4, 5, 6, 7), (0, 1))]),
        ("", 3, [((0, 1), (0,)), ((2, 4, 5), (0, 1)), ((3, 6, 7), (1,))]),
        ("", 8, [((cpu,), (int(cpu in (2, 3, 6, 7)),)) for cpu in (0, 1, 4, 5, 2, 3, 6, 7)]),
        ("0[0-3] 1[4-7]", 0, [((0, 1, 2, 3), (0, 1)), ((4, 5, 6, 7), (0, 1))]),
        ("1[0,1]0[2]", 0, [((2,), (1,)), ((0, 1), (0,))]),
        ("N 0[1] 1[0]", 0, [((2, 3, 6, 7), (1,)), ((0, 1, 4, 5), (0,))]),
        ("N 0[0-1]", 0, [((0, 1, 2, 3, 4, 5, 6, 7), (0, 1))]),
    ],
)
@pytest.mark.requirement("CPT")
def test_cpus_are_divided_by_node_number_or_pattern(
    pattern: str, count: int, expected: list[tuple[tuple[int, ...], tuple[int, ...]]]
) -> None:
    assert divide(TWO, pattern, count) == expected


@pytest.mark.parametrize(
    ("pattern", "count", "words"),
    [
        ("N", 2, "exclude each other"),
        ("", 9, "1 to 8 partitions"),
        ("", -1, "1 to 8 partitions"),
        ("0[8]", 0, "no CPU 8"),
        ("N 0[2]", 0, "no node 2"),
        ("0[0] 1[0]", 0, "CPU 0 is in two CPTs"),
        ("0[0] 0[1]", 0, "twice"),
        ("0[0] 2[1]", 0, "without gaps"),
        ("0[0] 1[]", 0, "CPT 1 has no CPU"),
        ("0[0", 0, "cannot be read"),
        ("banana", 0, "cannot be read"),
        ("0[banana]", 0, "banana"),
        ("0[*]", 0, "no CPU"),
        ("0[99999]", 0, "CPU"),
    ],
)
def test_divisions_that_cannot_be_are_refused_in_words(pattern: str, count: int, words: str) -> None:
    with pytest.raises(HostError, match=words.replace("[", r"\[")) as refused:
        divide(TWO, pattern, count)
    assert refused.value.errno == errno.EINVAL


FILE = """
nodes:
    - cpus: 0-1,4
      distances: [10, 21]
      interfaces: [eth0, eth2]
    - {cpus: [2, 3], distances: "21, 10", interfaces: eth1}
"""


def test_a_file_stands_in_for_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "machine.yaml"
    path.write_text(FILE)
    found = load_topology(str(path))
    assert found.nodes == (NumaNode(0, (0, 1, 4), (10, 21)), NumaNode(1, (2, 3), (21, 10)))
    assert found.interfaces == {"eth0": 0, "eth2": 0, "eth1": 1}
    here = [Link("eth1", 2, numa_node=7), Link("eth9", 3, numa_node=7)]
    assert [link.numa_node for link in placed(here, found)] == [1, -1]
    assert placed(here, TWO) == here  # without names, what the links say


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no topology"),
        ("nodes: 3", "no topology"),
        ("nodes: []", "without CPUs"),
        ("nodes: [{cpus: 0}]", "node 0 is not written"),
        ("nodes: [{cpus: 0, distances: [10], colour: red}]", "node 0 is not written"),
        ("nodes: [{cpus: 0, distances: [10, 20]}]", "give one for each of the 1 nodes"),
        ("nodes: [{cpus: 0, distances: [0]}]", "out of range"),
        ("nodes: [{cpus: 0, distances: [near]}]", "'near'"),
        ("nodes: [{cpus: 0, distances: [[10]]}]", "neither a value nor a list"),
        ("nodes: [{cpus: banana, distances: [10]}]", "banana"),
        ("nodes: [{cpus: '', distances: [10]}]", "without CPUs"),
        (
            "nodes: [{cpus: 0, distances: [10, 20]}, {cpus: 0, distances: [20, 10]}]",
            "CPU 0 occurs twice",
        ),
        (
            "nodes: [{cpus: 0, distances: [10, 20], interfaces: a}, {distances: [20, 10], interfaces: a}]",
            "interface a is in nodes 0 and 1",
        ),
        ("nodes: [", "not YAML"),
        ("[" * 5000, "not YAML"),
    ],
)
def test_files_that_tell_of_no_machine_are_refused_by_name(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "machine.yaml"
    path.write_text(text)
    with pytest.raises(HostError) as refused:
        load_topology(str(path))
    assert words in refused.value.text
    assert refused.value.text.startswith(str(path))
    assert refused.value.errno == errno.EINVAL


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="No such file"):
        load_topology(str(tmp_path / "nothing"))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(HostError, match="not UTF-8"):
        load_topology(str(tmp_path / "binary"))


@given(st.text(max_size=80))
def test_no_text_makes_anything_but_a_host_error(text: str) -> None:
    with contextlib.suppress(HostError):
        parse_topology(text)


def test_the_present_cpu_is_one_of_the_machines() -> None:
    assert cpu_reader()() in {cpu for node in read_topology().nodes for cpu in node.cpus}


def test_a_device_without_node_is_nowhere() -> None:
    assert device_node("lo") == -1
    assert device_node("no-such-device") == -1
    assert all(link.numa_node >= -1 for link in links())
