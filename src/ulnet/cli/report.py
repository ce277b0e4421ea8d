"""`ulnet report`: what happened to a node, to which rail, and what to look at, from a history."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from datetime import datetime, timedelta

from ulnet.cli.files import write_text
from ulnet.cli.parsers import command_parser
from ulnet.cli.record import DEFAULT_FILE
from ulnet.nid.errors import escaped

__all__ = ["main", "moment_of", "parser"]

_EXAMPLES = """\
example:
  ulnet report --since yesterday
  ulnet report --since 2h --html report.html /var/lib/ulnet/history.db

A moment is `2h` (ago; also s, min, d), `today`, `yesterday`, or a local time as 2026-11-24T08:00.
Exit status: 0 nothing to look at, 1 something is, 2 usage, or no such history.
"""
_UNITS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet report --help`."""
    options = parser().parse_args(argv)
    from ulnet.observe.history import History, HistoryError
    from ulnet.observe.page import as_html, as_json, as_text
    from ulnet.observe.summary import summarize

    if options.until <= options.since:
        print("ulnet report: --until is not behind --since", file=sys.stderr)
        return 2
    try:
        with History(options.file) as history:
            summary = summarize(history, options.since, options.until)
    except HistoryError as failed:
        print(f"ulnet report: {escaped(str(failed))}", file=sys.stderr)
        return 2
    if options.html is not None:
        try:
            write_text(options.html, as_html(summary))
        except OSError as failed:
            print(f"ulnet report: {options.html}: {failed.strerror}", file=sys.stderr)
            return 2
    if options.json:
        print(json.dumps(as_json(summary)))
    else:
        print(escaped(as_text(summary), keep="\n"), end="")
    return 1 if summary.look_at else 0


def parser() -> argparse.ArgumentParser:
    """Its words."""
    words = command_parser(
        "ulnet report", "Tell what happened to a node, from what `ulnet record` kept.", _EXAMPLES
    )
    words.add_argument("file", nargs="?", default=DEFAULT_FILE, metavar="FILE", help=f"({DEFAULT_FILE})")
    words.add_argument("--since", type=moment_of, default=moment_of("1d"), metavar="MOMENT", help="(1d)")
    words.add_argument("--until", type=moment_of, default=time.time(), metavar="MOMENT", help="(now)")
    words.add_argument("--html", metavar="FILE", help="also write a page with plots")
    words.add_argument("--json", action="store_true", help="JSON in place of text")
    return words


def moment_of(text: str) -> float:
    """Seconds since 1970. Raises argparse.ArgumentTypeError."""
    today = datetime.now().replace(hour=0, minute=0, second=0, microsecond=0)
    if text in ("today", "yesterday"):
        return (today - timedelta(days=text == "yesterday")).timestamp()
    ago = re.fullmatch(r"(\d{1,6}(?:\.\d+)?)(s|min|m|h|d|w)", text)
    if ago:
        return time.time() - float(ago[1]) * _UNITS[ago[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no moment: 2h, 3d, today, yesterday, 2026-11-24T08:00"
        ) from None
