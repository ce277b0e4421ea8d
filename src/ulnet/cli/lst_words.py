"""The words of `lst`: its commands with their options, as the real tool has them (spec selftest.md §7)."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Final, Literal, NoReturn, get_args

from ulnet.dlc.model_selftest import Brw

__all__ = ["COMMANDS", "BadWords", "Parser", "parse", "parser_of", "read_brw"]

_SIZE: Final = re.compile(r"(\d+)([kKmM]?)\Z")
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20}
_Check = Literal["none", "simple", "full", "discard"]
_CHECKS: Final[tuple[_Check, ...]] = get_args(_Check)
_MOST: Final = 1 << 20


class BadWords(Exception):
    """Words that make no command; `usage` is how the command is written."""

    def __init__(self, text: str, usage: str = "") -> None:
        super().__init__(text)
        self.usage = usage


class Parser(argparse.ArgumentParser):
    """A parser that raises BadWords."""

    def error(self, message: str) -> NoReturn:
        """Not to leave the program from here."""
        raise BadWords(f"{self.prog}: {message}", self.format_usage())


def _number(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not re.fullmatch(r"-?\d+", text) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is out of range: give {low} to {high}")
        return int(text)

    return read


_seconds = _number(1, 3600)
_count = _number(0, 1 << 30)


def _name(text: str) -> str:
    if not 1 <= len(text.encode()) <= 31:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no name: it has 1 to 31 bytes")
    return text


def _ratio(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+):(\d+)", text)
    if found is None or not all(1 <= int(part) <= _MOST for part in found.groups()):
        raise argparse.ArgumentTypeError(f"{text!r} is no ratio: write CLIENTS:SERVERS such as 1:1")
    return int(found[1]), int(found[2])


def _flags(parser: Parser, *names: str, what: str) -> None:
    for name in names:
        parser.add_argument(f"--{name}", action="store_true", help=what.format(name))


def _new_session(parser: Parser) -> None:
    parser.add_argument(
        "--timeout", type=_count, default=300, metavar="SEC",
        help="end the session when no command came for so long (300; 0: never)",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="take the place of other sessions")
    parser.add_argument("--networks", metavar="TEXT", help="NIs of a node of its own: tcp(eth0)")
    parser.add_argument("--port", type=_number(1, 65535), default=988, help="its TCP port (988)")
    parser.add_argument("name", nargs="?", type=_name, default="session", metavar="NAME", help="its name")


def _bare(parser: Parser) -> None:
    """No options."""


def _ping(parser: Parser) -> None:
    whom = parser.add_mutually_exclusive_group()
    whom.add_argument("--group", metavar="NAME", help="nodes of a group")
    whom.add_argument("--batch", metavar="NAME", help="nodes of a batch")
    whom.add_argument("--session", action="store_true", help="all nodes of the session")
    whom.add_argument("--nodes", metavar="IDs", help="nodes by ID")
    parser.add_argument("--server", action="store_true", help="of a batch only the servers")
    parser.add_argument("--timeout", type=_seconds, default=5, metavar="SEC", help="seconds to wait (5)")


def _add_group(parser: Parser) -> None:
    parser.add_argument("name", type=_name, metavar="NAME", help="the group")
    parser.add_argument("ids", nargs="+", metavar="ID", help="nodes: 10.0.0.[1-4]@tcp, 12345-10.0.0.9@tcp")


def _del_group(parser: Parser) -> None:
    parser.add_argument("name", metavar="NAME", help="the group")


def _update_group(parser: Parser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--clean", metavar="STATE", help="remove nodes in these states: busy,down,unknown,active"
    )
    what.add_argument("--refresh", action="store_true", help="try again those that are not active")
    what.add_argument("--remove", metavar="IDs", help="remove nodes by ID")
    parser.add_argument("name", metavar="NAME", help="the group")


def _list_group(parser: Parser) -> None:
    _flags(parser, "active", "busy", "down", "unknown", "all", what="list {} nodes")
    parser.add_argument("names", nargs="*", metavar="GROUP", help="groups (all groups)")


def _stat(parser: Parser) -> None:
    of = parser.add_mutually_exclusive_group()
    of.add_argument("--lnet", action="store_true", help="what LNet counts (default)")
    of.add_argument("--rpc", action="store_true", help="what selftest counts of its requests")
    _flags(parser, "bw", "rate", what="only the {}")
    _flags(parser, "read", "write", what="only what nodes {}")
    _flags(parser, "max", "min", "avg", what="only the {} over the nodes")
    parser.add_argument("--mbs", action="store_true", help="MB/s in place of MiB/s")
    parser.add_argument("--timeout", type=_seconds, default=5, metavar="SEC", help="seconds to wait (5)")
    parser.add_argument("--delay", type=_seconds, default=5, metavar="SEC", help="seconds between two (5)")
    parser.add_argument("--count", type=_count, default=0, metavar="N", help="how often (endless)")
    parser.add_argument("of", nargs="+", metavar="GROUP", help="groups, or nodes by ID")


def _show_error(parser: Parser) -> None:
    parser.add_argument("--session", action="store_true", help="errors of the session only")
    parser.add_argument("of", nargs="+", metavar="GROUP", help="groups, or nodes by ID")


def _add_batch(parser: Parser) -> None:
    parser.add_argument("name", type=_name, metavar="NAME", help="the batch")


def _run(parser: Parser) -> None:
    parser.add_argument("--timeout", type=_count, default=0, metavar="SEC", help="stop then (never)")
    parser.add_argument("name", nargs="?", default="batch", metavar="BATCH", help="the batch (batch)")


def _stop(parser: Parser) -> None:
    parser.add_argument("--force", action="store_true", help="give up what is under way")
    parser.add_argument("name", nargs="?", default="batch", metavar="BATCH", help="the batch (batch)")


def _list_batch(parser: Parser) -> None:
    parser.add_argument("--test", type=_count, default=0, metavar="IDX", help="only one of its tests")
    _flags(parser, "active", "invalid", "all", what="list {} nodes")
    parser.add_argument("--server", action="store_true", help="servers in place of clients")
    parser.add_argument("name", nargs="?", metavar="BATCH", help="the batch (a list of all)")


def _query(parser: Parser) -> None:
    parser.add_argument("--test", type=_count, default=0, metavar="IDX", help="one of its tests")
    parser.add_argument("--server", action="store_true", help="servers in place of clients")
    parser.add_argument("--timeout", type=_seconds, default=5, metavar="SEC", help="seconds to wait (5)")
    parser.add_argument("--delay", type=_seconds, default=5, metavar="SEC", help="seconds between two (5)")
    parser.add_argument("--loop", type=_count, default=1, metavar="N", help="how often (1)")
    _flags(parser, "active", "idle", "error", "all", what="list {} nodes")
    parser.add_argument("name", nargs="?", default="batch", metavar="BATCH", help="the batch (batch)")


def _add_test(parser: Parser) -> None:
    parser.add_argument("--batch", default="batch", metavar="B", help="the batch (batch)")
    parser.add_argument(
        "--loop", type=_number(-1, (1 << 31) - 1), default=-1, metavar="N", help="how often (-1: endless)"
    )
    parser.add_argument("--concurrency", type=_number(1, 1024), default=1, metavar="N", help="at once (1)")
    parser.add_argument(
        "--distribute",
        type=_ratio,
        default=(1, 1),
        metavar="S:D",
        help="so many clients have D servers (1:1)",
    )
    parser.add_argument(
        "--keep-going",
        action="store_true",
        help="go on after errors (else a request that fails is a unit's last)",
    )
    parser.add_argument("--from", dest="source", required=True, metavar="G", help="the clients' group")
    parser.add_argument("--to", dest="sink", required=True, metavar="G", help="the servers' group")
    parser.add_argument("kind", choices=["brw", "ping"], help="the test")
    parser.add_argument(
        "parameters", nargs="*", metavar="WORD",
        help="of brw: read or write, size=N[k|m], check=none|simple|full|discard, off=N",
    )  # fmt: skip


COMMANDS: Final[dict[str, tuple[str, Callable[[Parser], None]]]] = {
    "new_session": ("begin a session", _new_session),
    "end_session": ("end the session on all nodes", _bare),
    "show_session": ("tell which session there is", _bare),
    "ping": ("ask nodes for their session", _ping),
    "add_group": ("take nodes into the session, as a group", _add_group),
    "del_group": ("forget a group", _del_group),
    "update_group": ("remove nodes of a group, or try them again", _update_group),
    "list_group": ("list groups, or their nodes", _list_group),
    "stat": ("show rates and bandwidth of nodes", _stat),
    "show_error": ("show errors of nodes", _show_error),
    "add_batch": ("make a batch of tests", _add_batch),
    "run": ("begin a batch", _run),
    "stop": ("stop a batch", _stop),
    "list_batch": ("list batches, or the tests of one", _list_batch),
    "query": ("tell whether a batch runs", _query),
    "add_test": ("add a test to a batch", _add_test),
}


def parser_of(command: str) -> Parser:
    """The parser of a command."""
    summary, build = COMMANDS[command]
    parser = Parser(prog=f"lst {command}", description=f"{summary[:1].upper()}{summary[1:]}.")
    build(parser)
    return parser


def parse(words: Sequence[str]) -> argparse.Namespace:
    """The options of a command, with `command`. Raises BadWords."""
    command, *rest = words
    if command not in COMMANDS:
        raise BadWords(f"lst: {command!r} is no command of it: `lst --help` lists them")
    if command == "add_test":  # its parameters may look like nothing that argparse expects
        found, more = parser_of(command).parse_known_intermixed_args(rest)
        if more:
            raise BadWords(f"lst add_test: unknown words {' '.join(more)}", parser_of(command).format_usage())
    else:
        found = parser_of(command).parse_args(rest)
    found.command = command
    return found


def read_brw(words: Sequence[str]) -> Brw:
    """What a brw test is to do. Raises BadWords."""
    brw = Brw()
    for word in words:
        name, equals, value = word.partition("=")
        if word in ("read", "r"):
            brw.direction = "read"
        elif word in ("write", "w"):
            brw.direction = "write"
        elif word == "skip_rx_copy":
            brw.check = "discard"
        elif equals and name in ("size", "s"):
            brw.size = _bytes(value)
        elif equals and name in ("check", "c"):
            brw.check = _check(value)
        elif equals and name == "off":
            brw.offset = _offset(value)
        else:
            raise BadWords(
                f"lst add_test: {word!r} is no parameter of brw: read, write, size=N, check=WORD, off=N"
            )
    return brw


def _bytes(text: str) -> int:
    found = _SIZE.match(text)
    size = int(found[1]) * _UNITS[found[2].lower()] if found else 0
    if not 0 < size <= _MOST:
        raise BadWords(f"lst add_test: size={text} is no size: give 1 to 1M bytes, such as 4k")
    return size


def _check(text: str) -> _Check:
    for check in _CHECKS:
        if text == check:
            return check
    raise BadWords(f"lst add_test: check={text} is none of {', '.join(_CHECKS)}")


def _offset(text: str) -> int:
    if not text.isdecimal() or int(text) % 8 or int(text) >= 4096:
        raise BadWords(f"lst add_test: off={text}: it is a multiple of 8 below 4096")
    return int(text)
