"""What a command of lnetctl and an option are."""

from __future__ import annotations

from typing import NamedTuple

from ulnet.dlc.tunables import TUNABLES

__all__ = ["Command", "Option", "tunable_options"]


class Option(NamedTuple):
    """`--name VALUE`; without `value` a flag. Kinds: text, number, seconds, level (an optional
    number), list (it may be repeated).
    """

    name: str
    help: str
    value: str = ""
    short: str = ""
    kind: str = "text"


class Command(NamedTuple):
    """`lnetctl WORDS… OPTIONS… OPERANDS…`; `action` names what runs it."""

    words: tuple[str, ...]
    summary: str
    options: tuple[Option, ...] = ()
    operands: str = ""
    examples: tuple[str, ...] = ()
    action: str = ""


def tunable_options(words: str, driver: bool) -> list[Option]:
    """The options of a command that are tunables of an NI, of its net or of its driver."""
    return [
        Option(name.replace("_", "-"), one.help, one.metavar, kind="number")
        for name, one in TUNABLES.items()
        if words in one.words and one.driver is driver
    ]
