"""`ulnet which-nid`: the nearest of some NIDs, as the node that lnetd is sees them (LNetDist)."""

from __future__ import annotations

import argparse
import json
import sys

from ulnet.cli.parsers import command_parser
from ulnet.dlc.calls import distances
from ulnet.dlc.client import Client
from ulnet.dlc.errors import DlcError

__all__ = ["main", "parser"]

_EXAMPLES = """\
example:
  ulnet which-nid 10.0.0.2@tcp 192.168.0.2@tcp1
  ulnet which-nid --all 10.0.0.[2-3]@tcp 10.1.0.2@tcp7

0 hops is a NID of the node itself, 1 one on a net of its own; over gateways there are more. Of equals that is
taken whose net stands first in `lnetctl net show`. Exit status: 0 done, 1 none can be reached, 2 usage.
"""


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet which-nid --help`."""
    options = parser().parse_args(argv)
    try:
        with Client(options.socket) as node:
            found = node.call(distances(options.nid))
    except DlcError as refused:
        print(f"ulnet which-nid: {refused.descr}", file=sys.stderr)
        return 1
    if options.json:
        keys = ("nid", "hops", "source")
        print(json.dumps([{key: getattr(one, key) for key in keys} for one in found]))
    elif options.all:
        for one in found:
            print(f"{one.nid}  {one.hops} hop{'s' * (one.hops != 1)} from {one.source}")
    else:
        print(found[0].nid)
    return 0


def parser() -> argparse.ArgumentParser:
    """Its words."""
    words = command_parser(
        "ulnet which-nid", "Print which of some NIDs is the nearest one to the node.", _EXAMPLES
    )
    words.add_argument("nid", nargs="+", help="NIDs, also lists and ranges: 10.0.0.[1-4]@tcp")
    words.add_argument("--socket", metavar="PATH", help="control socket of the node's lnetd")
    words.add_argument("--all", action="store_true", help="all that can be reached, the nearest first")
    words.add_argument("--json", action="store_true", help="a JSON list of all")
    return words
