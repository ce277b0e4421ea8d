"""Whether to look once more before the process sleeps, and for how long (measured: docs/design/measured.md).

A CPU that sleeps takes some 70 microseconds to wake: more than all else of a round trip. Who waits for the
next message may poll for it meanwhile, if told to. That is of no use where it shares the CPU with the
sender, or where nothing comes: the more often it was in vain, the more seldom it is tried.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from time import monotonic
from typing import Final

__all__ = ["Spin"]

_MOST_SKIPPED: Final = 63
_LONGEST: Final = 0.001  # seconds for one connection, however much comes, before the others have their turn


class Spin:
    """Looking for more: for `seconds` (0: never) after a message, for `longest` on one connection at most."""

    __slots__ = ("_misses", "_number", "_poll", "_skip", "longest", "seconds")

    def __init__(self, microseconds: int) -> None:
        self.seconds: float = microseconds / 1e6
        self.longest: float = _LONGEST
        self._misses = 0
        self._skip = 0  # so many times more it is not tried
        self._poll = select.poll()
        self._number = -1  # what that looks at

    def wanted(self) -> bool:
        """Whether to try it this time."""
        if not self._skip:
            return self.seconds > 0
        self._skip -= 1
        return False

    def go_on(self, number: int, read: Callable[[], bool | None]) -> None:
        """Read that socket for a moment, whenever something is there; `read` gives None once it is closed."""
        found = False
        begin = now = monotonic()
        until = self.end(begin, now)
        more: bool | None = False
        while now < until and more is not None:
            more = read() if self.look(number) else False
            now = monotonic()
            if more:
                found = True
                until = self.end(begin, now)
        self.tried(found)

    def look(self, number: int) -> bool:
        """Whether there is something to read; a read in vain costs three times as much, for its exception."""
        if number != self._number:
            if self._number >= 0:
                self._poll.unregister(self._number)
            self._poll.register(number, select.POLLIN)
            self._number = number
        return len(self._poll.poll(0)) > 0

    def end(self, begin: float, now: float) -> float:
        """Until when to look, something having come at `now`; `begin` is when looking began."""
        return min(now + self.seconds, begin + self.longest)

    def tried(self, found: bool) -> None:
        """Looking is over, and something came or not."""
        self._misses = 0 if found else min(2 * self._misses + 1, _MOST_SKIPPED)
        self._skip = self._misses
