"""CPU partitions (CPTs): which CPUs and NUMA nodes are in each, and how far one is from another.

From the Multi-Rail design, "Extending NUMA awareness": the distance of two CPTs is the largest of those
between their nodes; where one is unknown it is the largest there is, so that an unknown message is
equally far from every NI.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from zlib import crc32

from ulnet.core.status import LNetError
from ulnet.nid import Nid

__all__ = ["ANY_CPT", "LARGE_MEMORY", "CptTable", "Partition", "share_of_nid"]

ANY_CPT = -1  # not known, or any
LARGE_MEMORY = 65536  # bytes from which it pays to ask on which node they are


class Partition(NamedTuple):
    """One CPT: its CPUs, and the NUMA nodes that they are in."""

    cpus: tuple[int, ...]
    nodes: tuple[int, ...]


class CptTable:
    """The CPTs of a machine, numbered from 0. Without partitions: one CPT, and nothing is known of nodes."""

    __slots__ = ("_cpt_of_cpu", "_cpt_of_node", "_rows", "count", "partitions")

    def __init__(
        self,
        partitions: Sequence[Partition] = (),
        node_distances: Mapping[tuple[int, int], int] | None = None,
    ) -> None:
        """`node_distances` has every pair of nodes. Raises LNetError(EINVAL) for a CPU in two partitions."""
        self.partitions: tuple[Partition, ...] = tuple(partitions)
        self.count: int = len(self.partitions) or 1
        self._cpt_of_cpu: dict[int, int] = {}
        self._cpt_of_node: dict[int, int] = {}
        for cpt, partition in enumerate(self.partitions):
            for cpu in partition.cpus:
                if self._cpt_of_cpu.setdefault(cpu, cpt) != cpt:
                    raise LNetError(
                        errno.EINVAL,
                        f"CPU {cpu} is in CPT {self._cpt_of_cpu[cpu]} and in CPT {cpt}: put it into one",
                    )
            for node in partition.nodes:
                self._cpt_of_node.setdefault(node, cpt)
        self._rows = self._distances(node_distances or {})

    def _distances(self, between: Mapping[tuple[int, int], int]) -> list[tuple[int, ...]]:
        """Row by CPT; the last row and the last of each row, which -1 finds, are those of an unknown CPT."""
        known = [
            [
                max((between[a, b] for a in one.nodes for b in other.nodes), default=0)
                for other in self.partitions
            ]
            for one in self.partitions
        ] or [[0]]
        farthest = max(max(row) for row in known)
        return [(*row, farthest) for row in known] + [(farthest,) * (self.count + 1)]

    def distance(self, one: int, other: int) -> int:
        """Between two CPTs; larger is farther, and that is all that the number means."""
        return self._rows[one][other]

    def distances_from(self, cpt: int) -> Callable[[int], int]:
        """The distances from one CPT, as a function of the other."""
        return self._rows[cpt].__getitem__

    def of_cpu(self, cpu: int) -> int:
        """The CPT that has a CPU, else ANY_CPT."""
        return self._cpt_of_cpu.get(cpu, ANY_CPT)

    def of_node(self, node: int) -> int:
        """The CPT that has a NUMA node: of several always the first; else ANY_CPT."""
        return self._cpt_of_node.get(node, ANY_CPT)

    def with_node(self, node: int, preferred: int) -> int:
        """A CPT that has a NUMA node: `preferred` if it has, or if none has."""
        if 0 <= preferred < len(self.partitions) and node in self.partitions[preferred].nodes:
            return preferred
        return self._cpt_of_node.get(node, preferred)

    def checked(self, cpt: int) -> int:
        """The CPT of a message. Raises LNetError(ERANGE)."""
        if ANY_CPT <= cpt < self.count:
            return cpt
        raise LNetError(errno.ERANGE, f"{self._missing(cpt)}, or {ANY_CPT} where it is not known")

    def checked_list(self, cpts: Iterable[int] | None) -> tuple[int, ...]:
        """The CPTs of an NI, ascending; None is all. Raises LNetError: EINVAL (none), ERANGE."""
        if cpts is None:
            return tuple(range(self.count))
        chosen = tuple(sorted(set(cpts)))
        if not chosen:
            raise LNetError(errno.EINVAL, "an NI without any CPT cannot work: name one, or none for all")
        for cpt in (chosen[0], chosen[-1]):
            if not 0 <= cpt < self.count:
                raise LNetError(errno.ERANGE, self._missing(cpt))
        return chosen

    def _missing(self, cpt: int) -> str:
        return f"CPT {cpt} does not exist: this node's CPTs are 0 to {self.count - 1}"


def share_of_nid(nid: Nid, count: int) -> int:
    """Which of `count` CPTs takes care of a NID: always the same one, and all get their share of NIDs."""
    return crc32(nid) % count
