"""What a history says of a span of time: each rail, what happened to it, what to look at."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Final

from ulnet.observe.changes import NODE, RailCounts
from ulnet.observe.history import History, Stored

__all__ = ["Rail", "Summary", "moment", "summarize"]

_FEW: Final = 100  # messages of all rails below which nothing is said of their shares
_UNEVEN: Final = 0.25  # of the mean of the rails: less is worth a look
_MOST_POINTS: Final = 2000  # of a plot, about
_GAP: Final = 3.0  # times the usual interval: longer without a reading is a gap


@dataclass(slots=True)
class Point:
    """Some readings that end `at` seconds since 1970; `well`: up and at full health in all of them."""

    at: float
    seconds: float
    messages: int
    health: int
    well: bool

    @property
    def rate(self) -> float:
        """Messages sent and received a second."""
        return self.messages / self.seconds

    def join(self, later: Point) -> None:
        """Take the next in."""
        self.at = later.at
        self.seconds += later.seconds
        self.messages += later.messages
        self.health = min(self.health, later.health)
        self.well = self.well and later.well


@dataclass(slots=True)
class Rail:
    """A local NI over the span: messages, failures, and seconds in which it was down or not well.

    `points` are those of a plot, in order.
    """

    nid: str
    sent: int = 0
    received: int = 0
    dropped: int = 0
    resent: int = 0
    failed: int = 0
    least_health: int = 1000
    sent_bytes: int = 0
    received_bytes: int = 0
    down: float = 0.0
    unwell: float = 0.0
    state: str = "up"  # at the end: up, unwell, down
    since: float = 0.0  # that it is so, in seconds since 1970
    points: list[Point] = field(default_factory=list)

    def add(self, at: float, seconds: float, counts: RailCounts, width: float) -> None:
        """One interval; points are `width` seconds wide, or as wide as an interval."""
        self.sent += counts.sent
        self.received += counts.received
        self.dropped += counts.dropped
        self.resent += counts.resent
        self.failed += counts.failed
        self.sent_bytes += counts.sent_bytes
        self.received_bytes += counts.received_bytes
        if counts.health >= 0:
            self.least_health = min(self.least_health, counts.health)
        state = "down" if not counts.up else "unwell" if 0 <= counts.health < 1000 else "up"
        if state != self.state or not self.since:
            self.state, self.since = state, at
        if state == "down":
            self.down += seconds
        elif state == "unwell":
            self.unwell += seconds
        if seconds > 0:
            health = counts.health if counts.health >= 0 else 1000
            point = Point(at, seconds, counts.sent + counts.received, health, state == "up")
            last = self.points[-1] if self.points else None
            near = last is not None and at - last.at + last.seconds <= width
            if last is not None and near and last.well == point.well:
                last.join(point)
            else:
                self.points.append(point)


@dataclass(slots=True)
class Summary:
    """The span, in seconds since 1970; how often the node was read, how long it was silent, or unseen."""

    node: str
    since: float
    until: float
    readings: int = 0
    silent: float = 0.0
    unseen: float = 0.0
    sent_bytes: int = 0
    received_bytes: int = 0
    resent: int = 0
    dropped: int = 0
    rails: list[Rail] = field(default_factory=list)
    events: list[Stored] = field(default_factory=list)
    costs: dict[str, str] = field(default_factory=dict)  # by NID
    look_at: list[str] = field(default_factory=list)


def summarize(history: History, since: float, until: float) -> Summary:
    """All that the history has of the span."""
    found = Summary(history.node, since, until)
    readings = history.readings(since, until)
    found.readings = len(readings)
    steps = [after.at - before.at for before, after in pairwise(readings)]
    usual = sorted(steps)[len(steps) // 2] if steps else 0.0
    lengths = {}
    for step, (before, after) in zip(steps, pairwise(readings), strict=True):
        length = step
        if step > _GAP * usual:
            found.unseen += step - usual
            length = usual
        lengths[after.at] = length
        if not before.up:
            found.silent += length
    rails: dict[str, Rail] = {}
    moved = _Moved()
    for at, together in groupby(history.rails(since, until), key=lambda row: row[0]):
        each = {name: counts for _, name, counts in together}
        node = each.pop(NODE, RailCounts())
        found.sent_bytes += node.sent_bytes
        found.received_bytes += node.received_bytes
        found.resent += node.resent
        found.dropped += node.dropped
        for name, counts in each.items():
            rail = rails.setdefault(name, Rail(name))
            rail.add(at, lengths.get(at, 0.0), counts, (until - since) / _MOST_POINTS)
        moved.add(node, [name for name in each if rails[name].state != "up"], lengths.get(at, 0.0))
    found.rails = sorted(rails.values(), key=lambda rail: rail.nid)
    found.events = history.events(since, until)
    found.costs = moved.costs()
    found.look_at = _look_at(found)
    return found


class _Moved:
    """What a node moved while a rail was down or not at full health, and while all were well."""

    def __init__(self) -> None:
        self._while: dict[str, list[float]] = {}  # messages, bytes, seconds, by rail; "": all well

    def add(self, node: RailCounts, sick: list[str], seconds: float) -> None:
        """One interval."""
        if seconds <= 0:
            return
        amounts = (node.sent + node.received, node.sent_bytes + node.received_bytes, seconds)
        for name in sick or [""]:
            known = self._while.get(name, [0.0, 0.0, 0.0])
            self._while[name] = [old + new for old, new in zip(known, amounts, strict=True)]

    def costs(self) -> dict[str, str]:
        """In words, by rail; nothing where the node was never well, or moved nothing."""
        messages, size, seconds = self._while.pop("", (0.0, 0.0, 0.0))
        if not messages:
            return {}
        by_bytes = bool(size)
        well = _rate(size if by_bytes else messages, seconds, by_bytes)
        return {
            name: f"the node moved {_rate(of[by_bytes], of[2], by_bytes)} then, {well} while all was well"
            for name, of in self._while.items()
        }


def _rate(amount: float, seconds: float, by_bytes: bool) -> str:
    rate = amount / seconds
    return f"{rate / 1e6:.3g} MB/s" if by_bytes else f"{rate:.3g} messages/s"


def _look_at(summary: Summary) -> list[str]:
    found = []
    if summary.silent:
        found.append(
            f"the node did not answer for {_time(summary.silent)}: its daemon, or lnetctl, hung or was gone"
        )
    if summary.unseen:
        found.append(f"nobody recorded for {_time(summary.unseen)}: what happened then is not here")
    for rail in summary.rails:
        still = f" and is still, since {moment(rail.since)}" if rail.state != "up" else ""
        cost = f"; {summary.costs[rail.nid]}" if rail.nid in summary.costs else ""
        if rail.down:
            then = still if rail.state == "down" else ""
            text = f"{rail.nid} was down for {_time(rail.down)}{then}: see its link, cable and switch port"
            found.append(text + cost)
            cost = ""
        if rail.unwell:
            then = still if rail.state == "unwell" else ""
            text = f"{rail.nid} was not at full health for {_time(rail.unwell)}{then}"
            text += f", {rail.least_health} at least"
            why = _main_cause(summary.events, rail.nid)
            found.append(text + (f": {why}" if why else "") + cost)
    found += _uneven(summary.rails)
    restarts = sum(stored.event.kind == "counters began anew" for stored in summary.events)
    if restarts:
        found.append(f"counters began anew {restarts} times: LNet was started anew, or somebody reset them")
    flapping: dict[str, int] = {}
    for stored in summary.events:
        if stored.event.kind in ("NI status", "route") and stored.event.after == "down":
            flapping[stored.event.subject] = flapping.get(stored.event.subject, 0) + 1
    found += [f"{name} went down {count} times" for name, count in flapping.items() if count > 2]
    return found


def _uneven(rails: Sequence[Rail]) -> list[str]:
    """Rails of one net that carry much less than the others."""
    nets: dict[str, list[Rail]] = {}
    for rail in rails:
        nets.setdefault(rail.nid.rpartition("@")[2].rstrip("0123456789"), []).append(rail)
    found = []
    for members in nets.values():
        total = sum(rail.sent + rail.received for rail in members)
        if len(members) < 2 or total < _FEW:
            continue
        for rail in members:
            share = (rail.sent + rail.received) / total
            if share < _UNEVEN / len(members) and not rail.down:
                found.append(
                    f"{rail.nid} carried {share:.0%} of the messages of {len(members)} rails, "
                    "though it was up: do peers know it? `ulnet explain --to NID` tells what is chosen"
                )
    return found


def _main_cause(events: Sequence[Stored], nid: str) -> str:
    for stored in events:
        if stored.event.subject == nid and stored.event.why:
            return stored.event.why
    return ""


def moment(at: float) -> str:
    """Local time, as people write it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _time(seconds: float) -> str:
    """For people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
