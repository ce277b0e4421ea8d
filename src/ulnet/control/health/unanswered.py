"""What was sent long ago and never answered is no load of its path any more.

A PUT that finds no memory is dropped without a word, so its ACK never comes; its descriptor may live on, and
would hold the load for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ulnet.core.memory import Memory

__all__ = ["Unanswered"]

_PAUSE: Final = 5.0  # seconds between two looks at all descriptors, of which there may be very many


class Unanswered:
    """Takes from the load of paths what no answer is to be expected for."""

    __slots__ = ("_looked_at", "_memory", "_uncork")

    def __init__(self, memory: Memory, uncork: Callable[[], None]) -> None:
        self._uncork: Callable[[], None] = uncork
        self._memory = memory
        self._looked_at = 0.0

    def look(self, now: float) -> None:
        """Look at all descriptors, if that is due: those that sent nothing for as long as answers may take.

        While a descriptor goes on sending, nobody can tell which of its messages an answer is for.
        """
        if now - self._looked_at < _PAUSE:
            return
        self._looked_at = now
        self._uncork()
        for md in self._memory.mds.values():
            if md.in_flight and self._memory.deadline_of(md, md.sent_at) < now:
                in_flight = md.in_flight.copy()
                md.in_flight.clear()
                for one in in_flight:
                    one.abandon()
