"""A client's slots in its session: each carries one request at a time, under the next number."""

from __future__ import annotations

from typing import Final

__all__ = ["Slots"]

_LAST: Final = 0xFFFFFFFF


class Slots:
    """`count` slots; the one that was used last is the next, so that few of them are in use."""

    __slots__ = ("_free", "_numbers", "count", "taken")

    def __init__(self, count: int) -> None:
        self.count: int = count
        self.taken: int = 0
        self._numbers: list[int] = []  # of the last request of each slot that was ever used
        self._free: list[int] = []

    @property
    def used_up(self) -> bool:
        """Whether there are no numbers left."""
        return self.count == 0

    @property
    def full(self) -> bool:
        """Whether all are taken."""
        return not self._free and self.taken >= self.count

    def take(self) -> tuple[int, int] | None:
        """A free slot, and the number of its next request; None: all are taken."""
        if self._free:
            slot = self._free.pop()
        elif self.taken < self.count:
            slot = len(self._numbers)
            self._numbers.append(0)
        else:
            return None
        self.taken += 1
        number = self._numbers[slot] = self._numbers[slot] + 1
        return slot, number

    def give(self, slot: int) -> None:
        """The request in that slot has ended. A slot without numbers is not used again."""
        self.taken -= 1
        if self._numbers[slot] < _LAST:
            self._free.append(slot)
        else:
            self.count -= 1
