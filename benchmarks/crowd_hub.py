"""One node with many peers of two rails each: what they take in memory, and messages to all beside to one.

`crowd_hub.py COUNT PORT SECONDS FAR`; FAR is the other process, the answer a line of JSON (`Hub`).
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from competitors.ulnet_base import CREDITS, PORTAL, new_node
from crowd_far import SIZE, nids_of
from crowd_meter import WARM, Figures, Meter
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
    """What was found; memory in bytes a peer, and what messages to one peer, to few and to all cost."""

    peers: int
    bare: float = 0.0
    connected: float = 0.0
    connections: float = 0.0  # a peer
    one: dict[str, list[Figures]] = field(default_factory=dict)
    few: dict[str, list[Figures]] = field(default_factory=dict)
    all: dict[str, list[Figures]] = field(default_factory=dict)


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

    def __init__(self, node: Node, targets: list[Nid], size: int, burst: int, far: int) -> None:
        self._core = node.core
        self._next = itertools.cycle([target for target in targets for _ in range(burst)])
        self._warm = max(WARM * len(targets) * burst, WINDOW)
        self._far = far
        self._open = 0
        self._until = math.inf
        self._acked = 0
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._warmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._md = node.core.memory.md_bind(bytes(size), self._on_event)
        self.before: Callable[[], None] = lambda: None  # called when it is warm, and …
        self.after: Callable[[], None] = lambda: None  # … when it was measured
        self.measured = 0  # messages

    def _on_event(self, event: Event) -> None:
        if event.status and not self._done.done():
            error = RuntimeError(event.reason)
            self._done.set_exception(error)
            if not self._warmed.done():
                self._warmed.set_exception(error)
        elif event.kind is EventKind.ACK:
            self._acked += 1
            self._open -= 1
            if self._acked == self._warm and not self._warmed.done():
                self._warmed.set_result(None)
            if time.perf_counter() < self._until:
                self._put()
            elif not self._open and not self._done.done():
                self._done.set_result(None)

    def _put(self) -> None:
        self._open += 1
        self._core.put(self._md, next(self._next), PORTAL, 1)

    async def run(self, seconds: float) -> Figures:
        """For so long, once it is warm."""
        for _ in range(WINDOW):
            self._put()
        await self._warmed
        self.before()
        before, meter = self._acked, Meter(self._far)
        self._until = time.perf_counter() + seconds
        await self._done
        self.measured = self._acked - before
        figures = meter.stop(self.measured)
        self.after()
        self._core.memory.md_unlink(self._md)
        return figures


async def _measure(peers: int, port: int, seconds: float, far: int) -> Hub:
    hub = Hub(peers)
    async with new_node(port) as node:
        for nid in OWN:
            node.add_ni(nid, tunables=NetTunables(peer_credits=CREDITS))
        numbers = range(peers)
        for number in numbers[:KNOWN_BEFORE]:
            node.add_peer(*both(number))
        await connect(node, numbers[:KNOWN_BEFORE])
        later = numbers[KNOWN_BEFORE:]
        before, sockets = _resident(), _sockets()
        for number in later:
            node.add_peer(*both(number))
        hub.bare = (_resident() - before) / len(later)
        await connect(node, later)
        hub.connected = (_resident() - before) / len(later)
        hub.connections = (_sockets() - sockets) / len(later)
        targets = [Nid.parse(nids_of(number)[0]) for number in numbers]
        for _ in range(TURNS):
            for shape, (size, burst) in SHAPES.items():
                for found, count in ((hub.one, 1), (hub.few, FEW), (hub.all, len(targets))):
                    figures = await Traffic(node, targets[:count], size, burst, far).run(seconds)
                    found.setdefault(shape, []).append(figures)
    return hub


def both(number: int) -> tuple[str, tuple[str]]:
    """The NIDs of that peer, as `add_peer` wants them."""
    first, second = nids_of(number)
    return first, (second,)


async def connect(node: Node, numbers: range) -> None:
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
    count, port, seconds, far = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    print(json.dumps(asdict(asyncio.run(_measure(count, port, seconds, far)))))


if __name__ == "__main__":
    main()
