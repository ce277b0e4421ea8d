"""How fast the simulator is: events and messages in a second of CPU time, by number of nodes.

`simulator.py NODES MESSAGES` measures one run; the answer is a line of JSON (`Speed`). Where the history is
at hand, the simulator as it was before it was made fast runs the very same program beside it.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from peer import check_build
from runner import environment_of
from ulnet.sim import SimNode, Simulation

BEFORE = "252a479"
HOW = (
    "One process, CPU time. Every node has two rails and discovers whom it talks to; then each sends PUTs of "
    "100 bytes to three others, three at a time, and waits for the ACKs. An event is a step of the virtual "
    "time: a message that leaves or arrives, a timer, a callback. Checked: all invariants of a node after "
    "each of its events (peers and memory every few events). “Before” is the same program with ulnet of "
    f"commit {BEFORE}, in pure Python; the ratio is that of events a second, with checks."
)
HEADS = [
    "nodes",
    "made in s",
    "first contact, s",
    "events",
    "events/s",
    "messages/s",
    "× before",
    "events/s unchecked",
    "MiB",
]
NODES = (10, 100, 1000)
MESSAGES = 12000


@dataclass(slots=True)
class Speed:
    """One run."""

    nodes: int
    made: float
    contact: float
    events: int
    rate: float
    messages: float
    unchecked: float
    peak: float  # MiB


def measure_in(build: str, nodes: int, messages: int) -> Speed:
    """The same in a process of its own. Raises RuntimeError with its words."""
    words = [sys.executable, str(Path(__file__).resolve()), str(nodes), str(messages)]
    environment = environment_of(build)
    if build == "before":
        environment["PYTHONPATH"] = f"{former()}"
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return Speed(**json.loads(done.stdout))


@cache
def former() -> Path | None:
    """The sources of the time before, for as long as this process lasts; None without the history."""
    root = Path(__file__).resolve().parent.parent
    words = ["git", "-C", str(root), "archive", BEFORE, "src/ulnet"]
    try:
        done = subprocess.run(words, capture_output=True, check=False)
    except OSError:
        return None
    if done.returncode:
        return None
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    subprocess.run(["tar", "-x", "-C", folder.name], input=done.stdout, check=True)
    return Path(folder.name, "src")


def measure(nodes: int, messages: int) -> Speed:
    """A cluster of that many nodes, with and without checks."""
    made, contact, events, seconds = _run(nodes, messages, check=True)
    _, _, plain_events, plain_seconds = _run(nodes, messages, check=False)
    sent = max(messages // (3 * nodes), 1) * 3 * nodes
    rates = (events / seconds, sent / seconds, plain_events / plain_seconds)
    return Speed(
        nodes, made, contact, events, *rates, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    )


def _run(count: int, messages: int, check: bool) -> tuple[float, float, int, float]:
    gc.collect()
    began = time.process_time()
    sim = Simulation(1, check=check)
    nodes = [make_node(sim, number) for number in range(count)]
    made = time.process_time()
    talk(sim, nodes)
    met = time.process_time()
    before = sim.scheduler.events
    for _ in range(max(messages // (3 * count), 1)):
        talk(sim, nodes)
    done = time.process_time()
    return made - began, met - made, sim.scheduler.events - before, done - met


def make_node(sim: Simulation, number: int) -> SimNode:
    """A node with two rails and memory for PUTs."""
    address = f"{number >> 8}.{number & 255}"
    node = sim.node(f"n{number}", f"10.0.{address}@tcp", f"10.1.{address}@tcp1")
    node.attach(30, size=4096, keep_data=False)
    return node


def talk(sim: Simulation, nodes: list[SimNode]) -> None:
    """Each sends to three others, and all is answered."""
    for number, node in enumerate(nodes):
        for step in (1, 3, 7):
            node.put(nodes[(number + step) % len(nodes)].nid, 30, data=bytes(100))
    sim.run_until_quiet()


Speeds = dict[tuple[str, int], list[Speed]]  # by build and number of nodes


def ratios(speeds: Speeds, build: str) -> dict[int, float | None]:
    """Events a second against those before, by number of nodes; None where either was not measured."""
    return {nodes: _ratio(speeds, build, nodes) for nodes in dict.fromkeys(nodes for _, nodes in speeds)}


def _ratio(speeds: Speeds, build: str, nodes: int) -> float | None:
    ours, old = speeds.get((build, nodes)), speeds.get(("before", nodes))
    if not ours or not old:
        return None
    return statistics.median(run.rate for run in ours) / statistics.median(run.rate for run in old)


def cells(speeds: Speeds) -> list[list[str]]:
    """The table: medians."""
    rows = []
    for (build, nodes), runs in speeds.items():
        ratio = _ratio(speeds, build, nodes)
        figures = {name: statistics.median(getattr(run, name) for run in runs) for name in Speed.__slots__}
        rows.append(
            [
                f"{nodes:,}, {build}",
                f"{figures['made']:.2f}",
                f"{figures['contact']:.2f}",
                f"{figures['events']:,.0f}",
                f"{figures['rate']:,.0f}",
                f"{figures['messages']:,.0f}",
                f"{ratio:.1f}" if ratio is not None else "–",
                f"{figures['unchecked']:,.0f}",
                f"{figures['peak']:,.0f}",
            ]
        )
    return rows


def to_dict(speeds: Speeds) -> dict[str, Any]:
    """All runs."""
    return {f"{nodes} {build}": [asdict(run) for run in runs] for (build, nodes), runs in speeds.items()}


if __name__ == "__main__":
    if os.environ.get("ULNET_BENCH_BUILD") == "compiled":
        check_build()
    print(json.dumps(asdict(measure(int(sys.argv[1]), int(sys.argv[2])))))
