"""A rail fails under a steady stream between two network namespaces: ulnet beside MPTCP."""

from __future__ import annotations

import json
import math
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

from failover_job import AGAIN, GRACE, MESSAGE, TIMEOUT, WINDOW, Job, Outcome
from rails import enable_mptcp

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tests"))

from support.netns import SHAPE, Cluster, Popen, stop  # noqa: E402 - needs the path

PLAYERS = {"ulnet": "ulnet", "mptcp": "MPTCP"}
RATE = 400  # Mb/s
CAPACITY = RATE * 125_000 * 0.956  # payload of a rail in bytes a second: Ethernet, IP, TCP with timestamps
BEFORE, AFTER = 1.5, 2.0  # seconds around the fault
PATIENCE = 60.0
FLAP = 1.0  # seconds up, seconds down

Step = tuple[float, Callable[[], object]]  # seconds after the fault, what is done


@dataclass(frozen=True, slots=True)
class Scene:
    """One kind of fault; it lasts `hold` seconds."""

    name: str
    title: str
    hold: float


SCENES = (
    Scene("near", "link down, near", 3.0),
    Scene("far", "link down, far", 3.0),
    Scene("hole", "silent black hole", 3.0),
    Scene("flap", "link flaps, 1 s each", 6.0),
    Scene("restart", "peer killed, restarted after 1 s", 1.0),
)

Results = dict[str, dict[str, list[Outcome]]]  # by scene and player, one a round


def measure(rounds: int, tell: Callable[[str], None], shorten: float = 1.0) -> Results:
    """Every player in every scene, one after another, `rounds` times."""
    results: Results = {scene.name: {player: [] for player in PLAYERS} for scene in SCENES}
    cluster = Cluster(2, 2, f"{RATE}mbit")
    try:
        mptcp = enable_mptcp(cluster)
        for number in range(rounds):
            for scene in SCENES:
                for player, title in PLAYERS.items():
                    if player == "mptcp" and mptcp is not None:
                        continue
                    tell(f"round {number + 1} of {rounds}: {scene.title}: {title}")
                    try:
                        outcome = _Run(cluster, scene, player, shorten).outcome()
                    except RuntimeError as problem:
                        tell(f"failed: {title}, {scene.title}: {problem}")
                    else:
                        results[scene.name][player].append(outcome)
    finally:
        cluster.close()
    if mptcp is not None:
        tell(f"MPTCP: left out, {mptcp}")
    return results


class _Run:
    """One player in one scene."""

    def __init__(
        self, cluster: Cluster, scene: Scene, player: str, shorten: float, after: float = AFTER
    ) -> None:
        self._cluster = cluster
        self._near, self._far = cluster
        self._scene = scene
        self._hold = scene.hold * shorten
        self._after = after * shorten
        self._job = Job(
            player,
            [self._near.address(rail) for rail in range(2)],
            [self._far.address(rail) for rail in range(2)],
            seconds=BEFORE + self._hold + self._after,
        )
        self._server: Popen | None = None
        self._restarted = 0.0

    def outcome(self) -> Outcome:
        """What came of it. Raises RuntimeError."""
        try:
            self._serve()
            driver = self._start("drive")
            try:
                return self._drive(driver)
            finally:
                stop(driver)
        finally:
            self._kill(signal.SIGTERM)
            self._repair()

    def _drive(self, driver: Popen) -> Outcome:
        self._await_ready(driver)
        began = time.monotonic()
        _sleep_until(began + BEFORE)
        faulted = time.monotonic()
        for after, act in self._steps():
            _sleep_until(faulted + after)
            act()
        try:
            output, errors = driver.communicate(timeout=self._job.seconds + PATIENCE)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"no end after {self._job.seconds + PATIENCE:.0f} s") from None
        if driver.returncode:
            raise RuntimeError(errors.decode().strip())
        outcome = Outcome(**json.loads(output))
        outcome.faulted, outcome.restarted = faulted, self._restarted
        return outcome

    def _steps(self) -> list[Step]:
        cluster, near, far, hold = self._cluster, self._near, self._far, self._hold
        if self._scene.name == "near":
            return [(0, lambda: near.set_link(1, False)), (hold, lambda: near.set_link(1, True))]
        if self._scene.name == "far":
            return [(0, lambda: far.set_link(1, False)), (hold, lambda: far.set_link(1, True))]
        if self._scene.name == "hole":
            return [
                (0, lambda: cluster.set_path(far, 1, False)),
                (hold, lambda: cluster.set_path(far, 1, True)),
            ]
        if self._scene.name == "restart":
            return [(0, lambda: self._kill(signal.SIGKILL)), (hold, self._serve_again)]
        flaps: list[Step] = []
        for cycle in range(math.ceil(hold / (2 * FLAP))):
            flaps += [
                (cycle * 2 * FLAP, lambda: near.set_link(1, False)),
                ((cycle * 2 + 1) * FLAP, lambda: near.set_link(1, True)),
            ]
        return flaps

    def _repair(self) -> None:
        for host in self._cluster:
            host.set_link(1, True)
        self._cluster.set_path(self._far, 1, True)

    def _start(self, role: str) -> Popen:
        host = self._far if role == "serve" else self._near
        words = [sys.executable, str(HERE / "failover_peer.py"), role, self._job.to_json()]
        return host.start(*words, env={**os.environ, "PYTHONPATH": str(HERE.parent / "src")})

    def _serve(self) -> None:
        self._server = self._start("serve")
        self._await_ready(self._server)

    def _serve_again(self) -> None:
        self._serve()
        self._restarted = time.monotonic()

    def _kill(self, how: signal.Signals) -> None:
        if self._server is not None:
            stop(self._server, how)
            self._server = None

    @staticmethod
    def _await_ready(process: Popen) -> None:
        assert process.stdout is not None
        if not process.stdout.readline():
            raise RuntimeError(process.communicate()[1].decode())


def _sleep_until(when: float) -> None:
    time.sleep(max(when - time.monotonic(), 0))


# Figures ---------------------------------------------------------------------------------------------

HEADS = [
    "fault",
    "",
    "gap, s",
    "longest stall, s",
    "goodput, × one rail",
    "answered again after, s",
    "reported",
    "lost",
]


def cells(results: Results) -> list[list[str]]:
    """A row a scene and player."""
    rows = []
    for scene in SCENES:
        for player, title in PLAYERS.items():
            runs = results[scene.name][player]
            if not runs:
                continue
            rows.append(
                [
                    scene.title,
                    title,
                    _spread([run.gap(CAPACITY) for run in runs]),
                    _spread([run.stall() for run in runs]),
                    _spread([run.goodput(run.faulted, run.faulted + scene.hold) / CAPACITY for run in runs]),
                    _spread([run.reconnected() for run in runs]) if scene.name == "restart" else "–",
                    str(sum(run.reported for run in runs)),
                    str(sum(run.lost for run in runs)),
                ]
            )
    return rows


def _spread(values: list[float]) -> str:
    """Median, and the largest in brackets."""
    return f"{statistics.median(values):.2f} ({max(values):.2f})"


def how(rounds: int) -> str:
    """How this was measured."""
    flapping = next(scene.hold for scene in SCENES if scene.name == "flap")
    return (
        f"Two network namespaces, two rails of {RATE} Mb/s (`tbf {SHAPE}` both ways), TCP reno. A stream of "
        f"acknowledged messages of 1 MiB, {WINDOW} under way; after {BEFORE:g} s the second rail fails, for "
        f"{SCENES[0].hold:g} s, flapping for {flapping:g} s; rounds: {rounds}, both players in turn; median, "
        "and the largest in brackets. Near is the sender's own link; far is the receiver's, which the sender "
        "cannot see, for a bridge is between them; in a black hole that bridge swallows all packets."
    )


def meaning() -> str:
    """What the columns are."""
    return (
        "Gap: time, from the fault to the end, in which less than half of one rail's capacity came through, "
        "as intervals between answers of more than "
        f"{2 * MESSAGE / CAPACITY:.3f} s. Longest stall: how long the oldest message not answered stayed the "
        "same one. Goodput: while the fault lasts. Reported: messages that the program was told had failed, "
        f"each counted once, in all rounds; it sent them again after {AGAIN:g} s. Lost: not answered, "
        f"though sent again whenever reported, for {GRACE:g} s after the stream. "
        f"ulnet has LND time-outs of {TIMEOUT} s, and its caller gives each PUT {TIMEOUT} s; "
        "what had left over a rail that died is sent again over the other, for the receiver notices what it "
        "has already; what a killed peer may have had is reported. MPTCP's program connects anew when its "
        "connection breaks. A killed peer is not the same work for both: gap and stall hold what its program "
        "needs to start again, and ulnet's has more to start than one with a bare socket; so look at "
        f"“answered again”, which counts from when it listens. There MPTCP's program calls every {AGAIN:g} s "
        "and sends at once; ulnet calls after a tenth of the time that the peer was gone, makes three "
        "connections, and asks who is there before it sends."
    )


def to_dict(results: Results) -> dict[str, Any]:
    """For the JSON file: every run."""
    return {
        scene: {player: [asdict(run) for run in runs] for player, runs in players.items()}
        for scene, players in results.items()
    }
