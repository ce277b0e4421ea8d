"""One fault rule: which messages it matches, and which of those it strikes (spec net-fault.md §2, §3)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from ulnet.core.status import HealthStatus, LNetError
from ulnet.nid import ANY_NID, Nid
from ulnet.wire.lnet import MsgType

if TYPE_CHECKING:
    from ulnet.wire.lnet import Header

__all__ = ["ALL_MESSAGES", "ANY_STATUS", "PORTAL_BITS", "Fault", "FaultKind", "FaultRule", "whole_net"]

PORTAL_BITS: Final = 64  # only the first portals can be named by a rule
ALL_MESSAGES: Final = 0xF  # one bit a MsgType: ACK 1, PUT 2, GET 4, REPLY 8
ANY_STATUS: Final = 0xFFFFFFFF
_REQUESTS: Final = 1 << MsgType.PUT | 1 << MsgType.GET
_LONGEST: Final = 86400  # seconds, of a delay
_ALL_ONES: Final = b"\xff\xff\xff\xff"


class FaultKind(Enum):
    """What a rule does."""

    DROP = "drop"
    DELAY = "delay"


@dataclass(frozen=True, slots=True)
class Fault:
    """What a rule is told. A NID may be ANY_NID, or 255.255.255.255@net for a whole net.

    `portals` and `messages` are bit masks, 0 for all; `health` is a mask of 1 << HealthStatus. A drop rule
    with `health` fails messages that are sent, one without drops those that arrive.
    """

    kind: FaultKind
    source: Nid
    dest: Nid
    local: Nid = ANY_NID  # of the NI that receives; a drop rule with one matches nothing that is sent
    portals: int = 0
    messages: int = 0
    rate: int = 0  # strike one message of so many
    interval: int = 0  # or one in so many seconds
    latency: float = 0  # seconds, of a delay
    health: int = 0
    random: bool = False  # toss a coin for each message
    drop_all: bool = False

    def checked(self) -> Fault:
        """This fault with its masks made whole. Raises LNetError(EINVAL)."""
        if (self.rate > 0) == (self.interval > 0) or self.rate < 0 or self.interval < 0:
            raise LNetError(
                errno.EINVAL, f"rate {self.rate} and interval {self.interval}: give one of them only, above 0"
            )
        if self.kind is FaultKind.DELAY and not 0 < self.latency <= _LONGEST:
            raise LNetError(
                errno.EINVAL,
                f"latency {self.latency:.9g}: a delay takes seconds, more than 0 and up to {_LONGEST}",
            )
        if self.random and not self.interval:
            raise LNetError(errno.EINVAL, "a random rule needs an interval in place of a rate")
        messages = self.messages or ALL_MESSAGES
        if self.portals:
            messages &= _REQUESTS
        if not messages:
            raise LNetError(
                errno.EINVAL, "ACK and REPLY have no portal: leave out the portals, or add PUT or GET"
            )
        return replace(self, messages=messages)


def whole_net(nid: Nid) -> bool:
    """Whether a rule's NID stands for all addresses of its net."""
    return not nid.is_any and nid.address[:4] == _ALL_ONES


def _fits(wanted: Nid, nid: Nid | None) -> bool:
    return wanted.is_any or wanted == nid or (nid is not None and whole_net(wanted) and wanted.net == nid.net)


class FaultRule:
    """A rule at work, with its counters.

    `count` is how many messages matched, `struck` how many of them were dropped or delayed, by type in
    `by_type`. `chance` gives numbers from 0 up to, but without, 1.
    """

    __slots__ = ("_base", "_chance", "_next_count", "_next_time", "by_type", "count", "fault", "struck")

    def __init__(self, fault: Fault, now: float, chance: Callable[[], float]) -> None:
        self.fault: Fault = fault
        self._chance = chance
        self.reset(now)

    def reset(self, now: float) -> None:
        """Zero the counters, and choose anew which messages are struck."""
        fault = self.fault
        self.count: int = 0
        self.struck: int = 0
        self.by_type: list[int] = [0, 0, 0, 0]  # indexed by MsgType
        every_second = fault.kind is FaultKind.DROP and fault.rate == 2
        self._next_count = 0 if every_second else self._below(fault.rate)
        self._base = now + fault.interval
        self._next_time = now + self._below(fault.interval)

    def _below(self, limit: int) -> int:
        return int(self._chance() * limit)

    def matches(self, hdr: Header, local: Nid | None) -> bool:
        """Whether a message is one of those meant; `local` is the NID of the NI that received it."""
        fault = self.fault
        if not (fault.messages >> hdr.type & 1 and _fits(fault.source, hdr.src_nid)):
            return False
        if not _fits(fault.dest, hdr.dest_nid):
            return False
        if fault.kind is FaultKind.DROP and not _fits(fault.local, local):
            return False
        return not fault.portals or (hdr.portal < PORTAL_BITS and bool(fault.portals >> hdr.portal & 1))

    def strikes(self, kind: int, now: float) -> bool:
        """Whether a matching message of that type is dropped or delayed; it is counted."""
        if not self._decide(now):
            return False
        self.struck += 1
        self.by_type[kind] += 1
        return True

    def _decide(self, now: float) -> bool:
        fault = self.fault
        if fault.drop_all:
            return True
        if fault.random:
            return self._below(fault.interval) >= fault.interval // 2
        count = self.count
        self.count = count + 1
        if fault.interval:
            if now < self._next_time:
                return False
            self._base = max(self._base, now)
            self._next_time = self._base + self._below(fault.interval)
            self._base += fault.interval
            return True
        strikes = count == self._next_count
        if self.count % fault.rate == 0:
            self._next_count = self.count + self._below(fault.rate)
        return strikes

    def status(self) -> HealthStatus:
        """What a message that was to be sent is said to have met: one of the rule's health errors.

        A draw from all of them that is not in the mask becomes the nearest that is, of two the higher.
        Without a mask (`drop_all` alone) the draw stands.
        """
        drawn = max(self._below(len(HealthStatus)), 1)
        wanted = [status for status in HealthStatus if status and self.fault.health >> status & 1]
        return min(wanted, key=lambda one: (abs(one - drawn), -one), default=HealthStatus(drawn))
