"""Where the time of small messages goes: one run of ulnet under cProfile, both processes."""

from __future__ import annotations

import pstats
import tempfile
from dataclasses import dataclass
from pathlib import Path

import ulnet
from players import COMPETITORS
from runner import run_once
from work import Work

PACKAGE = Path(ulnet.__file__).parent
ROWS = 14
START_UP = 1e-3  # fewer calls a message than this: imports and the like


@dataclass(slots=True)
class Hotspot:
    """One function; figures are per message, and inflated by the profiler."""

    function: str
    calls: float
    own_us: float


def hotspots(work: Work) -> dict[str, list[Hotspot]]:
    """The costliest functions of the sending and of the receiving process."""
    player = next(competitor for competitor in COMPETITORS if competitor.name == "ulnet_node")
    with tempfile.TemporaryDirectory() as folder:
        run_once(player, work, profiles=Path(folder))
        messages = work.count + work.warmup
        return {
            "sender": _read(Path(folder) / "drive.prof", messages),
            "receiver": _read(Path(folder) / "serve.prof", messages),
        }


def _read(path: Path, messages: int) -> list[Hotspot]:
    # stats: (file, line, name) -> (primitive calls, calls, own seconds, seconds with callees, callers)
    stats = pstats.Stats(str(path)).stats  # type: ignore[attr-defined]
    found = [
        Hotspot(_name(*where), calls / messages, own * 1e6 / messages)
        for where, (_, calls, own, _, _) in stats.items()
        if calls / messages > START_UP
    ]
    found.sort(key=lambda spot: spot.own_us, reverse=True)
    return found[:ROWS]


def _name(file: str, line: int, name: str) -> str:
    if file == "~":  # built in
        return name.strip("<>")
    path = Path(file)
    ours = path.is_relative_to(PACKAGE)  # looking for "ulnet" would find a checkout of that name
    return f"{path.relative_to(PACKAGE.parent) if ours else Path(*path.parts[-2:])}:{name}"


def markdown(work: Work, spots: dict[str, list[Hotspot]]) -> str:
    """A section for the page."""
    lines = [
        f"### Profile: {work.title}, ulnet with event handlers",
        "",
        "One run under cProfile, which makes every call dearer: the order counts. Time is a function's own.",
    ]
    for side, rows in spots.items():
        lines += ["", f"| {side} | calls a message | own µs a message |", "| --- | ---: | ---: |"]
        lines += [f"| `{row.function}` | {row.calls:.2f} | {row.own_us:.2f} |" for row in rows]
    return "\n".join(lines) + "\n"
