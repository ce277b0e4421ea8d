"""The criteria of path selection, each with its name, in the documents' order (spec selection.md §4–§6).

Costs are "less is better" and reckoned for all candidates in one call; a criterion keeps the candidates
of least cost. Choosing and explaining run these same functions over these same lists.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi
from ulnet.core.selection.candidates import UNUSED, Candidates
from ulnet.core.selection.paths import SAME_BATCH, Query

__all__ = [
    "CREDITS",
    "HIGHER_IS_BETTER",
    "LOCAL_EXPECTED",
    "LOCAL_FIXED",
    "NET_FIXED",
    "NET_TURN",
    "PEER_EXPECTED",
    "PEER_FIXED",
    "QUEUED",
    "SAME_WAY",
    "TURN",
    "WEIGHTED_TURN",
    "YES_OR_NO",
    "Criterion",
    "Step",
    "is_stalled",
    "narrow",
]


class Criterion(NamedTuple):
    """One comparison: candidates of more than the least cost are out."""

    name: str
    costs: Callable[[Sequence[Any], Query], list[float]]


def _each(name: str, cost: Callable[[Any, Query], float]) -> Criterion:
    """A criterion that looks at one candidate after another: slower, for those that are not run each time."""
    return Criterion(name, lambda candidates, query: [cost(one, query) for one in candidates])


@dataclass(slots=True)
class Step:
    """What one criterion did: the cost of each candidate, and the least of them."""

    criterion: str
    costs: list[tuple[Any, float]]
    least: float


# Costs of these are the negative of what people call by that name.
# And of these the opposite of what their names ask.
YES_OR_NO = frozenset({"usable", "progress", "UDSP preference", SAME_BATCH})
HIGHER_IS_BETTER = frozenset({"peer-net health", "local-net health", "health", "credits"})


def narrow(
    candidates: Sequence[Any], criteria: Sequence[Criterion], query: Query, steps: list[Step] | None = None
) -> tuple[Sequence[Any], str]:
    """The candidates that no criterion eliminates, and the last criterion that eliminated any ("" if none).

    With `steps`, every comparison made is noted there.
    """
    decided_by = ""
    for name, costs_of in criteria:
        if len(candidates) < 2:
            break
        costs = costs_of(candidates, query)
        least = min(costs)
        if steps is not None:
            steps.append(Step(name, list(zip(candidates, costs, strict=True)), least))
        kept = costs.count(least)
        if kept == len(costs):
            continue
        decided_by = name
        if kept == 1:
            return (candidates[costs.index(least)],), name
        candidates = [one for one, cost in zip(candidates, costs, strict=False) if cost == least]
    return candidates, decided_by


def _local_expected(nis: Sequence[NI], query: Query) -> list[float]:
    known = query.cached
    if known is None or known.all is not nis:
        known = Candidates(nis)
    now = query.peer.rates.number
    if known.noted_at != now:
        path_loads = query.peer.path_loads
        known.note_rates([path_loads.get(ni, UNUSED) for ni in nis], now)
    return known.expected(query.size)


def _peer_expected(pnis: Sequence[PeerNi], query: Query) -> list[float]:
    known = query.cached
    if known is None or known.all is not pnis:
        known = Candidates(pnis)
    now = query.peer.rates.number
    ni = query.ni
    if known.noted_at != now and ni is not None:
        known.note_rates([pni.path_loads.get(ni, UNUSED) for pni in pnis], now)
    return known.expected(query.size)


def _not_in_batch(candidates: Sequence[Any], query: Query) -> list[float]:
    batch = query.batch
    assert batch is not None
    return [0.0 if one is batch.ni or one is batch.peer_ni else 1.0 for one in candidates]


def _weighted_turn(candidates: Sequence[Any], query: Query) -> list[float]:
    assert query.cached is not None
    assert query.cached.turns is not None
    return query.cached.turns.places(candidates)


def is_stalled(ni: NI | None, pni: PeerNi) -> bool:
    """Whether the path from ni, once that is chosen, makes no progress."""
    if ni is None:
        return False
    path_load = pni.path_loads.get(ni)
    return path_load is not None and path_load.stalled


def _all_stalled(ni: NI, query: Query) -> bool:
    if query.bound is not None:
        return is_stalled(ni, query.bound)
    net = query.peer.nets.get(ni.net.net)
    return net is not None and all(is_stalled(ni, pni) for pni in net.nis)


NET_FIXED = (
    _each("usable", lambda nets, query: all(ni.fatal for ni in nets.local.nis)),
    _each("peer-net health", lambda nets, query: -nets.remote.health),
    _each("progress", lambda nets, query: all(_all_stalled(ni, query) for ni in nets.local.nis)),
    _each("peer-net priority", lambda nets, query: nets.remote.priority),
    _each("local-net health", lambda nets, query: -nets.local.health),
    _each("local-net priority", lambda nets, query: nets.local.priority),
)
NET_TURN = (
    _each("peer-net sequence", lambda nets, query: nets.remote.seq),
    _each("local-net sequence", lambda nets, query: nets.local.seq),
)
LOCAL_FIXED = (
    _each("usable", lambda ni, query: ni.fatal),
    _each("health", lambda ni, query: -ni.health),
    _each("progress", _all_stalled),
    _each("UDSP priority", lambda ni, query: ni.priority),
    _each("NUMA distance", lambda ni, query: max(query.distance_to(ni), query.numa_range)),
)
PEER_FIXED = (
    _each("health", lambda pni, query: -pni.health),
    _each("progress", lambda pni, query: is_stalled(query.ni, pni)),
    _each("UDSP priority", lambda pni, query: pni.priority),
    _each("UDSP preference", lambda pni, query: query.ni is None or query.ni.nid not in pni.preferred_nids),
    _each(
        "UDSP pathway priority",
        lambda pni, query: 0 if query.ni is None else pni.pathways.get(query.ni.nid, 0),
    ),
)
CREDITS = Criterion("credits", lambda some, query: [-one.tx_credits for one in some])
TURN = Criterion("sequence", lambda some, query: [one.seq for one in some])
QUEUED = Criterion("queued bytes", lambda pnis, query: [pni.tx_queued_bytes for pni in pnis])
SAME_WAY = Criterion(SAME_BATCH, _not_in_batch)
LOCAL_EXPECTED = Criterion("expected completion", _local_expected)
PEER_EXPECTED = Criterion("expected completion", _peer_expected)
WEIGHTED_TURN = Criterion("weighted turn", _weighted_turn)
