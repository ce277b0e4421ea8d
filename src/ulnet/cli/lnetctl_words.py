"""What a command of lnetctl and an option are."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Command", "Option"]


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
