"""`ulnet trace`: follow a running node; which pairs of NIDs carry its messages, and why that changes."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable

from ulnet.cli.parsers import command_parser
from ulnet.cli.trace_report import Report, Row, as_text
from ulnet.dlc.client import Client, as_mapping
from ulnet.dlc.documents_trace import TraceDocument
from ulnet.dlc.errors import DlcError
from ulnet.dlc.model import Trace
from ulnet.dlc.protocol import document_of

__all__ = ["main"]

_EXAMPLES = """\
example:
  ulnet trace
  ulnet trace --to 192.168.110.12@tcp --all --json

Every interval has a line for each pair that carried messages; + marks a pair that did not carry those of this
peer in the interval before, - one that does not any more, each with the criterion that decided: those of
`lnetctl explain`. Following costs the node little, and nothing after it has ended. With --all, messages
beyond some 20000 a second are only counted. Ends with Ctrl-C. Exit status: 0 after --count intervals, 1 if
the node gives no answer, 2 usage.
"""


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet trace --help`."""
    options = _parser().parse_args(argv)
    report = Report()
    left = options.count
    interval = options.interval or (0.2 if options.all else 1.0)
    try:
        with Client(options.socket) as client:
            report.rows(_read(client, options, report))  # where it begins: nothing to tell yet
            while left is None or left > 0:
                time.sleep(interval)
                _print(report.rows(_read(client, options, report)), options.json)
                left = None if left is None else left - 1
    except DlcError as refused:
        print(f"ulnet trace: {refused.item.descr}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "ulnet trace",
        "Follow a running node: which pair of NIDs carries what, and why that changes.",
        _EXAMPLES,
    )
    parser.add_argument("--to", metavar="NID", help="only messages to the peer that has this NID")
    parser.add_argument("--all", action="store_true", help="a line for each message")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--interval", type=_seconds, metavar="S", help="seconds (1; with --all 0.2)")
    parser.add_argument("--count", type=_natural, metavar="N", help="end after so many intervals")
    parser.add_argument("--socket", metavar="PATH", help="the node's control socket (ULNET_SOCKET)")
    return parser


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.05 <= seconds <= 5:
        raise argparse.ArgumentTypeError(f"{text}: give 0.05 to 5 seconds")
    return seconds


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text)):
        raise argparse.ArgumentTypeError(f"{text}: give a number from 1 up")
    return int(text)


def _read(client: Client, options: argparse.Namespace, report: Report) -> dict[str, object]:
    request = Trace(options.to, options.all, session=report.session, cursor=report.cursor)
    reply = client.request(request)
    if reply.errors:
        refused = reply.errors[0]
        raise DlcError(refused.errno, refused.descr, verb=refused.verb, entity=refused.entity)
    document_of(reply.result, TraceDocument)  # all that is read of it is there
    document: dict[str, object] = as_mapping(reply)["trace"]
    return document


def _print(rows: Iterable[Row], as_json: bool) -> None:
    for row in rows:
        print(json.dumps(row) if as_json else as_text(row))
    sys.stdout.flush()
