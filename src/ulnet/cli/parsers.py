"""The argparse words of commands, for man pages and completion."""

from __future__ import annotations

import argparse
import inspect
from importlib import import_module

__all__ = ["actions_of", "parsers_of"]


def parsers_of(command: str) -> list[argparse.ArgumentParser]:
    """The parsers of `lnetd`, or of a sub-command of `ulnet`; several where its words depend on the first."""
    module = vars(import_module(f"ulnet.cli.{command.replace('-', '_')}"))
    make = module.get("parser") or module["_parser"]
    if inspect.signature(make).parameters:
        return [make(True), make(False)]
    return [make()]


def actions_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Options and operands in the order of the help."""
    return [action for action in parser._actions if action.help != argparse.SUPPRESS]
