"""`ulnet plan`: what `lnetctl import FILE` would change on a node, and what it would refuse."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from ulnet.cli.diff import meaning_of_text
from ulnet.cli.files import Unreadable, read_text
from ulnet.dlc.client import Client, as_mapping
from ulnet.dlc.config import Config, read_config
from ulnet.dlc.differences import Change, compare
from ulnet.dlc.errors import DlcError
from ulnet.dlc.importing import importing
from ulnet.dlc.model import Export, NumaShow, Request
from ulnet.dlc.protocol import HEADER_SIZE, Answer, Reply, decode_reply, encode_reply
from ulnet.dlc.yaml_out import emit_document
from ulnet.host import HostError, Link, links
from ulnet.nid import NetType
from ulnet.node.admin import Admin
from ulnet.node.dry_run import dry_run, invented_links

__all__ = ["main", "parser"]

_EXAMPLES = """\
example:
  ulnet plan /etc/lnet.conf
  ulnet plan --del old.yaml

The node is asked for its configuration and told nothing: the file is imported into a copy of it (a dry run).
A line with + would come, - would go, ~ would change, ! would be refused. Exit status: 0 nothing would change,
1 something would, 3 something would be refused, 2 usage, or something cannot be read.
"""


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet plan --help`."""
    options = parser().parse_args(argv)
    try:
        config = read_config(read_text(options.file), "del" if options.delete else "add")
        current, cpts = _ask(options.socket)
        changes, refused = asyncio.run(_plan(current, config, cpts, links()))
    except (Unreadable, DlcError, HostError) as bad:
        print(f"ulnet plan: {bad}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps({"changes": [change._asdict() for change in changes], "refused": refused}, indent=1))
    else:
        for change in changes:
            print(change)
        for text in refused:
            print(f"! {text}")
    return 3 if refused else int(bool(changes))


def parser() -> argparse.ArgumentParser:
    """Its words."""
    words = argparse.ArgumentParser(
        prog="ulnet plan",
        description="Show what an import would change, and change nothing.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    words.add_argument("file", help="YAML, as for `lnetctl import`; - is standard input")
    words.add_argument("--del", action="store_true", dest="delete", help="plan `import --del`")
    words.add_argument("--socket", metavar="PATH", help="control socket of the node's lnetd")
    words.add_argument("--json", action="store_true", help="JSON in place of lines")
    return words


def _ask(socket: str | None) -> tuple[Config, int]:
    """A node's whole configuration, and how many CPTs it has."""
    with Client(socket) as client:
        told = [client.request(request) for request in (Export(), NumaShow())]
    for reply in told:
        for item in reply.errors:
            raise DlcError(item.errno, item.descr, verb=item.verb, entity=item.entity)
    export, numa = (as_mapping(reply) for reply in told)
    return read_config(emit_document(export)), len(numa["numa"]["CPTs"])


async def _plan(
    current: Config, config: Config, cpts: int, host: Sequence[Link]
) -> tuple[list[Change], list[str]]:
    here = invented_links([step.request for step in current.steps], host)
    async with dry_run(here, cpts=cpts, nets=[NetType.TCP]) as admin:
        await _do(admin, current)
        before = await _written(admin)
        refused = await _do(admin, config)
        after = await _written(admin)
    changes = compare(meaning_of_text("before", before), meaning_of_text("after", after))
    return changes, refused


async def _do(admin: Admin, config: Config) -> list[str]:
    work = importing(config)
    try:
        request = next(work)
        while True:
            request = work.send(await _reply(admin, request))
    except StopIteration as end:
        return [f"{item.descr} (errno {item.errno})" for item in end.value.errors]


async def _reply(admin: Admin, request: Request) -> Reply:
    try:
        answer = await admin.handle(request)
    except DlcError as refused:
        answer = Answer(errors=[refused.item])
    return decode_reply(encode_reply(answer)[HEADER_SIZE:])


async def _written(admin: Admin) -> str:
    answer = await admin.handle(Export(backup=True))
    document: dict[str, Any] = msgspec.to_builtins(answer.document, str_keys=False)
    return emit_document(document)
