"""One line on how a node is, with an exit status as monitoring tools take it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from ulnet.observe.snapshot import Snapshot, lines_of, records

__all__ = ["Finding", "Level", "judge", "line"]

_MOST = 3  # things named in the line


class Level(IntEnum):
    """As plugins of Nagios and its kin end."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class Finding(NamedTuple):
    """Something that is not as it should be."""

    level: Level
    text: str


def judge(snapshot: Snapshot) -> list[Finding]:
    """What is wrong, the worst first.

    Critical: a net all of whose NIs are down; a remote net none of whose gateways is up. Warning:
    an NI that is down, not at full health, or degraded; a peer NI not at full health; a gateway that is down.
    """
    if not records(snapshot.shown("net")):  # a node that runs has lo
        why = snapshot.missing.get("net", "it shows no nets")
        return [Finding(Level.UNKNOWN, f"{snapshot.node} tells nothing: {why}")]
    found = [*_nis(snapshot), *_peers(snapshot), *_routes(snapshot)]
    return sorted(found, key=lambda one: -one.level)


def line(snapshot: Snapshot) -> tuple[Level, str]:
    """The worst level, and all in one line."""
    found = judge(snapshot)
    level = found[0].level if found else Level.OK
    if not found:
        nis = snapshot.local_nis()
        nets = len({net for net, _ in nis})
        peers = len(records(snapshot.shown("peer")))
        text = f"{_count(len(nis), 'NI')} up on {_count(nets, 'net')}, {_count(peers, 'peer')}"
    else:
        text = "; ".join(one.text for one in found[:_MOST])
        if len(found) > _MOST:
            text += f"; and {len(found) - _MOST} more"
    return level, f"{level.name}: {text}"


def _nis(snapshot: Snapshot) -> list[Finding]:
    found = []
    nis = snapshot.local_nis()
    there = Counter(net for net, _ in nis)
    down = Counter(net for net, ni in nis if ni.get("status") == "down")
    for net, ni in nis:
        nid = ni["nid"]
        if ni.get("status") == "down":
            if down[net] < there[net]:
                found.append(Finding(Level.WARNING, f"{nid} is down"))
            continue
        health = _health(ni)
        if health is not None and health < 1000:
            found.append(Finding(Level.WARNING, f"{nid} has health {health}"))
        why = lines_of(lines_of(ni, "load"), "degraded")
        if why:
            found.append(Finding(Level.WARNING, f"{nid} is degraded: {next(iter(why.values()))}"))
    found += [
        Finding(Level.CRITICAL, f"net {net} is down: no NI of it is up")
        for net, count in there.items()
        if count == down[net]
    ]
    return found


def _peers(snapshot: Snapshot) -> list[Finding]:
    found = []
    for peer, ni in snapshot.peer_nis():
        health = _health(ni)
        if health is not None and health < 1000:
            whose = "" if ni["nid"] == peer else f" of peer {peer}"
            found.append(Finding(Level.WARNING, f"peer NI {ni['nid']}{whose} has health {health}"))
    return found


def _routes(snapshot: Snapshot) -> list[Finding]:
    ways: dict[str, list[tuple[str, bool]]] = {}
    for route in records(snapshot.shown("route")):
        if route.get("state") in ("up", "down"):
            ways.setdefault(str(route.get("net")), []).append(
                (str(route.get("gateway")), route["state"] == "up")
            )
    found = []
    for net, gateways in ways.items():
        if not any(up for _, up in gateways):
            found.append(Finding(Level.CRITICAL, f"no gateway to {net} is up"))
            continue
        found += [Finding(Level.WARNING, f"gateway {nid} to {net} is down") for nid, up in gateways if not up]
    return found


def _health(ni: Mapping[str, Any]) -> int | None:
    value = lines_of(ni, "health stats").get("health value")
    return value if isinstance(value, int) else None


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
