"""The choice of a gateway, as criteria (spec selection.md §7; Multi-Rail design, route selection).

Gateways that cannot be used are no candidates (liveness.py). Of the others today's LNet compares health
behind what was configured; with `balance` "documents" health comes before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ulnet.core.peer import PeerNi
from ulnet.core.routing.table import Route
from ulnet.core.selection.criteria import Criterion
from ulnet.core.selection.paths import Query
from ulnet.nid import Nid

__all__ = ["GATEWAY", "GATEWAY_BY_DOCUMENTS", "REMOTE_NET", "Way", "rank"]


class Way(NamedTuple):
    """A route that can be used, and its gateway's best NI on the nets that may be used.

    `preferred`: a policy names the gateway for this destination.
    """

    route: Route
    peer_ni: PeerNi
    preferred: bool = False
    fresh: bool = True  # has an NI on which the message did not fail yet

    @property
    def nid(self) -> Nid:
        """The gateway as the route names it."""
        return self.route.gateway


def _of_each(name: str, cost: Callable[[Any], float]) -> Criterion:
    def costs(candidates: Sequence[Any], query: Query) -> list[float]:
        return [cost(one) for one in candidates]

    return Criterion(name, costs)


_UNTRIED = _of_each("not tried yet", lambda way: not way.fresh)
_PREFERENCE = _of_each("UDSP preference", lambda way: not way.preferred)
_PRIORITY = _of_each("route priority", lambda way: way.route.priority)
_HOPS = _of_each("hops", lambda way: way.route.distance)
_HEALTH = _of_each("health", lambda way: -way.peer_ni.health)
_LOAD = (
    _of_each("queued bytes", lambda way: way.peer_ni.tx_queued_bytes),
    _of_each("credits", lambda way: -way.peer_ni.tx_credits),
    _of_each("sequence", lambda way: way.route.seq),
)

GATEWAY = (_UNTRIED, _PREFERENCE, _PRIORITY, _HOPS, _HEALTH, *_LOAD)
GATEWAY_BY_DOCUMENTS = (_UNTRIED, _PREFERENCE, _HEALTH, _PRIORITY, _HOPS, *_LOAD)

REMOTE_NET = (
    _of_each("peer-net health", lambda net: -net.health),
    _of_each("peer-net priority", lambda net: net.priority),
    _of_each("peer-net sequence", lambda net: net.seq),
)


def rank(pni: PeerNi) -> tuple[int, int, int, int]:
    """How good an NI of a gateway is for judging its route: the less, the better."""
    return -pni.health, pni.priority, -pni.tx_credits, pni.seq
