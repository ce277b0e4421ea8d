"""How many messages go one way before the next one has its turn, where policies say so (cfg-145).

Weights form a tree: a net's turn is shared by its NIs, that of an NI by its pathways to the peer. Who has
no weight of its own has the sum of those below it, if any of them has one, else a turn of one message.
"""

from __future__ import annotations

from collections.abc import Sequence

from ulnet.core.ni import NI, NO_WEIGHT
from ulnet.core.peer import PeerNi

__all__ = ["Turns", "sum_of", "turns_of", "weight_of_pathway"]


def weight_of_pathway(ni: NI, pni: PeerNi) -> int:
    """That of the pair if a rule names it, else that of the peer NI."""
    return pni.turn_lengths.get(ni.nid, pni.weight)


def sum_of(weights: Sequence[int]) -> int:
    """NO_WEIGHT if none of them is given; those not given count 1 beside others."""
    return sum(weight or 1 for weight in weights) if any(weights) else NO_WEIGHT


class Turns:
    """The turns of some candidates, in their order: each sends as many messages in a row as it weighs.

    `taken` outlives this object: what each has sent in the present round. A round ends when all are
    through, and who is out for a while has lost nothing but its turns in the rounds that it missed.
    """

    __slots__ = ("_lengths", "_taken")

    def __init__(self, lengths: dict[object, int], taken: dict[object, int]) -> None:
        self._lengths = lengths
        self._taken = taken

    def places(self, candidates: Sequence[object]) -> list[float]:
        """Of each, how many are before it in the line for the next message, or more."""
        taken, lengths, count = self._taken, self._lengths, len(candidates)
        return [at if taken.get(one, 0) < lengths[one] else at + count for at, one in enumerate(candidates)]

    def take(self, candidate: object) -> None:
        """A message goes its way."""
        taken = self._taken
        sent = taken.get(candidate, 0)
        if sent >= self._lengths[candidate]:
            taken.clear()
            sent = 0
        taken[candidate] = sent + 1


def turns_of(
    candidates: Sequence[object], weights: Sequence[int], kept: dict[object, dict[object, int]], stage: object
) -> Turns | None:
    """The turns of a stage's candidates; None where no weight is given, or nobody to take turns with."""
    if len(candidates) < 2 or not any(weights):
        return None
    lengths = {one: weight or 1 for one, weight in zip(candidates, weights, strict=True)}
    return Turns(lengths, kept.setdefault(stage, {}))
