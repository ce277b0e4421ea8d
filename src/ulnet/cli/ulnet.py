"""The `ulnet` command: finds the sub-command's module and runs its `main(argv) -> exit status`."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec

from ulnet import __version__
from ulnet.cli.output import ended_by_ctrl_c, run_to_its_end

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "apply": "bring a running node to a configuration file",
    "check": "find what is wrong with configuration files, without a node",
    "convert": "write module parameters and older YAML as today's YAML",
    "dash": "serve a web page with the picture of a fabric, live",
    "decode": "print a packet capture as LNet conversation",
    "demo": "two nodes with two rails each in this machine: move a file, compare it",
    "diff": "compare two configurations, or one with a node's",
    "doctor": "find what on this host would trouble LNet over several interfaces",
    "explain": "tell which path a message would take and why: of ulnet's nodes, or kernel nodes",
    "exporter": "serve metrics of a node to Prometheus: of ulnet's, or the kernel's",
    "fleet": "ask many nodes at once, and find what none of them sees alone",
    "health": "tell in one line how a node is, for monitoring tools",
    "ping": "ask LNet nodes for their NIDs, without a daemon",
    "pki": "make certificates for secured connections, and look at them",
    "record": "keep the history of a node in a file",
    "report": "tell what happened to a node, from its history",
    "rpc": "ask a service of ulnet.rpc for its methods, and call them",
    "selftest": "take part in LNet selftest, run plans of tests",
    "sim": "run a scenario, or random clusters with faults, in the simulator",
    "plan": "show what apply, or an import, would change, and change nothing",
    "top": "show rails, peers and routes of a node, live in a terminal",
    "which-nid": "tell which of some NIDs is the nearest to a node",
    "trace": "follow a running node: which pair of NIDs carries what, and why",
}

_HELP = """\
usage: ulnet COMMAND [WORDS...]
       ulnet --help | --version

LNet in user space. Commands:

{commands}

`ulnet COMMAND --help` tells more. Example:

  ulnet ping 192.168.110.11@tcp

The daemon is `lnetd`, its tool `lnetctl`.
"""


def main(argv: list[str] | None = None) -> int:
    """Run one sub-command; exit status 2 for words that make no command."""
    words = sys.argv[1:] if argv is None else argv
    return run_to_its_end("ulnet", lambda: _run(words), lambda number: 2)


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help(), end="", file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    if words[0] == "--complete":
        from ulnet.cli.complete import ulnet_words

        print(*(f"{word}\n" for word in ulnet_words(words[1:])), sep="", end="")
        return 0
    if words[0] in ("-V", "--version"):
        print(f"ulnet {__version__} ({_build()})")
        return 0
    if words[0] not in COMMANDS:
        print(f"ulnet: {_unknown(words[0])}", file=sys.stderr)
        return 2
    with ended_by_ctrl_c():
        module = import_module(f"ulnet.cli.{words[0].replace('-', '_')}")
    status: int = module.main(words[1:])
    return status


def _help() -> str:
    return _HELP.format(commands="\n".join(f"  {name:<10}{text}" for name, text in COMMANDS.items()))


def _build() -> str:
    """Which of the two builds this is; they differ in speed only."""
    spec = find_spec("ulnet.core.sender")
    assert spec is not None
    return "compiled" if str(spec.origin).endswith(".so") else "pure Python"


def _unknown(word: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(word, COMMANDS, n=1, cutoff=0.5)
    way_out = f"did you mean `ulnet {close[0]}`?" if close else "`ulnet --help` lists them."
    return f"{word!r} is no command of ulnet: {way_out}"
