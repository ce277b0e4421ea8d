"""The machine under a node: its CPTs, and where its devices are."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

from ulnet.core.cpt import CptTable, Partition
from ulnet.core.status import LNetError
from ulnet.host import (
    HostError,
    Topology,
    cpu_reader,
    device_node,
    divide,
    memory_node_reader,
    read_topology,
)

__all__ = ["Machine"]


class Machine:
    """CPTs by cpu_pattern or cpu_npartitions, by default one a NUMA node. Raises LNetError(EINVAL).

    Without `topology` it is read from the system; what cannot be read there is `unreadable`, and counts as
    one CPT.
    """

    def __init__(self, topology: Topology | None = None, *, pattern: str = "", partitions: int = 0) -> None:
        self.unreadable: str = ""
        self._real = topology is None
        if topology is None:
            try:
                topology = read_topology()
            except HostError as why:
                self.unreadable = why.text
        self.topology = topology
        self.cpts: CptTable = CptTable()
        self.current_cpu: Callable[[], int] = lambda: -1
        self.node_of_memory: Callable[[memoryview], int] | None = None
        if topology is not None:
            try:
                parts = [Partition(*part) for part in divide(topology, pattern, partitions)]
            except HostError as bad:
                raise LNetError(bad.errno, bad.text) from None
            self.cpts = CptTable(parts, topology.distances())
        if self.cpts.count > 1:
            self.current_cpu = cpu_reader()
            if self._real:
                self.node_of_memory = memory_node_reader()

    def node_of(self, interface: str | None) -> int:
        """The NUMA node of a device, -1 where it is not known. Raises LNetError(ENODEV)."""
        if interface is None:
            return -1
        if self._real:
            _must_be_there(interface)
        places = self.topology.interfaces if self.topology is not None else None
        return places.get(interface, -1) if places is not None else device_node(interface)


def _must_be_there(interface: str) -> None:
    try:
        socket.if_nametoindex(interface.partition(":")[0])  # an address label has the device's name first
    except (OSError, ValueError):
        names = ", ".join(name for _, name in socket.if_nameindex()) or "none"
        text = f"no interface is named {interface!r}: this host has {names}"
        raise LNetError(errno.ENODEV, text) from None
