"""Multi-Rail beside bonding on the same shaped rails: goodput, CPU, rails that fail, what it takes to set up.

`python benchmarks/bonds.py` prints the tables; `--page` puts them into docs/design/multi-rail-vs-bonding.md.
Needs root, network namespaces and a quiet machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import bond_setup
import failover
import private_net
import rails
from failover_job import Outcome
from report import machine
from support.netns import Cluster

PAGE = Path(__file__).resolve().parent.parent / "docs/design/multi-rail-vs-bonding.md"
BEGIN, END = "<!-- measured: benchmarks/bonds.py -->", "<!-- end of what was measured -->"
ROUNDS, SECONDS = 3, 3.0
STREAMS = {
    "ulnet": "Multi-Rail",
    "bond:roundrobin": "bond, round robin",
    "bond:weights": "bond, static weights",
    "bond:dynamic": "bond, dynamic weights",
    "bond:congestion": "bond, congestion",
}
EQUAL, UNEQUAL = rails.Scene((400, 400)), rails.Scene((400, 100))
SCENES = {EQUAL: ("ulnet", "bond:roundrobin", "bond:dynamic"), UNEQUAL: tuple(STREAMS)}
FAULTS = {"ulnet": "Multi-Rail, both rails", "bond": "bond, standby"}
FAULT_SCENES = tuple(scene for scene in failover.SCENES if scene.name in ("near", "hole"))
AFTER = 6.0  # seconds after the repair: connections are made anew in that time

Tell = Callable[[str], None]


@dataclass(slots=True)
class Stream:
    """One player on one set of rails, a figure a round."""

    shares: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)  # seconds of both processes a GiB


def measure_streams(cluster: Cluster, rounds: int, seconds: float, tell: Tell) -> dict[str, list[str]]:
    """Cells of a row a set of rails and player."""
    found: dict[tuple[str, str], Stream] = {}
    for number in range(rounds):
        for scene, players in SCENES.items():
            for rail, rate in enumerate(scene.rails):
                cluster.shape(rail, f"{rate}mbit")
            capacity = rails._run(cluster, scene, rails.BASELINE, seconds).rate
            for player in players:
                tell(f"round {number + 1} of {rounds}: {scene.title} Mb/s: {STREAMS[player]}")
                before = _cpu()
                outcome = rails._run(cluster, scene, player, seconds)
                stream = found.setdefault((scene.title, player), Stream())
                stream.shares.append(outcome.rate / capacity)
                moved = outcome.rate * (seconds + rails.WARMUP) / (1 << 30)
                stream.cpu.append((_cpu() - before) / moved)
    rows = {}
    for (scene_title, player), stream in found.items():
        middle, least = statistics.median(stream.shares), min(stream.shares)
        rows[f"{scene_title} {player}"] = [
            scene_title,
            STREAMS[player],
            f"{middle:.3f} ({least:.2f})",
            f"{statistics.median(stream.cpu):.2f}",
        ]
    return rows


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure_faults(cluster: Cluster, rounds: int, tell: Tell) -> list[list[str]]:
    """A row a fault and player: the rail that the bond prefers fails under load, and comes back."""
    for rail in range(2):
        cluster.shape(rail, f"{failover.RATE}mbit")
    runs: dict[tuple[failover.Scene, str], list[Outcome]] = {}
    for number in range(rounds):
        for scene in FAULT_SCENES:
            for player, title in FAULTS.items():
                tell(f"round {number + 1} of {rounds}: {scene.title}: {title}")
                outcome = failover._Run(cluster, scene, player, 1.0, AFTER).outcome()
                runs.setdefault((scene, player), []).append(outcome)
    rows = []
    for (scene, player), outcomes in runs.items():
        gaps = [run.gap(failover.CAPACITY, run.faulted + scene.hold) for run in outcomes]
        stalls = [run.stall() for run in outcomes]
        back = [run.returned(run.faulted + scene.hold) for run in outcomes]
        rows.append(
            [
                scene.title,
                FAULTS[player],
                failover._spread(gaps),
                failover._spread(stalls),
                str(sum(run.reported for run in outcomes)),
                str(sum(run.lost for run in outcomes)),
                failover._spread(back) if player == "bond" else "–",
            ]
        )
    return rows


def report(rounds: int, seconds: float, tell: Tell) -> str:
    """Both tables as markdown."""
    load = os.getloadavg()[0]
    cluster = Cluster(2, rails.MOST_RAILS)
    try:
        streams = measure_streams(cluster, rounds, seconds, tell)
        for host in cluster:
            rails._use_rails(host, 2)
        faults = measure_faults(cluster, rounds, tell)
    finally:
        cluster.close()
    when = f"ulnet {machine()['ulnet']}, {time.strftime('%Y-%m-%d')}; load average before: {load:.2f}"
    lines = [
        f"{rails.how(rounds, seconds).split(' The ideal scheduler')[0]} {when}.",
        "",
        "| rails, Mb/s | | share of the sum, median (least) | CPU s per GiB, both ends |",
        "| --- | --- | ---: | ---: |",
        *("| " + " | ".join(row) + " |" for row in streams.values()),
        "",
        f"A rail of two of {failover.RATE} Mb/s fails for {FAULT_SCENES[0].hold:g} s under a stream of "
        "acknowledged messages, 8 under way: the sender's link goes down, or a bridge swallows all "
        "(docs/benchmarks.md, “A rail fails”, has what the columns are; the gap is that while the fault "
        "lasts). For the bond it is the default slave; “back” is the time from the repair until that is the "
        "active one again.",
        "",
        "| fault | | gap, s | longest stall, s | reported | lost | back, s |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
        *("| " + " | ".join(row) + " |" for row in faults),
        "",
        *bond_setup.table(),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, print, and fill the page if asked to."""
    parser = argparse.ArgumentParser(description="Measure Multi-Rail beside bonding.")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--page", action="store_true", help=f"put the tables into {PAGE.name}")
    options = parser.parse_args()
    if lacking := rails.lacking():
        print(f"not measured: {lacking}; root and network namespaces are needed", file=sys.stderr)
        return 1
    private_net.enter()
    text = report(options.rounds, options.seconds, lambda line: print(line, file=sys.stderr))
    print(text)
    if options.page:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}{END}{rest.partition(END)[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
