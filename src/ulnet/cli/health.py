"""`ulnet health`: one line on how a node is, for monitoring tools."""

from __future__ import annotations

import argparse
import json
import sys

from ulnet.cli.observed import add_source, seconds, source_of
from ulnet.cli.parsers import command_parser

__all__ = ["main", "parser"]

_EXAMPLES = """\
example:
  ulnet health
  ulnet health --kernel --timeout 5
  ulnet health --tool 'ssh oss1 lnetctl'

Exit status: 0 all is well; 1 warning: an NI, a peer NI or a gateway is not well; 2 critical: a net is down,
or none of the gateways to one is up; 3 nothing is known: no answer in time, or wrong words.
"""


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet health --help`."""
    try:
        options = parser().parse_args(argv)
    except SystemExit as ended:
        return 3 if ended.code else 0
    from ulnet.observe.probe import judge, line

    try:
        source = source_of(options)
    except ValueError as bad:
        print(f"ulnet health: {bad}", file=sys.stderr)
        return 3
    try:
        snapshot = source.read(options.timeout)
    finally:
        source.close()
    level, text = line(snapshot)
    if options.json:
        found = [{"level": one.level.name, "text": one.text} for one in judge(snapshot)]
        print(json.dumps({"node": snapshot.node, "level": level.name, "findings": found}))
    else:
        print(text)
    return level


def parser() -> argparse.ArgumentParser:
    """Its words."""
    words = command_parser("ulnet health", "Tell in one line how a node is.", _EXAMPLES)
    add_source(words)
    words.add_argument("--timeout", type=seconds, default=10.0, metavar="S", help="seconds to wait (10)")
    words.add_argument("--json", action="store_true", help="all findings as JSON")
    return words
