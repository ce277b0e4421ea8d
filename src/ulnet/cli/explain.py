"""`ulnet explain`: which path a message would take, and why: of ulnet's nodes and kernel nodes."""

from __future__ import annotations

import argparse
import json
import shutil
import sys

from ulnet.cli.lnetctl_explain import table
from ulnet.cli.observed import add_source, seconds, source_of, whole
from ulnet.cli.parsers import command_parser
from ulnet.dlc.model import Explain

__all__ = ["main", "parser"]

_EXAMPLES = """\
example:
  ulnet explain --to 10.0.0.2@tcp
  ulnet explain --kernel --to 10.0.0.2@tcp --size 1048576
  ulnet explain --tool 'ssh oss1 lnetctl' --to 10.0.0.2@tcp
  ulnet explain --file oss1-export.yaml --to 10.0.0.2@tcp

lnetd is asked itself. What a kernel node, or the node that a file is of, would choose is worked out from its
own tables by the criteria of the Multi-Rail design document. What the tables do not say is told in notes.
Nothing is sent.
Exit status: 0 a path was found, 1 such a message would fail, or the node tells nothing, 2 usage.
"""


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet explain --help`."""
    options = parser().parse_args(argv)
    from ulnet.observe.paper import explain_at

    request = Explain(options.to, options.source, options.size, options.numa)
    try:
        source = source_of(options)
    except ValueError as bad:
        print(f"ulnet explain: {bad}", file=sys.stderr)
        return 2
    try:
        document, notes = explain_at(source, request, options.timeout)
    except ValueError as why:
        print(f"ulnet explain: {why}", file=sys.stderr)
        return 1
    finally:
        source.close()
    if options.json:
        print(json.dumps({**document["explain"], "notes": notes}))
        return 0
    width = shutil.get_terminal_size((0, 0)).columns if sys.stdout.isatty() else 0
    print(table(document, width), end="")
    for note in notes:
        print(f"note: {note}")
    return 0


def parser() -> argparse.ArgumentParser:
    """Its words."""
    words = command_parser(
        "ulnet explain", "Tell which path a message would take, and what eliminated the others.", _EXAMPLES
    )
    words.add_argument("--to", required=True, metavar="NID", help="a NID of the peer")
    words.add_argument("--from", dest="source", metavar="NID", help="local NID that the message is bound to")
    words.add_argument("--size", type=whole(1 << 20), default=0, metavar="N", help="bytes, up to 1048576 (0)")
    words.add_argument("--numa", type=whole(4096), default=0, metavar="N", help="CPT of its memory (0)")
    add_source(words)
    words.add_argument("--timeout", type=seconds, default=10.0, metavar="S", help="seconds to wait (10)")
    words.add_argument("--json", action="store_true", help="JSON in place of a table")
    return words
