"""ulnet while a rail fails: one NI a rail, each rail a net; what is reported as failed is sent again.

The player `bond` sends between bonding NIs in standby mode, whose default slave is the rail that fails.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from failover_job import AGAIN, MESSAGE, TIMEOUT, WINDOW, Job, Outcome
from ulnet import Node
from ulnet.bond import BondLnd
from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_PUT, TRUNCATE
from ulnet.core.tunables import LndTunables
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Net, NetType, Nid

_PORT, _PORTAL = 9884, 30
_LOOK = 0.01  # seconds


def _node(addresses: list[str]) -> Node:
    return Node(
        tcp=TcpParams(accept="all", accept_port=_PORT, reserved_ports=False), report=lambda line: None
    )


def _configure(node: Node, addresses: list[str]) -> None:
    settings = node.core.settings
    settings.transaction_timeout = TIMEOUT * (settings.retry_count + 1) + 1
    settings.max_recovery_ping_interval = 1
    for rail, nid in enumerate(_nids(addresses)):
        node.add_ni(nid, interface=f"rail{rail}", lnd_tunables=LndTunables(timeout=TIMEOUT))


def _nids(addresses: list[str]) -> list[str]:
    return [f"{address}@tcp{rail}" for rail, address in enumerate(addresses)]


def serve(job: Job, announce: Callable[[str], None]) -> None:
    """Take PUTs into one buffer until the harness ends this process."""
    asyncio.run(_serve(job, announce))


async def _serve(job: Job, announce: Callable[[str], None]) -> None:
    async with _node(job.remote) as node:
        _configure(node, job.remote)
        if job.player == "bond":
            node.add_bond("bond0", _nids(job.remote)[::-1])
        options = OP_PUT | MANAGE_REMOTE | TRUNCATE
        node.attach(_PORTAL, 1, bytearray(MESSAGE), options=options, handler=lambda event: None)
        announce("ready")
        await asyncio.Event().wait()


def drive(job: Job, announce: Callable[[str], None]) -> Outcome:
    """All that the job asks for."""
    return asyncio.run(_drive(job, announce))


async def _drive(job: Job, announce: Callable[[str], None]) -> Outcome:
    async with _node(job.local) as node:
        _configure(node, job.local)
        there = _nids(job.remote)
        target = Nid.parse(there[0])
        if job.player == "bond":
            node.add_bond("bond0", _nids(job.local)[::-1])
            target = Nid.of(Net.of(NetType.BOND), Nid.parse(there[-1]).address)
        else:
            node.add_peer(there[0], there[1:])
        pump = _Pump(node, target)
        announce("ready")
        watch = asyncio.create_task(_watch(node, pump.outcome)) if job.player == "bond" else None
        try:
            return await pump.run(job)
        finally:
            if watch is not None:
                watch.cancel()


async def _watch(node: Node, outcome: Outcome) -> None:
    """Note when the default slave ceases to be the active one, and when it is again."""
    (bond,) = node.driver(BondLnd).bonds.values()
    before = True
    while True:
        now = bond.slaves.active is bond.slaves.nis[0]
        if now != before:
            outcome.on_default.append((time.monotonic(), now))
            before = now
        await asyncio.sleep(_LOOK)


class _Pump:
    """Keeps a window of acknowledged PUTs under way."""

    def __init__(self, node: Node, to: Nid) -> None:
        self._core = node.core
        self._to = to
        self._data = bytes(MESSAGE)
        self._loop = asyncio.get_running_loop()
        self.outcome = Outcome()
        self._open = 0
        self._end = 0.0
        self._given_up = False
        self._empty = asyncio.Event()
        self._told: set[int] = set()  # that failed, and were sent again

    async def run(self, job: Job) -> Outcome:
        """The whole stream."""
        self._end = self._loop.time() + job.seconds
        for _ in range(WINDOW):
            self._next()
        try:
            await asyncio.wait_for(self._empty.wait(), job.seconds + job.grace)
        except TimeoutError:
            self._given_up = True  # what is lost shows in the outcome
        self.outcome.over = self._end
        return self.outcome

    def _next(self) -> None:
        if self._loop.time() < self._end:
            self._open += 1
            self._put(self.outcome.begin())
        elif not self._open:
            self._empty.set()

    def _again(self, number: int) -> None:
        if not self._given_up:  # the node is ending then, and takes nothing new
            self._put(number)

    def _put(self, number: int) -> None:
        md = self._core.memory.md_bind(
            self._data, partial(self._on_event, number), threshold=2, timeout=float(TIMEOUT)
        )
        self._core.put(md, self._to, _PORTAL, 1, hdr_data=number)

    def _on_event(self, number: int, event: Event) -> None:
        if event.status:
            self._told.add(number)  # once, as a connection that cannot be made again counts for nothing
            self.outcome.reported = len(self._told)
            self._loop.call_later(AGAIN, self._again, number)
        elif event.kind is EventKind.ACK:
            self.outcome.end(number)
            self._open -= 1
            self._next()
