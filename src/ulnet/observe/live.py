"""One node as it is now: rails, peers and routes with rates, from one snapshot after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ulnet.observe.changes import Event, changes
from ulnet.observe.snapshot import Snapshot, lines_of, records

__all__ = ["Live", "PeerRow", "Rail", "Rates", "Route", "Told"]

HISTORY: Final = 600  # samples of each rail that are kept
_MOST_TOLD: Final = 500  # events that are kept


class Rates(NamedTuple):
    """Messages and bytes a second; None where nothing counts them, or nothing is known yet."""

    sent: float | None = None
    received: float | None = None
    sent_bytes: float | None = None
    received_bytes: float | None = None

    @property
    def messages(self) -> float:
        """Both ways."""
        return (self.sent or 0.0) + (self.received or 0.0)

    @property
    def bytes(self) -> float:
        """Both ways."""
        return (self.sent_bytes or 0.0) + (self.received_bytes or 0.0)


NO_RATES: Final = Rates()


class Told(NamedTuple):
    """An event and when it was seen, in seconds since 1970."""

    at: float
    event: Event


@dataclass(slots=True)
class Rail:
    """A local NI. `past` has when each reading was, messages and bytes a second, health (None: not known)."""

    nid: str
    net: str
    interface: str = ""
    up: bool = True
    health: int | None = None
    why: str = ""  # it is not as it should be
    since: float | None = None  # that its state is this, in seconds since 1970; None: from the first
    credits: int | None = None
    credits_max: int | None = None
    credits_low: int | None = None
    waiting: int | None = None
    resent: int = 0
    failed: int = 0
    rates: Rates = NO_RATES
    past: deque[tuple[float, float, float | None, int | None]] = field(
        default_factory=lambda: deque(maxlen=HISTORY)
    )

    @property
    def state(self) -> str:
        """down, unwell (its health is not full, or it is slower than it was), drained, or up."""
        if not self.up:
            return "down"
        if self.why == "drained":
            return "drained"
        return "unwell" if self.why else "up"


@dataclass(slots=True)
class PeerRow:
    """A peer: its NIDs, the least health of them."""

    nid: str
    multi_rail: bool = False
    nids: tuple[str, ...] = ()
    health: int | None = None
    queued: int = 0  # bytes that wait, or are under way
    credits_low: int | None = None
    rates: Rates = NO_RATES
    by_nid: dict[str, tuple[Rates, int | None]] = field(default_factory=dict)  # rates and health of each NI


class Route(NamedTuple):
    """A way to a net."""

    net: str
    gateway: str
    hops: str
    priority: str
    state: str


class Live:
    """What a node showed last, with rates since the time before, and what happened since the first."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rails: dict[str, Rail] = {}
        self.peers: dict[str, PeerRow] = {}
        self.routes: list[Route] = []
        self.told: deque[Told] = deque(maxlen=_MOST_TOLD)
        self.seen = 0  # events there were: those of `told` are the last of them
        self.missing: Mapping[str, str] = {}
        self.shown: Snapshot | None = None  # the last one in which it answered
        self.shown_at = 0.0  # seconds since 1970
        self._last: Snapshot | None = None
        self._counts: dict[str, list[float | None]] = {}
        self._counted_at = 0.0

    @property
    def silent(self) -> bool:
        """Whether it did not answer when it was last asked: all else is stale then."""
        return self._last is not None and not self._last.up

    @property
    def routing(self) -> bool:
        """Whether it passes messages on."""
        return self.shown is not None and self.shown.routes_for_others

    def take(self, snapshot: Snapshot, now: float) -> list[Event]:
        """One more reading, `now` in seconds since 1970; what happened since the one before."""
        found = list(changes(self._last, snapshot, self.shown))
        self._last, self.missing = snapshot, snapshot.missing
        self.told.extend(Told(now, event) for event in found)
        self.seen += len(found)
        if snapshot.up:
            span = now - self._counted_at if self._counts else 0.0
            before, self._counts = self._counts, {}
            self._take_rails(snapshot, now, before, span)
            if "peer" in snapshot.parts:
                self._take_peers(snapshot, before, span)
            if "route" in snapshot.parts:
                words = ("net", "gateway", "hop", "priority", "state")
                shown = records(snapshot.shown("route"))
                self.routes = [Route(*(str(one.get(word, "")) for word in words)) for one in shown]
            self.shown, self.shown_at, self._counted_at = snapshot, now, now
        return found

    def _take_rails(
        self, snapshot: Snapshot, now: float, before: dict[str, list[float | None]], span: float
    ) -> None:
        known, self.rails = self.rails, {}
        for net, ni in snapshot.local_nis():
            nid = str(ni["nid"])
            rail = self.rails[nid] = known.get(nid) or Rail(nid, net)
            state = rail.state if nid in known else None
            rail.interface = ",".join(map(str, lines_of(ni, "interfaces").values()))
            rail.up = ni.get("status") != "down"
            stats, load = lines_of(ni, "health stats"), lines_of(ni, "load")
            rail.health = _whole(stats, "health value")
            rail.why = _why(ni, rail.health)
            if state is not None and state != rail.state:
                rail.since = now
            rail.credits, rail.credits_low = (
                _whole(load, name) for name in ("available_tx_credits", "min_tx_credits")
            )
            rail.credits_max = _whole(load, "max_tx_credits")
            if rail.credits_max is None:
                rail.credits_max = _whole(lines_of(ni, "tunables"), "credits")
            rail.waiting = _whole(load, "waiting")
            rail.resent = sum(one for one in lines_of(load, "resends").values() if type(one) is int)
            rail.failed = sum(
                _whole(stats, name) or 0
                for name in ("interrupts", "dropped", "aborted", "no route", "timeouts", "error")
            )
            rail.rates = self._rates(f"rail {nid}", ni, before, span)
            if rail.rates.sent is not None:
                size = None if rail.rates.sent_bytes is None else rail.rates.bytes
                rail.past.append((now, rail.rates.messages, size, rail.health))

    def _take_peers(self, snapshot: Snapshot, before: dict[str, list[float | None]], span: float) -> None:
        self.peers = {}
        own = self.rails.keys() | {"0@lo"}
        for peer in records(snapshot.shown("peer")):
            nis = [ni for ni in records(peer.get("peer ni")) if "nid" in ni]
            nids = tuple(str(ni["nid"]) for ni in nis)
            if not own.isdisjoint(nids):
                continue
            row = PeerRow(str(peer.get("primary nid")), peer.get("Multi-Rail") is True, nids)
            for nid, ni in zip(nids, nis, strict=True):
                health = _whole(lines_of(ni, "health stats"), "health value")
                row.by_nid[nid] = (self._rates(f"peer {nid}", ni, before, span), health)
                row.queued += _whole(ni, "tx_q_num_of_buf") or 0
            row.health = _least(health for _, health in row.by_nid.values())
            row.credits_low = _least(_whole(ni, "min_tx_credits") for ni in nis)
            each = [rates for rates, _ in row.by_nid.values()]
            row.rates = Rates(*(_total(values) for values in zip(*each, strict=True))) if each else Rates()
            self.peers[row.nid] = row

    def _rates(
        self, key: str, ni: Mapping[str, Any], before: dict[str, list[float | None]], span: float
    ) -> Rates:
        counted, load = lines_of(ni, "statistics"), lines_of(ni, "load")
        now = self._counts[key] = [
            *(_whole(counted, name) for name in ("send_count", "recv_count")),
            *(_whole(load, name) for name in ("send_length", "recv_length")),
        ]
        last = before.get(key)
        if last is None or span <= 0:
            return Rates()
        return Rates(*(_rate(new, old, span) for new, old in zip(now, last, strict=True)))


def _rate(new: float | None, old: float | None, span: float) -> float | None:
    if new is None or old is None:
        return None
    return (new - old if new >= old else new) / span  # else it began anew


def _why(ni: Mapping[str, Any], health: int | None) -> str:
    if ni.get("drained"):
        return "drained"
    degraded = lines_of(lines_of(ni, "load"), "degraded")
    if degraded:
        return str(next(iter(degraded.values())))
    return f"health {health}" if health is not None and health < 1000 else ""


def _whole(lines: Mapping[str, Any], name: str) -> int | None:
    value = lines.get(name)
    return value if type(value) is int else None


def _least(values: Any) -> int | None:
    return min((one for one in values if one is not None), default=None)


def _total(values: tuple[float | None, ...]) -> float | None:
    known = [one for one in values if one is not None]
    return sum(known) if known else None
