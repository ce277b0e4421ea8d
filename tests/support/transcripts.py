"""The transcripts of real nodes in ../shared/reference, taken apart: command, stdout, stderr, exit code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

FILES = (
    "01_first_contact",
    "02_dynamic_ni",
    "03_multirail",
    "11_ping_discover",
    "12_show",
    "13_net_errors",
    "14_set",
    "15_route",
    "16_udsp",
    "17_peer",
    "18_import",
    "19_lnet",
    "20_fault",
    "21_after_traffic",
    "22_isolated_errors",
    "41_large_nids",
)

_STEP = re.compile(
    r"^=== \[(?P<host>\w+)\] # (?P<command>.*)\n--- stdout\n(?P<out>(?s:.*?))--- stderr\n(?P<err>(?s:.*?))"
    r"--- exit code: (?P<code>\d+)\n",
    re.MULTILINE,
)


class Step(NamedTuple):
    """One command on a real node."""

    file: str
    host: str
    command: str
    out: str
    err: str
    code: int


def read_steps(folder: Path, files: Sequence[str] = FILES) -> list[Step]:
    """Every command of those transcripts of the newest version."""
    found = []
    for name in files:
        for match in _STEP.finditer((folder / f"{name}.txt").read_text()):
            host, command, out, err, code = match.groups()
            found.append(Step(name, host, command, out, err, int(code)))
    return found
