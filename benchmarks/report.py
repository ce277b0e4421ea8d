"""From runs to medians, and from medians to a table on the screen, a page and JSON."""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from players import COMPETITORS, Competitor
from runner import Run
from work import Work

LOOPBACK = "loopback"  # the part of the page with all competitors
TITLE = "Over loopback"
GIB = 1 << 30
HERE = Path(__file__).resolve().parent
BASELINES = {"× C": "c", "× sockets": "sockets"}


@dataclass(slots=True)
class Row:
    """One competitor on one work: medians over the rounds."""

    competitor: Competitor
    rate: float  # GiB/s for bulk, thousand messages a second for small ones
    spread: str  # slowest and fastest run
    cpu: float  # s/GiB for bulk, µs a message for small ones; both processes
    p50_us: float
    p99_us: float
    rates: list[float] = field(default_factory=list)  # every run's
    latencies: list[float] = field(default_factory=list)  # … p50


def summarize(work: Work, runs: dict[str, list[Run]]) -> list[Row]:
    """Rows in the competitors' order; those without a run are left out."""
    rows = []
    for competitor in COMPETITORS:
        done = runs.get(competitor.name)
        if not done:
            continue
        rates = [_rate(work, run) for run in done]
        rows.append(
            Row(
                competitor,
                statistics.median(rates),
                f"{_figure(min(rates))}–{_figure(max(rates))}",
                statistics.median(_cpu(work, run) for run in done),
                statistics.median(run.p50_us for run in done),
                statistics.median(run.p99_us for run in done),
                rates,
                [run.p50_us for run in done],
            )
        )
    return rows


def is_bulk(work: Work) -> bool:
    """Whether bytes count, or messages."""
    return work.size >= 4096


def _rate(work: Work, run: Run) -> float:
    return run.count * work.size / run.wall / GIB if is_bulk(work) else run.count / run.wall / 1000


def _cpu(work: Work, run: Run) -> float:
    return run.cpu / (run.count * work.size / GIB) if is_bulk(work) else run.cpu / run.count * 1e6


def cells(work: Work, rows: list[Row]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of text; ratios are to the C program and to plain sockets, one call a message."""
    if work.kind == "roundtrip":
        heads = ["", "p50 µs", "p99 µs", *BASELINES, "CPU µs/round trip", *BASELINES]
    elif is_bulk(work):
        heads = ["", "GiB/s", "slowest–fastest", *BASELINES, "CPU s/GiB", *BASELINES]
    else:
        heads = ["", "thousand/s", "slowest–fastest", *BASELINES, "CPU µs/message", *BASELINES]
    by_name = {row.competitor.name: row for row in rows}
    bases = [by_name.get(name) for name in BASELINES.values()]
    lines = []
    for row in rows:
        if work.kind == "roundtrip":
            first = [f"{row.p50_us:.1f}", f"{row.p99_us:.1f}"]
            first += [_ratio(row.p50_us, base.p50_us if base else 0) for base in bases]
        else:
            first = [_figure(row.rate), row.spread]
            first += [_ratio(row.rate, base.rate if base else 0) for base in bases]
        cpu = [_ratio(row.cpu, base.cpu if base else 0) for base in bases]
        lines.append([row.competitor.title, *first, _figure(row.cpu), *cpu])
    return heads, lines


def _ratio(value: float, base: float) -> str:
    return f"{value / base:.2f}" if base else "–"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def machine() -> dict[str, str]:
    """What the figures depend on besides the code."""
    cpu = "unknown"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    facts = {
        "CPU": f"{cpu}, {os.cpu_count()} CPUs",
        "kernel": f"{platform.system()} {platform.release()}",
        "C compiler": _compiler(),
        "interpreter": f"{platform.python_implementation()} {platform.python_version()}, {_build()}",
        "Open MPI": _open_mpi(),
    }
    for package in ("ulnet", "pyzmq", "mpi4py", "grpcio"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    facts["ulnet"] += _commit()
    return facts


def _build() -> str:
    """Interpreters that were built without optimisation are up to 1.6 times slower."""
    if sys.base_prefix == "/usr":
        return "the system's own"
    optimized = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    return f"built {'with' if optimized else 'without'} --enable-optimizations"


def _commit(folder: Path = HERE) -> str:
    """Which state of the code this is, where git can tell; the page and its picture are not code."""
    if not shutil.which("git"):
        return ""
    found = _git(folder, "describe", "--always")
    if found is None:
        return ""
    pages = (f":(top,exclude)docs/benchmarks.{suffix}" for suffix in ("md", "svg"))
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ":/", *pages)
    return f", commit {found}{'-dirty' if changed else ''}"


def _git(folder: Path, *words: str) -> str | None:
    """What it says; None where it fails."""
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def origin(facts: dict[str, str]) -> str:
    """Of which code, day and machine what is measured now is."""
    return f"ulnet {facts['ulnet']}, {time.strftime('%Y-%m-%d')}; {facts['CPU']}"


def _compiler() -> str:
    """What the C program and the compiled build are made with."""
    if not shutil.which("cc"):
        return "none"
    return subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[
        0
    ]


def _open_mpi() -> str:
    if not shutil.which("mpirun"):
        return "not installed"
    return subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )[0]


def markdown(works: list[tuple[Work, list[Row]]], facts: dict[str, str], how: str) -> str:
    """The part of docs/benchmarks.md in which all competitors are."""
    lines = [
        f"## {TITLE}",
        "",
        "All competitors run in one go, interleaved; CPU is that of both processes.",
        "",
        how,
        "",
        *[f"* {name}: {value}" for name, value in facts.items()],
        "",
        "Who is measured:",
        "",
        *[f"* {competitor.title}: {competitor.how}" for competitor in COMPETITORS],
        "",
        "![All runs as bars](benchmarks.svg)",
    ]
    for work, rows in works:
        heads, body = cells(work, rows)
        lines += ["", f"### {work.title}", "", _how(work), ""]
        lines += ["| " + " | ".join(heads) + " |", "| --- |" + " ---: |" * (len(heads) - 1)]
        lines += ["| " + " | ".join(line) + " |" for line in body]
    return "\n".join(lines) + "\n"


def _how(work: Work) -> str:
    unit = f"{work.size >> 10:,} KiB" if is_bulk(work) else f"{work.size} bytes"
    where = " Each process on a CPU of its own." if work.kind == "roundtrip" else ""
    return f"Messages of {unit}, for about a second a run, after {work.warmup:,} to warm up.{where}"
