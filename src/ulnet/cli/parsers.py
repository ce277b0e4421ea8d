"""The argparse words of commands, also for man pages and completion."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import Any

__all__ = ["actions_of", "command_parser", "parsers_of"]


def command_parser(
    name: str, description: str, examples: str, usage: str | None = None
) -> argparse.ArgumentParser:
    """A parser of which the help ends with examples, laid out as they are."""
    return _Parser(name, usage, description, examples, formatter_class=argparse.RawDescriptionHelpFormatter)


class _Parser(argparse.ArgumentParser):
    """argparse says nothing of help that cannot be written: here that is an error as it is elsewhere."""

    def _print_message(self, message: str, file: Any = None) -> None:
        (file or sys.stderr).write(message)


def parsers_of(command: str) -> list[argparse.ArgumentParser]:
    """The parsers of `lnetd`, or of a sub-command of `ulnet`; several where its words depend on the first."""
    module = vars(import_module(f"ulnet.cli.{command.replace('-', '_')}"))
    make = module.get("parser") or module["_parser"]
    if make.__code__.co_argcount:
        return [make(True), make(False)]
    return [make()]


def actions_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Options and operands in the order of the help."""
    return [action for action in parser._actions if action.help != argparse.SUPPRESS]
