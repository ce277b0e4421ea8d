"""`make bench`: all competitors on all works, interleaved, and sections; writes JSON and parts of a page."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

import aims
import hotspots
import page
import plot
import private_net
import sections
from players import COMPETITORS, HERE, Competitor
from report import LOOPBACK, TITLE, Row, cells, machine, markdown, origin, summarize
from runner import Run, run_once
from work import CONGESTION, WORKS, Work

ROUNDS = 5  # 20 minutes, with all sections
SECONDS = 1.0  # a run; shorter ones measure chance
PAGE = HERE.parent / "docs/benchmarks.md"
BUSY = 0.5  # load average from which on a warning is due


def main() -> int:
    """Measure what the command line asks for."""
    options = _options()
    private_net.enter()
    began = time.monotonic()
    console = Console(stderr=True)
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    whole = not options.only or LOOPBACK in options.only
    players = _present([player for player in COMPETITORS if whole or player.name in options.only], console)
    works = [
        work.shorter(10) if options.quick else work for work in WORKS if work.name in (options.work or _all())
    ]
    if not players:
        works = []
    wanted = [name for name in sections.NAMES if name in (options.only or ([] if options.work else [name]))]

    load = os.getloadavg()[0]
    if load > BUSY:
        console.print(
            f"load average {load:.2f}: other programs run, so no figure here is worth much", style="red"
        )
    facts = machine()
    where = origin(facts)
    how = (
        f"Two processes over loopback, TCP_CONGESTION {CONGESTION.decode()} on sockets and ulnet, "
        f"{private_net.congestion()} the default (in a network namespace of the benchmark's own where the "
        f"system gives one); {rounds} rounds on {time.strftime('%Y-%m-%d')}; load average before: {load:.2f}."
    )
    runs = measure(works, players, rounds, console)
    summaries = [(work, summarize(work, runs[work.name])) for work in works]
    show(summaries)
    done = _sections(wanted, options.quick, options.rounds, console)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(to_json(works, runs, facts, how, done))
    picture = options.json.with_suffix(".svg")
    if summaries:
        plot.draw(summaries, picture, f"{how} {facts['CPU']}. ulnet {facts['ulnet']}.")
    kept = not (options.quick or options.work)  # less than a whole part is no part of the page
    parts = []
    if whole and not options.work:
        reached = _tell_aims(TITLE, aims.of_loopback(summaries))
        if kept:
            body = f"{markdown(summaries, facts, how)}\n{_profile(works)}"
            parts.append(page.Part(LOOPBACK, body, aims.markdown(TITLE, where, reached)))
            shutil.copyfile(picture, PAGE.with_suffix(".svg"))
    parts += map(_part, done)
    if kept and parts:
        page.write(PAGE, parts)
        console.print(f"{PAGE.name} written: {', '.join(part.name for part in parts)}")
    console.print(f"every run is in {options.json}; {(time.monotonic() - began) / 60:.1f} min in all")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure ulnet beside C, plain sockets, pyzmq, Open MPI and grpcio."
    )
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages, one round, no page")
    parser.add_argument("--rounds", type=int, help=f"runs of each (default: {ROUNDS})")
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        help="competitors, or parts of the page, which keeps all others: " + ", ".join(_choices()),
    )
    parser.add_argument(
        "--work", nargs="+", metavar="WORK", help="works, no page: " + ", ".join(w.name for w in WORKS)
    )
    parser.add_argument(
        "--json", type=Path, default=HERE.parent / "build/benchmarks.json", help="where the figures go"
    )
    options = parser.parse_args()
    for given, known in ((options.only, _choices()), (options.work, [work.name for work in WORKS])):
        if unknown := [name for name in given or [] if name not in known]:
            parser.error(f"{', '.join(unknown)}: not measured here; choose from {', '.join(known)}")
    return options


def _present(players: list[Competitor], console: Console) -> list[Competitor]:
    """Those that can be measured here; the others are named."""
    for player in players:
        if lacking := player.missing():
            console.print(f"{player.title}: left out, {lacking} is not installed")
    return [player for player in players if not player.missing()]


def _profile(works: list[Work]) -> str:
    small = next(work for work in works if work.name == "small-stream")
    return hotspots.markdown(small, hotspots.hotspots(small))


def _part(section: sections.Section) -> page.Part:
    """Of the page; its aims are told."""
    reached = _tell_aims(section.title, aims.of_section(section.name, section.figures))
    return page.Part(
        section.name, sections.markdown(section), aims.markdown(section.title, section.origin, reached)
    )


def _tell_aims(title: str, reached: list[aims.Line]) -> list[aims.Line]:
    if reached:
        _table(f"Aims: {title}", aims.HEADS, reached)
    return reached


def _names() -> list[str]:
    return [competitor.name for competitor in COMPETITORS]


def _choices() -> list[str]:
    return [*_names(), LOOPBACK, *sections.NAMES]


def _all() -> list[str]:
    return [work.name for work in WORKS]


Runs = dict[str, dict[str, list[Run]]]


def measure(works: list[Work], players: list[Competitor], rounds: int, console: Console) -> Runs:
    """Every player on every work, one after another within a round, so that all see the same machine.

    Where there are several rounds, one goes before them which tells how many messages take `SECONDS`.
    """
    runs: Runs = {work.name: {} for work in works}
    probes: dict[tuple[str, str], Run] = {}
    with console.status("measuring") as status:
        for number in range(rounds if rounds == 1 else rounds + 1):
            for work in works:
                for player in players:
                    if not player.takes(work) or (player.seldom and number % 2):
                        continue
                    status.update(f"round {number} of {rounds}: {work.title}: {player.title}")
                    probe = probes.get((work.name, player.name))
                    short = work.shorter(player.shorten)
                    length = short if probe is None else short.lasting(SECONDS, probe.wall, probe.count)
                    try:
                        run = run_once(player, length)
                    except (RuntimeError, ValueError, KeyError) as problem:
                        console.print(f"{player.title}, {work.title}: failed: {problem}", style="red")
                        continue
                    if number or rounds == 1:
                        runs[work.name].setdefault(player.name, []).append(run)
                    else:
                        probes[work.name, player.name] = run
    return runs


def _sections(wanted: list[str], quick: bool, rounds: int | None, console: Console) -> list[sections.Section]:
    """Measure and show the sections that stand by themselves."""
    done = []
    for name in wanted:
        section = sections.measure(name, quick, rounds, console.print)
        if section is not None:
            for what, heads, body in section.tables:
                _table(what or section.title, heads, body)
            done.append(section)
    return done


def show(summaries: list[tuple[Work, list[Row]]]) -> None:
    """Tables on standard output."""
    for work, rows in summaries:
        _table(work.title, *cells(work, rows))


def _table(title: str, heads: list[str], body: list[list[str]]) -> None:
    table = Table(title=title, title_justify="left", expand=False)
    for number, head in enumerate(heads):
        table.add_column(head, justify="right" if number else "left", no_wrap=not number)
    for line in body:
        table.add_row(*line)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def to_json(
    works: list[Work],
    runs: Runs,
    facts: dict[str, str],
    how: str,
    done: list[sections.Section],
) -> str:
    """Every run, not only medians."""
    return json.dumps(
        {
            "how": how,
            "machine": facts,
            "works": [asdict(work) for work in works],
            "runs": {
                work: {name: [asdict(run) for run in done] for name, done in players.items()}
                for work, players in runs.items()
            },
            "sections": {section.name: section.runs for section in done},
        },
        indent=1,
    )


if __name__ == "__main__":
    sys.exit(main())
