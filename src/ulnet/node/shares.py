"""Places that many share, so that nobody has all of them. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Hashable

__all__ = ["Shares"]


class Shares:
    """So many places for what nobody can send away: a key may have as many as are left, at most.

    So one alone gets half of them, and some are left for the next one.
    """

    __slots__ = ("_most", "_own", "left")

    def __init__(self, most: int) -> None:
        self._most = most
        self.left: int = most
        self._own: dict[Hashable, int] = {}

    @property
    def taken(self) -> int:
        """How many are not free."""
        return self._most - self.left

    def own(self, key: Hashable) -> int:
        """How many the key has."""
        return self._own.get(key, 0)

    def may_take(self, key: Hashable) -> bool:
        """Whether the key may have one more."""
        return self._own.get(key, 0) < self.left

    def take(self, key: Hashable) -> bool:
        """Whether the key gets one more."""
        if not self.may_take(key):
            return False
        self._own[key] = self._own.get(key, 0) + 1
        self.left -= 1
        return True

    def give(self, key: Hashable) -> None:
        """One of the key's is free."""
        own = self._own[key] - 1
        if own:
            self._own[key] = own
        else:
            del self._own[key]
        self.left += 1

    def clear(self) -> None:
        """All are free."""
        self._own.clear()
        self.left = self._most
