"""`ulnet check`: what is wrong with configuration files, found without a node."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys

from ulnet.cli.check_routes import states_given
from ulnet.cli.check_rules import NodeView, across, examine
from ulnet.cli.files import Unreadable, read_text
from ulnet.cli.findings import Finding, print_findings, status_of
from ulnet.cli.host_facts import FactsError, read_facts
from ulnet.cli.observed import add_source, names_node, source_of
from ulnet.cli.parsers import command_parser
from ulnet.core.status import LNetError
from ulnet.dlc.config import Config, Step, read_config
from ulnet.dlc.legacy import LegacyError
from ulnet.dlc.modprobe import read_modprobe
from ulnet.host import HostError, Link, links
from ulnet.lnd.o2ib import O2ibParams
from ulnet.lnd.tcp.params import TcpParams

__all__ = ["main", "parser"]

_EXAMPLES = """\
example:
  ulnet check /etc/lnet.conf
  ulnet check --live /etc/lnet.conf
  ulnet check --host node7-interfaces.yaml node7.yaml
  ulnet check node1.yaml node2.yaml node3.yaml
  ulnet check --kernel --live

Each FILE is the configuration of one node (YAML, or module parameters); several are also compared with one
another. A node that runs, lnetd or the kernel's, is one of them by its own backup. Each is run dry, on a node
without drivers: what a real one would refuse is refused in its words.
--host FILE tells the interfaces: `interfaces: {eth0: 10.0.0.1/24, eth1: [10.1.0.1/24, fd00::1/64]}`.
Exit status: 0 nothing wrong, 1 errors (with --strict also warnings), 2 usage, or a file that cannot be read.
"""


_PATIENCE = 30.0  # seconds for a node to tell its configuration


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet check --help`."""
    words = parser()
    options = words.parse_args(argv)
    if not options.files and not names_node(options):
        words.error("name a file, or a node by --socket, --kernel or --tool")
    try:
        facts = _facts(options)
        files = [(name, *_read(name, read_text(name))) for name in options.files]
        if names_node(options):
            files.append(_node(options))
    except (Unreadable, FactsError, HostError, ValueError) as bad:
        print(f"ulnet check: {bad}", file=sys.stderr)
        return 2
    findings = asyncio.run(_check(files, facts))
    print_findings(findings, options.json)
    if not options.json and not any(finding.level != "note" for finding in findings):
        print(f"{len(files)} file{'s' * (len(files) > 1)}: nothing wrong")
    return status_of(findings, options.strict)


def parser() -> argparse.ArgumentParser:
    """Its words."""
    words = command_parser(
        "ulnet check", "Find what is wrong with configuration files, without a node.", _EXAMPLES
    )
    words.add_argument(
        "files", nargs="*", metavar="FILE", help="the configuration of a node; - is standard input"
    )
    add_source(words, file=False)
    host = words.add_mutually_exclusive_group()
    host.add_argument(
        "--live", action="store_true", help="the files are for this host: look at its interfaces"
    )
    host.add_argument("--host", metavar="FILE", help="the interfaces of the host that the files are for")
    words.add_argument("--strict", action="store_true", help="warnings make the exit status 1 too")
    words.add_argument("--json", action="store_true", help="a JSON list in place of lines")
    return words


def _facts(options: argparse.Namespace) -> list[Link] | None:
    if options.live:
        return links()
    if options.host is not None:
        try:
            return read_facts(read_text(options.host))
        except FactsError as bad:
            raise FactsError(f"{options.host}: {bad}") from None
    return None


def _node(options: argparse.Namespace) -> tuple[str, Config, list[Finding]]:
    """What a node that runs is configured to be. Raises ValueError."""
    source = source_of(options)
    try:
        return (source.name, *_read(source.name, source.configuration(_PATIENCE)))
    finally:
        source.close()


def _read(name: str, text: str) -> tuple[Config, list[Finding]]:
    if not re.search(r"^\s*options\s", text, re.MULTILINE):
        return read_config(text), list(states_given(name, text))
    try:
        parameters = read_modprobe(text)
    except LegacyError as bad:
        return Config([], [], []), [Finding("error", name, 0, str(bad))]
    steps = [Step(request, 0) for request in parameters.requests]
    told = [Finding("warning", name, 0, text) for text in parameters.unknown]
    try:
        TcpParams(**parameters.tcp)  # type: ignore[arg-type]
        O2ibParams(**parameters.o2ib)  # type: ignore[arg-type]
    except LNetError as bad:
        told.append(Finding("error", name, 0, str(bad)))
    return Config(steps, [], []), told + [Finding("note", name, 0, note) for note in parameters.notes]


async def _check(files: list[tuple[str, Config, list[Finding]]], facts: list[Link] | None) -> list[Finding]:
    findings: list[Finding] = []
    views: list[NodeView] = []
    for name, config, told in files:
        found, view = await examine(name, config, facts)
        findings += told + sorted(found, key=lambda finding: finding.line)
        views.append(view)
    return findings + (list(across(views)) if len(views) > 1 else [])
