"""`ulnet fleet`: ask many nodes at once, and find what none of them sees alone."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from typing import TYPE_CHECKING

from ulnet.cli.files import Unreadable, read_text
from ulnet.cli.observed import seconds
from ulnet.cli.parsers import command_parser

if TYPE_CHECKING:
    from ulnet.observe.fabricwide import Sight
    from ulnet.observe.fleet import Member, Poll

__all__ = ["main", "parser"]

_EXAMPLES = """\
example:
  ulnet fleet fabric.yaml
  ulnet fleet fabric.yaml --between 10 --json
  ulnet fleet fabric.yaml --every 60

fabric.yaml names the nodes, and beneath each how it is asked:
  nodes:
    oss1: ssh oss1 lnetctl
    client1: {socket: /run/ulnet/lnetd.sock, host: ''}
    old: {file: export.yaml}
`host` leads to the node's host (nothing: this one), where `ip -j link show` tells MTUs. Rates are those
between two readings. With --every, only what is new and what is over is printed after the first time.
Exit status: 0 nothing found, 1 an error or a warning (also notes with --strict), 2 usage, or no such file.
"""


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet fleet --help`."""
    options = parser().parse_args(argv)
    from ulnet.observe.fleet import FleetError, Poll, read_fleet

    try:
        nodes = read_fleet(read_text(options.nodes))
    except (Unreadable, FleetError) as bad:
        print(f"ulnet fleet: {bad}", file=sys.stderr)
        return 2
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: ended.set())
    poll = Poll(nodes)
    try:
        return _watch(poll, options, ended)
    finally:
        poll.close()


def parser() -> argparse.ArgumentParser:
    """Its words."""
    words = command_parser(
        "ulnet fleet", "Ask many nodes at once, and find what none of them sees alone.", _EXAMPLES
    )
    words.add_argument("nodes", metavar="NODES", help="a file that names the nodes")
    words.add_argument(
        "--timeout", type=seconds, default=10.0, metavar="S", help="seconds for each node (10)"
    )
    words.add_argument(
        "--between", type=seconds, default=2.0, metavar="S", help="seconds between two readings (2)"
    )
    words.add_argument("--every", type=seconds, metavar="S", help="again and again, until a signal")
    words.add_argument("--json", action="store_true", help="JSON, a line each time")
    words.add_argument("--strict", action="store_true", help="exit status 1 also with notes")
    return words


def _watch(poll: Poll, options: argparse.Namespace, ended: threading.Event) -> int:
    from ulnet.observe.equals import compare

    poll.read(options.timeout)
    ended.wait(options.between)
    before: set[Sight] | None = None
    bad = False
    while True:
        members = poll.read(options.timeout)
        found = compare(members)
        bad = any(options.strict or one.level != "note" for one in found)
        if options.json:
            print(json.dumps(_document(members, found)), flush=True)
        elif before is None:
            _print(members, found)
        else:
            _print_changes(before, found)
        before = set(found)
        if options.every is None or ended.wait(options.every):
            return int(bad)


def _print(members: list[Member], found: list[Sight]) -> None:
    from ulnet.observe.probe import line

    width = max(len(one.name) for one in members)
    for member in members:
        print(f"{member.name:{width}}  {line(member.snapshot)[1]}")
    print()
    for one in found:
        print(_text(one))
    if not found:
        print("nothing found that no node sees alone")
    sys.stdout.flush()


def _print_changes(before: set[Sight], found: list[Sight]) -> None:
    for one in found:
        if one not in before:
            print(f"new: {_text(one)}")
    for one in sorted(before - set(found)):
        print(f"over: {_text(one)}")
    sys.stdout.flush()


def _text(one: Sight) -> str:
    from ulnet.observe.fabricwide import names

    return f"{one.level}: {names(one.where)}: {one.text}"


def _document(members: list[Member], found: list[Sight]) -> dict[str, object]:
    from ulnet.observe.probe import line

    nodes = []
    for member in members:
        level, text = line(member.snapshot)
        nodes.append({"name": member.name, "level": level.name, "text": text})
    return {"nodes": nodes, "findings": [one._asdict() for one in found]}
