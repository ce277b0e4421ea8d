"""One node of `make soak`: talks to all others; counts what became of each message, and what it holds.

Told by JSON lines on standard input, answers each with one on standard output.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import sys
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, field
from typing import Any

from ulnet import Node
from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_GET, OP_PUT, TRUNCATE
from ulnet.core.status import LNetError
from ulnet.core.tunables import LndTunables
from ulnet.lnd.tcp import TcpLnd, TcpParams
from ulnet.nid import Nid
from ulnet.sim.invariants import at_rest, now_and_then, quickly

__all__ = ["Holding", "Ledger", "Settings"]

PORTAL, PUTS, GETS = 30, 1, 2
SIZES = (16, 4096, 65536, 1 << 20)
PATTERN = random.Random(1).randbytes(1 << 20)
TIMEOUT = 1  # seconds, of the LND
PUT_TIMEOUT = 3.0  # of a caller
PATIENCE = 30.0  # until everything must be at rest


@dataclass(frozen=True, slots=True)
class Settings:
    """Where this node is, and whom it talks to."""

    nids: list[str]
    peers: list[list[str]]
    window: int = 4


@dataclass(slots=True)
class Ledger:
    """Numbers of PUTs since the last reckoning, by peer; GETs whose bytes were wrong."""

    acked: dict[str, list[int]] = field(default_factory=dict)
    reported: dict[str, list[int]] = field(default_factory=dict)
    received: dict[str, list[int]] = field(default_factory=dict)
    got: int = 0
    get_failures: int = 0
    wrong: int = 0  # PUTs or GETs with bytes that nobody sent

    @staticmethod
    def note(book: dict[str, list[int]], peer: str, number: int) -> None:
        """One number more."""
        book.setdefault(peer, []).append(number)


@dataclass(slots=True)
class Holding:
    """What the process holds at rest."""

    rss: int  # KiB
    descriptors: int  # without connections
    connections: int
    tasks: int
    objects: int
    peers: int
    trouble: str


class SoakNode:
    """Sends, receives, and answers the harness."""

    def __init__(self, node: Node, settings: Settings) -> None:
        self._node = node
        self._settings = settings
        self._ledger = Ledger()
        self._numbers = dict.fromkeys((peer[0] for peer in settings.peers), 0)
        self._moving = False
        self._traffic: list[asyncio.Task[None]] = []

    def listen(self) -> None:
        """Take PUTs, serve GETs; every byte comes from one pattern, so that each can be checked."""
        node = self._node
        options = OP_PUT | MANAGE_REMOTE | TRUNCATE
        node.attach(PORTAL, PUTS, bytearray(1 << 20), options=options, handler=self._received)
        node.attach(
            PORTAL, GETS, PATTERN, options=OP_GET | MANAGE_REMOTE | TRUNCATE, handler=lambda event: None
        )

    def _received(self, event: Event) -> None:
        if event.kind is EventKind.PUT and not event.status:
            Ledger.note(self._ledger.received, str(event.initiator), event.hdr_data)
            if bytes(event.data) != PATTERN[: event.mlength]:
                self._ledger.wrong += 1

    async def obey(self, order: str) -> dict[str, Any]:
        """start | pause | reckon."""
        orders: dict[str, Callable[[], Coroutine[Any, Any, dict[str, Any]]]] = {
            "start": self._start,
            "pause": self._pause,
            "reckon": self._reckon,
        }
        return await orders[order]()

    async def _start(self) -> dict[str, Any]:
        self._moving = True
        for peer in self._settings.peers:
            for _ in range(self._settings.window):
                self._traffic.append(asyncio.create_task(self._talk(peer[0])))
        return {}

    async def _talk(self, peer: str) -> None:
        chance = random.Random()
        while self._moving:
            size = chance.choice(SIZES)
            if chance.random() < 0.25:
                await self._get(peer, size)
            else:
                await self._put(peer, size)
            await asyncio.sleep(chance.random() * 0.05)

    async def _put(self, peer: str, size: int) -> None:
        self._numbers[peer] = number = self._numbers[peer] + 1
        data = memoryview(PATTERN)[:size]
        try:
            await self._node.put(peer, PORTAL, PUTS, data, hdr_data=number, timeout=PUT_TIMEOUT)
        except LNetError:
            Ledger.note(self._ledger.reported, peer, number)
        else:
            Ledger.note(self._ledger.acked, peer, number)

    async def _get(self, peer: str, size: int) -> None:
        buffer = bytearray(size)
        try:
            got = await self._node.get(peer, PORTAL, GETS, buffer, timeout=PUT_TIMEOUT)
        except LNetError:
            self._ledger.get_failures += 1
        else:
            self._ledger.got += 1
            self._ledger.wrong += buffer[:got] != PATTERN[:size]

    async def _pause(self) -> dict[str, Any]:
        """No new message; answers when those under way have ended."""
        self._moving = False
        await asyncio.gather(*self._traffic)
        self._traffic.clear()
        return {}

    async def _reckon(self) -> dict[str, Any]:
        """The ledger since the last time, and what is held at rest."""
        core = self._node.core
        loop = asyncio.get_running_loop()
        patience = loop.time() + PATIENCE
        while (trouble := at_rest(core)) and loop.time() < patience:  # noqa: ASYNC110 - bounded
            await asyncio.sleep(0.05)
        trouble = trouble or quickly(core) or now_and_then(core)
        gc.collect()
        tcp = self._node.driver(TcpLnd)
        connections = tcp.open_connections
        ledger, self._ledger = self._ledger, Ledger()
        holding = Holding(
            rss=_resident(),
            descriptors=len(os.listdir("/proc/self/fd")) - connections - tcp.pending_handshakes,
            connections=connections,
            tasks=len(asyncio.all_tasks()),
            objects=len(gc.get_objects()),
            peers=sum(1 for _ in core.peers),
            trouble=trouble,
        )
        return {"ledger": asdict(ledger), "holding": asdict(holding), "sent": dict(self._numbers)}


def _resident() -> int:
    """KiB of memory that this process has now."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))


async def _main(settings: Settings) -> None:
    tcp = TcpParams(accept="all", accept_port=9885, reserved_ports=False)
    async with Node(tcp=tcp, report=lambda line: None) as node:
        node.core.settings.transaction_timeout = 4
        node.core.settings.max_recovery_ping_interval = 2
        for rail, nid in enumerate(settings.nids):
            node.add_ni(nid, interface=f"rail{rail}", lnd_tunables=LndTunables(timeout=TIMEOUT))
        for peer in settings.peers:
            node.add_peer(Nid.parse(peer[0]), peer[1:])
        soaked = SoakNode(node, settings)
        soaked.listen()
        reader = asyncio.StreamReader(limit=1 << 16)
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        print("{}", flush=True)
        while order := await reader.readline():
            print(json.dumps(await soaked.obey(json.loads(order))), flush=True)


if __name__ == "__main__":
    asyncio.run(_main(Settings(**json.loads(sys.argv[1]))))
