"""Small messages over several rails: two nodes in one process over loopback, a net and an address a rail."""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any

from ulnet import Node
from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_PUT, TRUNCATE
from ulnet.core.tunables import NetTunables
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Nid
from work import CONGESTION

SIZE = 64  # bytes
RAILS = (1, 2, 4)
WAYS = ("event handlers", "await put")
CREDITS = 256
WARM_UPS = 20
PAUSE = 0.005  # seconds between them
WINDOW = {"event handlers": 256, "await put": 64}
PORTAL = 30
HEADS = ["64 bytes", "rails", "CPU µs/message", "slowest–fastest", "thousand/s", "× one rail"]


@dataclass(frozen=True, slots=True)
class Run:
    """One run: both ends together."""

    cpu_us: float
    rate: float


Runs = dict[tuple[str, bool, int], list[Run]]  # by way, with ACKs or without, and number of rails


def measure(rounds: int, count: int) -> Runs:
    """All in turn, `rounds` times."""
    runs: Runs = {}
    for _ in range(rounds):
        for way in WAYS:
            for ack in (False, True):
                for rails in RAILS:
                    runs.setdefault((way, ack, rails), []).append(run(way, ack, rails, count))
    return runs


def run(way: str, ack: bool, rails: int, count: int) -> Run:
    """`count` messages or a few less, after as many to warm up."""
    return asyncio.run(_run(way, ack, rails, count))


def _node(port: int) -> Node:
    tcp = TcpParams(accept="all", accept_port=port, reserved_ports=False, congestion=CONGESTION.decode())
    return Node(tcp=tcp)


def _nids(rails: int, host: int) -> list[str]:
    return [f"127.0.{rail + 1}.{host}@tcp{rail}" for rail in range(rails)]


async def _run(way: str, ack: bool, rails: int, count: int) -> Run:
    with socket.socket() as probe:
        probe.bind(("127.0.1.2", 0))
        port = probe.getsockname()[1]
    async with _node(port) as receiver, _node(port) as sender:
        for node, host in ((sender, 1), (receiver, 2)):
            for nid in _nids(rails, host):
                node.add_ni(nid, tunables=NetTunables(peer_credits=CREDITS))
        arrivals = _Arrivals()
        options = OP_PUT | MANAGE_REMOTE | TRUNCATE
        receiver.attach(PORTAL, 1, bytearray(SIZE), options=options, handler=arrivals)
        target = Nid.parse(_nids(rails, 2)[0])
        if rails > 1:
            await sender.discover(target)
        send = _by_handlers if way == "event handlers" else _by_await
        for _ in range(WARM_UPS):  # all connections are made, which takes turns of the loop
            await send(sender, target, ack, count // WARM_UPS)
            await asyncio.sleep(PAUSE)
        count -= count % WARM_UPS
        await arrivals.until(count)
        began, cpu = time.perf_counter(), time.process_time()
        await send(sender, target, ack, count)
        await arrivals.until(2 * count)
        return Run((time.process_time() - cpu) / count * 1e6, count / (time.perf_counter() - began))


class _Arrivals:
    """Counts what has come."""

    def __init__(self) -> None:
        self._count = self._wanted = 0
        self._reached: asyncio.Future[None] | None = None

    def __call__(self, event: Event) -> None:
        self._count += 1
        if self._count == self._wanted and self._reached is not None:
            self._reached.set_result(None)

    async def until(self, count: int) -> None:
        """Return when so many are there in all."""
        if self._count < count:
            self._wanted = count
            self._reached = asyncio.get_running_loop().create_future()
            await self._reached


async def _by_handlers(node: Node, target: Nid, ack: bool, count: int) -> None:
    """The event of one message sends another."""
    core = node.core
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    wanted = EventKind.ACK if ack else EventKind.SEND
    left, ended = count, 0

    def on_event(event: Event) -> None:
        nonlocal left, ended
        if event.kind is not wanted:
            return
        if event.status:
            raise RuntimeError(event.reason)
        ended += 1
        if left:
            left -= 1
            core.put(md, target, PORTAL, 1, ack=ack)
        elif ended == count:
            done.set_result(None)

    md = core.memory.md_bind(bytes(SIZE), on_event)
    for _ in range(min(WINDOW["event handlers"], count)):
        left -= 1
        core.put(md, target, PORTAL, 1, ack=ack)
    await done
    core.memory.md_unlink(md)


async def _by_await(node: Node, target: Nid, ack: bool, count: int) -> None:
    """Each task sends one after the other."""
    data = bytes(SIZE)

    async def some(messages: int) -> None:
        for _ in range(messages):
            await node.put(target, PORTAL, 1, data, ack=ack)

    tasks = WINDOW["await put"]
    await asyncio.gather(*(some(count // tasks + (task < count % tasks)) for task in range(tasks)))


def cells(runs: Runs) -> list[list[str]]:
    """Medians as rows of text."""
    rows = []
    for (way, ack, rails), found in runs.items():
        cpu = [one.cpu_us for one in found]
        one_rail = statistics.median(one.cpu_us for one in runs[way, ack, 1])
        rows.append(
            [
                f"{way}, {'acknowledged' if ack else 'one-way'}",
                str(rails),
                f"{statistics.median(cpu):.2f}",
                f"{max(cpu):.1f}–{min(cpu):.1f}",
                f"{statistics.median(one.rate for one in found) / 1000:.0f}",
                f"{statistics.median(cpu) / one_rail:.2f}",
            ]
        )
    return rows


HOW = (
    f"On loopback: two nodes in one process, an address and a net a rail, PUTs of {SIZE} bytes, "
    f"{WINDOW['event handlers']} under way with event handlers, {WINDOW['await put']} tasks with `await`; "
    "CPU of both ends, and what it is of that with one rail. More rails make nothing faster here: "
    "all share the two CPUs."
)


def to_dict(runs: Runs) -> dict[str, Any]:
    """For the JSON file: every run."""
    return {
        f"{way}, {'acknowledged' if ack else 'one-way'}, {rails} rails": [asdict(one) for one in found]
        for (way, ack, rails), found in runs.items()
    }


def main() -> None:
    """A table."""
    parser = argparse.ArgumentParser(
        description="What small messages cost over one, two and four rails.",
        epilog="Example: python benchmarks/small_rails.py --rounds 5",
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each (3)")
    parser.add_argument("--messages", type=int, default=20000, help="in each (20000)")
    options = parser.parse_args()
    for row in [HEADS, *cells(measure(options.rounds, options.messages))]:
        print("  ".join(row))


if __name__ == "__main__":
    main()
