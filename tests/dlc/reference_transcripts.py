"""The transcripts of real nodes, taken apart: command, stdout, stderr, exit code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

FILES = [
    "01_first_contact.txt",
    "02_dynamic_ni.txt",
    "11_ping_discover.txt",
    "12_show.txt",
    "13_net_errors.txt",
    "14_set.txt",
    "15_route.txt",
    "17_peer.txt",
    "18_import.txt",
    "19_lnet.txt",
    "21_after_traffic.txt",
    "22_isolated_errors.txt",
    "41_large_nids.txt",
]

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


def steps(folder: Path) -> list[Step]:
    """Every command of every transcript."""
    found = []
    for name in FILES:
        for match in _STEP.finditer((folder / name).read_text()):
            host, command, out, err, code = match.groups()
            found.append(Step(name, host, command, out, err, int(code)))
    return found
