"""Which peers have series of their own, so that their number stays bounded, and what the others add up to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add, sub
from typing import Any, Final

from ulnet.observe.declared import COUNTED, counts_of
from ulnet.observe.snapshot import lines_of

__all__ = ["OTHERS", "Busiest"]

OTHERS: Final = "others"
_IDLE: Final = 600.0  # seconds without a message after which a peer gives its place to a busy one

Member = tuple[str, Mapping[str, Any]]  # a peer's primary NID, and one of its NIs
Counts = list[float]  # in the order of COUNTED


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
        self._sum: Counts = [0.0] * len(COUNTED)
        self._any = False  # whether there were others at any time
        self._displaced: set[str] = set()  # peers that lost their place in this snapshot

    def share(
        self, members: Sequence[Member], now: float
    ) -> tuple[list[Member], dict[tuple[str, str], float]]:
        """The peer NIs of peers that have a place, and what all others count ({}: there never was one)."""
        self._choose(members, now)
        own: list[Member] = []
        others: list[Member] = []
        for member in members:
            (own if member[0] in self._own else others).append(member)
        before: dict[str, Counts] = {}
        for peer, ni in others:
            nid = str(ni["nid"])
            counts = before[nid] = counts_of(ni)
            known = counts if peer in self._displaced else self._before.get(nid)
            if known is None:
                self._sum = list(map(add, self._sum, counts))
            elif known != counts:
                grown = list(map(sub, counts, known))
                if min(grown) < 0:  # some were reset
                    grown = [more if more >= 0 else one for more, one in zip(grown, counts, strict=True)]
                self._sum = list(map(add, self._sum, grown))
        self._before = before
        self._any = self._any or bool(others)
        return own, dict(zip(COUNTED, self._sum, strict=True)) if self._any else {}

    def _choose(self, members: Sequence[Member], now: float) -> None:
        traffic: dict[str, float] = {}
        for peer, ni in members:
            lines = lines_of(ni, "statistics")
            sent, received = lines.get("send_count"), lines.get("recv_count")
            if isinstance(sent, int) and isinstance(received, int):
                traffic[peer] = traffic.get(peer, 0.0) + sent + received
            else:
                traffic.setdefault(peer, 0.0)
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
