"""`lnetctl debug nidlist`: how a list of NIDs is understood; asks no node."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ulnet.cli.lnetctl_words import Command

if TYPE_CHECKING:
    from ulnet.cli.lnetctl_options import Parsed

__all__ = ["NIDLIST", "run_nidlist"]

_INVALID = 234  # 256 - EINVAL

NIDLIST = Command(
    ("debug", "nidlist"),
    "show how a list of NIDs is understood",
    operands="NIDLIST...",
    examples=("lnetctl debug nidlist 10.0.0.[1-4/2]@tcp,10.1.*.*@o2ib",),
    action="debug_nidlist",
)


def run_nidlist(parsed: Parsed, socket_path: str | None) -> int:
    """The exit status."""
    from ulnet.nid import NidError, NidList

    text = " ".join(parsed.operands)
    try:
        print(f"nidlist parsed to: {NidList.parse(text)}")
    except NidError as bad:
        print(f"{bad}\nUnable to parse nidlist from: {text}", file=sys.stderr)
        return _INVALID
    return 0
