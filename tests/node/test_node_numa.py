"""Where a node believes its threads and devices to be."""

from __future__ import annotations

import errno
import logging
import os

import pytest

from support.ports import free_port
from ulnet.core.status import LNetError
from ulnet.host import HostError, NumaNode, Topology, memory_node_reader, read_topology
from ulnet.lnd.tcp import TcpParams
from ulnet.node import Node, machine

TWO = Topology((NumaNode(0, (0,), (10, 21)), NumaNode(1, (1,), (21, 10))), {"eth5": 1})


def new_node(**more: object) -> Node:
    return Node(tcp=TcpParams(accept="all", accept_port=free_port(), reserved_ports=False), **more)  # type: ignore[arg-type]


@pytest.mark.requirement("snd-020", "CPT")
async def test_memory_is_near_the_cpu_on_which_the_thread_runs() -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("this test needs two CPUs")
    cpus = len([cpu for node in read_topology().nodes for cpu in node.cpus])
    async with new_node(cpu_npartitions=cpus) as node:
        table = node.core.cpts
        assert table.count == cpus
        try:
            for cpu in sorted(allowed)[:4]:
                os.sched_setaffinity(0, {cpu})
                md = node.core.memory.md_bind(b"", None)
                assert md.cpt == table.of_cpu(cpu) >= 0
        finally:
            os.sched_setaffinity(0, allowed)


async def test_a_device_is_where_the_topology_or_the_system_says() -> None:
    async with new_node(topology=TWO) as node:
        found = [
            node.add_ni("127.0.80.1@tcp", interface="eth5").dev_cpt,
            node.add_ni("127.0.80.2@tcp", interface="eth6").dev_cpt,
            node.add_ni("127.0.80.3@tcp", device_node=0).dev_cpt,
            node.add_ni("127.0.80.4@tcp").dev_cpt,
            node.add_ni("127.0.80.5@tcp", cpts=[1]).cpts,
        ]
        assert found == [1, -1, 0, -1, (1,)]


async def test_an_interface_that_is_not_there_is_refused() -> None:
    async with new_node() as node:
        with pytest.raises(
            LNetError, match=r"no interface is named 'no-such-dev': this host has .*lo"
        ) as told:
            node.add_ni("127.0.80.1@tcp", interface="no-such-dev")
        assert told.value.errno == errno.ENODEV
        assert [str(nid) for nid in node.core.nis] == ["0@lo"]
        assert node.add_ni("127.0.80.1@tcp", interface="lo").dev_cpt == -1
        assert node.add_ni("127.0.80.2@tcp", interface="lo:1").dev_cpt == -1


async def test_a_system_that_does_not_tell_its_nodes_counts_as_one_cpt(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unreadable() -> Topology:
        raise HostError(errno.EIO, "no /sys here")

    monkeypatch.setattr(machine, "read_topology", unreadable)
    with caplog.at_level(logging.WARNING, "ulnet"):
        async with new_node() as node:
            assert node.core.cpts.count == 1
            assert await node.put("0@lo", 5, 7, b"", ack=False) == 0
    assert "one CPT is assumed: no /sys here" in caplog.text


@pytest.mark.requirement("snd-020", "CPT")
async def test_large_memory_is_asked_for_its_node_on_the_real_machine_only() -> None:
    asked: list[int] = []
    reader = memory_node_reader()
    if reader is None:
        pytest.skip("this system does not tell where memory is (move_pages(2) is missing or forbidden)")

    def asking(view: memoryview) -> int:
        asked.append(reader(view))
        return asked[-1]

    cpus = len([cpu for node in read_topology().nodes for cpu in node.cpus])
    if cpus < 2:
        pytest.skip("this test needs two CPUs")
    async with new_node(cpu_npartitions=2) as node:
        assert node.core.state.node_of_memory is not None
        node.core.state.node_of_memory = asking
        md = node.core.memory.md_bind(bytearray(b"x" * (1 << 20)), None)
        assert asked[0] in node.core.cpts.partitions[md.cpt].nodes
    async with new_node(topology=TWO) as node:
        assert node.core.state.node_of_memory is None


@pytest.mark.parametrize("name", ["no\0name", "\ud800", ""])
async def test_what_is_no_name_of_an_interface_is_refused(name: str) -> None:
    async with new_node() as node:
        with pytest.raises(LNetError, match="no interface is named"):
            node.add_ni("127.0.80.1@tcp", interface=name)
