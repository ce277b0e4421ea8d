"""Calls beside grpc.aio, zmq.asyncio and a protocol by hand; bulk fetched by calls; 1,000 clients."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from calls_job import Job, Outcome
from players import COMPILED, HERE, builds

sys.path.append(str(HERE.parent / "tests"))

PATIENCE = 120.0  # seconds for one side beyond what it was told to take
SMALL, TASKS = 64, 64
BULK, BULK_TASKS = 8 << 20, 4
CLIENTS, PROCESSES = 1000, 2
WARMUP = 0.5  # seconds
COLD = 0.003  # seconds more for each client of a crowd
PORT = 9883
LOOPBACK, RAILS = "loopback", "two rails"
LOCAL, REMOTE = "127.0.1.1", "127.0.1.2"
TITLES = {
    "compiled": "ulnet.rpc, compiled",
    "pure": "ulnet.rpc",
    "gets": "ulnet, plain `get`s",
    "asyncio": "asyncio protocol by hand",
    "zmq": "zmq.asyncio DEALER/ROUTER",
    "grpc": "grpc.aio",
}
NEEDS = {"zmq": "zmq", "grpc": "grpc"}
SMALL_HEADS = ["64 bytes", "thousand/s", "slowest–fastest", "p50 µs", "p99 µs", "CPU µs/call", "× by hand"]
BULK_HEADS = ["8 MiB fetched", "GiB/s", "slowest–fastest", "CPU s/GiB", "× plain `get`s"]
CROWD_HEADS = ["64 bytes", "thousand/s", "slowest–fastest", "p50 µs", "p99 µs", "× one client"]
MEMORY_HEADS = ["an idle client", "KiB"]

Runs = dict[str, dict[str, list[Outcome]]]  # by place or size of the crowd, and player
Start = Callable[..., "subprocess.Popen[bytes]"]
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where the two processes run: how they are started, and their addresses, one a rail."""

    start: tuple[Start, Start]
    local: list[str]
    remote: list[str]


@dataclass(slots=True)
class Results:
    """Everything that was measured."""

    small: Runs
    bulk: Runs
    crowd: Runs
    memory: dict[str, dict[str, float]]  # by build: bytes of an idle client, at the server and with its node


def measure(rounds: int, seconds: float, clients: int, tell: Tell) -> Results:
    """All players in turn, `rounds` times: on loopback, and over two rails where there are namespaces."""
    from support.netns import Cluster, why_no_namespaces  # needs pytest

    results = Results({}, {}, {}, {})
    with ExitStack() as stack:
        places = {LOOPBACK: Place((_start, _start), [LOCAL], [REMOTE])}
        if lacking := why_no_namespaces():
            tell(f"calls over two rails: left out, {lacking}; this needs root and network namespaces")
        else:
            cluster = Cluster(2, 2)
            stack.callback(cluster.close)
            client, server = cluster
            addresses = [[host.address(rail) for rail in range(2)] for host in (client, server)]
            places[RAILS] = Place((client.start, server.start), *addresses)
        echo = Job("", "echo", SMALL, TASKS, seconds, WARMUP, [], [], PORT)
        fetch = replace(echo, kind="fetch", size=BULK, tasks=BULK_TASKS)
        for number in range(rounds):
            for where, place in places.items():
                for runs, job in ((results.small, echo), (results.bulk, fetch)):
                    for player in _players(job.kind):
                        tell(f"round {number + 1} of {rounds}: {job.kind}, {where}: {TITLES[player]}")
                        here = replace(job, player=player, local=place.local, remote=place.remote)
                        _keep(runs.setdefault(where, {}), player, place, [here], tell)
            for build in builds():
                tell(f"round {number + 1} of {rounds}: one client, and {clients:,}, {build}")
                for many, jobs in _crowd(
                    replace(echo, player=build, local=[LOCAL], remote=[REMOTE]), clients
                ):
                    _keep(results.crowd.setdefault(many, {}), build, places[LOOPBACK], jobs, tell)
    for build in builds():
        tell(f"memory of idle clients, {build}")
        results.memory[build] = _memory(build, clients)
    return results


def _players(kind: str) -> list[str]:
    """Those that can be measured here."""
    own = [*reversed(builds()), "asyncio" if kind == "echo" else "gets"]
    return own + [player for player, module in NEEDS.items() if find_spec(module) is not None]


def _crowd(job: Job, clients: int) -> Iterable[tuple[str, list[Job]]]:
    """One client with so many calls under way, and as many clients with one each, in a few processes."""
    job = replace(job, warmup=job.warmup + clients * COLD)  # sessions and connections are made then
    yield "one client", [replace(job, tasks=clients)]
    each = clients // PROCESSES
    shares = [replace(job, tasks=0, clients=each, first=number * each) for number in range(PROCESSES)]
    yield f"{each * PROCESSES:,} clients", shares


def _keep(runs: dict[str, list[Outcome]], player: str, place: Place, jobs: list[Job], tell: Tell) -> None:
    try:
        runs.setdefault(player, []).append(run(place, jobs))
    except (RuntimeError, subprocess.TimeoutExpired) as problem:
        tell(f"failed: {TITLES[player]}: {problem}")


# One run -----------------------------------------------------------------------------------------------


def _start(*words: str, **more: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words, stdout=subprocess.PIPE, **more)


def _environment(job: Job) -> dict[str, str]:
    """For the processes of a player. Plain `get`s are of the best build that is here."""
    build = builds()[-1] if job.player == "gets" else job.player
    compiled = build == "compiled"
    place = COMPILED if compiled else HERE.parent / "src"
    return {**os.environ, "PYTHONPATH": str(place), "ULNET_BENCH_BUILD": build if compiled else "pure"}


def run(place: Place, jobs: list[Job], profiles: Path | None = None) -> Outcome:
    """One server, and a calling process for each job; their figures together. Raises RuntimeError."""
    environment = _environment(jobs[0])
    if profiles is not None:
        environment["ULNET_BENCH_PROFILES"] = str(profiles)
    with TemporaryFile() as errors:  # nobody reads it before the end, however much is logged
        try:
            return _run(place, jobs, {"env": environment, "stdin": subprocess.PIPE, "stderr": errors})
        except EOFError:
            errors.seek(0)
            raise RuntimeError(errors.read().decode().strip()[-1000:] or "it ended without a word") from None


def _run(place: Place, jobs: list[Job], more: dict[str, Any]) -> Outcome:
    words = [sys.executable, str(HERE / "calls_peer.py")]
    start_client, start_server = place.start
    sides = [start_server(*words, "serve", jobs[0].to_json(), **more)]
    try:
        server = int(_told(sides[0]))
        sides += [start_client(*words, "drive", job.to_json(), str(server), **more) for job in jobs]
        for side in sides[1:]:
            _told(side)
        for side in sides[1:]:
            _go(side)
        outcomes = [Outcome(**json.loads(_told(side))) for side in sides[1:]]
        for side in sides:
            side.communicate(timeout=PATIENCE)
    finally:
        for side in sides:
            side.kill()
            side.communicate()
    return _together(outcomes)


def _told(side: subprocess.Popen[bytes]) -> str:
    """Its next line."""
    assert side.stdout is not None
    line = side.stdout.readline().decode()
    if not line:
        raise EOFError
    return line


def _go(side: subprocess.Popen[bytes]) -> None:
    assert side.stdin is not None
    side.stdin.write(b"go\n")
    side.stdin.flush()


def _together(outcomes: list[Outcome]) -> Outcome:
    """Of several calling processes that ran at the same time; their CPU counts the server once each."""
    if len(outcomes) == 1:
        return outcomes[0]
    count = sum(one.count for one in outcomes)
    wall = max(one.wall for one in outcomes)
    p50 = statistics.median(one.p50_us for one in outcomes)
    return Outcome(count, wall, 0.0, p50, max(one.p99_us for one in outcomes))


def _memory(build: str, clients: int) -> dict[str, float]:
    words = [sys.executable, str(HERE / "calls_memory.py"), str(clients)]
    environment = _environment(Job(build, "echo", 0, 0, 0, 0, [], [], 0))
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    found: dict[str, float] = json.loads(done.stdout)
    return found


# Figures -----------------------------------------------------------------------------------------------


def _rate(outcome: Outcome) -> float:
    return outcome.count / outcome.wall


def _median(outcomes: list[Outcome] | None, figure: Callable[[Outcome], float] = _rate) -> float | None:
    return statistics.median(map(figure, outcomes)) if outcomes else None


def _range(outcomes: list[Outcome], scale: float) -> str:
    rates = [_rate(one) * scale for one in outcomes]
    return f"{min(rates):.3g}–{max(rates):.3g}"


def _against(outcomes: list[Outcome], other: list[Outcome] | None) -> str:
    base = _median(other)
    return f"{(_median(outcomes) or 0) / base:.2f}" if base else "–"


def small_cells(runs: dict[str, list[Outcome]]) -> list[list[str]]:
    """Medians of one place as rows of text."""
    by_hand = runs.get("asyncio")
    return [
        [*_latency_cells(TITLES[player], done), f"{_cpu_us(done):.1f}", _against(done, by_hand)]
        for player, done in runs.items()
        if done
    ]


def _cpu_us(done: list[Outcome]) -> float:
    return _median(done, lambda one: one.cpu / one.count * 1e6) or 0.0


def _latency_cells(title: str, done: list[Outcome]) -> list[str]:
    p50, p99 = _median(done, lambda one: one.p50_us), _median(done, lambda one: one.p99_us)
    return [title, f"{(_median(done) or 0) / 1000:.3g}", _range(done, 1e-3), f"{p50:,.0f}", f"{p99:,.0f}"]


def bulk_cells(runs: dict[str, list[Outcome]]) -> list[list[str]]:
    """Medians of one place as rows of text."""
    scale = BULK / (1 << 30)
    return [
        [
            TITLES[player],
            f"{(_median(done) or 0) * scale:.3g}",
            _range(done, scale),
            f"{_cpu_us(done) / 1e6 / scale:.2f}",
            _against(done, runs.get("gets")),
        ]
        for player, done in runs.items()
        if done
    ]


def crowd_cells(crowd: Runs) -> list[list[str]]:
    """Medians as rows of text."""
    one = crowd["one client"]
    return [
        [*_latency_cells(f"{many}, {build}", done), _against(done, one.get(build))]
        for many, runs in crowd.items()
        for build, done in runs.items()
        if done
    ]


def memory_cells(memory: dict[str, dict[str, float]]) -> list[list[str]]:
    """As rows of text."""
    return [
        [f"{what}, {build}", f"{found / 1024:.1f}"]
        for build, figures in memory.items()
        for what, found in figures.items()
    ]


def figures(results: Results) -> dict[str, Any]:
    """For the aims: ratios, by what they are of."""
    found: dict[str, float | None] = {}
    for where, runs in results.small.items():
        for other in ("grpc", "zmq", "asyncio"):
            found[f"echo, {where}, {other}"] = _ratio(runs.get("compiled"), runs.get(other))
    for where, runs in results.bulk.items():
        for other in ("gets", "zmq", "grpc"):
            found[f"fetch, {where}, {other}"] = _ratio(runs.get("compiled"), runs.get(other))
    one, many = results.crowd.values()
    found["crowd"] = _ratio(many.get("compiled"), one.get("compiled"))
    at_server = results.memory.get("compiled", results.memory["pure"])["at the server"]
    return {**found, "memory": at_server / 1024}


def _ratio(ours: list[Outcome] | None, other: list[Outcome] | None) -> float | None:
    mine, base = _median(ours), _median(other)
    return mine / base if mine is not None and base else None


def to_dict(results: Results) -> dict[str, Any]:
    """For the JSON file: every run."""
    runs = {"small": results.small, "bulk": results.bulk, "crowd": results.crowd}
    told: dict[str, Any] = {
        name: {
            where: {player: [asdict(one) for one in done] for player, done in players.items()}
            for where, players in found.items()
        }
        for name, found in runs.items()
    }
    return {**told, "memory": results.memory}


HOW = (
    f"Two processes; each of {TASKS} tasks ({BULK_TASKS} where {BULK >> 20} MiB are fetched) calls again as "
    "soon as it has its reply. The protocol by hand is an `asyncio.Protocol`, frames with length and number, "
    "answered in place, written once a turn of the loop: what asyncio can reach. zmq.asyncio is one DEALER "
    "with numbered requests and a task that reads; grpc.aio has unary calls without protobuf. ulnet.rpc has "
    "handlers that are coroutines, sessions, and replies that are kept. Plain `get`s fetch the same memory "
    "by a `get` for each MiB. Two rails are between two network namespaces, without a limit of their own: "
    "ulnet uses both, the others the first. Of the crowd each client has a node of its own, "
    f"{PROCESSES} processes hold them, and each has one call under way; the one client beside it has as many "
    "calls under way. Memory of an idle client: what one with a session and its connections adds to the "
    "server's process; and what a client adds to its own, beside its node."
)
