"""`ulnet top`: rails, peers and routes of a node, live in a terminal."""

from __future__ import annotations

import argparse
import os
import sys
import time
from functools import partial

from ulnet.cli.extras import how_to_add
from ulnet.cli.lnetctl_explain import table
from ulnet.cli.observed import add_source, seconds, source_of, whole
from ulnet.cli.output import ended_by_ctrl_c
from ulnet.cli.parsers import command_parser
from ulnet.observe.live import Live
from ulnet.observe.rows import TABLES, clock, sparkline
from ulnet.observe.snapshot import Snapshot
from ulnet.observe.source import Source

__all__ = ["main", "parser"]

_EXAMPLES = """\
example:
  ulnet top
  ulnet top --kernel --every 5
  ulnet top --print 1

Keys: 1 rails, 2 peers, 3 routes, 4 events; s sorts by the next column, r reverses, / filters, space freezes,
e or Enter explains the row and names commands to try, q quits. NO_COLOR or --no-colour: without colour.
Exit status: 0 quit, or printed; 1 the node does not answer (--print), or textual is missing; 2 usage, or no
terminal; 130 Ctrl-C.
"""
_PATIENCE = 10.0  # seconds for an explanation
_PLOT = 8  # characters


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet top --help`."""
    options = parser().parse_args(argv)
    try:
        source = source_of(options)
    except ValueError as bad:
        print(f"ulnet top: {bad}", file=sys.stderr)
        return 2
    try:
        if options.print:
            return _print(source, options.every, options.print)
        return _screen(source, options)
    finally:
        source.close()


def parser() -> argparse.ArgumentParser:
    """Its words."""
    words = command_parser("ulnet top", "Show rails, peers and routes of a node, live.", _EXAMPLES)
    add_source(words)
    words.add_argument("--every", type=seconds, default=2.0, metavar="S", help="seconds between readings (2)")
    words.add_argument(
        "--print", type=whole(1 << 20, 1), metavar="N", help="print N times in place of a screen, and end"
    )
    words.add_argument("--no-colour", action="store_true", help="no colour (as with NO_COLOR)")
    return words


def _screen(source: Source, options: argparse.Namespace) -> int:
    streams = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    if not all(one is not None and one.isatty() for one in streams) or os.environ.get("TERM") == "dumb":
        print("ulnet top: there is no terminal for its screen: `--print 1` prints one", file=sys.stderr)
        return 2
    try:
        with ended_by_ctrl_c():
            from ulnet.observe.screen import Top
    except ImportError:
        way_out = f"{how_to_add('watch')}; --print needs none"
        print(f"ulnet top: textual is missing: {way_out}", file=sys.stderr)
        return 1
    colour = not (options.no_colour or os.environ.get("NO_COLOR"))
    app = Top(source, partial(_explained, source), options.every, colour=colour)
    app.run()
    return app.return_code or 0


def _explained(source: Source, nid: str, shown: Snapshot | None) -> str:
    from ulnet.dlc.model import Explain
    from ulnet.observe.paper import explain_at

    try:
        document, notes = explain_at(source, Explain(nid), _PATIENCE, shown)
    except ValueError as refused:
        return str(refused)
    return "\n".join([*table(document, 74).splitlines(), *(f"note: {note}" for note in notes)])


def _print(source: Source, every: float, count: int) -> int:
    """Rails, peers and routes as text; the first time without rates, which take two readings."""
    live = Live(source.name)
    live.take(source.read(max(every, 1.0)), time.time())
    for _ in range(count):
        time.sleep(every)
        live.take(source.read(max(every, 1.0)), time.time())
        if live.silent:
            print(f"{live.name} does not answer: {live.missing.get('net', '')}", file=sys.stderr)
            return 1
        print(f"{live.name}  {clock(live.shown_at)}")
        for shown in TABLES[:3]:
            rows = shown.chosen(live, "", shown.sort, shown.falling)
            if not rows:
                continue
            print()
            print(" ".join(column.fit(column.head) for column in shown.columns).rstrip())
            for row in rows:
                cells = [column.fit(column.text(row)) for column in shown.columns]
                if shown.plot is not None:
                    cells.append(sparkline(shown.plot(row), _PLOT, "utf" not in sys.stdout.encoding.lower()))
                print(" ".join(cells).rstrip())
        print(flush=True)
    return 0
