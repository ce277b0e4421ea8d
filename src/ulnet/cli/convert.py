"""`ulnet convert`: module parameters, and YAML of older releases or of the documents, as today's YAML."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator

from ulnet.cli.files import Unreadable, read_text
from ulnet.cli.parsers import command_parser
from ulnet.dlc import legacy_text
from ulnet.dlc.config import read_config
from ulnet.dlc.legacy import LegacyError
from ulnet.dlc.model import NetMatch, Request, RouteAdd
from ulnet.dlc.modprobe import Parameters, read_modprobe
from ulnet.dlc.writing import document_of
from ulnet.dlc.yaml_out import emit_document

__all__ = ["main", "parser"]

_EXAMPLES = """\
example:
  ulnet convert /etc/modprobe.d/lustre.conf > /etc/lnet.conf
  ulnet convert --ip2nets 'tcp(eth0) 192.168.0.*; tcp1 10.*.*.*'
  ulnet convert -r /etc/lnet_routes.conf --default-hop 1
  ulnet convert old.yaml

A SOURCE is a file, - for standard input, or the text itself; without any, standard input is read if it is no
terminal. Options may be given several times, and all sources add up.
The form of a source without option is found by looking at it: lines that begin with "options" are module
parameters, sections are YAML; else it is networks=, ip2nets= or routes=, with this name or without, or routes
as lustre_routes_config has them. What has no place in the result is told on standard error.
Exit status: 0 done, 1 nothing to convert, 2 an error, whose first words name its kind.
"""
_FILE_NAME = re.compile(r"[^\s(){}=;#]*[./][^\s(){}=;#]*\Z")
_OPTIONS = re.compile(r"^[^\S\n]*options\s", re.MULTILINE)
_SECTION = re.compile(r"^(---|[A-Za-z_][A-Za-z0-9_ -]*:(?=\s|\Z)(?!\s*\{[^{}]*gateway))", re.MULTILINE)


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet convert --help`."""
    options = parser().parse_args(argv)
    try:
        requests = list(_requests(options))
    except Unreadable as bad:
        return _fail(f"error: unreadable: {bad}", 2)
    except LegacyError as bad:
        return _fail(f"error: {bad.kind}: {bad}", 2)
    document = document_of(requests)
    if not document:
        return _fail("nothing to convert: no source names a net, a route or a setting", 1)
    _warn_of_order(requests)
    print(emit_document(document), end="")
    return 0


def parser() -> argparse.ArgumentParser:
    """Its words."""
    words = command_parser(
        "ulnet convert", "Write configuration of any age and form as today's YAML.", _EXAMPLES
    )
    words.add_argument(
        "source", nargs="*", metavar="SOURCE", help="module parameters, modprobe file, or YAML"
    )
    sources = (
        ("-m", "--modprobe", "a modprobe file"),
        ("-i", "--ip2nets", "what the module parameter ip2nets= holds"),
        ("-r", "--routes", "what routes= holds, or routes in the form of lustre_routes_config"),
        ("-n", "--networks", "what networks= holds"),
    )
    for short, name, text in sources:
        words.add_argument(short, name, metavar="SOURCE", action="append", default=[], help=text)
    words.add_argument(
        *("--default-hop",),
        metavar="N",
        nargs="?",
        const="1",
        help="hops of routes that give none (1); without this option they stay undefined",
    )
    return words


def _fail(text: str, status: int) -> int:
    print(f"ulnet convert: {text}", file=sys.stderr)
    return status


def _requests(options: argparse.Namespace) -> Iterator[Request]:
    """All that the sources ask for. Raises Unreadable and LegacyError."""
    sources, hop = list(options.source), -1
    if options.default_hop is not None:
        if re.search(r"[\s@({=]", options.default_hop):  # the word behind it is a source
            sources.insert(0, options.default_hop)
            options.default_hop = "1"
        hop = legacy_text.hop_count(options.default_hop, "--default-hop")
    named = [("modprobe", one) for one in options.modprobe]
    named += [(kind, one) for kind in legacy_text.KINDS for one in getattr(options, kind)]
    if not sources and not named:
        if sys.stdin is not None and sys.stdin.isatty():
            raise LegacyError("no source is named: write a file, text, or - for standard input", "usage")
        sources = ["-"]
    for kind, source in [*named, *(("", source) for source in sources)]:
        for request in _read(kind, source):
            if isinstance(request, RouteAdd) and request.hop == -1:
                request.hop = hop
            yield request


def _read(kind: str, source: str) -> list[Request]:
    text = source
    is_file = source == "-" or os.path.exists(source) or _FILE_NAME.match(source)
    if is_file:
        text = read_text(source)
    if kind in legacy_text.KINDS:
        return _where(source if is_file else "", lambda: legacy_text.read_as(kind, text))
    if kind == "modprobe" or _OPTIONS.search(text):
        return _where(source if is_file else "", lambda: _told(read_modprobe(text, together=True)))
    if not _SECTION.search(text):
        return _where(source if is_file else "", lambda: legacy_text.read_text(text))
    config = read_config(text)
    if config.errors:
        raise LegacyError("\n".join(f"{source}: {item.descr}" for item in config.errors), "bad YAML")
    return [step.request for step in config.steps]


def _where(name: str, read: Callable[[], list[Request]]) -> list[Request]:
    """What is wrong with a file names it."""
    try:
        return read()
    except LegacyError as bad:
        raise LegacyError(f"{name}: {bad}" if name else str(bad), bad.kind) from None


def _told(parameters: Parameters) -> list[Request]:
    for note in parameters.notes:
        print(f"ulnet convert: note: {note}", file=sys.stderr)
    for text in parameters.unknown:
        print(f"ulnet convert: warning: {text}", file=sys.stderr)
    for driver, own in (("TCP", parameters.tcp), ("o2ib", parameters.o2ib)):
        for name, value in own.items():
            text = f"{name}={int(value)} is the {driver} driver's own, for which YAML has no word"
            print(f"ulnet convert: note: {text}: start lnetd with --modprobe", file=sys.stderr)
    return parameters.requests


def _warn_of_order(requests: list[Request]) -> None:
    """As a module parameter all rules for a net that match count; in YAML the first that matches."""
    matches = [one for one in requests if isinstance(one, NetMatch) and not one.first_wins]
    nets = [rule.net for match in matches for rule in match.rules]
    for net in sorted({net for net in nets if nets.count(net) > 1}):
        print(
            f"ulnet convert: note: {nets.count(net)} rules are for net {net}: as module parameters "
            "all that match a host add NIs, in YAML the first that matches is the only one",
            file=sys.stderr,
        )
