"""What was sent long ago and never answered is no load of its path any more.

A PUT that finds no memory is dropped without a word, so its ACK never comes; its descriptor may live on, and
would hold the load for ever.
"""

from __future__ import annotations

from typing import Final

from ulnet.core.memory import Memory
from ulnet.core.state import NodeState

__all__ = ["Unanswered"]

_PAUSE: Final = 5.0  # seconds between two looks at all descriptors, of which there may be very many


class Unanswered:
    """Takes from the load of paths what no answer is to be expected for."""

    __slots__ = ("_looked_at", "_memory", "_state")

    def __init__(self, state: NodeState, memory: Memory) -> None:
        self._state = state
        self._memory = memory
        self._looked_at = 0.0

    def look(self, now: float) -> None:
        """Look at all descriptors, if that is due: those that sent nothing for as long as answers may take.

        While a descriptor goes on sending, nobody can tell which of its messages an answer is for.
        """
        if now - self._looked_at < _PAUSE:
            return
        self._looked_at = now
        self._state.settle()
        for md in self._memory.mds.values():
            if md.flights and self._memory.deadline_of(md, md.sent_at) < now:
                flights = md.flights.copy()
                md.flights.clear()
                for flight in flights:
                    flight.abandon()
