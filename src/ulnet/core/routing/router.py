"""Routing switched on and off, and what a router has: buffers, credits, its state (spec routing.md §4).

Messages pass from `set routing 1` on, but peers hear of it only when all have had time to see that this
node is up; they hear at once that it stops, and messages still pass until none comes any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ulnet.core.msg import Transit
from ulnet.core.routing.gate import Gate
from ulnet.core.routing.pools import DEFAULT_COUNTS, Pools
from ulnet.core.routing.settings import RoutingSettings
from ulnet.core.routing.state import TRANSITIONS, RoutingAction, RoutingInput, RoutingState
from ulnet.core.state import NodeState
from ulnet.core.timers import Timer
from ulnet.nid import LO_NET, Net, Nid

__all__ = ["OVERDUE", "Router"]

_LOOK_AGAIN: Final = 1.0  # seconds between looks whether all has passed, or waits for too long
_PATROL: Final = 0.2  # seconds between looks at routers of which nothing passes
_LONGEST_DRAIN: Final = 3  # settling times
_AT_ONCE: Final = 256  # messages that are dropped in a turn of the loop
OVERDUE: Final = "its time was up before it could be sent on"


class Router:
    """One node's routing.

    `admit` lets a message pass, `drop` ends one that waits, `tell` pushes what the node says of itself anew.
    """

    __slots__ = (
        "_drop",
        "_give_up_at",
        "_look_at",
        "_patrol",
        "_pinged_at",
        "_settings",
        "_silence",
        "_state",
        "_tell",
        "_timer",
        "announced",
        "gate",
        "opened",
        "silent_nids",
        "state",
        "until",
    )

    def __init__(
        self,
        state: NodeState,
        settings: RoutingSettings,
        admit: Callable[[Transit], None],
        drop: Callable[[Transit, str], None],
        tell: Callable[[], None],
    ) -> None:
        self._state = state
        self._drop: Callable[[Transit, str], None] = drop
        self._tell: Callable[[], None] = tell
        self._settings = settings
        self.state: RoutingState = RoutingState.DISABLED
        self.announced: bool = False  # whether the ping info says that this node routes
        self.opened: bool = False  # whether it ever routed: its buffers are shown from then on
        self.gate: Gate = Gate(Pools(state.cpts.count), admit, state.defer, self._look_soon)
        self._patrol: Timer | None = None  # when to see to what waits at the gate …
        self._look_at = 0.0  # … and when to look for what is overdue there
        self.silent_nids: frozenset[Nid] = frozenset()  # on nets where nobody pinged, and not pinged since
        self._pinged_at: dict[Net, float] = {}
        self._timer: Timer | None = None
        self._silence: Timer | None = None  # when to look for nets without pings
        self._give_up_at = 0.0
        self.until: float = 0.0  # when it has started, or may have stopped; 0 if neither is to be waited for

    def enable(self, wanted: bool) -> None:
        """`set routing 1` or 0. Raises LNetError(ESHUTDOWN)."""
        self._state.must_run()
        self._input(RoutingInput.ENABLE if wanted else RoutingInput.DISABLE)

    def set_buffers(
        self, tiny: int | None = None, small: int | None = None, large: int | None = None
    ) -> None:
        """Have so many buffers; None keeps a number, 0 is its default. Raises LNetError(EINVAL).

        As today, a node that does not route forgets them: they begin with the defaults.
        """
        pools = self.gate.pools
        counts = Pools.checked(tiny, small, large, pools.counts)
        if self.state is not RoutingState.DISABLED:
            pools.resize(counts)
            self.gate.resized()

    def close(self) -> None:
        """The node shuts down."""
        for timer in (self._timer, self._silence, self._patrol):
            self._state.timers.cancel(timer)
        if self._state.forwards:
            self._close()
            self.state = RoutingState.DISABLED

    # ---------------------------------------------------------------------------------------------

    def _input(self, event: RoutingInput) -> None:
        action, after = TRANSITIONS[self.state, event]
        if after is not self.state:
            self._state.timers.cancel(self._timer)
            self._timer = None
        self.state = after
        now, settling = self._state.clock(), self._settings.settling_time
        if after in (RoutingState.ENABLED, RoutingState.DISABLED):
            self.until = 0.0
        if action is RoutingAction.OPEN:
            self._open()
        if action in (RoutingAction.OPEN, RoutingAction.STAY):
            self._set_timer(now + settling, lambda: self._input(RoutingInput.SETTLED))
        elif action is RoutingAction.ANNOUNCE:
            self.announced = True
            self._tell()
        elif action is RoutingAction.RETRACT:
            self._give_up_at = now + _LONGEST_DRAIN * settling
            self._set_timer(now + settling, self._look_whether_drained)
            if self.announced:
                self.announced = False
                self._tell()
        elif action is RoutingAction.CLOSE:
            self._close()

    def _look_soon(self) -> None:
        """A message begins to wait at the gate."""
        if self._patrol is None:
            self._patrol = self._state.timers.at(self._state.clock() + _PATROL, self._look)

    def _look(self) -> None:
        """Let what is stuck go on, and drop what has waited for too long."""
        now = self._state.clock()
        self._patrol = None
        self.gate.relieve()
        if now >= self._look_at:
            self._look_at = now + _LOOK_AGAIN
            self._drop_some(deque(one for one in self.gate.waiting() if now > one.deadline), OVERDUE)
        if self.gate.anything_waits:
            self._look_soon()

    def _drop_some(self, over: deque[Transit], why: str) -> None:
        """Drop those of these that still wait, so many in a turn, or all when the node shuts down."""
        if over and self._state.running:
            self._state.defer(self._drop_some, over, why)  # first, as a driver may raise something
        for _ in range(min(_AT_ONCE, len(over)) if self._state.running else len(over)):
            transit = over.popleft()
            if not transit.left and transit.buffer is None:
                self._drop(transit, why)

    def _set_timer(self, when: float, call: Callable[[], None]) -> None:
        self.until = when
        self._timer = self._state.timers.at(when, call)

    def _look_whether_drained(self) -> None:
        now = self._state.clock()
        if not len(self.gate) or now >= self._give_up_at:
            self._input(RoutingInput.DRAINED)
        else:
            self._set_timer(now + _LOOK_AGAIN, self._look_whether_drained)
            self.until = self._give_up_at

    def _open(self) -> None:
        self.opened = True
        self._state.forwards = True
        self._pinged_at = {}
        self._listen()
        self.gate.pools.keep_memory(True)
        self.gate.pools.resize(DEFAULT_COUNTS)
        self.gate.resized()

    def pinged(self, nid: Nid) -> None:
        """Another node pinged that NI: its net is in use, and the NI is up (spec routing.md §3)."""
        if self._state.forwards:
            self._pinged_at[nid.net] = self._state.clock()
            self._set_silent(self.silent_nids - {nid})

    def _listen(self) -> None:
        """All NIs of nets on which no ping came for that long count as down, each until it is pinged."""
        now, patience = self._state.clock(), self._settings.settling_time
        self._pinged_at = {net: self._pinged_at.get(net, now) for net in self._state.nets}
        due = {net for net, at in self._pinged_at.items() if net != LO_NET and now - at >= patience}
        silent = (nid for nid in self._state.nis if nid.net in due or nid in self.silent_nids)
        self._set_silent(frozenset(silent))
        self._silence = self._state.timers.at(now + _LOOK_AGAIN, self._listen)

    def _set_silent(self, nids: frozenset[Nid]) -> None:
        if nids != self.silent_nids:
            self.silent_nids = nids
            self._tell()

    def _close(self) -> None:
        self._state.forwards = False
        self._state.timers.cancel(self._silence)
        self._set_silent(frozenset())
        self._drop_some(deque(self.gate.waiting()), "routing was disabled while it waited")
        self.gate.pools.keep_memory(False)
