"""What a history says of a span of time: each rail, what happened to it, what to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from ulnet.observe.changes import NODE, RailCounts
from ulnet.observe.history import History, Stored

__all__ = ["Rail", "Summary", "summarize"]

_FEW: Final = 100  # messages of all rails below which nothing is said of their shares
_UNEVEN: Final = 0.25  # of the mean of the rails: less is worth a look
_GAP: Final = 3.0  # times the usual interval: longer without a reading is a gap


@dataclass(slots=True)
class Rail:
    """A local NI over the span: messages, failures, and seconds in which it was down or not well.

    `points` are those of a plot: seconds since 1970, messages sent and received a second, health.
    """

    nid: str
    sent: int = 0
    received: int = 0
    dropped: int = 0
    resent: int = 0
    failed: int = 0
    least_health: int = 1000
    down: float = 0.0
    unwell: float = 0.0
    points: list[tuple[float, float, float, int]] = field(default_factory=list)

    def add(self, at: float, seconds: float, counts: RailCounts) -> None:
        """One interval."""
        self.sent += counts.sent
        self.received += counts.received
        self.dropped += counts.dropped
        self.resent += counts.resent
        self.failed += counts.failed
        if counts.health >= 0:
            self.least_health = min(self.least_health, counts.health)
        if not counts.up:
            self.down += seconds
        elif 0 <= counts.health < 1000:
            self.unwell += seconds
        if seconds > 0:
            self.points.append((at, counts.sent / seconds, counts.received / seconds, counts.health))


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
    for at, name, counts in history.rails(since, until):
        if name == NODE:
            found.sent_bytes += counts.sent_bytes
            found.received_bytes += counts.received_bytes
            found.resent += counts.resent
            found.dropped += counts.dropped
        else:
            rails.setdefault(name, Rail(name)).add(at, lengths.get(at, 0.0), counts)
    found.rails = sorted(rails.values(), key=lambda rail: rail.nid)
    found.events = history.events(since, until)
    found.look_at = _look_at(found)
    return found


def _look_at(summary: Summary) -> list[str]:
    found = []
    if summary.silent:
        found.append(
            f"the node did not answer for {_time(summary.silent)}: its daemon, or lnetctl, hung or was gone"
        )
    if summary.unseen:
        found.append(f"nobody recorded for {_time(summary.unseen)}: what happened then is not here")
    for rail in summary.rails:
        if rail.down:
            found.append(f"{rail.nid} was down for {_time(rail.down)}: see its link, cable and switch port")
        if rail.unwell:
            text = f"{rail.nid} was not at full health for {_time(rail.unwell)}, {rail.least_health} at least"
            why = _main_cause(summary.events, rail.nid)
            found.append(text + (f": {why}" if why else ""))
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


def _time(seconds: float) -> str:
    """For people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
