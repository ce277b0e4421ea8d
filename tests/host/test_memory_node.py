"""On which NUMA node a buffer is: asked of the real kernel."""

from __future__ import annotations

import mmap
from collections.abc import Callable

import pytest

from ulnet.host import memory_node_reader, read_topology

NODES = {node.number for node in read_topology().nodes}


def reader() -> Callable[[memoryview], int]:
    node_of = memory_node_reader()
    if node_of is None:
        pytest.skip("this system does not tell where memory is (move_pages(2) is missing or forbidden)")
    return node_of


@pytest.mark.requirement("snd-020")
@pytest.mark.parametrize("size", [1, 4096, 100_000, 1 << 20])
def test_memory_that_was_written_to_is_on_a_node_of_this_machine(size: int) -> None:
    node_of = reader()
    for buffer in (bytearray(b"x" * size), b"y" * size):
        assert node_of(memoryview(buffer)) in NODES


def test_memory_that_was_never_written_to_is_nowhere_yet() -> None:
    node_of = reader()
    with mmap.mmap(-1, 1 << 20) as memory, memoryview(memory) as view:
        assert node_of(view) == -1
        view[:] = bytes(1 << 20)
        assert node_of(view) in NODES
    assert node_of(memoryview(b"")) == -1


def test_where_the_system_cannot_tell_there_is_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    assert memory_node_reader() is None
