"""How CPUs are divided into partitions: the module parameters cpu_npartitions and cpu_pattern.

Without either each NUMA node is a partition, as on kernel nodes (spec lnetctl.md §2 names the parameters).
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable
from itertools import pairwise

from ulnet.host.topology import MAX_NUMBER, Topology, number_list
from ulnet.host.values import HostError

__all__ = ["divide"]

Parts = list[tuple[tuple[int, ...], tuple[int, ...]]]  # CPUs and nodes of each

_ITEM = re.compile(r"\s*(\d{1,4})\s*\[([^\[\]]*)\]")


def divide(topology: Topology, pattern: str = "", count: int = 0) -> Parts:
    """The CPUs and nodes of each partition. Raises HostError(EINVAL).

    `pattern`: `N` for one a node, `N 0[0,1] 1[2,3]` by nodes, `0[0-3] 1[4-7]` by CPUs. `count` alone shares
    the CPUs out evenly, in the order of the nodes; 0 leaves the default.
    """
    pattern = pattern.strip()
    if count and pattern:
        raise HostError(errno.EINVAL, "cpu_npartitions and cpu_pattern exclude each other: give one of them")
    if count:
        return _evenly(topology, count)
    by_nodes = pattern[:1] in ("N", "n")
    if not pattern or pattern in ("N", "n"):
        return _with_nodes(topology, [node.cpus for node in topology.nodes if node.cpus])
    lists = _read(pattern[1:] if by_nodes else pattern, "node" if by_nodes else "CPU", pattern)
    if by_nodes:
        cpus_of = {node.number: node.cpus for node in topology.nodes}
        for number in (number for numbers in lists for number in numbers):
            if number not in cpus_of:
                raise HostError(errno.EINVAL, f"cpu_pattern {pattern!r}: this machine has no node {number}")
        lists = [tuple(cpu for number in numbers for cpu in cpus_of[number]) for numbers in lists]
    parts = _with_nodes(topology, lists)
    for cpt, (cpus, _) in enumerate(parts):
        if not cpus:
            raise HostError(errno.EINVAL, f"cpu_pattern {pattern!r}: CPT {cpt} has no CPU; give it one")
    return parts


def _evenly(topology: Topology, count: int) -> Parts:
    cpus = [cpu for node in topology.nodes for cpu in node.cpus]
    if not 0 < count <= len(cpus):
        raise HostError(
            errno.EINVAL, f"cpu_npartitions {count}: this machine has CPUs for 1 to {len(cpus)} partitions"
        )
    edges = [len(cpus) * part // count for part in range(count + 1)]
    return _with_nodes(topology, [tuple(cpus[a:b]) for a, b in pairwise(edges)])


def _with_nodes(topology: Topology, cpu_lists: Iterable[tuple[int, ...]]) -> Parts:
    """Each list of CPUs with the nodes that they are in."""
    node_of = {cpu: node.number for node in topology.nodes for cpu in node.cpus}
    parts: Parts = []
    for cpus in cpu_lists:
        for cpu in cpus:
            if cpu not in node_of:
                raise HostError(errno.EINVAL, f"this machine has no CPU {cpu}: see `lscpu`")
        parts.append((tuple(sorted(cpus)), tuple(sorted({node_of[cpu] for cpu in cpus}))))
    return parts


def _read(text: str, what: str, pattern: str) -> list[tuple[int, ...]]:
    """The lists of `0[a-b] 1[c,d]`, by number."""
    found: dict[int, tuple[int, ...]] = {}
    taken: set[int] = set()
    at = 0
    while at < len(text.rstrip()):
        item = _ITEM.match(text, at)
        if item is None:
            raise HostError(
                errno.EINVAL, f"cpu_pattern {pattern!r} cannot be read: write such as 0[0-3] 1[4-7], or N"
            )
        cpt, numbers = int(item[1]), number_list(item[2], what)
        if cpt in found or cpt > MAX_NUMBER:
            raise HostError(errno.EINVAL, f"cpu_pattern {pattern!r}: CPT {cpt} occurs twice or is too high")
        for number in numbers:
            if number in taken:
                raise HostError(errno.EINVAL, f"cpu_pattern {pattern!r}: {what} {number} is in two CPTs")
            taken.add(number)
        found[cpt] = numbers
        at = item.end()
    if sorted(found) != list(range(len(found))):
        raise HostError(errno.EINVAL, f"cpu_pattern {pattern!r}: number the CPTs from 0, without gaps")
    return [found[cpt] for cpt in range(len(found))]
