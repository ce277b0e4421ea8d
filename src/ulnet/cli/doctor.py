"""`ulnet doctor`: what on this host would trouble LNet over several interfaces."""

from __future__ import annotations

import argparse
import os
import sys

from ulnet.cli.doctor_rdma import diagnose_rdma
from ulnet.cli.doctor_rules import diagnose
from ulnet.cli.findings import Finding, Level, print_findings, status_of
from ulnet.cli.observed import add_source, names_node, source_of
from ulnet.cli.parsers import command_parser
from ulnet.host import HostError
from ulnet.host.network_facts import network_facts
from ulnet.host.rdma_facts import rdma_facts

__all__ = ["main", "parser"]

_EXAMPLES = """\
example:
  ulnet doctor
  ip netns exec left ulnet doctor --json
  ulnet doctor --kernel
  ulnet doctor --rdma

Looks at ARP and reverse path settings, source routes, carriers, MTUs, buffers, and at RDMA devices and what
o2ib nets need of them, and changes nothing; each finding names the command that mends it. With a node named,
lnetd or the kernel's: also what of it is not well, which rails carry nothing, and which peers are reached by
one rail of several, and why.
Exit status: 0 nothing wrong, 1 errors (with --strict also warnings), 2 usage, or no answer.
"""


_PATIENCE = 30.0  # seconds for a node to tell how it is


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet doctor --help`."""
    options = parser().parse_args(argv)
    try:
        facts = network_facts(os.geteuid() == 0)
    except HostError as bad:
        print(f"ulnet doctor: {bad}", file=sys.stderr)
        return 2
    findings = [*diagnose(facts), *diagnose_rdma(rdma_facts(), facts.links, options.rdma)]
    if names_node(options):
        try:
            findings += _of_node(options)
        except ValueError as bad:
            print(f"ulnet doctor: {bad}", file=sys.stderr)
            return 2
    print_findings(findings, options.json)
    if not findings and not options.json:
        print("nothing wrong")
    return status_of(findings, options.strict)


def _of_node(options: argparse.Namespace) -> list[Finding]:
    """What a node shows that is not as it should be, and rails that are not used. Raises ValueError."""
    from ulnet.observe.probe import Level as Grave
    from ulnet.observe.probe import judge
    from ulnet.observe.rails import few_rails, idle_rails

    source = source_of(options)
    try:
        snapshot = source.read(_PATIENCE)
    finally:
        source.close()
    if not snapshot.up:
        raise ValueError(judge(snapshot)[0].text)
    levels: dict[Grave, Level] = {Grave.WARNING: "warning"}
    found = [Finding(levels.get(one.level, "error"), source.name, 0, one.text) for one in judge(snapshot)]
    told = [*few_rails(snapshot), *idle_rails(snapshot)]
    return found + [Finding("warning", nid, 0, text) for nid, text in told]


def parser() -> argparse.ArgumentParser:
    """Its words."""
    words = command_parser("ulnet doctor", "Find what on this host would trouble LNet.", _EXAMPLES)
    add_source(words)
    words.add_argument(
        "--rdma",
        action="store_true",
        help="o2ib nets are wanted: having no RDMA device is an error",
    )
    words.add_argument("--strict", action="store_true", help="warnings make the exit status 1 too")
    words.add_argument("--json", action="store_true", help="a JSON list in place of lines")
    return words
