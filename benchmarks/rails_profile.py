"""Where a send goes that has several ways: what each message costs, and what each choice does.

Small messages join the last choice, so many at a time; runs with other limits of that tell both apart: the
cost of a message is a + b / n. (Pure Python; compiled code has the limit built in.) With --parts: what
64 of them cost when they leave, when a way is chosen for the first of the next, and when the others join it.
With --singly: what a send takes where each message is chosen for: instructions, cache misses (valgrind).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import choice
import crowd_steps
from cachegrind import HEADS, counted, need_valgrind
from ulnet.core.selection import paths

MOST = (8, 16, 32, 64)
ROUNDS, COUNT = 15, 2000
SINGLY = ("1×1", "4×4 on one net", "16×16 on one net", "16×16, each pair a net of its own")
BATCHES = 1000  # looked at part by part
FEW, MANY = 2000, 8000  # sends under valgrind: rows are the difference
TITLES = [shape.title for shape in choice.SHAPES if shape.batches]


def measure(rounds: int) -> dict[str, dict[int, float]]:
    """The best of several interleaved runs, µs a send, by shape and limit."""
    benches = {shape.title: choice.Bench(shape) for shape in choice.SHAPES if shape.batches}
    best: dict[str, dict[int, float]] = {title: dict.fromkeys(MOST, float("inf")) for title in TITLES}
    for _ in range(rounds):
        for most in MOST:
            paths._MOST_MESSAGES = most  # type: ignore[misc]
            for title, bench in benches.items():
                bench.run(COUNT // 4)
                best[title][most] = min(best[title][most], bench.run(COUNT).send_us)
    return best


def cpu(work: Callable[..., Any], *words: int) -> tuple[float, Any]:
    """What that call takes, in µs of CPU, and its result."""
    began = time.process_time_ns()
    result = work(*words)
    return (time.process_time_ns() - began) / 1000, result


def bytecodes(work: Callable[..., Any], *words: int) -> tuple[float, Any]:
    """The same in bytecodes."""
    steps = crowd_steps.Steps()
    steps.begin()
    result = work(*words)
    steps.end()
    return sum(count for count, _ in steps.found().values()), result


def parts(bench: choice.Bench, batches: int, cost: Callable[..., tuple[float, Any]]) -> list[float]:
    """What a whole batch of messages costs: their leaving, the next choice, and who joins that; medians."""
    found: list[tuple[float, float, float]] = []
    while len(found) < batches:
        leaving, left = cost(bench.leave)
        first, _ = cost(bench.put, 1)
        others, _ = cost(bench.put, left - 1)
        if left == choice.MOST_AT_ONCE:
            found.append((leaving, first, others))
    return [statistics.median(part) for part in zip(*found, strict=True)]


def parts_table(batches: int) -> None:
    """Each part in µs and in bytecodes."""
    heads = ("they leave", "the first", "those that join", "together")
    print(f"| {choice.MOST_AT_ONCE} sends: µs (bytecodes) |", " | ".join(heads), "|")
    print("| --- |" + " ---: |" * len(heads))
    for shape in choice.SHAPES:
        if not shape.batches:
            continue
        bench = choice.Bench(shape)
        times, steps = parts(bench, batches, cpu), parts(bench, max(batches // 100, 1), bytecodes)
        bench.close()
        columns = zip([*times, sum(times)], [*steps, sum(steps)], strict=True)
        print(f"| {shape.title} |", " | ".join(f"{us:.1f} ({count:,.0f})" for us, count in columns), "|")


def singly(title: str, sends: int) -> int:
    """So many sends of that shape, for cachegrind."""
    bench = choice.Bench(next(shape for shape in choice.SHAPES if shape.title == title))
    bench.send(sends)
    bench.close()
    return sends


def singly_table() -> None:
    """What one of them takes."""
    need_valgrind()
    script = str(Path(__file__).resolve())
    print(f"| a message at a time | {HEADS.format('a send')} |")
    print("| --- | ---: | ---: | ---: | ---: |")
    with ThreadPoolExecutor(2) as both:
        for title in SINGLY:
            few, many = (both.submit(counted, script, "run", title, str(sends)) for sends in (FEW, MANY))
            sends, *costs = (b - a for a, b in zip(few.result(), many.result(), strict=True))
            print(f"| {title} | " + " | ".join(f"{cost / sends:,.1f}" for cost in costs) + " |", flush=True)


def main() -> None:
    """A table."""
    parser = argparse.ArgumentParser(
        description="What a message costs over several ways, and what a choice among them does.",
        epilog="Example: python benchmarks/rails_profile.py --rounds 5",
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"runs of each, of which the best counts ({ROUNDS})"
    )
    parser.add_argument("--parts", action="store_true", help="a batch, part by part")
    parser.add_argument("--singly", action="store_true", help="a message at a time, counted by valgrind")
    options = parser.parse_args()
    if options.singly:
        singly_table()
        return
    if options.parts:
        parts_table(BATCHES)
        return
    best = measure(options.rounds)
    one = best["1×1, batches"][MOST[-1]]
    print("| µs a send |", " | ".join(f"{most} join" for most in MOST), "| a message | a choice | × 1×1 |")
    print("| --- |" + " ---: |" * (len(MOST) + 3))
    for title, found in best.items():
        per_choice = (found[MOST[1]] - found[MOST[-1]]) / (1 / MOST[1] - 1 / MOST[-1])
        cells = [f"{found[most]:.2f}" for most in MOST]
        cells += [f"{found[MOST[-1]] - per_choice / MOST[-1]:.2f}", f"{per_choice:.1f}"]
        print(f"| {title} |", " | ".join(cells), f"| {found[MOST[-1]] / one:.2f} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        print(singly(sys.argv[2], int(sys.argv[3])))
    else:
        main()
