"""ulnet over several rails: one NI a rail, each rail a net; PUTs that LNet's own ACKs acknowledge.

A player `bond:POLICY` sends between bonding NIs over those NIs in place of Multi-Rail.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from rails_job import BATCH, Job, Outcome, steady
from ulnet import Node
from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_PUT, TRUNCATE, Md
from ulnet.core.ni import NI
from ulnet.core.path_load import PathLoad
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Net, NetType, Nid

_PORT, _PORTAL = 9882, 30
BOND = Net.of(NetType.BOND)


def _node() -> Node:
    return Node(tcp=TcpParams(accept="all", accept_port=_PORT, reserved_ports=False))


def _nids(addresses: list[str]) -> list[str]:
    return [f"{address}@tcp{rail}" for rail, address in enumerate(addresses)]


def _bond(node: Node, job: Job, addresses: list[str]) -> bool:
    """Whether the player wants a bonding NI, which the node then has."""
    kind, _, policy = job.player.partition(":")
    if kind == "bond":
        least = min(job.rates)
        weights = [round(rate / least) for rate in job.rates] if policy == "weights" else None
        node.add_bond("bond0", _nids(addresses), mode="loadbalance", policy=policy, weights=weights)
    return kind == "bond"


def serve(job: Job, announce: Callable[[str], None]) -> None:
    """Take PUTs into one buffer until the harness ends this process."""
    asyncio.run(_serve(job, announce))


async def _serve(job: Job, announce: Callable[[str], None]) -> None:
    async with _node() as node:
        for nid in _nids(job.remote):
            node.add_ni(nid)
        _bond(node, job, job.remote)
        options = OP_PUT | MANAGE_REMOTE | TRUNCATE
        node.attach(_PORTAL, 1, bytearray(job.size), options=options, handler=lambda event: None)
        announce("ready")
        await asyncio.Event().wait()


def drive(job: Job) -> Outcome:
    """All that the job asks for."""
    return asyncio.run(_drive(job))


async def _drive(job: Job) -> Outcome:
    async with _node() as node:
        node.core.selector.balance = "documents" if job.player == "ulnet_documents" else "expected"
        for nid in _nids(job.local):
            node.add_ni(nid)
        there = _nids(job.remote)
        path_loads: dict[NI, PathLoad] = {}
        if _bond(node, job, job.local):
            target = Nid.of(BOND, Nid.parse(there[0]).address)
        else:
            path_loads = node.add_peer(there[0], there[1:]).path_loads
            target = Nid.parse(there[0])
        pump = _Pump(node, job, target)
        began = time.perf_counter()
        outcome = Outcome(steady(job, began, await pump.run(None, job.warmup + job.seconds, job.window)))
        for _ in range(job.batches):
            await asyncio.sleep(0.3)
            began = time.perf_counter()
            outcome.batches.append((await pump.run(BATCH, None, BATCH))[-1] - began)
        outcome.paths = {str(ni.nid): path_load.rate for ni, path_load in path_loads.items()}
        pump.close()
        return outcome


class _Pump:
    """Keeps a window of acknowledged PUTs under way from the event handler."""

    def __init__(self, node: Node, job: Job, to: Nid) -> None:
        self._core = node.core
        self._to = to
        self._answered: list[float] = []
        self._left = self._open = self._window = 0
        self._end = float("inf")
        self._done: asyncio.Future[None] | None = None
        self._md: Md = self._core.memory.md_bind(bytes(job.size), self._on_event)

    async def run(self, count: int | None, seconds: float | None, window: int) -> list[float]:
        """Send `count` messages, or for `seconds`; when each was acknowledged."""
        self._answered = []
        self._left = count if count is not None else 1 << 62
        self._end = time.perf_counter() + seconds if seconds is not None else float("inf")
        self._window = window
        self._done = asyncio.get_running_loop().create_future()
        self._fill()
        await self._done
        return self._answered

    def _on_event(self, event: Event) -> None:
        assert self._done is not None
        if event.status:
            if not self._done.done():
                self._done.set_exception(RuntimeError(event.reason))
        elif event.kind is EventKind.ACK:
            now = time.perf_counter()
            self._answered.append(now)
            self._open -= 1
            if now >= self._end:
                self._left = 0
            self._fill()

    def _fill(self) -> None:
        while self._left and self._open < self._window:
            self._left -= 1
            self._open += 1
            self._core.put(self._md, self._to, _PORTAL, 1)
        if not self._left and not self._open and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def close(self) -> None:
        """Let go of the memory."""
        self._core.memory.md_unlink(self._md)
