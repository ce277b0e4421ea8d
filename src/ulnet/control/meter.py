"""What an NI carries towards one peer while it is busy: readings of a quarter second, and the best of them.

Made of the samples that a path_load takes anyway, so that a message costs nothing more. A reading has a
rate, and the time that a byte takes at it (by Little's law: bytes under way, divided by the rate).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ulnet.core.ni import NI
from ulnet.core.path_load import PathLoad
from ulnet.core.peer import Peer

__all__ = ["Meter", "Past", "Total"]

_READING: Final = 0.25  # seconds of being busy
_FADING: Final = 0.69 / 3600  # of the best, for each such second: it halves in an hour
_NEARLY: Final = 0.9
_WOKEN: Final = 1.0  # seconds without a sample, after which one is news
_WINDOW: Final = 2.0  # seconds of a total


class Total:
    """What an NI carries to all its peers together: lately, and at best."""

    __slots__ = ("_bytes", "_since", "best", "rate")

    def __init__(self) -> None:
        self._bytes = 0
        self._since = 0.0
        self.rate: float = 0.0
        self.best: float = 0.0

    def add(self, size: int, now: float) -> None:
        """Count bytes that are delivered now."""
        self._bytes += size
        elapsed = now - self._since
        if elapsed < _WINDOW:
            return
        self.rate = self._bytes / elapsed
        self.best = max(self.best * (1 - _FADING * _WINDOW), self.rate)
        self._bytes = 0
        self._since = now


class Past(NamedTuple):
    """The rate that a path lost because it was old, and for how many seconds it keeps the next one."""

    keeps: float
    rate: float


class Meter(PathLoad):
    """From an NI to any NID of a peer, with readings: rates in bytes per second, delays in seconds.

    `read` is called after each reading, `woken` before the first sample after a pause of a second.

    What follows from readings is kept here by `ulnet.control.health.rates`: since when, and for how many
    readings, the rate is far too low (`slow…`) or good (`good…`).
    """

    __slots__ = (
        "_bytes",
        "_depth",
        "_read",
        "_seconds",
        "_woken",
        "best",
        "best_delay",
        "delay",
        "good",
        "good_since",
        "ni",
        "past",
        "peer",
        "read_at",
        "read_rate",
        "slow",
        "slow_since",
        "total",
    )

    def __init__(
        self, ni: NI, peer: Peer, total: Total, read: Callable[[Meter], None], woken: Callable[[Meter], None]
    ) -> None:
        super().__init__(peer.rates)
        self.ni: NI = ni
        self.peer: Peer = peer
        self.total: Total = total
        self._read: Callable[[Meter], None] = read
        self._woken: Callable[[Meter], None] = woken
        self.past: dict[PathLoad, Past] = {}  # of this path and of its pairs of NIDs
        self._bytes = 0
        self._seconds = 0.0
        self._depth = 0.0
        self.read_rate: float = 0.0  # of the last reading
        self.delay: float = 0.0
        self.best: float = 0.0
        self.best_delay: float = 0.0
        self.read_at: float = -1.0
        self.slow: int = 0  # readings in a row
        self.good: int = 0
        self.slow_since: float = 0.0
        self.good_since: float = 0.0

    def take(self, size: int, seconds: float, depth: int, now: float) -> None:
        if now - self.fed_at >= _WOKEN:
            self._woken(self)
        super().take(size, seconds, depth, now)
        self.total.add(size, now)
        self._bytes += size
        self._seconds += seconds
        self._depth += depth * seconds
        if self._seconds < _READING:
            return
        self.read_rate = self._bytes / self._seconds
        self.delay = self._depth / self._bytes
        self.best *= max(1 - _FADING * self._seconds, 0.5)
        self._bytes = 0
        self._seconds = self._depth = 0.0
        self.read_at = now
        self._read(self)
        if self.read_rate > self.best * _NEARLY:
            self.best_delay = min(self.delay, self.best_delay or self.delay)
        self.best = max(self.best, self.read_rate)

    def forget(self) -> None:
        """Count anew."""
        self.slow = self.good = 0
