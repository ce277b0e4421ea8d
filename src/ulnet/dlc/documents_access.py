"""Access lists as `access show` and `export` print them (docs/security.md)."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

__all__ = ["AccessDocument", "AccessView"]


class AccessView(Struct):
    """The rules `[WHAT=]WHO` of both lists; one without rules is left out."""

    allow: list[str] | UnsetType = UNSET
    deny: list[str] | UnsetType = UNSET


class AccessDocument(Struct):
    """`access show`."""

    access: AccessView
