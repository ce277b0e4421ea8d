"""What a command of lnetctl and an option are."""

from __future__ import annotations

from typing import NamedTuple

from ulnet.dlc.tunables import TUNABLES

__all__ = ["Command", "Option", "tunable_options"]


class Option(NamedTuple):
    """`--name VALUE`; without `value` a flag. Kinds: text, number, seconds, level (an optional
    number), list (it may be repeated), each (so may this, and no comma divides it), names (apart by commas).

    `field` is what it fills of its command's request, if that has not its name; a number may have a
    `most`, and is 0 at least then.
    """

    name: str
    help: str
    value: str = ""
    short: str = ""
    kind: str = "text"
    field: str = ""
    most: int | None = None


class Command(NamedTuple):
    """`lnetctl WORDS… OPTIONS… OPERANDS…`.

    It is the `request` of that name in `ulnet.dlc.model`: options are its fields, operands its `nids`. Where
    that is not all, `action` names what makes the request, or runs the command.
    """

    words: tuple[str, ...]
    summary: str
    options: tuple[Option, ...] = ()
    operands: str = ""
    examples: tuple[str, ...] = ()
    action: str = ""
    request: str = ""


def tunable_options(words: str, driver: bool) -> list[Option]:
    """The options of a command that are tunables of an NI, of its net or of its driver."""
    return [
        Option(name.replace("_", "-"), one.help, one.metavar, kind="number")
        for name, one in TUNABLES.items()
        if words in one.words and one.driver is driver
    ]
