"""Over a router between three network namespaces: goodput beside a direct path, CPU beside a plain relay."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rails_job import MESSAGE, WINDOW, Job
from routed_peer import PACE, TIMEOUT, Place, Routed

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tests"))

from support.netns import SHAPE, Cluster, Host, Popen, stop, why_no_namespaces  # noqa: E402 - needs the path

PATIENCE = 60.0  # seconds beyond what a run was told to take
RATE = 400  # Mb/s of each rail
RAILS = 2  # of each side
WARMUP = 2.0
PLAYERS = {"direct": "ulnet, direct", "routed": "ulnet, routed", "relay": "plain TCP, splice relay"}
KILL_AFTER = 2.0  # seconds of the stream

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Result:
    """One run: what the driver told, and the router's CPU seconds per GiB (0 without a router)."""

    outcome: Routed
    cpu: float = 0.0


Results = dict[str, list[Result]]  # by player, one a round


def lacking() -> str | None:
    """Why this cannot be measured here; None if it can."""
    return why_no_namespaces()


def measure(rounds: int, seconds: float, tell: Callable[[str], None]) -> tuple[Results, list[Routed]]:
    """Every player in turn, `rounds` times; and as often a router of two that is killed under the stream."""
    results: Results = {player: [] for player in PLAYERS}
    killed: list[Routed] = []
    cluster = Cluster(4, 2 * RAILS, f"{RATE}mbit")
    try:
        for number in range(rounds):
            for player, title in PLAYERS.items():
                tell(f"round {number + 1} of {rounds}: {title}")
                results[player].append(_run(cluster, player, seconds))
            tell(f"round {number + 1} of {rounds}: one of two routers is killed")
            killed.append(_run(cluster, "killed", seconds).outcome)
    finally:
        cluster.close()
    return results, killed


def _run(cluster: Cluster, player: str, seconds: float) -> Result:
    client, server, *routers = cluster.hosts
    rails = range(RAILS)
    direct = player == "direct"
    job = Job(
        "plain" if player == "relay" else player,
        [client.address(rail) for rail in rails],
        [server.address(rail if direct else rail + RAILS) for rail in rails],
        [RATE * 125_000.0] * RAILS,
        seconds=seconds,
        warmup=WARMUP,
        batches=0,
    )
    used = {"direct": 0, "killed": 2}.get(player, 1)
    place = Place(job, [[host.address(rail) for rail in range(2 * RAILS)] for host in routers[:used]])
    if direct:
        return Result(_direct(client, server, job))
    started: list[Popen] = []
    try:
        started.append(_start(server, "serve", place))
        passing = [_start(host, "route", place, str(at)) for at, host in enumerate(routers[:used])]
        started += passing
        before = _cpu(passing[0])
        driving = _begin(client, "drive", _through(place, player))
        started.append(driving)
        if player == "killed":
            assert driving.stdout is not None
            driving.stdout.readline()  # the stream has begun
            time.sleep(WARMUP + KILL_AFTER)
            passing[0].send_signal(signal.SIGKILL)
        outcome = _outcome(driving, seconds)
        spent = 0.0 if player == "killed" else _cpu(passing[0]) - before
        return Result(outcome, spent / (outcome.messages * MESSAGE / 2**30))
    finally:
        for process in reversed(started):
            stop(process, signal.SIGKILL)


def _through(place: Place, player: str) -> Place:
    """The driver of the plain relay calls the relay in the server's place."""
    if player != "relay":
        return place
    job = asdict(place.job) | {"remote": place.routers[0][:RAILS]}
    return Place(Job(**job), place.routers)


def _direct(client: Host, server: Host, job: Job) -> Routed:
    """The same stream without a router, by the players of the rails."""
    words = json.loads(job.to_json()) | {"player": "ulnet"}
    text = Job(**words).to_json()
    environment = _environment()
    command = [sys.executable, str(HERE / "rails_peer.py")]
    serving = server.start(*command, "serve", text, env=environment)
    try:
        assert serving.stdout is not None
        serving.stdout.readline()
        driving = client.start(*command, "drive", text, env=environment)
        rate = float(json.loads(_output(driving, job.seconds))["rate"])
        return Routed(rate, 0)
    finally:
        stop(serving, signal.SIGKILL)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HERE.parent / "src")}


def _begin(host: Host, role: str, place: Place, *more: str) -> Popen:
    command = [sys.executable, str(HERE / "routed_peer.py"), role, place.to_json(), *more]
    return host.start(*command, env=_environment())


def _start(host: Host, role: str, place: Place, *more: str) -> Popen:
    process = _begin(host, role, place, *more)
    assert process.stdout is not None
    if not process.stdout.readline():
        raise RuntimeError(process.communicate()[1].decode())
    return process


def _outcome(process: Popen, seconds: float) -> Routed:
    return Routed(**json.loads(_output(process, seconds).splitlines()[-1]))


def _output(process: Popen, seconds: float) -> bytes:
    try:
        output, errors = process.communicate(timeout=seconds + PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        raise RuntimeError(f"no end after {seconds + PATIENCE:.0f} s") from None
    if process.returncode:
        raise RuntimeError(errors.decode().strip())
    return output


def _cpu(process: Popen) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


# Figures ---------------------------------------------------------------------------------------------


def cells(results: Results) -> tuple[list[str], list[list[str]]]:
    """Goodput and its share of the direct path's; the router's CPU and its ratio to the relay's."""
    heads = ["", "MB/s", "share of direct", "router CPU, s/GiB", "of the relay's"]
    direct = _median([one.outcome.rate for one in results["direct"]])
    relay = _median([one.cpu for one in results["relay"]])
    rows = []
    for player, title in PLAYERS.items():
        rate = _median([one.outcome.rate for one in results[player]])
        cpu = _median([one.cpu for one in results[player]])
        row = [title, f"{rate / 1e6:.1f}", f"{rate / direct:.3f}" if direct else "–"]
        row += [f"{cpu:.2f}", f"{cpu / relay:.2f}"] if cpu and relay else ["–", "–"]
        rows.append(row)
    return heads, rows


def killed_cells(killed: list[Routed]) -> tuple[list[str], list[list[str]]]:
    """What a killed router cost."""
    heads = [
        "one of two routers killed",
        "longest gap, s",
        "messages not delivered, and told",
        "MB/s over all",
    ]
    stalls = [one.stall for one in killed]
    failed = [len(one.failed) for one in killed]
    rate = _median([one.rate for one in killed])
    middle = [f"{_median(stalls):.2f} ({max(stalls):.2f})", f"{max(failed)}", f"{rate / 1e6:.1f}"]
    return heads, [["ulnet, median (worst)", *middle]]


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0


def how(rounds: int, seconds: float) -> str:
    """How this was measured."""
    return (
        f"Four network namespaces; client and server have {RAILS} rails of {RATE} Mb/s (`tbf {SHAPE}`, both "
        f"ways, TCP reno) each, routers all of them. Acknowledged messages of 1 MiB, {WINDOW} under way, for "
        f"{seconds:g} s after {WARMUP:g} s, rounds: {rounds}, in turn. Direct: both on the same rails. The "
        "relay splices one connection a rail to the server, in Python; it knows nothing of messages. CPU is "
        f"that of the process in the middle. A killed router: kill -9 {WARMUP + KILL_AFTER:g} s into the "
        f"stream; gateways are checked every {PACE['alive_router_check_interval']} s here, and a message "
        f"without answer for {TIMEOUT} s is told as not delivered."
    )


def to_dict(results: Results, killed: list[Routed]) -> dict[str, Any]:
    """For the JSON file: every run."""
    runs: dict[str, Any] = {player: [asdict(one) for one in runs] for player, runs in results.items()}
    return {**runs, "killed": [asdict(one) for one in killed]}
