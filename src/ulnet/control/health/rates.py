"""NIs that carry far less than they should, by what is measured while they are busy (docs/design/health.md).

A low rate mostly has other causes: little to send, a slow peer, a slow node. So an NI is blamed only when the
way is full, no peer does well over it, and somebody does well over another NI.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Final

from ulnet.control.health.machines import Machines
from ulnet.control.health.stale import StaleRates
from ulnet.control.health.unanswered import Unanswered
from ulnet.control.meter import Meter, Total
from ulnet.core.ni import NI
from ulnet.core.path_load import PathLoad
from ulnet.core.peer import Peer
from ulnet.core.state import NodeState
from ulnet.core.states import NiInput
from ulnet.core.timers import Timer

__all__ = ["RATE", "Rates"]

RATE: Final = "rate"  # in `NI.degraded`
_READINGS: Final = 4  # in a row, that make a verdict
_PATIENCE: Final = 5.0  # seconds that they must span
_LATELY: Final = 10.0  # seconds for which a reading speaks of the present
_FULLER: Final = 1.1  # a byte must take longer than at the best rate: else less is sent, not carried
_NEARLY: Final = 0.9  # of its best: such a way is not tried again, it is used
_FAR_MORE: Final = 2.0  # times what an NI has shown: then its link is asked what it could
_LINK_SHARE: Final = 0.9  # of a link's bits are payload, at least
_AGAIN: Final = 1.0  # seconds between looks at those that are slow, and at all peers
_PAUSE: Final = 4.0  # seconds without a sample after which a degraded NI is tried again


@dataclass(slots=True)
class _Witnesses:
    """What the peers of an NI showed lately."""

    at: float
    good_since: float  # for how long one of them has been carried well
    accusers: int  # that are slow over it, and not over others
    elsewhere: bool  # somebody is carried well over another device


class Rates:
    """Judges readings. Ways that traffic left for their rate are presumed faster until it uses them."""

    __slots__ = (
        "_accused",
        "_machines",
        "_slept_at",
        "_slow",
        "_stale",
        "_state",
        "_timer",
        "_totals",
        "_unanswered",
        "_uncork",
        "_witnesses",
    )

    def __init__(
        self, state: NodeState, machines: Machines, unanswered: Unanswered, uncork: Callable[[], None]
    ) -> None:
        self._state = state
        self._uncork: Callable[[], None] = uncork
        self._unanswered = unanswered  # load that is none: looked for while there is traffic
        self._machines = machines
        self._totals: dict[NI, Total] = {}
        self._accused: dict[NI, tuple[Meter, float]] = {}  # the degraded: by whom, and what they should carry
        self._witnesses: dict[NI, _Witnesses] = {}
        self._slow: dict[Meter, None] = {}
        self._stale = StaleRates(state, uncork)
        self._slept_at = -1.0  # when this process was last kept from running
        self._timer: Timer | None = None

    def path_load(self, ni: NI, peer: Peer) -> PathLoad:
        """The new load of the path from ni to any NID of peer."""
        total = self._totals.get(ni)
        if total is None:
            total = self._totals[ni] = Total()
        return Meter(ni, peer, total, self._read, self._stale.watch)

    # Readings --------------------------------------------------------------------------------------

    def _read(self, meter: Meter) -> None:
        now = self._state.clock()
        self._unanswered.look(now)
        percent = self._state.settings.degraded_below
        if not percent:
            return
        for other in self._others(meter):
            if 0 < other.rate < other.best * _NEARLY and now - other.fed_at >= _AGAIN:
                self._watch(other)
        usual, delay = self._usual(meter)
        if not usual:
            return  # it is the first
        if meter.read_rate < usual * percent / 100 and meter.delay > delay * _FULLER:
            meter.good = 0
            meter.slow += 1
            if meter.slow_since < self._slept_at:  # that may have made it slow
                meter.slow = 1
            if meter.slow == 1:
                meter.slow_since = now
            self._watch(meter)
            self._accuse(meter, usual, now)
        elif meter.read_rate >= usual * _enough(percent):
            meter.slow = 0
            meter.good += 1
            if meter.good == 1:
                meter.good_since = now
            if meter.good >= _READINGS and now - meter.good_since >= _PATIENCE:
                self._defend(meter, percent)

    def _usual(self, meter: Meter) -> tuple[float, float]:
        """The rate that can be asked of the NI towards the peer, and the time a byte takes at it.

        What it has shown; or what its link has, as far as node and peer have shown as much elsewhere.
        """
        link = meter.ni.link_rate * _LINK_SHARE
        if link > meter.best:
            for other in self._others(meter):
                if min(link, other.best) > meter.best * _FAR_MORE:
                    return min(link, other.best), other.best_delay
        return meter.best, meter.best_delay

    def slept(self, seconds: float) -> None:
        """This process did not run for so long: who is slow must be so for some time anew."""
        self._slept_at = self._state.clock()

    def _accuse(self, meter: Meter, usual: float, now: float) -> None:
        ni = meter.ni
        if ni.degraded or not self._ripe(meter, now) or not self._guilty(meter, usual, now):
            return
        why = f"{_text(meter.read_rate)} to {meter.peer.primary_nid}, in place of {_text(usual)}"
        ni.degraded[RATE] = why
        self._accused[ni] = meter, max(usual, meter.total.best)
        self._machines.ni(ni, NiInput.SLOW, why)

    @staticmethod
    def _ripe(meter: Meter, now: float) -> bool:
        return meter.slow >= _READINGS and now - meter.slow_since >= _PATIENCE

    def _guilty(self, meter: Meter, usual: float, now: float) -> bool:
        """Whether it is the NI, and neither the peer nor this node."""
        total = meter.total
        if total.rate * 100 >= max(usual, total.best) * self._state.settings.degraded_below:
            return False  # several peers share it
        known = self._heard(meter.ni, now)
        if known.good_since < meter.slow_since:
            return False
        since = now - _LATELY
        if usual <= meter.best and any(one.good and one.read_at >= since for one in self._others(meter)):
            return True
        # Against its link alone, or where this peer has no other way, one peer is not enough.
        return known.accusers > 1 and known.elsewhere

    def _heard(self, ni: NI, now: float) -> _Witnesses:
        """What all peers say of an NI. They may be thousands, all of them slow: asked once in a while."""
        known = self._witnesses.get(ni)
        if known is not None and now - known.at < _AGAIN:
            return known
        since = now - _LATELY
        mine = [one for one in self._all(ni) if one.read_at >= since]
        accusers = [
            one
            for one in mine
            if self._ripe(one, now) and not any(o.slow for o in self._others(one) if o.read_at >= since)
        ]
        elsewhere = any(
            one.good and one.read_at >= since
            for other in self._state.nis.values()
            if _apart(other, ni)
            for one in self._all(other)
        )
        good_since = min((one.good_since for one in mine if one.good), default=inf)
        known = self._witnesses[ni] = _Witnesses(now, good_since, len(accusers), elsewhere)
        return known

    def _all(self, ni: NI) -> Iterator[Meter]:
        for peer in self._state.peers:
            path_load = peer.path_loads.get(ni)
            if isinstance(path_load, Meter):
                yield path_load

    @staticmethod
    def _others(meter: Meter) -> Iterator[Meter]:
        """The meters of the same peer over other devices."""
        for ni, path_load in meter.peer.path_loads.items():
            if isinstance(path_load, Meter) and _apart(ni, meter.ni):
                yield path_load

    def _defend(self, meter: Meter, percent: int) -> None:
        """A peer does well over an NI: is it good again? Yes if this peer accused it, or all show enough."""
        accuser, usual = self._accused.get(meter.ni, (meter, 0.0))
        if usual and (meter is accuser or accuser.peer.gone or meter.total.rate >= usual * _enough(percent)):
            self._absolve(meter.ni, f"{_text(meter.read_rate)} to {meter.peer.primary_nid}")

    def _absolve(self, ni: NI, why: str) -> None:
        self._accused.pop(ni, None)
        if ni.degraded.pop(RATE, None) is not None and not ni.degraded:
            self._machines.ni(ni, NiInput.GOOD, why)

    def ni_failed(self, ni: NI) -> None:
        """Its device is gone: what was measured before says nothing of what comes back."""
        ni.degraded.clear()
        self._accused.pop(ni, None)
        self._witnesses.pop(ni, None)
        for meter in self._all(ni):
            meter.forget()

    def ni_deleted(self, ni: NI) -> None:
        """Forget the readings of an NI that was deleted."""
        self.ni_failed(ni)
        self._totals.pop(ni, None)

    def settings_changed(self) -> None:
        """Rates may not be judged any more."""
        if not self._state.settings.degraded_below:
            for ni in self._state.nis.values():
                self._absolve(ni, "rates are not judged any more")

    # What was slow is tried again --------------------------------------------------------------------

    def _watch(self, meter: Meter) -> None:
        self._slow[meter] = None
        if self._timer is None:
            self._timer = self._state.timers.at(self._state.clock() + _AGAIN, self._look)

    def _look(self) -> None:
        self._timer = None
        self._uncork()
        now = self._state.clock()
        for meter in list(self._slow):
            if not 0 < meter.rate < meter.best * _NEARLY or meter.peer.path_loads.get(meter.ni) is not meter:
                del self._slow[meter]
            elif not meter.outstanding and now - meter.fed_at >= (_PAUSE if meter.ni.degraded else _AGAIN):
                meter.presume(min(meter.rate * 2, meter.best))
        if self._slow:
            self._timer = self._state.timers.at(now + _AGAIN, self._look)

    def close(self) -> None:
        """The node shuts down."""
        self._state.timers.cancel(self._timer)
        self._slow.clear()
        self._stale.close()


def _enough(percent: int) -> float:
    """The share of its usual rate from which on an NI is good: well above that where it is degraded."""
    return min(2 * percent, 95) / 100


def _apart(one: NI, other: NI) -> bool:
    """Whether they are on different devices."""
    return one is not other and (one.interface is None or one.interface != other.interface)


def _text(rate: float) -> str:
    return f"{rate / 1e6:.3g} MB/s"
