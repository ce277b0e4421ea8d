"""`ulnet convert`: module parameters, and YAML of older releases or of the documents, as today's YAML."""

from __future__ import annotations

import argparse
import re
import sys

from ulnet.cli.files import Unreadable, read_text
from ulnet.dlc.config import read_config
from ulnet.dlc.legacy import LegacyError
from ulnet.dlc.model import NetMatch, Request
from ulnet.dlc.modprobe import Parameters, module_requests, read_modprobe
from ulnet.dlc.writing import document_of
from ulnet.dlc.yaml_out import emit_document

__all__ = ["main", "parser"]

_EXAMPLES = """\
example:
  ulnet convert /etc/modprobe.d/lustre.conf > /etc/lnet.conf
  ulnet convert --ip2nets 'tcp(eth0) 192.168.0.*; tcp1 10.*.*.*'
  ulnet convert old.yaml

The form of a FILE is found by looking at it: lines that begin with "options" are module parameters, all else
is YAML. What has no place in the result is told on standard error. Exit status: 0 done, 1 something cannot be
read, 2 usage.
"""


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet convert --help`."""
    options = parser().parse_args(argv)
    given = {
        name: getattr(options, name) for name in ("networks", "ip2nets", "routes") if getattr(options, name)
    }
    if bool(options.file) == bool(given):
        print("ulnet convert: give either files, or --networks, --ip2nets, --routes", file=sys.stderr)
        return 2
    requests: list[Request] = []
    try:
        if given:
            requests += _told(module_requests(given))
        for name in options.file:
            requests += _read(name)
    except (Unreadable, LegacyError) as bad:
        print(f"ulnet convert: {bad}", file=sys.stderr)
        return 1
    _warn_of_order(requests)
    print(emit_document(document_of(requests)), end="")
    return 0


def parser() -> argparse.ArgumentParser:
    """Its words."""
    words = argparse.ArgumentParser(
        prog="ulnet convert",
        description="Write configuration of any age and form as today's YAML.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    words.add_argument("file", nargs="*", help="modprobe or YAML files; - is standard input")
    words.add_argument("--networks", metavar="TEXT", help="the module parameter networks=")
    words.add_argument("--ip2nets", metavar="TEXT", help="the module parameter ip2nets=")
    words.add_argument("--routes", metavar="TEXT", help="the module parameter routes=")
    return words


def _read(name: str) -> list[Request]:
    text = read_text(name)
    try:
        if re.search(r"^\s*options\s", text, re.MULTILINE):
            return _told(read_modprobe(text))
    except LegacyError as bad:
        raise LegacyError(f"{name}: {bad}") from None
    config = read_config(text)
    if config.errors:
        raise Unreadable("\n".join(f"{name}: {item.descr}" for item in config.errors))
    return [step.request for step in config.steps]


def _told(parameters: Parameters) -> list[Request]:
    for note in parameters.notes:
        print(f"ulnet convert: note: {note}", file=sys.stderr)
    for text in parameters.unknown:
        print(f"ulnet convert: warning: {text}", file=sys.stderr)
    return parameters.requests


def _warn_of_order(requests: list[Request]) -> None:
    """As a module parameter all rules for a net that match count; in YAML the first that matches."""
    for request in requests:
        if isinstance(request, NetMatch) and not request.first_wins:
            nets = [rule.net for rule in request.rules]
            for net in sorted({net for net in nets if nets.count(net) > 1}):
                print(
                    f"ulnet convert: note: {nets.count(net)} rules are for net {net}: as module parameters "
                    "all that match a host add NIs, in YAML the first that matches is the only one",
                    file=sys.stderr,
                )
