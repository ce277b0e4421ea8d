"""`ulnet doctor`: what on this host would trouble LNet over several interfaces."""

from __future__ import annotations

import argparse
import os
import sys

from ulnet.cli.doctor_rules import diagnose
from ulnet.cli.findings import print_findings, status_of
from ulnet.host import HostError
from ulnet.host.network_facts import network_facts

__all__ = ["main", "parser"]

_EXAMPLES = """\
example:
  ulnet doctor
  ip netns exec left ulnet doctor --json

Looks at ARP and reverse path settings, source routes, carriers, MTUs, buffers, and changes nothing; each
finding names the command that mends it. Exit status: 0 nothing wrong, 1 errors (with --strict also warnings),
2 usage.
"""


def main(argv: list[str]) -> int:
    """Run the command; see `ulnet doctor --help`."""
    options = parser().parse_args(argv)
    try:
        facts = network_facts(os.geteuid() == 0)
    except HostError as bad:
        print(f"ulnet doctor: {bad}", file=sys.stderr)
        return 2
    findings = list(diagnose(facts))
    print_findings(findings, options.json)
    if not findings and not options.json:
        print("nothing wrong")
    return status_of(findings, options.strict)


def parser() -> argparse.ArgumentParser:
    """Its words."""
    words = argparse.ArgumentParser(
        prog="ulnet doctor",
        description="Find what on this host would trouble LNet.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    words.add_argument("--strict", action="store_true", help="warnings make the exit status 1 too")
    words.add_argument("--json", action="store_true", help="a JSON list in place of lines")
    return words
