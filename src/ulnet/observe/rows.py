"""Rails, peers, routes and events as rows of text: of `ulnet top`, on its screen or printed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ulnet.observe.live import Live, PeerRow, Rail, Route, Told

__all__ = ["TABLES", "Column", "Table", "clock", "number", "sparkline", "volume"]

_BARS: Final = "▁▂▃▄▅▆▇█"
_PLAIN: Final = "_.-=+*%#"
_UNITS: Final = ("", "k", "M", "G", "T", "P")


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its head, its width, what stands there, and by what it is sorted."""

    head: str
    width: int
    text: Callable[[Any], str]
    key: Callable[[Any], Any]
    left: bool = False  # words; else numbers, at the right

    def fit(self, text: str) -> str:
        """Of the column's width."""
        text = text[: self.width]
        return text.ljust(self.width) if self.left else text.rjust(self.width)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind; `plot` tells of a row what its sparkline shows."""

    name: str
    rows: Callable[[Live], Sequence[Any]]
    key: Callable[[Any], str]
    columns: tuple[Column, ...]
    sort: int  # the column at first, and whether the greatest come first
    falling: bool = True
    plot: Callable[[Any], list[float]] | None = None

    def chosen(self, live: Live, filter: str, sort: int, falling: bool) -> list[Any]:
        """The rows that have all words of the filter, in the order of a column; what has no value is last."""
        words = filter.lower().split()
        rows = [row for row in self.rows(live) if all(word in self.words(row) for word in words)]
        key = self.columns[sort].key
        known = [row for row in rows if key(row) is not None]
        return sorted(known, key=key, reverse=falling) + [row for row in rows if key(row) is None]

    def words(self, row: Any) -> str:
        """All that stands in the row, for the filter."""
        return " ".join(column.text(row) for column in self.columns).lower()


def number(value: float | None) -> str:
    """At most five characters: 950, 12.3k."""
    if value is None:
        return "-"
    if value < 999.5:
        return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"
    for unit in _UNITS[1:]:
        value /= 1000
        if value < 99.95:
            return f"{value:.1f}{unit}"
        if value < 999.5:
            return f"{value:.0f}{unit}"
    return f"{value:.0f}{_UNITS[-1]}"


def volume(value: float | None) -> str:
    """Bytes: units of 1000, as networks count."""
    return "-" if value is None else number(value)


def sparkline(values: Sequence[float], width: int, plain: bool = False) -> str:
    """The last of the values, the greatest at the top; blanks where there is none yet."""
    bars = _PLAIN if plain else _BARS
    some = list(values)[-width:]
    most = max(some, default=0.0)
    top = len(bars) - 1
    drawn = "".join(bars[round(value / most * top)] if most > 0 else bars[0] for value in some)
    return drawn.rjust(width)


def clock(at: float) -> str:
    """The local time of day."""
    return time.strftime("%H:%M:%S", time.localtime(at))


def _multi_rail(peer: PeerRow) -> str:
    return "yes" if peer.multi_rail else "no"


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _credits(rail: Rail) -> str:
    if rail.credits is None:
        return f"-/{_count(rail.credits_max)}"
    return f"{rail.credits}/{rail.credits_max}"


def _told(told: Told) -> str:
    event = told.event
    change = " → ".join(part for part in (event.before, event.after) if part)
    return f"{event.kind} {change}{f' ({event.why})' if event.why else ''}"


def _of_rails(live: Live) -> list[Rail]:
    return list(live.rails.values())


def _of_peers(live: Live) -> list[PeerRow]:
    return list(live.peers.values())


def _of_routes(live: Live) -> list[Route]:
    return live.routes


def _of_events(live: Live) -> list[Told]:
    return list(live.told)


_GRAVE: Final = {"down": 3, "unwell": 2, "drained": 1, "up": 0}

TABLES: Final = (
    Table(
        "Rails",
        _of_rails,
        lambda rail: rail.nid,
        (
            Column("NID", 20, lambda rail: rail.nid, lambda rail: rail.nid, left=True),
            Column("IF", 6, lambda rail: rail.interface, lambda rail: rail.interface, left=True),
            Column("STATE", 7, lambda rail: rail.state, lambda rail: _GRAVE[rail.state]),
            Column("HLTH", 4, lambda rail: _count(rail.health), lambda rail: rail.health),
            Column("MSG/S", 5, lambda rail: number(rail.rates.messages), lambda rail: rail.rates.messages),
            Column("B/S", 5, lambda rail: _bytes(rail.rates), lambda rail: rail.rates.bytes),
            Column("CREDITS", 7, _credits, lambda rail: rail.credits),
            Column("LOW", 4, lambda rail: _count(rail.credits_low), lambda rail: rail.credits_low),
            Column("QUEUE", 5, lambda rail: _count(rail.waiting), lambda rail: rail.waiting),
        ),
        sort=4,
        plot=lambda rail: [messages for _, messages, _, _ in rail.past],
    ),
    Table(
        "Peers",
        _of_peers,
        lambda peer: peer.nid,
        (
            Column("PEER", 24, lambda peer: peer.nid, lambda peer: peer.nid, left=True),
            Column("NIDS", 4, lambda peer: str(len(peer.nids)), lambda peer: len(peer.nids)),
            Column("HLTH", 4, lambda peer: _count(peer.health), lambda peer: peer.health),
            Column("MSG/S", 5, lambda peer: number(peer.rates.messages), lambda peer: peer.rates.messages),
            Column("B/S", 5, lambda peer: _bytes(peer.rates), lambda peer: peer.rates.bytes),
            Column("QUEUED B", 8, lambda peer: number(peer.queued), lambda peer: peer.queued),
            Column("LOW", 4, lambda peer: _count(peer.credits_low), lambda peer: peer.credits_low),
            Column("MULTI-RAIL", 10, _multi_rail, lambda peer: peer.multi_rail),  # beyond 60 characters
        ),
        sort=3,
    ),
    Table(
        "Routes",
        _of_routes,
        lambda route: f"{route.net} {route.gateway}",
        (
            Column("NET", 10, lambda route: route.net, lambda route: route.net, left=True),
            Column("GATEWAY", 28, lambda route: route.gateway, lambda route: route.gateway, left=True),
            Column("HOPS", 4, lambda route: route.hops, lambda route: route.hops, left=True),
            Column("PRIORITY", 8, lambda route: route.priority, lambda route: route.priority, left=True),
            Column("STATE", 6, lambda route: route.state, lambda route: route.state, left=True),
        ),
        sort=4,
        falling=False,
    ),
    Table(
        "Events",
        _of_events,
        lambda told: f"{told.at} {told.event.subject} {told.event.kind}",
        (
            Column("TIME", 8, lambda told: clock(told.at), lambda told: told.at),
            Column("WHAT", 24, lambda told: told.event.subject, lambda told: told.event.subject, left=True),
            Column("HAPPENED", 42, _told, _told, left=True),
        ),
        sort=0,
    ),
)


def _bytes(rates: Any) -> str:
    return volume(rates.bytes if (rates.sent_bytes, rates.received_bytes) != (None, None) else None)
