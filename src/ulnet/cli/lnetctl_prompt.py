"""lnetctl's interactive mode: one command a line, until quit or the end of the input."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence

__all__ = ["prompt"]

_PROMPT = "lnetctl > "


def prompt(run: Callable[[Sequence[str]], int]) -> int:
    """Run each line's command; the exit status is that of the last one."""
    status = 0
    for line in _lines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError as bad:
            print(f"lnetctl: the line cannot be read: {bad}", file=sys.stderr)
            status = 255
            continue
        if words and words[0] in ("quit", "exit"):
            break
        if words:
            status = run(words)
            sys.stdout.flush()
    return status


def _lines() -> Iterator[str]:
    if not sys.stdin.isatty():
        yield from sys.stdin
        return
    try:
        import readline  # noqa: F401 - gives input() editing and history
    except ImportError:
        pass
    while True:
        try:
            yield input(_PROMPT)
        except EOFError:
            print()
            return
