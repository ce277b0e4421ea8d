"""Which path a message would take, and why: the comparisons that `paths` and `balance` make for messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ulnet.bond.balance import COSTS
from ulnet.bond.paths import Path, choose_from
from ulnet.core.selection import Stage, Step

if TYPE_CHECKING:
    from ulnet.bond.bondni import BondNi
    from ulnet.nid import Nid

__all__ = ["ASKED", "reasons"]

# Criteria that ask a question: the cost of yes is 0.
ASKED: Final = frozenset({"may be used", "works", "said to be up", "full health"})


def reasons(bond: BondNi, nid: Nid, size: int) -> Stage | None:
    """The choice for a message of `size` bytes to the bonding NI nid; None before it is connected.

    The winner is None where no path may be used. Nothing changes by it.
    """
    peer = bond.peers.get(nid)
    if peer is None or not peer.connected or peer.configuration is None:
        return None
    steps: list[Step] = []

    def tell(name: str, paths: Sequence[Path], costs: Sequence[float]) -> None:
        steps.append(Step(name, list(zip(paths, costs, strict=True)), 0.0 if name in ASKED else min(costs)))

    bond.look()
    slaves = bond.slaves
    left = choose_from(
        peer.open_paths, slaves.own, peer.configuration, slaves.off, chosen=slaves.chosen, tell=tell
    )
    winner = left[0] if left else None
    if len(left) > 1:
        bond.core.settle()
        name, costs_of, _ = COSTS[bond.policy]
        costs = costs_of(left, size)
        tell(name, left, costs)
        winner = left[costs.index(min(costs))]
    deciding = [step.criterion for step in steps if any(cost != step.least for _, cost in step.costs)]
    return Stage("path", peer.open_paths, steps, winner, deciding[-1] if deciding else "")
