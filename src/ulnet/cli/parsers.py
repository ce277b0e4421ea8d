"""The argparse words of commands, also for man pages and completion."""

from __future__ import annotations

import argparse
from importlib import import_module

__all__ = ["actions_of", "command_parser", "parsers_of"]


def command_parser(
    name: str, description: str, examples: str, usage: str | None = None
) -> argparse.ArgumentParser:
    """A parser of which the help ends with examples, laid out as they are."""
    return argparse.ArgumentParser(
        name, usage, description, examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )


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
