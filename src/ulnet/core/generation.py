"""Generations: what was decided holds until the generation it was decided in is over."""

from __future__ import annotations

from typing import Final

__all__ = ["CHANGES", "Generation"]


class _Changes:
    """How often generations of any kind moved: what works on a list looks at its decision again then."""

    __slots__ = ("number",)

    def __init__(self) -> None:
        self.number: int = 0


CHANGES: Final = _Changes()


class Generation:
    """A counter of changes that void decisions: of a node, of a peer, of a portal.

    Caches (path sets, matches of a connection) keep the `number` they were filled at and compare.
    """

    __slots__ = ("number", "reason")

    def __init__(self) -> None:
        self.number: int = 0
        self.reason: str = ""  # of the last change, for whoever debugs

    def invalidate(self, reason: str) -> None:
        """Whatever was decided before is void."""
        self.number += 1
        CHANGES.number += 1
        self.reason = reason
