"""Files that commands are given."""

from __future__ import annotations

import os
import sys

__all__ = ["Unreadable", "read_text"]

_LONGEST = 1 << 24


class Unreadable(Exception):
    """A file that cannot be read: one sentence."""


def read_text(name: str) -> str:
    """The text of a file; `-` is standard input. Raises Unreadable."""
    try:
        if name == "-":
            return sys.stdin.read(_LONGEST)
        with open(name, encoding="utf-8") as file:
            return file.read(_LONGEST)
    except OSError as error:
        raise Unreadable(f"{name} cannot be read: {os.strerror(error.errno or 5)}") from None
    except UnicodeDecodeError as bad:
        raise Unreadable(f"{name} is not UTF-8 text: {bad.reason} at byte {bad.start}") from None
