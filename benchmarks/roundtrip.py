"""Where the time of a round trip goes: `python benchmarks/roundtrip.py [--rounds N] [--instructions]`.

Beside the players of the benchmark run some that leave something away: they do not sleep, or have no asyncio,
or no LNet. All take turns, a process on each CPU; medians are shown. With --instructions: those that the
answering end executes for one round trip, by valgrind (its timers come too often: it is fifty times slower).
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median

import players
import runner
from players import COMPETITORS, HERE, Competitor
from work import WORKS, Work

WORK = next(work for work in WORKS if work.kind == "roundtrip")
BY_NAME = {one.name: one for one in COMPETITORS}
COUNTS = (500, 1500)  # round trips: what the second costs more is theirs alone

Player = tuple[str, Competitor, dict[str, str]]


def all_players() -> list[Player]:
    """What is shown, who does it, with what in the environment."""
    ulnet = BY_NAME["ulnet_compiled" if "compiled" in players.builds() else "ulnet_node"]
    return [
        ("C, blocking", BY_NAME["c"], {}),
        ("C that looks again and never sleeps", BY_NAME["c"], {"SPIN": "1"}),
        ("a Python epoll, `recv`, `send`", Competitor("floor_epoll", "", ""), {}),
        ("asyncio's `add_reader`, `recv`, `send`", Competitor("floor_asyncio", "", ""), {}),
        (f"{ulnet.title}, asyncio's loop", ulnet, {"ULNET_BENCH_LOOP": "asyncio"}),
        (f"{ulnet.title}", ulnet, {}),
        (f"{ulnet.title}, `spin`", replace(BY_NAME["ulnet_spin"], build=ulnet.build), {}),
        ("pyzmq PUSH/PULL", BY_NAME["zmq_push"], {}),
    ]


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description="Where the time of a round trip goes.",
        epilog="Example: python benchmarks/roundtrip.py --rounds 4",
    )
    parser.add_argument("--rounds", type=int, default=5, help="runs of each (5)")
    parser.add_argument("--instructions", action="store_true", help="count those, and nothing else")
    options = parser.parse_args()
    there = [player for player in all_players() if player[1].missing() is None]
    if options.instructions:
        if shutil.which("valgrind") is None:
            parser.error("this needs valgrind")
        print("| | instructions of the answering end |\n| --- | ---: |")
        for title, one, more in there:
            if not more.get("SPIN") and one.name != "ulnet_spin":
                print(f"| {title} | {instructions(one, more):,.0f} |", flush=True)
        return 0
    runs: dict[str, list[dict[str, dict[str, float]]]] = {}
    for _ in range(options.rounds):
        for title, one, more in there:
            runs.setdefault(title, []).append(runner.run_sides(one, WORK, more))
    print("| | p50 µs | p99 µs | CPU µs, both ends |\n| --- | ---: | ---: | ---: |")
    for title, all_runs in runs.items():
        p50, p99 = (median(run["drive"][name] for run in all_runs) for name in ("p50_us", "p99_us"))
        cpu = median(run["drive"]["cpu"] + run["serve"]["cpu"] for run in all_runs) / WORK.count * 1e6
        print(f"| {title} | {p50:.1f} | {p99:.1f} | {cpu:.1f} |")
    return 0


def instructions(one: Competitor, more: dict[str, str]) -> float:
    """Those of the answering end for a round trip: the difference between many and few."""
    few, many = (_instructions(one, more, replace(WORK, count=count, warmup=300)) for count in COUNTS)
    return (many - few) / (COUNTS[1] - COUNTS[0])


def _instructions(one: Competitor, more: dict[str, str], work: Work) -> int:
    env = {**runner.environment_of(one.build), **more}
    with tempfile.TemporaryDirectory() as folder:
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={Path(folder, 'out')}"]
        words = [*valgrind, *runner.words_of(one, "serve", work)]
        pipe = subprocess.PIPE
        with subprocess.Popen(words, env=env, stdout=pipe, stderr=pipe, text=True) as server:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["address"]
            drive = [*runner.words_of(one, "drive", work), address]
            subprocess.run(drive, env=env, check=True, capture_output=True)
            _, told = server.communicate(timeout=runner.PATIENCE)
    found = re.search(r"Collected : (\d+)", told)
    assert found is not None, told
    return int(found[1])


if __name__ == "__main__":
    sys.path.append(str(HERE))
    raise SystemExit(main())
