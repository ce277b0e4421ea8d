"""lnetctl's interactive mode: one command a line, until quit or the end of the input."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from io import TextIOWrapper

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


def _edit_lines() -> None:
    """Editing, history and completion, where Python has readline."""
    try:
        import readline
    except ImportError:
        return
    from ulnet.cli.complete import lnetctl_words

    def candidate(text: str, state: int) -> str | None:
        before = readline.get_line_buffer()[: readline.get_begidx()].split()
        found = lnetctl_words([*before, text])
        return f"{found[state]} " if state < len(found) else None

    readline.set_completer(candidate)
    readline.set_completer_delims(" \t\n")
    readline.parse_and_bind("tab: complete")


def _lines() -> Iterator[str]:
    if sys.stdin is None:  # the caller closed it
        return
    if not sys.stdin.isatty():
        if isinstance(sys.stdin, TextIOWrapper):  # a wrong byte spoils its own line only
            sys.stdin.reconfigure(errors="backslashreplace")
        yield from sys.stdin
        return
    _edit_lines()
    while True:
        try:
            yield input(_PROMPT)
        except EOFError:
            print()
            return
