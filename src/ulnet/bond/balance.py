"""Which path the next message takes in load balancing mode (bonding design §2.2.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from ulnet.bond.paths import Path
from ulnet.wire.bond import Policy

__all__ = ["COSTS", "take", "weights_of"]

Costs = Callable[[Sequence[Path], int], list[float]]
_GUESSED_RATE: Final = 1e9  # of paths that nothing is known of, until one has carried enough


def weights_of(pairs: Sequence[tuple[int, int]], ours: Sequence[int], theirs: Sequence[int]) -> list[float]:
    """What static weights make of paths, each a slave of ours and one of the peer; the least is 1.

    The peer's weights share the load among its slaves, and ours what goes to one of them among those of ours
    that reach it. Where the peer gives none, ours alone count.
    """
    there = [max(theirs[remote], 1) for _, remote in pairs]
    if len(set(there)) > 1:
        reaching: dict[int, int] = {}
        for local, remote in pairs:
            reaching[remote] = reaching.get(remote, 0) + ours[local]
        shares = [
            weight * ours[local] / reaching[remote]
            for (local, remote), weight in zip(pairs, there, strict=True)
        ]
    else:
        ways = Counter(local for local, _ in pairs)
        shares = [ours[local] / ways[local] for local, _ in pairs]
    least = min(shares, default=1.0)
    return [share / least for share in shares]


def _by_turn(paths: Sequence[Path], size: int) -> list[float]:
    return _shares(paths, [1.0] * len(paths), 1.0)


def _by_weight(paths: Sequence[Path], size: int) -> list[float]:
    return _shares(paths, [path.weight for path in paths], 1.0)


def _by_rate(paths: Sequence[Path], size: int) -> list[float]:
    return _shares(paths, _rates(paths), float(size))


def _by_congestion(paths: Sequence[Path], size: int) -> list[float]:
    """When each would be done: what is under way there, and this message, at its observed rate."""
    return [(path.outstanding + size) / rate for path, rate in zip(paths, _rates(paths), strict=True)]


def _shares(paths: Sequence[Path], weights: Sequence[float], cost: float) -> list[float]:
    """What each would have had for its weight with this message; one that was away makes up for nothing.

    Shares lie apart by twice a message on the slowest at most, while all take part.
    """
    had = [path.had for path in paths]
    floor = max(min(had), max(had) - 2 * cost / min(weights))
    return [max(one, floor) + cost / weight for one, weight in zip(had, weights, strict=True)]


def _rates(paths: Sequence[Path]) -> list[float]:
    """Bytes per second as observed; what is not known yet counts as the best that is."""
    rates = [path.rate for path in paths]
    guess = max(rates) or _GUESSED_RATE
    return [rate or guess for rate in rates]


# By policy: its name, what it makes of paths, whether the one that is taken has had that share then.
COSTS: Final[dict[int, tuple[str, Costs, bool]]] = {
    Policy.ROUND_ROBIN: ("turn", _by_turn, True),
    Policy.WEIGHTS: ("weighted turn", _by_weight, True),
    Policy.DYNAMIC: ("turn by rate", _by_rate, True),
    Policy.CONGESTION: ("expected completion", _by_congestion, False),
}


def take(policy: int, paths: Sequence[Path], size: int) -> Path:
    """The path for the next message of `size` bytes, which has had that share of the load from now on."""
    _, costs_of, shared = COSTS[policy]
    costs = costs_of(paths, size)
    least = min(costs)
    best = paths[costs.index(least)]
    if shared:
        best.had = least
    return best
