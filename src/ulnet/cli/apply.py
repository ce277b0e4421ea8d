"""`ulnet apply`: bring a running node to a configuration file; `ulnet plan` shows what that would do."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

from ulnet.cli.diff import print_changes
from ulnet.cli.files import Unreadable, read_text
from ulnet.cli.parsers import command_parser
from ulnet.dlc.client import Client
from ulnet.dlc.config import Config, read_config
from ulnet.dlc.deadlines import deadline_of
from ulnet.dlc.differences import Change
from ulnet.dlc.errors import DlcError
from ulnet.dlc.model import Request
from ulnet.dlc.protocol import Reply
from ulnet.node.apply import Applied, Ask, Tell, apply_config

__all__ = ["applied", "asked_by", "main", "parser", "show"]

_EXAMPLES = """\
example:
  ulnet plan /etc/lnet.conf
  ulnet apply /etc/lnet.conf

FILE is YAML as for `lnetctl import`, and is the whole configuration: what it does not say is the default, and
what it does not name goes, except what lnetd's options name (--modprobe, --networks, --ip2nets, --routes,
--allow, --deny, --selftest). The interfaces are those of the host, or network namespace, where lnetd runs,
wherever this command does. What is as FILE says is not touched. What comes is added before what goes is
deleted, and what goes ends its work first. An NI is taken away and added again for another NID only; all NIs
of a net are for other credits, peer_credits or peer_buffer_credits, and with tcp bonding for other
interfaces: messages to their NIDs fail meanwhile, others take other nets. The order of NIs stays. A FILE of
which a fresh node would refuse anything is refused as a whole.

A line with + came, - went, ~ changed, ! was refused. Exit status: 0 the node is as FILE says, 3 something was
refused, 2 usage, or something cannot be read.
"""


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet apply --help`."""
    options = parser().parse_args(argv)
    try:
        config = read_config(read_text(options.file))
        found = applied(config, options.socket, (lambda change: None) if options.json else _print)
    except (Unreadable, DlcError) as bad:
        print(f"ulnet apply: {bad}", file=sys.stderr)
        return 2
    show(found, options.json, told=True)
    return 3 if found.refused else 0


def parser() -> argparse.ArgumentParser:
    """Its words."""
    words = command_parser("ulnet apply", "Bring a running node to a configuration file.", _EXAMPLES)
    words.add_argument("file", help="YAML, as for `lnetctl import`; - is standard input")
    words.add_argument("--socket", metavar="PATH", help="control socket of the node's lnetd")
    words.add_argument("--json", action="store_true", help="JSON in place of lines")
    return words


def _print(change: Change) -> None:
    print(change, flush=True)


def show(found: Applied, as_json: bool, told: bool = False) -> None:
    """One line each, or JSON. `told`: the lines of what was changed are printed already."""
    refused = [f"{item.descr} (errno {item.errno})" for item in found.refused]
    if as_json:
        print(
            json.dumps({"changes": [change._asdict() for change in found.done], "refused": refused}, indent=1)
        )
        return
    print_changes([] if told else found.done, False)
    for text in refused:
        print(f"! {text}")
    if found == Applied([], []):
        print("nothing to change")


def applied(config: Config, socket: str | None, tell: Tell) -> Applied:
    """Bring the node behind a control socket to a file. Raises DlcError."""
    with Client(socket) as client:
        return asyncio.run(apply_config(asked_by(client), config, tell))


def asked_by(client: Client) -> Ask:
    """Requests over a control socket."""

    async def ask(request: Request) -> Reply:
        return client.request(request, deadline_of(request))

    return ask
