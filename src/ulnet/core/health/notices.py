"""Log lines that may come in floods: each kind once a second, with the number of those left out."""

from __future__ import annotations

from collections.abc import Callable, Hashable

__all__ = ["Notices"]

_INTERVAL = 1.0
_MOST_KINDS = 256


class Notices:
    """Passes lines on to `report`; `kind` tells which are alike."""

    __slots__ = ("_clock", "_recent", "_report")

    def __init__(self, clock: Callable[[], float], report: Callable[[str], None]) -> None:
        self._clock = clock
        self._report = report
        self._recent: dict[Hashable, tuple[float, int]] = {}  # when last, how many left out since

    def say(self, kind: Hashable, line: str) -> None:
        """Report line, unless one of its kind was reported within the last second."""
        now = self._clock()
        last, left_out = self._recent.get(kind, (-_INTERVAL, 0))
        if now - last < _INTERVAL:
            self._recent[kind] = (last, left_out + 1)
            return
        if len(self._recent) >= _MOST_KINDS:
            self._recent.clear()
        self._recent[kind] = (now, 0)
        self._report(f"{line} (and {left_out} more like this)" if left_out else line)
