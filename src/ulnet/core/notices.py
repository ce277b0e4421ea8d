"""Log lines that may come in floods: each kind once a second, with the number of those left out.

A failure may concern thousands of paths at once: of all kinds together there are so many lines a second.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from ulnet.core.lines import Line, longer

__all__ = ["Notices"]

_INTERVAL = 1.0
_MOST_LINES = 64
_MOST_KINDS = 256


class Notices:
    """Passes lines on to `report`, or to where else they are meant for; `kind` tells which are alike."""

    __slots__ = ("_alike", "_clock", "_left_out", "_lines", "_most", "_recent", "_report", "_since")

    def __init__(
        self, clock: Callable[[], float], report: Callable[[str], None], most: int = _MOST_LINES
    ) -> None:
        self._clock = clock
        self._most = most
        self._report = report
        self._recent: dict[Hashable, tuple[float, int]] = {}  # when last, how many left out since
        self._since = -_INTERVAL  # when the present second began
        self._lines = 0  # reported in it
        self._left_out = 0  # of kinds not yet reported
        self._alike = 0  # left out before the line that is due

    def say(self, kind: Hashable, line: str, report: Callable[[str], None] | None = None) -> None:
        """Report line, unless one of its kind, or very many others, were reported within the last second."""
        if self.is_due(kind):
            self.tell(line, report)

    def is_due(self, kind: Hashable) -> bool:
        """Whether a line of that kind is to be reported, so that it is made; else it counts as left out."""
        now = self._clock()
        last, left_out = self._recent.get(kind, (-_INTERVAL, 0))
        if now - last < _INTERVAL:
            self._recent[kind] = (last, left_out + 1)
            return False
        if not self._has_room(now):
            self._left_out += 1
            return False
        if len(self._recent) >= _MOST_KINDS:
            self._recent.clear()
        self._recent[kind] = (now, 0)
        self._alike = left_out
        return True

    def tell(self, line: str, report: Callable[[str], None] | None = None) -> None:
        """Report the line that is due."""
        alike = self._alike
        (report or self._report)(longer(line, f" (and {alike} more like this)") if alike else line)

    def _has_room(self, now: float) -> bool:
        if now - self._since >= _INTERVAL:
            self._since = now
            self._lines = 0
            if self._left_out:
                text = f"{self._left_out} lines about other paths and peers were left out"
                self._report(Line("log.left_out", text))
                self._left_out = 0
        self._lines += 1
        return self._lines <= self._most
