"""Which path the next message takes in load balancing mode (bonding design §2.2.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from ulnet.lnd.bond.paths import Path
from ulnet.wire.bond import Policy

__all__ = ["BALANCERS", "Balancer", "weights_of"]

Balancer = Callable[[Sequence[Path], int], Path]
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


def _by_turn(paths: Sequence[Path], size: int) -> Path:
    return _fairest(paths, [1.0] * len(paths), 1.0)


def _by_weight(paths: Sequence[Path], size: int) -> Path:
    return _fairest(paths, [path.weight for path in paths], 1.0)


def _by_rate(paths: Sequence[Path], size: int) -> Path:
    return _fairest(paths, _rates(paths), float(size))


def _by_congestion(paths: Sequence[Path], size: int) -> Path:
    """The one that would be done first: what is under way there, and this message, at its observed rate."""
    rates = _rates(paths)
    ends = [(path.outstanding + size) / rate for path, rate in zip(paths, rates, strict=True)]
    return paths[ends.index(min(ends))]


def _fairest(paths: Sequence[Path], weights: Sequence[float], cost: float) -> Path:
    """The one that has had least for its weight; one that was away makes up for nothing."""
    floor = max(min(path.had for path in paths), max(path.had for path in paths) - _most(weights, cost))
    best, least = paths[0], float("inf")
    for path, weight in zip(paths, weights, strict=True):
        path.had = max(path.had, floor)
        after = path.had + cost / weight
        if after < least:
            best, least = path, after
    best.had = least
    return best


def _most(weights: Sequence[float], cost: float) -> float:
    """How far shares may lie apart while all take part: twice a message on the slowest."""
    return 2 * cost / min(weights)


def _rates(paths: Sequence[Path]) -> list[float]:
    """Bytes per second as observed; what is not known yet counts as the best that is."""
    rates = [path.rate for path in paths]
    guess = max(rates) or _GUESSED_RATE
    return [rate or guess for rate in rates]


BALANCERS: Final[dict[int, Balancer]] = {
    Policy.ROUND_ROBIN: _by_turn,
    Policy.WEIGHTS: _by_weight,
    Policy.DYNAMIC: _by_rate,
    Policy.CONGESTION: _by_congestion,
}
