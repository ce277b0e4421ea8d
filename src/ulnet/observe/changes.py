"""What changed between two snapshots of a node, as events with their subject and cause."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ulnet.observe.snapshot import Snapshot, lines_of, records

__all__ = ["Event", "RailCounts", "changes", "rails"]


class Event(NamedTuple):
    """`kind` of what happened to `subject`; `why` is what the counters say of the cause."""

    kind: str
    subject: str
    before: str = ""
    after: str = ""
    why: str = ""


class RailCounts(NamedTuple):
    """What a local NI, or the whole node (`node`), has counted, and its health (-1: it has none)."""

    sent: int = 0
    received: int = 0
    dropped: int = 0
    resent: int = 0
    failed: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0
    health: int = -1
    up: int = 1


# Counters of failures, and what they say.
_CAUSES = {
    "interrupts": "interrupted",
    "dropped": "dropped",
    "aborted": "aborted",
    "no route": "no route",
    "timeouts": "timed out",
    "timeout": "timed out",
    "error": "failed otherwise",
    "network timeout": "timed out on the way",
}
NODE = "node"


def changes(before: Snapshot | None, after: Snapshot, shown: Snapshot | None) -> Iterator[Event]:
    """Events between two snapshots; of the first one only that it is there.

    `shown` is the last one before in which the node answered.
    """
    if before is None:
        yield Event("recording began", NODE)
        if not after.up:
            yield _silent(after)
        return
    if before.up != after.up:
        yield Event("answers again", NODE) if after.up else _silent(after)
    if shown is None or not after.up:
        return
    before = shown
    if _count(after.shown("statistics"), "send_count") < _count(before.shown("statistics"), "send_count"):
        yield Event("counters began anew", NODE, why="LNet was started anew, or its counters were reset")
    yield from _nis(before, after)
    yield from _resends(before, after)
    yield from _peers(before, after)
    yield from _routes(before, after)
    yield from _settings(before, after)


def rails(snapshot: Snapshot) -> dict[str, RailCounts]:
    """What is counted by each local NI, and by the node."""
    found = {}
    for _, ni in snapshot.local_nis():
        counts, stats = lines_of(ni, "statistics"), lines_of(ni, "health stats")
        load = lines_of(ni, "load")
        found[str(ni["nid"])] = RailCounts(
            _count(counts, "send_count"),
            _count(counts, "recv_count"),
            _count(counts, "drop_count"),
            sum(_resent(ni).values()),
            sum(_count(stats, name) for name in _CAUSES),
            _count(load, "send_length"),
            _count(load, "recv_length"),
            health=_count(stats, "health value") if "health value" in stats else -1,
            up=int(ni.get("status") != "down"),
        )
    node = snapshot.shown("statistics")
    found[NODE] = RailCounts(
        _count(node, "send_count"),
        _count(node, "recv_count"),
        _count(node, "drop_count"),
        _count(node, "resend_count"),
        _count(node, "errors"),
        _count(node, "send_length"),
        _count(node, "recv_length"),
        up=int(snapshot.up),
    )
    return found


def _silent(after: Snapshot) -> Event:
    return Event("does not answer", NODE, why=after.missing.get("net", ""))


def _nis(before: Snapshot, after: Snapshot) -> Iterator[Event]:
    old = {str(ni["nid"]): ni for _, ni in before.local_nis()}
    new = {str(ni["nid"]): ni for _, ni in after.local_nis()}
    for nid in old.keys() - new.keys():
        yield Event("NI is gone", nid)
    for nid, ni in new.items():
        known = old.get(nid)
        if known is None:
            yield Event("NI is new", nid, after=str(ni.get("status", "")))
            continue
        if ni.get("status") != known.get("status"):
            yield Event("NI status", nid, str(known.get("status")), str(ni.get("status")), _why(known, ni))
        yield from _health("NI", nid, known, ni)
        slow = [lines_of(lines_of(one, "load"), "degraded") for one in (known, ni)]
        if bool(slow[0]) != bool(slow[1]):
            why = str(next(iter(slow[1].values()), ""))
            yield Event("NI is degraded" if slow[1] else "NI is as fast as before", nid, why=why)


def _peers(before: Snapshot, after: Snapshot) -> Iterator[Event]:
    if "peer" not in before.parts or "peer" not in after.parts:
        return
    old = {str(ni["nid"]): (peer, ni) for peer, ni in before.peer_nis()}
    new = {str(ni["nid"]): (peer, ni) for peer, ni in after.peer_nis()}
    for nid in sorted(old.keys() - new.keys()):
        yield Event("peer NI is gone", nid, before=old[nid][0])
    for nid, (peer, ni) in new.items():
        known = old.get(nid)
        if known is None:
            yield Event("peer NI is new", nid, after=peer)
            continue
        if peer != known[0]:
            yield Event("peer NI has another peer", nid, known[0], peer)
        states = [str(one.get("state")) for one in (known[1], ni)]
        if states[0] != states[1] and set(states) <= {"up", "down"}:
            yield Event("peer NI state", nid, states[0], states[1])
        yield from _health("peer NI", nid, known[1], ni)


def _health(what: str, nid: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Event]:
    values = [lines_of(one, "health stats").get("health value") for one in (old, new)]
    if not (isinstance(values[0], int) and isinstance(values[1], int)):
        return
    if values[1] < values[0]:
        yield Event(f"{what} health", nid, str(values[0]), str(values[1]), _why(old, new))
    elif values[0] < values[1] == 1000:
        yield Event(f"{what} is well", nid, str(values[0]), "1000")
    elif values[1] == 1000 and (failures := _failures(old, new)):
        yield Event(f"{what} failures", nid, why=", ".join(failures))  # it was well again before it was read


def _resends(before: Snapshot, after: Snapshot) -> Iterator[Event]:
    """Messages that were sent again: of kernel nodes the node alone counts them."""
    known = {str(ni["nid"]): _resent(ni) for _, ni in before.local_nis()}
    found = False
    for _, ni in after.local_nis():
        nid, now = str(ni["nid"]), _resent(ni)
        found = found or "load" in ni
        old = known.get(nid, now)
        grown = {why: count - old.get(why, 0) for why, count in now.items() if count > old.get(why, 0)}
        if grown:
            why = ", ".join(f"{count} {name}" for name, count in grown.items())
            yield Event("messages sent again", nid, after=str(sum(grown.values())), why=why)
    if not found:
        count = _count(after.shown("statistics"), "resend_count")
        count -= _count(before.shown("statistics"), "resend_count")
        if count > 0:
            yield Event("messages sent again", NODE, after=str(count))


def _resent(ni: Mapping[str, Any]) -> dict[str, int]:
    counts = lines_of(lines_of(ni, "load"), "resends")
    return {str(why): count for why, count in counts.items() if isinstance(count, int)}


def _failures(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Which were counted meanwhile."""
    before, after = lines_of(old, "health stats"), lines_of(new, "health stats")
    grown = [(_count(after, name) - _count(before, name), text) for name, text in _CAUSES.items()]
    return [f"{count} {text}" for count, text in grown if count > 0]


def _why(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """Failures that were counted meanwhile; before them that its device failed."""
    before, after = lines_of(old, "health stats"), lines_of(new, "health stats")
    found = _failures(old, new)
    if _count(after, "fatal_error") > _count(before, "fatal_error"):
        found.insert(0, "its device failed")
    return ", ".join(found)


def _routes(before: Snapshot, after: Snapshot) -> Iterator[Event]:
    old, new = (
        {
            (str(one.get("net")), str(one.get("gateway"))): str(one.get("state"))
            for one in records(it.shown("route"))
        }
        for it in (before, after)
    )
    if "route" not in before.parts or "route" not in after.parts:
        return
    for way in sorted(old.keys() | new.keys()):
        subject = f"{way[0]} by {way[1]}"
        if way not in new:
            yield Event("route is gone", subject)
        elif way not in old:
            yield Event("route is new", subject, after=new[way])
        elif old[way] != new[way]:
            yield Event("route", subject, old[way], new[way])


def _settings(before: Snapshot, after: Snapshot) -> Iterator[Event]:
    old, new = before.shown("settings"), after.shown("settings")
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted(old.keys() & new.keys(), key=str):
            if old[name] != new[name]:
                yield Event("setting", str(name), str(old[name]), str(new[name]))


def _count(lines: Any, name: str) -> int:
    value = lines.get(name) if isinstance(lines, Mapping) else None
    return value if isinstance(value, int) else 0
