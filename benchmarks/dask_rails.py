"""Dask over one and two shaped rails: `ulnet://` beside `tcp://`, the same graphs on the same workers."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tests"))

from support.netns import SHAPE, Cluster, Host, Popen, stop, why_no_namespaces  # noqa: E402 - needs the path

JOB = HERE / "dask_job.py"
# Mb/s of a rail. At 400 the job's own work fills two CPUs (most of it is pages that the kernel clears): tcp://
# on one rail of twice that rate was 1.6 times as fast in the shuffle.
RATE = 200
SIDE = 11584  # of a square of numbers of 8 bytes: 1 GiB
WORKERS = 2
JOBS = ("transpose-sum", "shuffle")
HEADS = ["", *(f"{job}{what}" for job in JOBS for what in ("", ": moved", ": rate", ", × tcp"))]

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Run:
    """A job: seconds, and MiB that the workers have sent each other."""

    seconds: float
    moved: float

    @property
    def rate(self) -> float:
        """MiB a second."""
        return self.moved / self.seconds


Times = dict[str, dict[str, list[Run]]]  # by player and job


@dataclass(frozen=True, slots=True)
class Setting:
    """One cluster: its protocol, and the rails of each process."""

    protocol: str
    networks: str | None
    rate: int = RATE  # Mb/s of each rail

    @property
    def environment(self) -> dict[str, str]:
        """Of each process."""
        given = {} if self.networks is None else {"DASK_DISTRIBUTED__COMM__ULNET__NETWORKS": self.networks}
        return {
            **os.environ,
            "DASK_LOGGING__DISTRIBUTED": "error",
            "DASK_DISTRIBUTED__SCHEDULER__ACTIVE_MEMORY_MANAGER__START": "False",  # it moves blocks away
            "OMP_NUM_THREADS": "1",
            **given,
        }


PLAYERS = {
    "tcp, one rail": Setting("tcp", None),
    "ulnet, one rail": Setting("ulnet", "tcp(rail0)"),
    "ulnet, two rails": Setting("ulnet", "tcp(rail0),tcp1(rail1)"),
    f"tcp, one rail of {2 * RATE} Mb/s": Setting("tcp", None, 2 * RATE),  # as fast as two rails can be
}


def lacking() -> str | None:
    """Why this cannot be measured here; None if it can."""
    return why_no_namespaces()


def measure(rounds: int, side: int, tell: Tell) -> Times:
    """Every player in turn, `rounds` times; each time a cluster of its own computes all jobs twice."""
    times: Times = {player: {job: [] for job in JOBS} for player in PLAYERS}
    cluster = Cluster(2 + WORKERS, 2)
    try:
        for number in range(rounds):
            for player, setting in PLAYERS.items():
                tell(f"round {number + 1} of {rounds}: Dask over {player}")
                for rail in range(2):
                    cluster.shape(rail, f"{setting.rate}mbit")
                with _started(cluster, setting) as (address, environment):
                    for told in _run(list(cluster)[-1], address, environment, side):
                        for job in JOBS:
                            if not told[f"{job} right"]:
                                raise RuntimeError(f"{player}: the {job} is wrong")
                            times[player][job].append(Run(told[job], told[f"{job} moved"]))
    finally:
        cluster.close()
    return times


@contextmanager
def _started(cluster: Cluster, setting: Setting) -> Iterator[tuple[str, dict[str, str]]]:
    """A scheduler and workers, each on a host of its own."""
    scheduler, *workers = list(cluster)[: 1 + WORKERS]
    address = f"{setting.protocol}://{scheduler.address()}:8786"
    common = ["--protocol", setting.protocol, "--no-dashboard"]
    dask = [sys.executable, "-m", "dask"]
    started: list[Popen] = []
    with tempfile.TemporaryDirectory() as folder:

        def start(host: Host, *words: str) -> None:
            quiet = subprocess.DEVNULL
            started.append(
                host.start(*dask, *words, *common, stdout=quiet, stderr=quiet, env=setting.environment)
            )

        try:
            start(scheduler, "scheduler", "--host", scheduler.address(), "--port", "8786")
            for number, host in enumerate(workers):
                place = f"{folder}/{number}"
                Path(place).mkdir()
                own = ["--host", host.address(), "--local-directory", place]
                start(host, "worker", address, "--no-nanny", "--nthreads", "1", *own)
            yield address, setting.environment
        finally:
            for process in reversed(started):
                stop(process)


def _run(host: Host, address: str, environment: dict[str, str], side: int) -> list[dict[str, float]]:
    words = [sys.executable, str(JOB), address, str(side), "2", str(WORKERS)]
    job = host.start(*words, env=environment, stderr=None)
    out, _ = job.communicate(timeout=1800)
    if job.returncode:
        raise RuntimeError(f"the client ended with {job.returncode}")
    return [json.loads(line) for line in out.splitlines()[1:]]


def how(rounds: int, side: int) -> str:
    """What was measured."""
    size = side * side * 8 / 2**30
    return (
        f"{WORKERS} workers with a thread each, a scheduler and a client, each in a network namespace of its "
        f"own; rails of {RATE} Mb/s ({SHAPE}). {size:.2g} GiB of numbers lie in the workers' memory; then "
        "each block is added to that across the diagonal, which is at the other worker, and all rows are "
        "made columns (a shuffle: half of all goes to the other worker). It is said where each task runs, so "
        "that all move the same, both ways. The same graphs on less data warm up each cluster. Medians of "
        f"{2 * rounds} runs. tcp:// on one rail of twice the rate shows what two rails can reach. The rate "
        "is what the workers have sent each other, by their own counters, a second."
    )


def typical(runs: list[Run]) -> Run:
    """The medians."""
    return Run(statistics.median(run.seconds for run in runs), statistics.median(run.moved for run in runs))


def rate(times: Times, player: str, job: str) -> float:
    """MiB a second, in the median of the runs."""
    return statistics.median(run.rate for run in times[player][job])


def ratio(times: Times, player: str, job: str) -> float:
    """The rate beside that of tcp."""
    return rate(times, player, job) / rate(times, next(iter(PLAYERS)), job)


def cells(times: Times) -> list[list[str]]:
    """The table."""
    rows = []
    for player in PLAYERS:
        row = [player]
        for job in JOBS:
            run = typical(times[player][job])
            row += [f"{run.seconds:.1f} s", f"{run.moved:.0f} MiB", f"{rate(times, player, job):.1f} MiB/s"]
            row.append(f"{ratio(times, player, job):.2f}")
        rows.append(row)
    return rows


def figures(times: Times) -> dict[str, float]:
    """For its aims: rates beside tcp's by job and player."""
    ours = [player for player, setting in PLAYERS.items() if setting.protocol == "ulnet"]
    return {f"{job}, {player}": ratio(times, player, job) for job in JOBS for player in ours}


def to_dict(times: Times) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """All runs: seconds, and MiB moved."""
    return {
        player: {job: [(run.seconds, run.moved) for run in runs] for job, runs in jobs.items()}
        for player, jobs in times.items()
    }
