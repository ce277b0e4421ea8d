"""ulnet while a rail fails: one NI a rail, each rail a net; what is reported as failed is sent again.

The player `bond` sends between bonding NIs in standby mode, whose default slave is the rail that fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from failover_job import AGAIN, MESSAGE, TIMEOUT, WINDOW, Job, Outcome
from ulnet import Node
from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_PUT, TRUNCATE
from ulnet.core.tunables import LndTunables
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Net, NetType, Nid

_PORT, _PORTAL = 9884, 30


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
        return await pump.run(job)


class _Pump:
    """Keeps a window of acknowledged PUTs under way."""

    def __init__(self, node: Node, to: Nid) -> None:
        self._core = node.core
        self._to = to
        self._data = bytes(MESSAGE)
        self._loop = asyncio.get_running_loop()
        self._outcome = Outcome()
        self._open = 0
        self._end = 0.0
        self._empty = asyncio.Event()

    async def run(self, job: Job) -> Outcome:
        """The whole stream."""
        self._end = self._loop.time() + job.seconds
        for _ in range(WINDOW):
            self._next()
        try:
            await asyncio.wait_for(self._empty.wait(), job.seconds + job.grace)
        except TimeoutError:
            pass  # what is lost shows in the outcome
        self._outcome.over = self._end
        return self._outcome

    def _next(self) -> None:
        if self._loop.time() < self._end:
            self._open += 1
            self._put(self._outcome.begin())
        elif not self._open:
            self._empty.set()

    def _put(self, number: int) -> None:
        md = self._core.memory.md_bind(
            self._data, partial(self._on_event, number), threshold=2, timeout=float(TIMEOUT)
        )
        self._core.put(md, self._to, _PORTAL, 1, hdr_data=number)

    def _on_event(self, number: int, event: Event) -> None:
        if event.status:
            self._outcome.reported += 1
            self._loop.call_later(AGAIN, self._put, number)
        elif event.kind is EventKind.ACK:
            self._outcome.end(number)
            self._open -= 1
            self._next()
