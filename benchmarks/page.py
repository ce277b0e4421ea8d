"""docs/benchmarks.md: each part is that of the last run which measured it; all others stay as they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aims
import sections
from report import LOOPBACK

NAMES = (LOOPBACK, *sections.NAMES)
BESIDE_OLD = Path(__file__).parent / "old_builds.md"  # measured with two checkouts, which no run has
HEAD = """\
# Benchmarks

Written by `make bench`; do not edit. A part that is measured anew (`make bench ARGS="--only crowd"`) replaces
its own text and its own aims, all others stay: each part says of which commit, day and machine it is. Figures
are medians, and only figures of one run may be compared. CPU is user and system time; it is steadier than
the rates, which depend on whether the machine's CPUs are free.
"""
AIMS = """\
## Aims

“Shown” is ours against theirs, as a ratio of medians of one run. Beside what is missed over loopback stands
what the C program has of the same.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """What a run says about one of `NAMES`."""

    name: str
    body: str
    aims: str = ""  # empty: nothing was aimed at


def write(path: Path, parts: Sequence[Part]) -> None:
    """Put these into the page."""
    old = path.read_text() if path.exists() else ""
    texts = {name: _find(old, name) for name in (*NAMES, *map(_aims_of, NAMES))}
    for part in parts:
        texts[part.name] = _marked(part.name, part.body)
        texts[_aims_of(part.name)] = _marked(_aims_of(part.name), part.aims) if part.aims else ""
    lacking = [name for name in NAMES if name in aims.PARTS and not texts[_aims_of(name)]]
    about = AIMS + (f"Never measured here: {', '.join(lacking)}.\n" if lacking else "")
    blocks = [HEAD, about, *(texts[_aims_of(name)] for name in NAMES), *(texts[name] for name in NAMES)]
    blocks.append(BESIDE_OLD.read_text())
    path.write_text("\n".join(filter(None, blocks)))


def _aims_of(name: str) -> str:
    return f"{name}, its aims"


def _marked(name: str, text: str) -> str:
    """With what it is found again by."""
    body = text.rstrip("\n")
    return f"{_mark(name)}\n{body}\n{_end(name)}\n"


def _find(text: str, name: str) -> str:
    start, end = text.find(_mark(name)), text.find(_end(name))
    return text[start : end + len(_end(name))] + "\n" if 0 <= start < end else ""


def _mark(name: str) -> str:
    return f"<!-- measured by itself: {name} -->"


def _end(name: str) -> str:
    return f"<!-- end: {name} -->"
