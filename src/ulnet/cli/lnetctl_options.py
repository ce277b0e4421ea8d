"""Options as getopt_long takes them: anywhere, abbreviated, `--name value` or `--name=value`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ulnet.cli.lnetctl_grammar import COMMON, Command, Option
from ulnet.dlc.tunables import TUNABLES, Tunable

__all__ = ["BadValue", "Parsed", "UsageError", "names_of", "number", "parse"]

# Compiled where they are needed: most commands need none.
_INTEGER = r"[-+]?(?:[0-9]+|0[xX][0-9a-fA-F]+)\Z"
_MOST_DIGITS = 18
_SECONDS = r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?|0[xX][0-9a-fA-F]{1,7})\Z"
_COMMA = r",(?![^\[\]]*\])"
_MOST_VERBOSE = 4
_BETWEEN = "\0"  # values of an option that is repeated: no argument of a program has it


class UsageError(Exception):
    """The words make no command."""


class BadValue(Exception):
    """An option's value cannot be used."""


class Parsed(NamedTuple):
    """Options by name (flags are True), and what else was written."""

    options: dict[str, str]
    operands: list[str]

    def flag(self, name: str) -> bool:
        """Whether an option was given."""
        return name in self.options

    def text(self, name: str) -> str | None:
        """An option's value as written, None if it was not given."""
        return self.options.get(name)

    def number(self, name: str, most: int | None = None) -> int | None:
        """An option's value as a number, of 0 to `most`. Raises BadValue."""
        text = self.options.get(name)
        value = None if text is None else number(f"--{name}", text)
        if value is not None and most is not None and not 0 <= value <= most:
            raise BadValue(f"--{name} {value} is out of range: use 0 to {most}")
        return value

    def tunables(self) -> dict[str, int]:
        """The tunables of an NI that are given. Raises BadValue."""
        given = {name: self._tunable(name, one) for name, one in TUNABLES.items()}
        return {name: value for name, value in given.items() if value is not None}

    def _tunable(self, name: str, one: Tunable) -> int | None:
        option = name.replace("_", "-")
        text = self.options.get(option)
        value = one.read(text) if text is not None else None
        if text is not None and value is None and one.names and not re.match(_INTEGER, text):
            raise BadValue(f"--{option} {text!r} is none of its values: use {', '.join(one.names)}")
        return self.number(option) if value is None else value

    def value(self, option: Option) -> Any:
        """An option that was given, as its kind has it. Raises BadValue."""
        if not option.value:
            return True
        if option.kind == "names":
            return names_of(self.options[option.name])
        if option.kind == "each":
            return self.options[option.name].split(_BETWEEN)
        if option.kind == "number":
            return self.number(option.name, option.most)
        as_kind = {"seconds": self.seconds, "level": self.level}
        return as_kind.get(option.kind, self.text)(option.name)

    def seconds(self, name: str) -> float | None:
        """An option's value as seconds. Raises BadValue."""
        text = self.options.get(name)
        if text is None:
            return None
        if not re.match(_SECONDS, text):
            raise BadValue(f"--{name} {text!r} is not a number of seconds: write digits, such as --{name} 3")
        return float(int(text, 16)) if "x" in text.lower() else float(text)

    def level(self, name: str) -> int:
        """How much is wanted of an optional level: 0 to 4. Raises BadValue."""
        text = self.options.get(name)
        if text is None:
            return 0
        if text and not re.match(_INTEGER, text):
            raise BadValue(f"--{name} {text!r}: write a level from 0 to {_MOST_VERBOSE}, such as --{name} 2")
        return min(max(number(f"--{name}", text), 0), _MOST_VERBOSE) if text else 1


def names_of(text: str | None) -> list[str]:
    """The items of a list, apart by commas; commas in brackets belong to their item."""
    if text is None:
        return []
    return [item.strip() for item in re.split(_COMMA, text) if item.strip()]


def number(name: str, text: str) -> int:
    """Decimal or 0x…. Raises BadValue."""
    if not re.match(_INTEGER, text):
        raise BadValue(f"{name} {text!r} is not a number: write digits, such as {name} 8")
    if len(text) > _MOST_DIGITS:
        raise BadValue(f"{name} {text[:_MOST_DIGITS]}… is too large: no number here has {len(text)} digits")
    return int(text, 16 if "x" in text.lower() else 10)


def parse(command: Command, words: Sequence[str]) -> Parsed:
    """Take the words after a command apart. Raises UsageError."""
    known = (*command.options, *COMMON)
    parsed = Parsed({}, [])
    rest = list(reversed(words))
    takes_number = command.operands == "VALUE"  # which may be negative
    while rest:
        word = rest.pop()
        if word == "--":
            parsed.operands.extend(reversed(rest))
            break
        if word.startswith("--"):
            _long(known, word, rest, parsed)
        elif word.startswith("-") and len(word) > 1 and not (takes_number and re.match(_INTEGER, word)):
            _short(known, word, rest, parsed)
        else:
            parsed.operands.append(word)
    if parsed.operands and not command.operands and not parsed.flag("help"):
        raise UsageError(f"unexpected word {parsed.operands[0]!r}")
    return parsed


def _long(known: Sequence[Option], word: str, rest: list[str], parsed: Parsed) -> None:
    name, equals, value = word[2:].partition("=")
    found = [option for option in known if option.name.startswith(name)]
    exact = [option for option in found if option.name == name]
    if len(exact or found) > 1:
        names = " ".join(f"'--{option.name}'" for option in found)
        raise UsageError(f"option '--{name}' is ambiguous; possibilities: {names}")
    if not found:
        raise UsageError(f"unrecognized option '--{name}'{_suggestion(known, name)}")
    option = (exact or found)[0]
    if equals and not option.value:
        raise UsageError(f"option '--{option.name}' doesn't allow an argument")
    _keep(parsed, option, value if equals else _value(option, f"'--{option.name}'", rest))


def _short(known: Sequence[Option], word: str, rest: list[str], parsed: Parsed) -> None:
    for at, letter in enumerate(word[1:], 2):
        option = next((option for option in known if option.short == letter), None)
        if option is None:
            raise UsageError(f"invalid option -- '{letter}'")
        if option.value and word[at:]:
            _keep(parsed, option, word[at:])
            return
        _keep(parsed, option, _value(option, f"-- '{letter}'", rest))


def _keep(parsed: Parsed, option: Option, value: str) -> None:
    """The last one counts, but those of a list go together, and of others each counts."""
    before = parsed.options.get(option.name)
    if option.kind == "list" and before is not None:
        value = f"{before},{value}"
    elif option.kind == "each" and before is not None:
        value = f"{before}{_BETWEEN}{value}"
    parsed.options[option.name] = value


def _value(option: Option, shown: str, rest: list[str]) -> str:
    if not option.value:
        return "yes"
    if option.kind == "level":  # a separate word, if it is a number
        return rest.pop() if rest and re.match(_INTEGER, rest[-1]) else ""
    if not rest:
        raise UsageError(f"option {shown} requires an argument")
    return rest.pop()


def _suggestion(known: Sequence[Option], name: str) -> str:
    from difflib import get_close_matches  # late: right words do not need it

    close = get_close_matches(name, [option.name for option in known], n=1)
    return f" (did you mean '--{close[0]}'?)" if close else ""
