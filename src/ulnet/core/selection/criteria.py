"""The criteria of path selection, each with its name, in the documents' order (spec selection.md §4–§6).

Every cost function is "less is better"; a criterion keeps the candidates of least cost. Choosing and
explaining run these same functions over these same lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ulnet.core.flow import Flow
from ulnet.core.ni import NI, LocalNet
from ulnet.core.peer import Peer, PeerNet

__all__ = [
    "CREDITS",
    "EQUAL_WITHIN",
    "HIGHER_IS_BETTER",
    "LOCAL_EXPECTED",
    "LOCAL_STANDING",
    "NET_STANDING",
    "NET_TURN",
    "PEER_EXPECTED",
    "PEER_STANDING",
    "QUEUED",
    "TURN",
    "Criterion",
    "NetPair",
    "Query",
    "Step",
    "narrow",
]


# Paths whose rates differ by less are taken for equal: where they share a bottleneck any split would
# confirm itself, and noise would decide. What is outstanding still evens them out.
EQUAL_WITHIN = 1.5


class Query:
    """What a choice depends on besides its candidates."""

    __slots__ = ("best_rate", "distance", "ni", "numa_range", "peer", "size")

    def __init__(self, peer: Peer, size: int, distance: Callable[[int], int], numa_range: int) -> None:
        self.peer = peer
        self.size = size
        self.distance = distance  # from the message's memory to a CPT
        self.numa_range = numa_range
        self.ni: NI | None = None  # once the local side is chosen
        self.best_rate = 0.0  # of all candidates: what one that was never measured is taken for


class NetPair(NamedTuple):
    """A net that both sides are on."""

    local: LocalNet
    remote: PeerNet


class Criterion(NamedTuple):
    """One comparison: candidates of more than the least cost are out."""

    name: str
    cost: Callable[[Any, Query], float]


@dataclass(slots=True)
class Step:
    """What one criterion did: the cost of each candidate, and the least of them."""

    criterion: str
    costs: list[tuple[Any, float]]
    least: float


# Costs of these are the negative of what people call by that name.
HIGHER_IS_BETTER = frozenset({"peer-net health", "local-net health", "health", "credits"})


def narrow(
    candidates: Sequence[Any], criteria: Sequence[Criterion], query: Query, steps: list[Step] | None = None
) -> tuple[Sequence[Any], str]:
    """The candidates that no criterion eliminates, and the last criterion that eliminated any ("" if none).

    With `steps`, every comparison made is noted there.
    """
    decided_by = ""
    for name, cost in criteria:
        if len(candidates) < 2:
            break
        costs = [cost(candidate, query) for candidate in candidates]
        least = min(costs)
        if steps is not None:
            steps.append(Step(name, list(zip(candidates, costs, strict=True)), least))
        kept = [one for one, value in zip(candidates, costs, strict=True) if value == least]
        if len(kept) < len(candidates):
            decided_by = name
            candidates = kept
    return candidates, decided_by


def _expected(flow: Flow | None, query: Query) -> float:
    """Seconds until the message would be through: what is under way and itself, at the observed rate."""
    best = query.best_rate
    if flow is None:
        return query.size / best if best else 0.0
    rate = flow.rate
    if rate * EQUAL_WITHIN >= best or not rate:
        rate = best
    return (flow.outstanding + query.size) / rate if rate else float(flow.outstanding)


NET_STANDING = (
    Criterion("peer-net health", lambda nets, query: -nets.remote.health),
    Criterion("peer-net priority", lambda nets, query: nets.remote.priority),
    Criterion("local-net health", lambda nets, query: -nets.local.health),
    Criterion("local-net priority", lambda nets, query: nets.local.priority),
)
NET_TURN = (
    Criterion("peer-net sequence", lambda nets, query: nets.remote.seq),
    Criterion("local-net sequence", lambda nets, query: nets.local.seq),
)
LOCAL_STANDING = (
    Criterion("usable", lambda ni, query: ni.fatal),
    Criterion("health", lambda ni, query: -ni.health),
    Criterion("UDSP priority", lambda ni, query: ni.priority),
    Criterion("NUMA distance", lambda ni, query: max(query.distance(ni.dev_cpt), query.numa_range)),
)
PEER_STANDING = (
    Criterion("health", lambda pni, query: -pni.health),
    Criterion("UDSP priority", lambda pni, query: pni.priority),
    Criterion(
        "UDSP preference", lambda pni, query: query.ni is None or query.ni.nid not in pni.preferred_nids
    ),
    Criterion(
        "UDSP pathway priority",
        lambda pni, query: 0 if query.ni is None else pni.pathways.get(query.ni.nid, 0),
    ),
)
CREDITS = Criterion("credits", lambda one, query: -one.tx_credits)
TURN = Criterion("sequence", lambda one, query: one.seq)
QUEUED = Criterion("queued bytes", lambda pni, query: pni.tx_queued_bytes)
LOCAL_EXPECTED = Criterion(
    "expected completion", lambda ni, query: _expected(query.peer.flows.get(ni), query)
)
PEER_EXPECTED = Criterion("expected completion", lambda pni, query: _expected(pni.flows.get(query.ni), query))
