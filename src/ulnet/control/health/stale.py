"""Rates that no sample confirms any more are forgotten: no path stays empty for good that was slow once.

Only bytes that this node sends are measured, 65,536 of them or more. Where it sends requests, and what moves
afterwards follows them, what was measured before would choose the path of every request from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from ulnet.control.meter import Meter, Past
from ulnet.core.path_load import PathLoad
from ulnet.core.state import NodeState
from ulnet.core.timers import Timer

__all__ = ["StaleRates"]

_STALE: Final = 60.0  # seconds without a sample
_LAST: Final = 3600.0  # at most: a path that is slow each time it is tried is tried ever less often
_MORE: Final = 1.2  # times its former rate: then it was worth a try
_LOOK: Final = 5.0  # seconds between looks
_AT_ONCE: Final = 1024  # meters in a look: there may be as many as peers


class StaleRates:
    """Forgets what was measured long ago, of NIs towards peers and of their pairs of NIDs."""

    __slots__ = ("_known", "_state", "_timer", "_uncork")

    def __init__(self, state: NodeState, uncork: Callable[[], None]) -> None:
        self._state = state
        self._uncork: Callable[[], None] = uncork
        self._known: dict[Meter, None] = {}  # that may have rates, the one looked at longest ago first
        self._timer: Timer | None = None

    def watch(self, meter: Meter) -> None:
        """The meter is fed: look at its rate, and at those of its pairs of NIDs, from now on."""
        self._known[meter] = None
        if self._timer is None:
            self._timer = self._state.timers.at(self._state.clock() + _LOOK, self._look)

    def _look(self) -> None:
        self._timer = None
        self._uncork()
        now = self._state.clock()
        for meter in list(islice(self._known, _AT_ONCE)):
            del self._known[meter]
            ni, peer = meter.ni, meter.peer
            if peer.gone or peer.path_loads.get(ni) is not meter:
                continue
            pairs = [pni.path_loads[ni] for pni in peer.members.values() if ni in pni.path_loads]
            if len(meter.past) > len(pairs) + 1:  # NIDs left
                kept = {meter, *pairs}
                meter.past = {path_load: past for path_load, past in meter.past.items() if path_load in kept}
            rated = [path_load for path_load in (meter, *pairs) if _has_rate(path_load, meter.past, now)]
            if rated or now - meter.fed_at < _STALE:  # its first rate may follow
                self._known[meter] = None
        if self._known:
            self._timer = self._state.timers.at(now + _LOOK, self._look)

    def close(self) -> None:
        """The node shuts down."""
        self._state.timers.cancel(self._timer)
        self._known.clear()


def _has_rate(path_load: PathLoad, past: dict[PathLoad, Past], now: float) -> bool:
    """Whether the path has a rate still, which may be too old later; one that is now is forgotten."""
    rate = path_load.rate
    if not rate:
        return False
    former = past.get(path_load)
    if path_load.outstanding or now - path_load.fed_at < (former.keeps if former else _STALE):
        return True
    if former is None or rate > former.rate * _MORE:
        past[path_load] = Past(2 * _STALE, rate)
    else:
        past[path_load] = Past(min(2 * former.keeps, _LAST), rate)
    path_load.forget_rate()
    return False
