"""One node with many peers of two rails each: what they take in memory, and messages to all beside to one.

`crowd_hub.py COUNT PORT SECONDS`; the answer is a line of JSON (`Hub`).
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field

from competitors.ulnet_base import CREDITS, PORTAL, new_node
from crowd_far import SIZE, nids_of
from peer import check_build
from ulnet import Node
from ulnet.core.event import Event, EventKind
from ulnet.core.tunables import NetTunables
from ulnet.nid import Nid

OWN = ("127.1.255.1@tcp", "127.1.255.2@tcp1")
WINDOW = 64
FEW = WINDOW  # peers with a message each under way: as many calls to the kernel as with all of them
TURNS = 3  # of every shape, to one peer, to few and to all
KNOWN_BEFORE = 20  # peers that are there before memory is looked at
TOGETHER = 32  # peers that are connected to at a time
SHAPES = {"64 B": (64, 1), "64 B, 16 at a time": (64, 16), "16 KiB": (SIZE, 1)}  # bytes, to a peer in a row


@dataclass(slots=True)
class Hub:
    """What was found; memory in bytes a peer, rates in messages a second and CPU µs a message."""

    peers: int
    bare: float = 0.0
    connected: float = 0.0
    connections: float = 0.0  # a peer
    one: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    few: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    all: dict[str, list[tuple[float, float]]] = field(default_factory=dict)


def _resident() -> int:
    gc.collect()
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _sockets() -> int:
    """How many of the open files are connections (or listeners)."""
    names = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            pass  # the folder itself
    return sum(name.startswith("socket:") for name in names)


class Traffic:
    """PUTs to these peers in turn, `burst` to each in a row, each started by the ACK of an earlier one."""

    def __init__(self, node: Node, targets: list[Nid], size: int, burst: int) -> None:
        self._core = node.core
        self._next = itertools.cycle([target for target in targets for _ in range(burst)])
        self._open = 0
        self._until = 0.0
        self._acked = 0
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._md = node.core.memory.md_bind(bytes(size), self._on_event)

    def _on_event(self, event: Event) -> None:
        if event.status and not self._done.done():
            self._done.set_exception(RuntimeError(event.reason))
        elif event.kind is EventKind.ACK:
            self._acked += 1
            self._open -= 1
            if time.perf_counter() < self._until:
                self._put()
            elif not self._open and not self._done.done():
                self._done.set_result(None)

    def _put(self) -> None:
        self._open += 1
        self._core.put(self._md, next(self._next), PORTAL, 1)

    async def run(self, seconds: float) -> tuple[float, float]:
        """Messages a second, and this process's CPU µs a message."""
        began, cpu = time.perf_counter(), time.process_time()
        self._until = began + seconds
        for _ in range(WINDOW):
            self._put()
        await self._done
        took, used = time.perf_counter() - began, time.process_time() - cpu
        self._core.memory.md_unlink(self._md)
        return self._acked / took, used / self._acked * 1e6


async def _measure(peers: int, port: int, seconds: float) -> Hub:
    hub = Hub(peers)
    async with new_node(port) as node:
        for nid in OWN:
            node.add_ni(nid, tunables=NetTunables(peer_credits=CREDITS))
        numbers = range(peers)
        for number in numbers[:KNOWN_BEFORE]:
            node.add_peer(*_both(number))
        await _connect(node, numbers[:KNOWN_BEFORE])
        later = numbers[KNOWN_BEFORE:]
        before, sockets = _resident(), _sockets()
        for number in later:
            node.add_peer(*_both(number))
        hub.bare = (_resident() - before) / len(later)
        await _connect(node, later)
        hub.connected = (_resident() - before) / len(later)
        hub.connections = (_sockets() - sockets) / len(later)
        targets = [Nid.parse(nids_of(number)[0]) for number in numbers]
        for _ in range(TURNS):
            for shape, (size, burst) in SHAPES.items():
                for found, count in ((hub.one, 1), (hub.few, FEW), (hub.all, len(targets))):
                    figures = await Traffic(node, targets[:count], size, burst).run(seconds)
                    found.setdefault(shape, []).append(figures)
    return hub


def _both(number: int) -> tuple[str, tuple[str]]:
    first, second = nids_of(number)
    return first, (second,)


async def _connect(node: Node, numbers: range) -> None:
    """A message of each size over both rails, so that connections of all types are there."""

    async def reach(number: int) -> None:
        for own, nid in zip(OWN, nids_of(number), strict=True):
            for size in (64, SIZE):
                await node.put(nid, PORTAL, 1, bytes(size), source=own)

    for first in range(0, len(numbers), TOGETHER):
        await asyncio.gather(*map(reach, numbers[first : first + TOGETHER]))


def main() -> None:
    """Measure, and tell."""
    if os.environ.get("ULNET_BENCH_BUILD") == "compiled":
        check_build()
    count, port, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    print(json.dumps(asdict(asyncio.run(_measure(count, port, seconds)))))


if __name__ == "__main__":
    main()
