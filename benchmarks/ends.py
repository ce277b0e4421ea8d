"""What each end of one work takes: `ends.py WORK [PLAYER …]`; docs/design/measured.md shows tables of it.

For each player, interleaved with the others: wall time, CPU time of the end that drives and of the one that
serves, of it the kernel's, and how often each slept, in microseconds and times a message; medians. With
`--calls` (a run more) also how many calls to the kernel each makes a message, and how much a call moves; with
`--instructions` only how many instructions of the program each end executes for one (by valgrind). `--touch`
measures the C program once more as one that touches so much other memory for each message.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import private_net
import runner
from players import COMPETITORS, HERE, Competitor
from work import TOUCH, WORKS, Work

ENDS = ("drive", "serve")
ROUNDS = 7
COUNTS = (256, 1024)  # messages, to count instructions
DEFAULT = ("c", "sockets", "ulnet_node", "ulnet_compiled")


def main() -> int:
    """Measure what the command line asks for."""
    names = [player.name for player in COMPETITORS]
    parser = argparse.ArgumentParser(
        description="What each end of one work takes.",
        epilog="Example: python benchmarks/ends.py bulk-get c ulnet_compiled --rounds 9 --calls",
    )
    parser.add_argument("work", choices=[work.name for work in WORKS])
    parser.add_argument("players", nargs="*", metavar="PLAYER", help=", ".join(names))
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"runs of each ({ROUNDS})")
    parser.add_argument("--calls", action="store_true", help="count calls to the kernel too (needs cc)")
    parser.add_argument("--instructions", action="store_true", help="count those, and nothing else")
    parser.add_argument(
        "--touch",
        type=int,
        nargs="+",
        default=[],
        metavar="KIB",
        help="measure C also where each end touches so many KiB of other memory for each message",
    )
    options = parser.parse_intermixed_args()
    if unknown := [name for name in options.players if name not in names]:
        parser.error(f"{', '.join(unknown)}: not measured here; choose from {', '.join(names)}")
    private_net.enter()
    work = next(work for work in WORKS if work.name == options.work)
    wanted = options.players or DEFAULT
    players = [player for player in COMPETITORS if player.name in wanted and not player.missing()]
    if options.instructions:
        for player in players:
            drives, serves = (instructions(work, player, end) for end in ENDS)
            print(f"{player.title}: the end that drives {drives:,.0f} a message, the other {serves:,.0f}")
        return 0
    cases = [Case(player, player.title, {}) for player in players]
    cases += [touching(player, kib) for player in players if player.name == "c" for kib in options.touch]
    runs = measure(work, cases, options.rounds)
    print(f"{work.title}, {work.count} messages, {options.rounds} rounds; a message, in µs\n")
    for line in table(work, runs):
        print(line)
    for player in players if options.calls else ():
        print(f"\n{player.title}:")
        for line in calls(work, player):
            print(line)
    return 0


Sides = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Case:
    """A player, with more in its environment."""

    player: Competitor
    title: str
    more: dict[str, str]


def touching(player: Competitor, kib: int) -> Case:
    """The C program, whose ends touch so many KiB of other memory for each message."""
    return Case(player, f"{player.title}, {kib} KiB touched a message", {TOUCH: str(kib)})


def measure(work: Work, cases: list[Case], rounds: int) -> dict[str, list[Sides]]:
    """Every case once a round, in turns forwards and backwards; by title."""
    runs: dict[str, list[Sides]] = {case.title: [] for case in cases}
    for number in range(rounds):
        for case in cases[:: -1 if number % 2 else 1]:
            runs[case.title].append(runner.run_sides(case.player, work, case.more))
    return runs


def table(work: Work, runs: dict[str, list[Sides]]) -> list[str]:
    """Rows of Markdown. The C program tells its CPU time, and nothing more of it."""
    lines = [
        "|  | wall | slowest–fastest | CPU | drives: CPU | kernel | sleeps | serves: CPU | kernel | sleeps |"
    ]
    lines.append("| --- |" + " ---: |" * 9)
    scale = 1e6 / work.count
    for title, done in runs.items():
        walls = [sides["drive"]["wall"] * scale for sides in done]
        cells = [f"{median(walls):.3g}", f"{max(walls):.3g}–{min(walls):.3g}"]
        cells.append(f"{median(sum(sides[end]['cpu'] for end in ENDS) for sides in done) * scale:.3g}")
        for end in ENDS:
            cells.append(f"{median(sides[end]['cpu'] for sides in done) * scale:.3g}")
            told = "system" in done[0][end]
            cells.append(f"{median(sides[end]['system'] for sides in done) * scale:.3g}" if told else "")
            cells.append(f"{median(sides[end]['sleeps'] for sides in done) / work.count:.2f}" if told else "")
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def instructions(work: Work, player: Competitor, end: str) -> float:
    """Those of one end for a message, by callgrind: the difference between many and few."""
    few, many = (_instructions(replace(work, count=count), player, end) for count in COUNTS)
    return (many - few) / (COUNTS[1] - COUNTS[0])


def _instructions(work: Work, player: Competitor, end: str) -> int:
    environment = runner.environment_of(player.build)
    words = {one: runner.words_of(player, one, work) for one in ENDS}
    pipe = subprocess.PIPE
    with tempfile.TemporaryDirectory() as folder:
        words[end] = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", *words[end]]
        with subprocess.Popen(words["serve"], env=environment, stdout=pipe, stderr=pipe, text=True) as server:
            assert server.stdout is not None
            address = json.loads(server.stdout.readline())["address"]
            drive = [*words["drive"], address]
            driver = subprocess.run(drive, env=environment, check=True, capture_output=True, text=True)
            _, told = server.communicate(timeout=runner.PATIENCE)
    found = re.search(r"Collected : (\d+)", driver.stderr if end == "drive" else told)
    assert found is not None, told
    return int(found[1])


def calls(work: Work, player: Competitor) -> list[str]:
    """One run with all calls counted, warming up and all: rows of Markdown, for each end."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "calls.so")
        words = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(HERE / "calls.c"), "-ldl"]
        subprocess.run(words, check=True)
        runner.run_sides(player, work, {"LD_PRELOAD": str(library), "ULNET_BENCH_CALLS": f"{folder}/calls"})
        lines = ["| end | call | a message | in vain | MiB a call, mean | most often, KiB from |"]
        lines.append("| --- | --- |" + " ---: |" * 4)
        for path in Path(folder).glob("calls.*[0-9]"):
            lines += _rows(path.read_text(), work.count + work.warmup)
    return lines


def _rows(text: str, messages: int) -> list[str]:
    rows = [line.split() for line in text.splitlines()]
    moved = {name: float(size) for name, _, _, size, *_ in rows}
    sends = moved["send"] + moved["sendmsg"] > moved["recv"] + moved["recvmsg"]
    lines = []
    for name, count, vain, size, _, *sizes in rows:
        times = int(count)
        if times * 100 < messages:
            continue
        by_size = [int(number) for number in sizes]
        usual = by_size.index(max(by_size))
        told = f"{float(size) / times / 2**20:.3f} | {2**usual / 1024:g}" if any(by_size) else "| "
        end = "sends payload" if sends else "takes payload"
        lines.append(f"| {end} | `{name}` | {times / messages:.2f} | {int(vain) / messages:.2f} | {told} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
