"""Words that name the node which a command looks at, and where its metrics are served."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ulnet.observe.source import Source

__all__ = ["DEFAULT_PLACE", "add_source", "names_node", "place", "seconds", "source_of", "whole"]

DEFAULT_PLACE = "127.0.0.1:9989"


def add_source(words: argparse.ArgumentParser, *, file: bool = True) -> None:
    """`--socket`, `--kernel`, `--tool`, `--file` (unless files are named without)."""
    of = words.add_mutually_exclusive_group()
    of.add_argument("--socket", metavar="PATH", help="control socket of an lnetd (the usual one)")
    of.add_argument("--kernel", action="store_true", help="the kernel's LNet, by the real lnetctl on PATH")
    of.add_argument(
        "--tool",
        metavar="COMMAND",
        help="a kernel node, by a command that leads to its lnetctl: 'ssh oss1 lnetctl'",
    )
    if file:
        of.add_argument("--file", metavar="FILE", help="what a node showed, or exported, earlier")
    else:
        words.set_defaults(file=None)


def names_node(options: argparse.Namespace) -> bool:
    """Whether any of these words is there."""
    return bool(options.kernel or (options.socket, options.tool, options.file) != (None, None, None))


def source_of(options: argparse.Namespace) -> Source:
    """What the words name. Raises ValueError."""
    from ulnet.observe.source import FileSource, SocketSource
    from ulnet.observe.tool import ToolSource, kernel_tool

    if options.file is not None:
        return FileSource(options.file)
    if options.kernel or options.tool is not None:
        return ToolSource(options.tool if options.tool is not None else shlex.quote(kernel_tool()))
    return SocketSource(options.socket)


def seconds(text: str) -> float:
    """Above 0, at most an hour. Raises argparse.ArgumentTypeError."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r}: it takes seconds above 0, at most 3600")
    return value


def whole(most: int, least: int = 0) -> Callable[[str], int]:
    """A number in these bounds; the reader raises argparse.ArgumentTypeError."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdecimal()) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: it takes a number from {least} to {most}")
        return int(text)

    return read


def place(text: str) -> tuple[str, int]:
    """An address and a port: `127.0.0.1:9989`, `[::1]:9989`. Raises argparse.ArgumentTypeError."""
    address, colon, port = text.rpartition(":")
    address = address.removeprefix("[").removesuffix("]")
    if not colon or not address or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r}: it takes an address and a port, as in {DEFAULT_PLACE}")
    return address, int(port)
