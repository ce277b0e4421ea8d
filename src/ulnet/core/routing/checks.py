"""The router checker: gateways are asked for their state, now and then, on each net (spec routing.md §3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ulnet.core.timers import Timer, Timers
from ulnet.nid import Net, Nid

__all__ = ["Checks", "Watched"]


class Watched:
    """One gateway under watch: when it is due on which net, and whether an answer is awaited."""

    __slots__ = ("awaited", "checked", "due", "failed", "nid", "timer")

    def __init__(self, nid: Nid) -> None:
        self.nid: Nid = nid
        self.due: dict[Net, float] = {}
        self.awaited: bool = False
        self.checked: bool = False  # at least once, whatever came of it
        self.failed: set[Net] = set()  # where it did not answer, since it last did anywhere
        self.timer: Timer | None = None


class Checks:
    """Watches gateways by the NIDs that routes name; one question at a time each.

    `ask` pings the gateway on a net and pushes to it, whatever is known; `answered` is told the end.
    `nets_of` lists the nets that the gateway and this node share; `interval` is in seconds, 0 or less
    switches the checks off, all but the first, which comes with the route.
    """

    __slots__ = ("_ask", "_clock", "_interval", "_nets_of", "_timers", "_watched")

    def __init__(
        self,
        timers: Timers,
        clock: Callable[[], float],
        ask: Callable[[Nid, Net], None],
        nets_of: Callable[[Nid], Sequence[Net]],
        interval: Callable[[], int],
    ) -> None:
        self._timers = timers
        self._clock = clock
        self._ask: Callable[[Nid, Net], None] = ask
        self._nets_of = nets_of
        self._interval = interval
        self._watched: dict[Nid, Watched] = {}

    def find(self, gateway: Nid) -> Watched | None:
        """What is known of the checks of a gateway."""
        return self._watched.get(gateway)

    def watch(self, gateway: Nid) -> None:
        """Check a gateway at once, then at intervals; one under watch is checked at once."""
        watched = self._watched.setdefault(gateway, Watched(gateway))
        watched.due.clear()
        self._set_timer(watched, self._clock())

    def hurry(self, gateway: Nid) -> None:
        """A gateway did not answer on one net: ask on the others now."""
        watched = self._watched.get(gateway)
        if watched is not None:
            for net in watched.due:
                if net not in watched.failed:
                    watched.due[net] = self._clock()
            self._set_timer(watched, self._clock())

    def forget(self, gateway: Nid) -> None:
        """Check it no more."""
        watched = self._watched.pop(gateway, None)
        if watched is not None:
            self._timers.cancel(watched.timer)

    def answered(self, gateway: Nid) -> None:
        """A check ended, with an answer or without."""
        watched = self._watched.get(gateway)
        if watched is not None:
            watched.awaited = False
            watched.checked = True
            if watched.timer is None:
                self._arm(watched)

    def interval_changed(self) -> None:
        """Another interval counts from now on."""
        for watched in self._watched.values():
            watched.due.clear()
            if self._interval() > 0 or not watched.checked:
                self._set_timer(watched, self._clock())
            else:
                self._timers.cancel(watched.timer)
                watched.timer = None

    def _set_timer(self, watched: Watched, when: float) -> None:
        self._timers.cancel(watched.timer)
        watched.timer = self._timers.at(when, lambda: self._run(watched))

    def _run(self, watched: Watched) -> None:
        watched.timer = None
        now = self._clock()
        watched.due = {net: watched.due.get(net, now) for net in self._nets_of(watched.nid)}
        net = _next(watched)
        if net is not None and watched.due[net] <= now and not watched.awaited:
            following = watched.due[net] + self._pace()  # a timer that was late makes no net later and later
            watched.due[net] = following if following > now else now + self._pace()
            watched.awaited = True
            self._ask(watched.nid, net)
        if watched.nid in self._watched and watched.timer is None:
            self._arm(watched)

    def _arm(self, watched: Watched) -> None:
        """Come back for the next net. While an answer is awaited, its end is what is waited for."""
        if self._interval() > 0 and not watched.awaited:
            net = _next(watched)
            now = self._clock()
            self._set_timer(watched, now + self._pace() if net is None else max(watched.due[net], now))

    def _pace(self) -> int:
        interval = self._interval()
        return interval if interval > 0 else 60


def _next(watched: Watched) -> Net | None:
    """One that did not answer has its turn when all have been asked, however long ago it was due."""
    return min(watched.due, key=lambda net: (net in watched.failed, watched.due[net]), default=None)
