"""How many messages go one way before the next one has its turn, where policies say so (cfg-145).

Weights form a tree: a net's turn is shared by its NIs, that of an NI by its pathways to the peer. Who has
no weight of its own has the sum of those below it, if any of them has one, else a turn of one message.
"""

from __future__ import annotations

from collections.abc import Sequence

from ulnet.core.ni import NI, NO_WEIGHT
from ulnet.core.peer import PeerNi
from ulnet.core.selection.candidates import Turns

__all__ = ["sum_of", "turns_of", "weight_of_pathway"]


def weight_of_pathway(ni: NI, pni: PeerNi) -> int:
    """The weight of the pair if a rule names it, else that of the peer NI."""
    return pni.turn_lengths.get(ni.nid, pni.weight)


def sum_of(weights: Sequence[int]) -> int:
    """NO_WEIGHT if none of them is given; those not given count 1 beside others."""
    return sum(weight or 1 for weight in weights) if any(weights) else NO_WEIGHT


def turns_of(
    candidates: Sequence[object], weights: Sequence[int], kept: dict[object, dict[object, int]], stage: object
) -> Turns | None:
    """The turns of a stage's candidates; None where no weight is given, or nobody to take turns with."""
    if len(candidates) < 2 or not any(weights):
        return None
    lengths = {one: weight or 1 for one, weight in zip(candidates, weights, strict=True)}
    return Turns(lengths, kept.setdefault(stage, {}))
