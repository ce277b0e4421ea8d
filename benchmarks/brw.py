"""How fast selftest moves bulk beside plain PUTs and GETs: `python benchmarks/brw.py` prints a table."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import ulnet
from competitors.ulnet_base import new_node
from players import HERE, builds
from runner import environment_of
from ulnet import new_event_loop
from ulnet.core.event import Event
from ulnet.core.md import MANAGE_REMOTE, OP_GET, OP_PUT, TRUNCATE
from ulnet.nid import Nid
from ulnet.node import Node
from ulnet.selftest import Selftest
from ulnet.selftest.services import BrwClient
from ulnet.wire.selftest_values import BULK_LEN, BulkBytes, Check, Direction

CLIENT, SERVER = "127.4.1.1", "127.4.1.2"
SIZE, WINDOW, PORTAL, BITS = 1 << 20, 8, 30, 7
ROUNDS, SECONDS = 5, 1.5
PATIENCE = 60.0
HOW = (
    f"Two processes, messages of 1 MiB, {WINDOW} at once; all take turns. Medians of the rounds; a ratio is "
    "the median of those of single rounds. A brw is a request, a GET with its REPLY (write) or a PUT (read), "
    "and a reply; a PUT is acknowledged. CPU is that of both ends."
)
HEADS = ["", "build", "MiB/s", "of plain", "CPU, ms/GiB"]
PLAIN = {"brw write": "PUT", "brw write, full check": "PUT", "brw read": "GET", "brw read, full check": "GET"}
NAMES = ("PUT", "brw write", "brw write, full check", "GET", "brw read", "brw read, full check")

Once = Callable[[int], Awaitable[object]]


@dataclass(slots=True)
class Run:
    """MiB/s, and seconds of CPU for each MiB."""

    rate: float
    cpu: float


Results = dict[str, list[Run]]


def measure(rounds: int, seconds: float, tell: Callable[[str], None]) -> dict[str, Results]:
    """Each build that there is, by itself."""
    found = {}
    for build in builds():
        tell(f"bulk of selftest, {build}")
        words = [sys.executable, str(Path(__file__)), "measure", str(rounds), str(seconds)]
        done = subprocess.run(words, env=environment_of(build), stdout=subprocess.PIPE, text=True, check=True)
        found[build] = {name: [Run(**run) for run in runs] for name, runs in json.loads(done.stdout).items()}
    return found


def measure_here(rounds: int, seconds: float) -> Results:
    """All in turn, `rounds` times, with the build that this process has."""
    port = _free_port()
    build = Path(ulnet.__file__).parent.parent  # the server's, too
    environment = {**os.environ, "PYTHONPATH": f"{build}:{HERE}"}
    words = [sys.executable, str(Path(__file__)), "serve", str(port)]
    with subprocess.Popen(
        words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        try:
            if server.stdout.readline() != "ready\n":
                raise RuntimeError("the server of the bulk benchmark did not start")
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                return runner.run(_measure(port, server.pid, rounds, seconds))
        finally:
            server.stdin.close()
            server.wait(PATIENCE)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((SERVER, 0))
        port: int = probe.getsockname()[1]
        return port


async def _measure(port: int, server: int, rounds: int, seconds: float) -> Results:
    results: Results = {name: [] for name in NAMES}
    node = new_node(port)
    async with node:
        node.add_ni(f"{CLIENT}@tcp")
        test = Selftest(node)
        test.start()
        ways = _ways(node, test)
        for once in ways.values():
            await _run(once, server, 0.2)
        for _ in range(rounds):
            for name, once in ways.items():
                results[name].append(await _run(once, server, seconds))
        await test.close()
    return results


def _ways(node: Node, test: Selftest) -> dict[str, Once]:
    target = Nid.parse(f"{SERVER}@tcp")
    data, sinks = bytes(SIZE), [bytearray(SIZE) for _ in range(WINDOW)]
    ways: dict[str, Once] = {
        "PUT": lambda index: node.put(target, PORTAL, BITS, data),
        "GET": lambda index: node.get(target, PORTAL, BITS, sinks[index]),
    }
    for words, direction in (("write", Direction.WRITE), ("read", Direction.READ)):
        for more, check in (("", Check.NONE), (", full check", Check.FULL)):
            bulk = BulkBytes(direction, check, SIZE, 0)
            clients = [BrwClient(test.exchange, target, BULK_LEN, PATIENCE, bulk) for _ in range(WINDOW)]
            ways[f"brw {words}{more}"] = lambda index, clients=clients: clients[index].once()  # type: ignore[misc]
    return {name: ways[name] for name in NAMES}


async def _run(once: Once, server: int, seconds: float) -> Run:
    count = 0
    end = time.monotonic() + seconds

    async def unit(index: int) -> None:
        nonlocal count
        while time.monotonic() < end:
            await once(index)
            count += 1

    began, used = time.monotonic(), _cpu(server)
    await asyncio.gather(*(unit(index) for index in range(WINDOW)))
    return Run(count / (time.monotonic() - began), (_cpu(server) - used) / count)


def _cpu(server: int) -> float:
    """What this process and the server have used, in seconds."""
    fields = Path(f"/proc/{server}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def serve(port: int) -> None:
    """Be the server until standard input ends."""

    async def run() -> None:
        async with new_node(port) as node:
            node.add_ni(f"{SERVER}@tcp")
            options = OP_PUT | OP_GET | MANAGE_REMOTE | TRUNCATE
            node.attach(PORTAL, BITS, bytearray(SIZE), options=options, handler=_ignore)
            async with Selftest(node):
                print("ready", flush=True)
                await asyncio.to_thread(sys.stdin.read)

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run())


def _ignore(event: Event) -> None:
    """Nobody looks at what plain messages bring."""


# Shown -------------------------------------------------------------------------------------------------


def ratio(results: Results, name: str) -> float:
    """How fast it is beside the plain message, in the median of rounds."""
    pairs = zip(results[name], results[PLAIN[name]], strict=True)
    return median(one.rate / plain.rate for one, plain in pairs)


def cells(results: Results, build: str) -> list[list[str]]:
    """The rows of the table that are of one build."""
    rows = []
    for name in NAMES:
        runs = results[name]
        beside = f"{ratio(results, name):.2f}" if name in PLAIN else "1.00"
        cpu = median(run.cpu for run in runs) * 1024 * 1000
        rows.append([name, build, f"{median(run.rate for run in runs):,.0f}", beside, f"{cpu:,.0f}"])
    return rows


def to_dict(results: Results) -> dict[str, Any]:
    """All runs, for the raw data."""
    return {name: [asdict(run) for run in runs] for name, runs in results.items()}


def main(words: Sequence[str]) -> int:
    """Measure and print, or be a part of that."""
    if words[:1] == ["serve"]:
        serve(int(words[1]))
        return 0
    if words[:1] == ["measure"]:
        print(json.dumps(to_dict(measure_here(int(words[1]), float(words[2])))))
        return 0
    measured = measure(ROUNDS, SECONDS, print)
    for row in [HEADS, *(row for build, results in measured.items() for row in cells(results, build))]:
        print("  ".join(cell.ljust(24) for cell in row))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
