"""Aggregation over shaped rails between two network namespaces: ulnet, MPTCP and an ideal scheduler."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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
WARMUP = 2.0  # seconds
BASELINE = "streams"


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


Results = dict[str, dict[str, list[Outcome]]]  # by scene and player, one a round


def lacking() -> str | None:
    """Why this cannot be measured here; None if it can."""
    return why_no_namespaces()


def measure(rounds: int, seconds: float, tell: Callable[[str], None]) -> Results:
    """Every player on every scene, one after another, `rounds` times."""
    results: Results = {scene.title: {player: [] for player in PLAYERS} for scene in SCENES}
    cluster = Cluster(2, MOST_RAILS)
    try:
        mptcp = enable_mptcp(cluster)
        for number in range(rounds):
            for scene in SCENES:
                for rail, rate in enumerate(scene.rails):
                    cluster.shape(rail, f"{rate}mbit")
                for player, title in PLAYERS.items():
                    if player == "mptcp" and (mptcp is not None or len(scene.rails) < 2):
                        continue
                    tell(f"round {number + 1} of {rounds}: {scene.title} Mb/s: {title}")
                    try:
                        results[scene.title][player].append(_run(cluster, scene, player, seconds))
                    except RuntimeError as problem:
                        tell(f"failed: {title} on {scene.title}: {problem}")
    finally:
        cluster.close()
    if mptcp is not None:
        tell(f"MPTCP: left out, {mptcp}")
    return results


def enable_mptcp(cluster: Cluster) -> str | None:
    """Let MPTCP use every rail; why not, if it cannot be had."""
    server = cluster.hosts[1]
    try:
        for host in cluster:
            host.write("net/mptcp/enabled", "1")
            host.run("ip", "mptcp", "limits", "set", "subflows", "8", "add_addr_accepted", "8")
    except AssertionError as problem:
        return str(problem)
    for rail in range(1, cluster.rails):
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
        warmup=WARMUP,
        batches=scene.batches,
    )
    words = [sys.executable, str(HERE / "rails_peer.py")]
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
            raise RuntimeError(f"no end after {seconds + PATIENCE:.0f} s") from None
        finally:
            stop(driving)
        if driving.returncode:
            raise RuntimeError(errors.decode().strip())
        return Outcome(**json.loads(output))
    finally:
        stop(serving)


# Figures ---------------------------------------------------------------------------------------------


def capacity(outcomes: dict[str, list[Outcome]]) -> float:
    """What the rails of a scene carry: plain TCP with a stream on each, bytes a second."""
    return statistics.median(outcome.rate for outcome in outcomes[BASELINE]) if outcomes[BASELINE] else 0.0


def stream_cells(results: Results) -> tuple[list[str], list[list[str]]]:
    """Shares of the rails' capacity in a steady stream, and how far apart the rounds were."""
    heads = ["rails, Mb/s", f"{PLAYERS[BASELINE]}, MB/s", *_others().values()]
    rows = []
    for title, outcomes in results.items():
        whole = capacity(outcomes)
        shares = [_share([one.rate for one in outcomes[player]], whole) for player in _others()]
        rows.append([title, f"{whole / 1e6:.1f}" if whole else "–", *shares])
    return heads, rows


def batch_cells(results: Results) -> tuple[list[str], list[list[str]]]:
    """The ideal finish time of a batch over the real one."""
    heads = ["rails, Mb/s", "ideal, ms", *PLAYERS.values()]
    rows = []
    for scene in SCENES:
        outcomes = results[scene.title]
        whole = capacity(outcomes)
        if scene.batches and whole:
            shares = [
                _share([BATCH * MESSAGE / took for one in outcomes[player] for took in one.batches], whole)
                for player in PLAYERS
            ]
            rows.append([scene.title, f"{BATCH * MESSAGE / whole * 1e3:.0f}", *shares])
    return heads, rows


def _others() -> dict[str, str]:
    return {player: title for player, title in PLAYERS.items() if player != BASELINE}


def _share(rates: list[float], whole: float) -> str:
    if not rates or not whole:
        return "–"
    return f"{statistics.median(rates) / whole:.3f} ({min(rates) / whole:.2f}–{max(rates) / whole:.2f})"


def how(rounds: int, seconds: float) -> str:
    """How this was measured."""
    return (
        f"Two network namespaces, joined by rails of `tbf {SHAPE}` both ways, TCP reno. Each player sends "
        f"acknowledged messages of 1 MiB, {WINDOW} under way, for {seconds:g} s after {WARMUP:g} s; rounds: "
        f"{rounds}, all players in turn on each set of rails. A figure is the median share of what plain TCP "
        "carries with a stream and a window on each rail (the slowest and the fastest round in brackets). "
        "The ideal scheduler knows the rates and gives each message to the connection that would finish it "
        "first; MPTCP is the kernel's, one connection with its default scheduler; ulnet has a net a rail and "
        "default tunables, balances by expected completion, and learns the rates as it sends; “documents” is "
        "its balance to the letter of LNet's documents, where nets take turns."
    )


def how_batches() -> str:
    """How the batches were measured."""
    return (
        f"{BATCH} messages of 1 MiB at once on idle rails, after the stream; the share of the time in which "
        f"all rails together would carry them. Whole messages reach {BATCH / 8.75:.2f} on 4:1 at best, and a "
        "little more by the 256 KiB that an idle rail's bucket lets through at once; MPTCP may split them."
    )


def subflows(results: Results) -> str:
    """Whether MPTCP had what it needs."""
    seen = [
        f"{outcome.subflows} on {title}"
        for title, outcomes in results.items()
        for outcome in outcomes["mptcp"]
    ]
    return "MPTCP's subflows at the end: " + (", ".join(dict.fromkeys(seen)) or "none") + "."


def to_dict(results: Results) -> dict[str, Any]:
    """For the JSON file: every run."""
    return {
        title: {player: [asdict(one) for one in runs] for player, runs in outcomes.items()}
        for title, outcomes in results.items()
    }
