"""`ulnet diff`: two configurations, or one and what a node does, compared by what they mean."""

from __future__ import annotations

import argparse
import json
import re
import sys

from ulnet.cli.files import Unreadable, read_text
from ulnet.dlc.client import Client, as_mapping
from ulnet.dlc.config import read_config
from ulnet.dlc.differences import Change, Meaning, compare, meaning_of
from ulnet.dlc.errors import DlcError
from ulnet.dlc.legacy import LegacyError
from ulnet.dlc.model import Export
from ulnet.dlc.modprobe import read_modprobe
from ulnet.dlc.yaml_out import emit_document

__all__ = ["export_of", "main", "meaning_of_text", "parser", "print_changes"]

_EXAMPLES = """\
example:
  ulnet diff old.yaml new.yaml
  ulnet diff /etc/lnet.conf

With one file it is compared with the node that lnetd is. A line with - is in the first only, + in the
second only, ~ has another value there. What a file does not say is the default. Exit status: 0 the same,
1 different, 2 something cannot be read.
"""


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet diff --help`."""
    options = parser().parse_args(argv)
    try:
        before = meaning_of_text(options.file, read_text(options.file))
        if options.other is not None:
            after = meaning_of_text(options.other, read_text(options.other))
        else:
            after = meaning_of_text("lnetd", export_of(options.socket))
    except (Unreadable, DlcError) as bad:
        print(f"ulnet diff: {bad}", file=sys.stderr)
        return 2
    changes = compare(before, after)
    print_changes(changes, options.json)
    return int(bool(changes))


def parser() -> argparse.ArgumentParser:
    """Its words."""
    words = argparse.ArgumentParser(
        prog="ulnet diff",
        description="Compare two configurations by what they mean.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    words.add_argument("file", help="YAML or module parameters; - is standard input")
    words.add_argument("other", nargs="?", help="the other file (the node's configuration)")
    words.add_argument("--socket", metavar="PATH", help="control socket of the node's lnetd")
    words.add_argument("--json", action="store_true", help="a JSON list in place of lines")
    return words


def export_of(socket: str | None) -> str:
    """A node's configuration as a file. Raises DlcError."""
    with Client(socket) as client:
        reply = client.request(Export(backup=True))
    if reply.errors:
        item = reply.errors[0]
        raise DlcError(item.errno, item.descr, verb=item.verb, entity=item.entity)
    return emit_document(as_mapping(reply))


def meaning_of_text(name: str, text: str) -> Meaning:
    """What a file means. Raises Unreadable."""
    if re.search(r"^\s*options\s", text, re.MULTILINE):
        try:
            return meaning_of(read_modprobe(text).requests)
        except LegacyError as bad:
            raise Unreadable(f"{name}: {bad}") from None
    config = read_config(text)
    if config.errors:
        raise Unreadable("\n".join(f"{name}: {item.descr}" for item in config.errors))
    return meaning_of(step.request for step in config.steps)


def print_changes(changes: list[Change], as_json: bool) -> None:
    """One line each, or a JSON list."""
    if as_json:
        print(json.dumps([change._asdict() for change in changes], indent=1))
        return
    for change in changes:
        print(change)
