"""How many attempts to connect are under way at once, and whose turn is next.

Peers that do not answer take a second of a place in turn while others wait, so that thousands of them cost
no more than a few do, and hold up nobody who answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ulnet.lnd.tcp.dialer import Dialer

__all__ = ["MOST_CALLS", "TURN", "Budget"]

MOST_CALLS: Final = 128
TURN: Final = 1.0  # seconds without an answer, after which a place goes to one who waits


class Budget:
    """Places for attempts: who was not called yet, or is connected, comes before those that were silent."""

    __slots__ = ("_calling", "_first", "_later")

    def __init__(self) -> None:
        self._calling: dict[Dialer, None] = {}
        self._first: dict[Dialer, None] = {}
        self._later: dict[Dialer, None] = {}

    @property
    def wanted(self) -> bool:
        """Whether anybody waits for a place."""
        return bool(self._first or self._later)

    def enter(self, dialer: Dialer, silent: bool) -> bool:
        """Whether a dialer may call now; else its `turn` comes. `silent`: its peer did not answer before."""
        if dialer in self._calling:
            return True
        if len(self._calling) < MOST_CALLS:
            self._calling[dialer] = None
            return True
        (self._later if silent else self._first)[dialer] = None
        return False

    def leave(self, dialer: Dialer) -> None:
        """It calls no more, or does not want to."""
        self._first.pop(dialer, None)
        self._later.pop(dialer, None)
        if dialer not in self._calling:
            return
        del self._calling[dialer]
        waiting = self._first or self._later
        if waiting:
            following = next(iter(waiting))
            del waiting[following]
            self._calling[following] = None
            following.turn()
