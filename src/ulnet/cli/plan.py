"""`ulnet plan`: what `ulnet apply FILE`, or an import, would change on a node, and what would be refused."""

from __future__ import annotations

import argparse
import asyncio
import sys

from ulnet.cli.apply import asked_by, show
from ulnet.cli.files import Unreadable, read_text
from ulnet.cli.parsers import command_parser
from ulnet.dlc.client import Client
from ulnet.dlc.config import read_config
from ulnet.dlc.errors import DlcError
from ulnet.node.apply import plan_config, plan_import

__all__ = ["main", "parser"]

_EXAMPLES = """\
example:
  ulnet plan /etc/lnet.conf
  ulnet plan --import more.yaml
  ulnet plan --del old.yaml

The node is asked for its configuration and told nothing: what `ulnet apply FILE` does is done to a copy of it
(a dry run). A line with + would come, - would go, ~ would change, ! would be refused. Exit status: 0 nothing
would change, 1 something would, 3 something would be refused, 2 usage, or something cannot be read.
"""


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet plan --help`."""
    options = parser().parse_args(argv)
    try:
        config = read_config(read_text(options.file), "del" if options.delete else "add")
        plan = plan_import if options.delete or options.items else plan_config
        with Client(options.socket) as client:
            found = asyncio.run(plan(asked_by(client), config))
    except (Unreadable, DlcError) as bad:
        print(f"ulnet plan: {bad}", file=sys.stderr)
        return 2
    show(found, options.json)
    return 3 if found.refused else int(bool(found.done))


def parser() -> argparse.ArgumentParser:
    """Its words."""
    words = command_parser("ulnet plan", "Show what would change, and change nothing.", _EXAMPLES)
    words.add_argument("file", help="YAML, as for `lnetctl import`; - is standard input")
    other = words.add_mutually_exclusive_group()
    other.add_argument("--import", action="store_true", dest="items", help="plan `lnetctl import`")
    other.add_argument("--del", action="store_true", dest="delete", help="plan `lnetctl import --del`")
    words.add_argument("--socket", metavar="PATH", help="control socket of the node's lnetd")
    words.add_argument("--json", action="store_true", help="JSON in place of lines")
    return words
