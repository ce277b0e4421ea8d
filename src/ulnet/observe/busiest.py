"""Which peers have series of their own, so that their number stays bounded, and what the others add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ulnet.observe.declared import flat

__all__ = ["OTHERS", "Busiest"]

OTHERS: Final = "others"
_IDLE: Final = 600.0  # seconds without a message after which a peer gives its place to a busy one

Member = tuple[str, Mapping[str, Any]]  # a peer's primary NID, and one of its NIs
Counts = dict[tuple[str, str], float]


class Busiest:
    """Peers keep their places while they carry messages.

    What the others count is added up by what grew since the snapshot before: the sum never falls, though
    peers come, go, or get a place of their own.
    """

    def __init__(self, places: int) -> None:
        if places < 0:
            raise ValueError(f"{places} peers: it is a number from 0 up")
        self._places = places
        self._own: dict[str, float] = {}  # peers with a place: when they last carried something
        self._before: dict[str, Counts] = {}  # by the NIDs of peer NIs
        self._traffic: dict[str, float] = {}  # messages of peers, at the snapshot before
        self._sum: Counts = {}
        self._displaced: set[str] = set()  # peers that lost their place in this snapshot

    def share(self, members: Sequence[Member], now: float) -> tuple[list[Member], Counts]:
        """The peer NIs of peers that have a place, and the counts of all others."""
        self._choose(members, now)
        own = [member for member in members if member[0] in self._own]
        if len(own) == len(members) and not self._sum:
            self._before = {}
            return own, {}
        before: dict[str, Counts] = {}
        for peer, ni in members:
            if peer in self._own:
                continue
            nid = str(ni["nid"])
            counts = before[nid] = flat(ni)
            known = counts if peer in self._displaced else self._before.get(nid, {})
            for name, count in counts.items():
                grown = count - known.get(name, 0.0)
                if grown < 0:
                    grown = count  # it was reset
                if grown > 0:  # never for what is no number
                    self._sum[name] = self._sum.get(name, 0.0) + grown
        self._before = before
        return own, self._sum or {("statistics", "send_count"): 0.0}

    def _choose(self, members: Sequence[Member], now: float) -> None:
        traffic: dict[str, float] = {}
        for peer, ni in members:
            lines = ni.get("statistics")
            count = 0.0
            if isinstance(lines, Mapping):
                count = sum(
                    lines[name] for name in ("send_count", "recv_count") if isinstance(lines.get(name), int)
                )
            traffic[peer] = traffic.get(peer, 0.0) + count
        moved = {peer for peer, count in traffic.items() if count != self._traffic.get(peer, 0.0)}
        self._traffic = traffic
        own = {peer: now if peer in moved else when for peer, when in self._own.items() if peer in traffic}
        self._displaced = set()
        waiting = sorted((peer for peer in traffic if peer not in own), key=lambda peer: -traffic[peer])
        for peer in waiting:
            if len(own) < self._places:
                own[peer] = now
            elif peer in moved and own:
                idlest = min(own, key=own.__getitem__)
                if now - own[idlest] < _IDLE:
                    break
                del own[idlest]
                self._displaced.add(idlest)
                own[peer] = now
        self._own = own
