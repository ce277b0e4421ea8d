"""NUMA nodes, their CPUs and distances: as the kernel tells them in /sys, or as a test writes them."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ulnet.host.values import HostError, Link
from ulnet.nid import NidError
from ulnet.nid.expr import NumberSet

__all__ = ["NumaNode", "Topology", "cpu_reader", "number_list", "number_text", "placed", "read_topology"]

MAX_NUMBER = 8191  # of CPUs and of nodes
MAX_DISTANCE = 255
_SYS = Path("/sys/devices/system")


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One NUMA node; `distances` to all nodes of the topology, in their order."""

    number: int
    cpus: tuple[int, ...]
    distances: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """The NUMA nodes of a machine. Raises HostError(EINVAL) for what no machine can be.

    `interfaces` places devices by name, and those that it does not name are nowhere; None asks the links.
    """

    nodes: tuple[NumaNode, ...]
    interfaces: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        numbers = [node.number for node in self.nodes]
        _each_once("node", numbers)
        cpus = [cpu for node in self.nodes for cpu in node.cpus]
        _each_once("CPU", cpus)
        if not cpus:
            raise HostError(errno.EINVAL, "a machine without CPUs: give at least one node its CPUs")
        for node in self.nodes:
            self._check_distances(node)
        for name, number in (self.interfaces or {}).items():
            if number not in numbers:
                raise HostError(errno.EINVAL, f"interface {name} is in node {number}, which does not exist")

    def _check_distances(self, node: NumaNode) -> None:
        if len(node.distances) != len(self.nodes):
            raise HostError(
                errno.EINVAL,
                f"node {node.number} has {len(node.distances)} distances: "
                f"give one for each of the {len(self.nodes)} nodes, itself included",
            )
        if not all(0 < distance <= MAX_DISTANCE for distance in node.distances):
            raise HostError(
                errno.EINVAL,
                f"node {node.number} has a distance out of range: use 1 to {MAX_DISTANCE}, 10 to itself",
            )

    def distances(self) -> dict[tuple[int, int], int]:
        """The distances of every pair of nodes."""
        return {
            (node.number, other.number): distance
            for node in self.nodes
            for other, distance in zip(self.nodes, node.distances, strict=True)
        }


def _each_once(what: str, numbers: Iterable[int]) -> None:
    seen: set[int] = set()
    for number in numbers:
        if number in seen:
            raise HostError(errno.EINVAL, f"{what} {number} occurs twice: number each but once")
        seen.add(number)


def number_list(text: str, what: str) -> tuple[int, ...]:
    """Numbers of CPUs or nodes as the kernel lists them: `0-3,8`. Raises HostError(EINVAL)."""
    text = text.strip()
    if not text:
        return ()
    try:
        return tuple(NumberSet.parse(f"[{text}]", MAX_NUMBER, what))
    except NidError as bad:
        raise HostError(errno.EINVAL, str(bad)) from None


def number_text(numbers: Sequence[int]) -> str:
    """Ascending numbers as the kernel lists them."""
    parts: list[str] = []
    first = last = -1
    for number in (*numbers, -1):
        if number == last + 1 and parts:
            last = number
            parts[-1] = f"{first}-{last}"
        elif number >= 0:
            first = last = number
            parts.append(str(number))
    return ",".join(parts)


def read_topology(system: Path = _SYS) -> Topology:
    """This machine's topology; one node with all CPUs where the kernel knows of no NUMA.

    Raises HostError(EINVAL, EIO).
    """
    try:
        if not (system / "node/online").exists():
            cpus = number_list((system / "cpu/online").read_text(), "CPU")
            return Topology((NumaNode(0, cpus, (10,)),))
        numbers = number_list((system / "node/online").read_text(), "node")
        return Topology(tuple(_node(system / f"node/node{number}", number) for number in numbers))
    except (OSError, ValueError) as error:
        raise HostError(errno.EIO, f"the machine's NUMA nodes cannot be read: {error}") from None


def _node(folder: Path, number: int) -> NumaNode:
    distances = tuple(int(word) for word in (folder / "distance").read_text().split())
    return NumaNode(number, number_list((folder / "cpulist").read_text(), "CPU"), distances)


def placed(links: Iterable[Link], topology: Topology | None) -> list[Link]:
    """The links, each in the node where the topology puts it."""
    places = topology.interfaces if topology is not None else None
    if places is None:
        return list(links)
    return [replace(link, numa_node=places.get(link.name, -1)) for link in links]


def cpu_reader() -> Callable[[], int]:
    """A function that tells the CPU on which the calling thread runs; -1 where the system cannot."""
    try:
        reader: Callable[[], int] = ctypes.CDLL(None).sched_getcpu
    except (OSError, AttributeError):
        return lambda: -1
    return reader
