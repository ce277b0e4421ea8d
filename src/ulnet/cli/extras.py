"""How to install what an extra of the package brings."""

from __future__ import annotations

import shlex
import sys

__all__ = ["how_to_add"]


def how_to_add(extra: str) -> str:
    """The command that adds an extra to this ulnet: the pip on PATH may be that of another Python."""
    return f"{shlex.quote(sys.executable or 'python3')} -m pip install 'ulnet[{extra}]'"
