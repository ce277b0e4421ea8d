"""Interface patterns: `eth0`, `eth[1,2]`, `ib*` (spec lnetctl.md §4, ip2nets)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ulnet.nid.errors import NidError, shown
from ulnet.nid.expr import NumberSet

__all__ = ["InterfacePattern"]

_TOKEN = re.compile(r"\*|\[[^\[\]]*\]|[^\[\]*]+")
_MAX_NUMBER = 0xFFFF
_LONGEST_NAME = 64
_MAX_TOKENS = 16  # bounds the work of a match
_Token = str | NumberSet | None  # literal text, numbers, anything


@dataclass(frozen=True, slots=True)
class InterfacePattern:
    """Names of interfaces: text, `*` for any text, numbers in brackets."""

    tokens: tuple[_Token, ...]
    text: str

    @classmethod
    def parse(cls, text: str) -> InterfacePattern:
        """The pattern that text is."""
        parts = _TOKEN.findall(text)
        if "".join(parts) != text or not parts or any(char.isspace() or char == "," for char in _bare(text)):
            raise NidError(
                f"interface {shown(text)} is neither a name nor a pattern; write eth0, eth[1,2] or eth*"
            )
        if len(parts) > _MAX_TOKENS:
            raise NidError(f"interface {shown(text)} has more than {_MAX_TOKENS} parts; write a simpler one")
        return cls(tuple(_token(part) for part in parts), text)

    def match(self, name: str) -> bool:
        """Whether an interface of that name is meant."""
        return len(name) <= _LONGEST_NAME and _matches(self.tokens, name)

    def __str__(self) -> str:
        return self.text


def _bare(text: str) -> str:
    return re.sub(r"\[[^\]]*\]", "", text)


def _token(part: str) -> _Token:
    if part == "*":
        return None
    return NumberSet.parse(part, _MAX_NUMBER, "interface number") if part.startswith("[") else part


def _matches(tokens: tuple[_Token, ...], name: str) -> bool:
    """Whether name is tokens in order: the set of places reached so far, token by token."""
    places = {0}
    for token in tokens:
        if token is None:
            places = set(range(min(places), len(name) + 1))
        elif isinstance(token, str):
            places = {place + len(token) for place in places if name.startswith(token, place)}
        else:
            places = {end for place in places for end in _number_ends(token, name, place)}
        if not places:
            return False
    return len(name) in places


def _number_ends(numbers: NumberSet, name: str, start: int) -> list[int]:
    """Where a number of the set that begins at start may end."""
    ends = []
    end = start
    while end < len(name) and end - start < 5 and name[end].isdigit() and name[end].isascii():
        end += 1
        digits = name[start:end]
        if str(int(digits)) == digits and int(digits) in numbers:
            ends.append(end)
    return ends
