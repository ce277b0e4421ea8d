"""The fault rules of one node, and the messages that they hold back (spec net-fault.md §2, §4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from ulnet.core.faults.rule import Fault, FaultKind, FaultRule
from ulnet.core.status import HealthStatus
from ulnet.nid import ANY_NID, Nid

if TYPE_CHECKING:
    from ulnet.core.msg import Msg
    from ulnet.core.ni import NI
    from ulnet.core.state import NodeState
    from ulnet.core.timers import Timer
    from ulnet.wire.lnet import Header

__all__ = ["MAX_HELD", "Fate", "FaultInjector"]

MAX_HELD: Final = 4096  # arrived messages that one rule may hold: their number is the peers' choice


class Fate(Enum):
    """What becomes of a message."""

    PASSES = auto()
    DROPPED = auto()
    HELD = auto()  # `again` will be called


@dataclass(slots=True, eq=False)
class _Held:
    """A message that waits for its latency to pass."""

    due: float
    ni: NI
    hdr: Header
    rx: object  # of a payload that is still to be read
    again: Callable[[], None]


@dataclass(slots=True, eq=False)
class _Delay:
    """A delay rule, and what it holds, in the order in which it is due."""

    rule: FaultRule
    held: deque[_Held] = field(default_factory=deque)
    timer: Timer | None = None


class FaultInjector:
    """Rules of both kinds, the newest first.

    `active` while there are any: both halves look at that first. `chance` gives numbers from 0 up to, but
    without, 1.
    """

    __slots__ = ("_chance", "_delays", "_drops", "_passing", "_state", "active")

    def __init__(self, state: NodeState, chance: Callable[[], float]) -> None:
        self._state = state
        self._chance = chance
        self.active: bool = False
        self._drops: list[FaultRule] = []
        self._delays: list[_Delay] = []
        self._passing: Header | None = None  # of the message being released: it is not delayed twice

    # Configuration ---------------------------------------------------------------------------------

    def add(self, fault: Fault) -> FaultRule:
        """A new rule. Raises LNetError(EINVAL, ESHUTDOWN)."""
        self._state.must_run()
        rule = FaultRule(fault.checked(), self._state.clock(), self._chance)
        if fault.kind is FaultKind.DROP:
            self._drops.insert(0, rule)
        else:
            self._delays.insert(0, _Delay(rule))
        self.active = True
        self._state.generation.invalidate("there are fault rules")
        return rule

    def delete(self, kind: FaultKind, source: Nid = ANY_NID, dest: Nid = ANY_NID) -> int:
        """Delete the rules with that source and destination, ANY_NID for whatever; how many there were.

        What they held goes on at once.
        """

        def named(rule: FaultRule) -> bool:
            return source in (ANY_NID, rule.fault.source) and dest in (ANY_NID, rule.fault.dest)

        if kind is FaultKind.DROP:
            gone = [rule for rule in self._drops if named(rule)]
            self._drops = [rule for rule in self._drops if not named(rule)]
            self._keep_watch()
            return len(gone)
        delays = [delay for delay in self._delays if named(delay.rule)]
        self._delays = [delay for delay in self._delays if delay not in delays]
        for delay in delays:
            self._release(delay)
        self._keep_watch()
        return len(delays)

    def reset(self, kind: FaultKind) -> int:
        """Zero the counters of the rules of that kind; how many there are."""
        rules = self.rules(kind)
        for rule in rules:
            rule.reset(self._state.clock())
        return len(rules)

    def rules(self, kind: FaultKind) -> list[FaultRule]:
        """The rules of that kind, the newest first."""
        return list(self._drops) if kind is FaultKind.DROP else [delay.rule for delay in self._delays]

    def close(self) -> None:
        """The node shuts down: no rule is left, what they held goes on to its end."""
        self.delete(FaultKind.DROP)
        self.delete(FaultKind.DELAY)

    def _keep_watch(self) -> None:
        if self.active and not (self._drops or self._delays):
            self.active = False
            self._state.generation.invalidate("there are no fault rules")

    # Messages --------------------------------------------------------------------------------------

    def send(self, msg: Msg, ni: NI, again: Callable[[], None]) -> HealthStatus | Fate:
        """What becomes of a message that is about to go to the driver: a status is how it fails."""
        hdr = msg.hdr
        now = self._state.clock()
        delay = self._delay_for(hdr, now)
        if delay is not None:
            self._hold(delay, _Held(now + delay.rule.fault.latency, ni, hdr, None, again))
            return Fate.HELD
        for rule in self._drops:
            fault = rule.fault
            if (fault.health or fault.drop_all) and rule.matches(hdr, None) and rule.strikes(hdr.type, now):
                return rule.status()
        return Fate.PASSES

    def receive(self, ni: NI, hdr: Header, rx: object, again: Callable[[], None]) -> Fate:
        """What becomes of a message that has arrived on ni; its header is good."""
        if hdr is self._passing:
            return Fate.PASSES
        now = self._state.clock()
        for rule in self._drops:
            fault = rule.fault
            if fault.health and not fault.drop_all:
                continue
            if rule.matches(hdr, ni.nid) and rule.strikes(hdr.type, now):
                return Fate.DROPPED
        delay = self._delay_for(hdr, now)
        if delay is None or len(delay.held) >= MAX_HELD:
            return Fate.PASSES
        waits = rx if hdr.payload_length else None
        self._hold(delay, _Held(now + delay.rule.fault.latency, ni, hdr, waits, again))
        return Fate.HELD

    def _delay_for(self, hdr: Header, now: float) -> _Delay | None:
        """The rule that delays the message."""
        if hdr is self._passing:
            return None
        for delay in self._delays:
            if delay.rule.matches(hdr, None) and delay.rule.strikes(hdr.type, now):
                return delay
        return None

    # Held messages ---------------------------------------------------------------------------------

    def _hold(self, delay: _Delay, held: _Held) -> None:
        delay.held.append(held)
        if delay.timer is None:
            self._wait(delay)

    def _wait(self, delay: _Delay) -> None:
        def due() -> None:
            delay.timer = None
            now = self._state.clock()
            while delay.held and delay.held[0].due <= now:
                self._go_on(delay.held.popleft())
            if delay.held and delay.timer is None:
                self._wait(delay)

        delay.timer = self._state.timers.at(delay.held[0].due, due)

    def _go_on(self, held: _Held) -> None:
        self._passing = held.hdr
        try:
            held.again()
        finally:
            self._passing = None

    def _release(self, delay: _Delay) -> None:
        self._state.timers.cancel(delay.timer)
        delay.timer = None
        while delay.held:
            self._go_on(delay.held.popleft())

    def ni_removed(self, ni: NI) -> None:
        """An NI goes: what is held for it goes on, to find out."""
        for delay in list(self._delays):
            for held in [one for one in delay.held if one.ni is ni]:
                if held in delay.held:
                    delay.held.remove(held)
                    self._go_on(held)

    def forget_rx(self, rx: object) -> list[tuple[NI, Header]]:
        """A connection died: forget the messages held whose payload will never come, and name them."""
        lost: list[tuple[NI, Header]] = []
        for delay in self._delays:
            for held in [one for one in delay.held if one.rx is rx]:
                delay.held.remove(held)
                lost.append((held.ni, held.hdr))
        return lost
