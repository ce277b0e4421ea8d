"""The one error of this package."""

from __future__ import annotations

__all__ = ["NidError", "escaped", "shown"]

_SHOWN = 80  # characters of a user's text that a message repeats


class NidError(ValueError):
    """A NID, net or pattern that cannot be used: names the thing, the rule and the way out."""


def shown(text: object) -> str:
    """The user's text as an error message repeats it: quoted, and short whatever was typed."""
    plain = str(text)
    return repr(plain if len(plain) <= _SHOWN else plain[:_SHOWN] + "…")


def escaped(text: str, keep: str = "") -> str:
    """The words of others: what is not printable is escaped, for terminals obey it, and logs break lines."""
    if text.isprintable():
        return text
    return "".join([one if one.isprintable() or one in keep else ascii(one)[1:-1] for one in text])
