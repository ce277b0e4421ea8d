"""`ulnet record`: keep the history of a node in a file, for `ulnet report`."""

from __future__ import annotations

import argparse
import itertools
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ulnet.cli.observed import add_source, source_of, whole
from ulnet.cli.parsers import command_parser
from ulnet.nid.errors import escaped

if TYPE_CHECKING:
    from ulnet.observe.changes import Event

__all__ = ["DEFAULT_FILE", "main", "parser"]

DEFAULT_FILE = "ulnet-history.db"

_EXAMPLES = """\
example:
  ulnet record
  ulnet record --kernel --every 30 --keep 90 /var/lib/ulnet/history.db

Reads the node until a signal ends it, and keeps what its rails carried and what happened to them. A node that
does not answer is recorded as that. Exit status: 0 ended by a signal, 1 the file cannot be written, 2 usage.
"""


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet record --help`."""
    options = parser().parse_args(argv)
    from ulnet.observe.history import History, HistoryError
    from ulnet.observe.recorder import Clock, record

    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: ended.set())
    try:
        source = source_of(options)
    except ValueError as bad:
        print(f"ulnet record: {bad}", file=sys.stderr)
        return 2
    try:
        with History(options.history, create=True, max_size=options.max_size << 20) as history:
            print(f"recording {source.name} into {options.history}", flush=True)
            if not ended.is_set():
                clock = Clock(time.time, time.monotonic, ended.wait)
                told = _verbose() if options.verbose else _silent
                record(source, history, options.every, options.keep * 86400, clock, told)
    except HistoryError as failed:
        print(f"ulnet record: {escaped(str(failed))}", file=sys.stderr)
        return 1
    finally:
        source.close()
    return 0


def parser() -> argparse.ArgumentParser:
    """Its words."""
    words = command_parser("ulnet record", "Keep the history of a node in a file.", _EXAMPLES)
    words.add_argument(
        "history", nargs="?", default=DEFAULT_FILE, type=_file, metavar="FILE", help=f"({DEFAULT_FILE})"
    )
    add_source(words)
    words.add_argument("--every", type=_between(0.1, 3600), default=10.0, metavar="S", help="seconds (10)")
    words.add_argument("--keep", type=_between(0.01, 3650), default=30.0, metavar="DAYS", help="days (30)")
    words.add_argument(
        "--max-size",
        type=whole(1 << 20, 1),
        default=256,
        metavar="MIB",
        help="MiB of the file and its journal; then the oldest goes (256)",
    )
    words.add_argument("--verbose", action="store_true", help="say what is kept")
    return words


def _silent(events: list[Event]) -> None:
    pass


def _verbose() -> Callable[[list[Event]], None]:
    count = itertools.count(1)

    def tell(events: list[Event]) -> None:
        for event in events:
            print(escaped(f"{event.subject}: {event.kind} {event.after} {event.why}".rstrip()))
        print(f"reading {next(count)}", flush=True)

    return tell


def _file(text: str) -> str:
    if Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a folder: name a file in it")
    return text


def _between(least: float, most: float) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: it takes a number from {least:g} to {most:g}")
        return value

    return number
