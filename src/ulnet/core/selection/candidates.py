"""Candidates that only load, or turns, tell apart: when each would be through with one message more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ulnet.core.path_load import PathLoad

__all__ = ["EQUAL_WITHIN", "UNUSED", "Candidates", "Turns"]

# Paths whose rates differ by less are taken for equal: where they share a bottleneck any split would
# confirm itself, and noise would decide. What is outstanding still evens them out.
EQUAL_WITHIN = 1.5
TRIAL = 2  # times its rate, that a path on trial is taken for

UNUSED = PathLoad()  # stands for every path that nothing went yet


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


class Candidates:
    """The candidates of one stage, with their loads and rates, which are kept until the peer's rates change.

    `settled` tells what left these and no others; with `turns`, weights decide in place of load.
    """

    __slots__ = ("_best", "_equal", "_path_loads", "_rates", "all", "noted_at", "settled", "turns")

    def __init__(self, candidates: Sequence[Any], settled: str = "", turns: Turns | None = None) -> None:
        self.all: Sequence[Any] = candidates
        self.settled: str = settled
        self.turns: Turns | None = turns
        self.noted_at: int = -1  # the generation of the peer's rates when they were taken
        self._path_loads: Sequence[PathLoad] = ()
        self._rates: list[float] = []
        self._best = 0.0
        self._equal = True

    def note_rates(self, path_loads: Sequence[PathLoad], generation: int) -> None:
        """Take the rates of all; a path that was never measured is taken for as fast as the fastest.

        One on trial is taken for twice as fast as measured, but no faster than the fastest.
        """
        self.noted_at = generation
        self._path_loads = path_loads
        self._best = best = max([path_load.rate for path_load in path_loads])
        rates = [path_load.rate * TRIAL if path_load.on_trial else path_load.rate for path_load in path_loads]
        self._rates = [best if not rate or rate * EQUAL_WITHIN >= best else rate for rate in rates]
        self._equal = min(self._rates) == best

    def expected(self, size: int) -> list[float]:
        """Seconds until the message would be through: what is under way and itself, at the observed rate.

        While no rate is known: the bytes under way.
        """
        best = self._best
        if not best:
            return [path_load.outstanding for path_load in self._path_loads]
        if self._equal:
            return [(load.outstanding + size) / best for load in self._path_loads]
        loads = zip(self._path_loads, self._rates, strict=True)
        return [(load.outstanding + size) / rate for load, rate in loads]
