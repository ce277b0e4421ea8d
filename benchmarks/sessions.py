"""Large sessions of selftest: hundreds of nodes in the simulator, and many processes on loopback addresses.

`sessions.py` prints both tables; `sessions.py simulate NODES` measures one simulated session, as JSON.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from players import builds
from runner import environment_of
from ulnet.dlc import model_selftest as ask
from ulnet.dlc.documents_selftest import CountersDocument
from ulnet.selftest import Selftest
from ulnet.selftest.console import Console
from ulnet.sim import LinkParams, SimNode, Simulation

NODES, PROCESSES, SECONDS, POLLS = (100, 1000), 20, 5.0, 5
SIMULATED_HOW = (
    "A session in the simulator: one process, CPU time (virtual time in brackets, over links of 1 GB/s and "
    "10 ms; invariants are not checked). All nodes are taken in, of which one has the console; half of them "
    "ping the others (two servers each, three times); then all are asked for their statistics, five times; "
    "then the session ends."
)
SIMULATED_HEADS = [
    "nodes",
    "taken in, s",
    "test added and run, s",
    "one poll of all, s",
    "ended, s",
    "answers",
    "errors",
]
PROCESSES_HOW = (
    "Processes of `ulnet selftest serve` on loopback addresses of a host; one runs the plan: half of "
    "them move 1 MiB to or from the others, two servers each, concurrency 2. All share the host's CPUs, so "
    "this shows that they get on with each other, and not how fast a network is."
)
PROCESSES_HEADS = ["processes", "test", "MiB/s of all", "slowest client, of the mean", "errors"]
PATIENCE = 120.0


@dataclass(slots=True)
class Simulated:
    """One simulated session: seconds of CPU, and of virtual time, for each step."""

    nodes: int
    steps: dict[str, tuple[float, float]]
    answers: int  # of nodes to one poll
    errors: int


def simulate(count: int) -> Simulated:
    """A session of so many nodes, in this process."""
    sim = Simulation(1, link=LinkParams(rate=1e9, delay=0.01), check=False)
    nodes = [sim.node(f"n{number}", _nid(number)) for number in range(1, count + 1)]
    tests = [_serve(node) for node in nodes]
    console = Console(tests[0].exchange)
    ids = [str(node.nid) for node in nodes]
    half = count // 2
    found = Simulated(count, {}, 0, 0)
    polled: list[CountersDocument] = []

    async def do(*commands: ask.Command) -> None:
        for command in commands:
            told = await console.do(ask.Lst(1, command))
            if isinstance(told, CountersDocument):
                polled.append(told)

    def step(name: str, *commands: ask.Command) -> None:
        began, virtual = time.process_time(), sim.now
        task = nodes[0].spawn(do(*commands))
        sim.run_until(task.done)
        task.result()
        found.steps[name] = time.process_time() - began, sim.now - virtual

    step("join", ask.SessionNew("s", 0), ask.GroupAdd("c", ids[:half]), ask.GroupAdd("s", ids[half:]))
    step("test", ask.TestAdd("c", "s", loop=3, span=2), ask.BatchRun())
    sim.run(2.0)
    step("poll", *[ask.Counters(["c", "s"])] * POLLS)
    step("end", ask.SessionEnd())
    last = [node for view in polled[-1].of for node in view.nodes]
    found.answers = sum(not node.error for node in last)
    found.errors = sum(node.framework.get("ping_errors", 0) for node in last)
    if any(test.framework.session is not None for test in tests):
        raise RuntimeError("a node has its session still")
    return found


def _nid(number: int) -> str:
    return f"10.0.{number >> 8}.{number & 255}@tcp"


def _serve(node: SimNode) -> Selftest:
    test = Selftest(node.node, wall=lambda: int(node.loop.time() * 1e9))
    node.loop.enter(test.start)
    return test


def measure_simulated(counts: Sequence[int], tell: Callable[[str], None]) -> dict[str, Simulated]:
    """Each in a process of its own, on each build."""
    found = {}
    for count in counts:
        for build in builds():
            tell(f"a session of {count} nodes in the simulator, {build}")
            words = [sys.executable, str(Path(__file__)), "simulate", str(count)]
            done = subprocess.run(
                words, env=environment_of(build), stdout=subprocess.PIPE, text=True, check=True
            )
            found[f"{count:,}, {build}"] = Simulated(**json.loads(done.stdout))
    return found


# Processes ---------------------------------------------------------------------------------------------


def measure_processes(count: int, seconds: float, tell: Callable[[str], None]) -> dict[str, Any]:
    """The report of a plan that so many processes take part in."""
    tell(f"a session of {count} processes")
    build = builds()[-1]
    port = _free_port()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        command = [sys.executable, "-m", "ulnet", "selftest"]
        more = ["--accept", "all", "--port", str(port)]
        for number in range(1, count + 1):
            environment = {**environment_of(build), "ULNET_SOCKET": str(folder / f"{number}" / "lnetd.sock")}
            words = [*command, "serve", "--nid", f"127.6.0.{number}@tcp", *more]
            process = subprocess.Popen(
                words, env=environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
            )
            stack.callback(_end, process)
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise RuntimeError(f"process {number} of the session did not start")
        half = count // 2
        groups = {"c": [f"127.6.0.[1-{half}]@tcp"], "s": [f"127.6.0.[{half + 1}-{count}]@tcp"]}
        load = {
            "from": "c",
            "to": "s",
            "distribute": "1:2",
            "size": "1M",
            "concurrency": 2,
            "seconds": seconds,
        }
        tests = [
            {"name": f"{way}, {check} check", "brw": way, "check": check, **load}
            for way in ("write", "read")
            for check in ("none", "full")
        ]
        (folder / "plan.yaml").write_text(json.dumps({"groups": groups, "tests": tests}))
        environment = {**environment_of(build), "ULNET_SOCKET": str(folder / "1" / "lnetd.sock")}
        words = [*command, "run", str(folder / "plan.yaml"), "--json", str(folder / "report.json")]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        if not (folder / "report.json").exists():
            raise RuntimeError(done.stderr.strip())
        report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    if report["error"]:
        raise RuntimeError(report["error"])
    return report


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate(timeout=PATIENCE)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.6.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# Shown -------------------------------------------------------------------------------------------------


def simulated_cells(found: dict[str, Simulated]) -> list[list[str]]:
    """The rows of the simulated sessions."""
    rows = []
    for name, one in found.items():
        steps = {step: (cpu, virtual) for step, (cpu, virtual) in one.steps.items()}
        steps["poll"] = (steps["poll"][0] / POLLS, steps["poll"][1] / POLLS)
        cells = [f"{cpu:.2f} ({virtual:.2f})" for cpu, virtual in steps.values()]
        rows.append([name, *cells, f"{one.answers:,}", f"{one.errors}"])
    return rows


def process_cells(report: dict[str, Any]) -> list[list[str]]:
    """The rows of a report."""
    rows = []
    for test in report["tests"]:
        each = [node["bandwidth"] for node in test["nodes"]]
        slowest = min(each) / (sum(each) / len(each)) if sum(each) else 0.0
        rows.append(
            [
                f"{2 * len(each)}",
                f"brw {test['name']}",
                f"{test['bandwidth']:,.0f}",
                f"{slowest:.2f}",
                f"{test['errors']}",
            ]
        )
    return rows


def main(words: Sequence[str]) -> int:
    """Print the tables, or measure one session."""
    if words[:1] == ["simulate"]:
        print(json.dumps(asdict(simulate(int(words[1])))))
        return 0
    for row in [SIMULATED_HEADS, *simulated_cells(measure_simulated(NODES, print))]:
        print("  ".join(cell.ljust(20) for cell in row))
    for row in [PROCESSES_HEADS, *process_cells(measure_processes(PROCESSES, SECONDS, print))]:
        print("  ".join(cell.ljust(20) for cell in row))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
