"""Expected times, from those that were observed: mean and deviation, as TCP estimates its round trips."""

from __future__ import annotations

from typing import Final

__all__ = ["Estimate"]

_MEAN: Final = 0.125  # the share of a new time in the mean
_DEVIATION: Final = 0.25


class Estimate:
    """Of one kind of time, in seconds: it hardly takes longer than `expected`, at first `first`."""

    __slots__ = ("_deviation", "_seen", "expected", "mean")

    def __init__(self, first: float) -> None:
        self.expected: float = first
        self._seen = False
        self.mean: float = 0.0
        self._deviation = 0.0

    def observe(self, seconds: float) -> None:
        """It took that long."""
        seconds = max(seconds, 0.0)
        if self._seen:
            error = seconds - self.mean
            self.mean += _MEAN * error
            self._deviation += _DEVIATION * (abs(error) - self._deviation)
        else:
            self._seen = True
            self.mean = seconds
            self._deviation = seconds / 2
        self.expected = self.mean + 4 * self._deviation
