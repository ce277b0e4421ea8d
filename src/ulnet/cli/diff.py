"""`ulnet diff`: two configurations, or one and what a node does, compared by what they mean."""

from __future__ import annotations

import argparse
import json
import re
import sys

from ulnet.cli.files import Unreadable, read_text
from ulnet.cli.observed import add_source, source_of
from ulnet.cli.parsers import command_parser
from ulnet.dlc.config import read_config
from ulnet.dlc.differences import Change, Meaning, compare, meaning_of
from ulnet.dlc.legacy import LegacyError
from ulnet.dlc.modprobe import read_modprobe

__all__ = ["main", "meaning_of_text", "parser", "print_changes"]

_EXAMPLES = """\
example:
  ulnet diff old.yaml new.yaml
  ulnet diff /etc/lnet.conf
  ulnet diff --kernel /etc/lnet.conf

With one file it is compared with the node: lnetd, or with --kernel or --tool a kernel node. A line with - is
in the first only, + in the second only, ~ has another value there. What a file does not say is the default.
Exit status: 0 the same, 1 different, 2 something cannot be read.
"""


_PATIENCE = 30.0  # seconds for the node to tell its configuration


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet diff --help`."""
    options = parser().parse_args(argv)
    try:
        before = meaning_of_text(options.before, read_text(options.before))
        if options.other is not None:
            after = meaning_of_text(options.other, read_text(options.other))
        else:
            after = _of_node(options)
    except (Unreadable, ValueError) as bad:
        print(f"ulnet diff: {bad}", file=sys.stderr)
        return 2
    changes = compare(before, after)
    print_changes(changes, options.json)
    return int(bool(changes))


def parser() -> argparse.ArgumentParser:
    """Its words."""
    words = command_parser("ulnet diff", "Compare two configurations by what they mean.", _EXAMPLES)
    words.add_argument("before", metavar="FILE", help="YAML or module parameters; - is standard input")
    words.add_argument("other", nargs="?", metavar="OTHER", help="the other file (the node's configuration)")
    add_source(words, file=False)
    words.add_argument("--json", action="store_true", help="a JSON list in place of lines")
    return words


def _of_node(options: argparse.Namespace) -> Meaning:
    """Raises Unreadable, ValueError."""
    source = source_of(options)
    try:
        return meaning_of_text(source.name, source.configuration(_PATIENCE))
    finally:
        source.close()


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
