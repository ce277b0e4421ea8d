"""Aggregation over shaped rails between two network namespaces: ulnet, MPTCP and an ideal scheduler."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rails_job import BATCH, MESSAGE, WINDOW, Job, Outcome

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tests"))

from support.netns import SHAPE, Cluster, Host, stop, why_no_namespaces  # noqa: E402 - needs the path

PATIENCE = 60.0  # seconds for one run beyond what it was told to take
PLAYERS = {
    "streams": "plain TCP, a stream a rail",
    "ideal": "plain TCP, ideal scheduler",
    "ulnet": "ulnet",
    "ulnet_documents": "ulnet, documents",
    "mptcp": "MPTCP",
}
MOST_RAILS = 4


@dataclass(frozen=True, slots=True)
class Scene:
    """The rails of one measurement, in Mb/s."""

    rails: tuple[int, ...]
    batches: int = 0  # of eight messages, after the stream

    @property
    def title(self) -> str:
        """As the table calls it."""
        if len(set(self.rails)) == 1:
            return f"{len(self.rails)} × {self.rails[0]}"
        return " + ".join(map(str, self.rails))


SCENES = [
    Scene((400,)),
    Scene((400, 400)),
    Scene((400, 400, 400, 400)),
    Scene((400, 100), batches=10),
    Scene((400, 200, 100, 50)),
]


@dataclass(slots=True)
class Result:
    """One player's runs on one scene."""

    rates: list[float] = field(default_factory=list)  # bytes a second
    batches: list[float] = field(default_factory=list)  # seconds
    outcomes: list[Outcome] = field(default_factory=list)


Results = dict[str, dict[str, Result]]


def lacking() -> str | None:
    """Why this cannot be measured here; None if it can."""
    return why_no_namespaces()


def measure(rounds: int, seconds: float, tell: Callable[[str], None]) -> Results:
    """Every player on every scene, one after another, `rounds` times."""
    results: Results = {scene.title: {player: Result() for player in PLAYERS} for scene in SCENES}
    cluster = Cluster(2, MOST_RAILS)
    try:
        mptcp = _enable_mptcp(cluster)
        for number in range(rounds):
            for scene in SCENES:
                for rail, rate in enumerate(scene.rails):
                    cluster.shape(rail, f"{rate}mbit")
                for player, title in PLAYERS.items():
                    if player == "mptcp" and (mptcp is not None or len(scene.rails) < 2):
                        continue
                    tell(f"round {number + 1} of {rounds}: {scene.title} Mb/s: {title}")
                    _note(results[scene.title][player], _run(cluster, scene, player, seconds))
    finally:
        cluster.close()
    if mptcp is not None:
        tell(f"MPTCP: left out, {mptcp}")
    return results


def _note(result: Result, outcome: Outcome) -> None:
    result.rates.append(outcome.rate)
    result.batches += outcome.batches
    result.outcomes.append(outcome)


def _enable_mptcp(cluster: Cluster) -> str | None:
    """Let MPTCP use every rail; why not, if it cannot be had."""
    client, server = cluster
    try:
        for host in cluster:
            host.write("net/mptcp/enabled", "1")
            host.run("ip", "mptcp", "limits", "set", "subflows", "8", "add_addr_accepted", "8")
    except AssertionError as problem:
        return str(problem)
    del client
    for rail in range(1, MOST_RAILS):
        server.run("ip", "mptcp", "endpoint", "add", server.address(rail), "dev", f"rail{rail}", "signal")
    return None


def _use_rails(host: Host, rails: int) -> None:
    """The rails of this scene up, the others down: MPTCP uses whatever there is."""
    for rail in range(MOST_RAILS):
        host.set_link(rail, rail < rails)


def _run(cluster: Cluster, scene: Scene, player: str, seconds: float) -> Outcome:
    client, server = cluster
    rails = range(len(scene.rails))
    for host in cluster:
        _use_rails(host, len(rails))
    job = Job(
        player,
        [client.address(rail) for rail in rails],
        [server.address(rail) for rail in rails],
        [rate * 125_000.0 for rate in scene.rails],
        seconds=seconds,
        warmup=2.0,
        batches=scene.batches,
    )
    words = [sys.executable, HERE / "rails_peer.py"]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "src")}
    serving = server.start(*words, "serve", job.to_json(), env=environment)
    try:
        assert serving.stdout is not None
        if not serving.stdout.readline():
            raise RuntimeError(serving.communicate()[1].decode())
        driving = client.start(*words, "drive", job.to_json(), env=environment)
        try:
            output, errors = driving.communicate(timeout=seconds + PATIENCE)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{player} on {scene.title}: no end") from None
        finally:
            stop(driving)
        if driving.returncode:
            raise RuntimeError(f"{player} on {scene.title}: {errors.decode()}")
        return Outcome(**json.loads(output))
    finally:
        stop(serving)
