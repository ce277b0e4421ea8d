"""Candidates that only load tells apart, and when each would be through with one message more."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, Final

from ulnet.core.flow import Flow, Paces
from ulnet.core.selection.line import MANY, Line
from ulnet.core.selection.weights import Turns

_LOAD: Final = "expected completion"
_CREDITS: Final = "credits"
_TURN: Final = "sequence"

__all__ = ["EQUAL_WITHIN", "UNUSED", "Rivals"]

# Paths whose rates differ by less are taken for equal: where they share a bottleneck any split would
# confirm itself, and noise would decide. What is outstanding still evens them out.
EQUAL_WITHIN = 1.5

UNUSED = Flow()  # stands for every path that nothing went yet


class Rivals:
    """The candidates with their flows and rates, which are kept until the peer's `paces` change.

    `settled` tells what left these and no others; with `turns`, weights decide in place of load.
    `by` tells what decided the last `pick`.
    """

    __slots__ = (
        "_below",
        "_best",
        "_chosen",
        "_ends",
        "_equal",
        "_flows",
        "_in_line",
        "_rates",
        "_size",
        "by",
        "candidates",
        "changes",
        "line",
        "settled",
        "turns",
    )

    def __init__(self, candidates: Sequence[Any], settled: str = "", turns: Turns | None = None) -> None:
        self.candidates = candidates
        self.settled = settled
        self.turns = turns
        self.by = settled
        self.changes = -1  # of the rates of the peer's `paces` when they were taken
        self._flows: Sequence[Flow] = ()
        self._rates: list[float] = []
        self._best = 0.0
        self._equal = True
        # The last pick, which holds while nothing ends and less is under way there than this.
        self._chosen = 0
        self._below = 0.0
        self._ends = -1
        self._size = 0
        self.line: Line | None = None  # of these candidates; all with the same may share it
        self._in_line: Line | None = None  # the same while their rates are equal

    def take_rates(self, flows: Sequence[Flow], changes: int) -> None:
        """Note the rates of all; a path that was never measured is taken for as fast as the fastest."""
        self.changes = changes
        self._ends = -1
        self._flows = flows
        rates = [flow.rate for flow in flows]
        self._best = best = max(rates)
        self._rates = [best if not rate or rate * EQUAL_WITHIN >= best else rate for rate in rates]
        self._equal = min(self._rates) == best
        if self.line is None and len(flows) >= MANY:
            self.line = Line(self.candidates)
        self._in_line = self.line if self._equal else None

    def expected(self, size: int) -> list[float]:
        """Seconds until the message would be through: what is under way and itself, at the observed rate.

        While no rate is known: the bytes under way.
        """
        best = self._best
        if not best:
            return [flow.outstanding for flow in self._flows]
        if self._equal:
            return [(flow.outstanding + size) / best for flow in self._flows]
        return [(flow.outstanding + size) / rate for flow, rate in zip(self._flows, self._rates, strict=True)]

    def pick(self, size: int, paces: Paces) -> Any:
        """Who is left by expected completion, then credits, then turn: the same as `narrow`, in one pass.

        The rates must be those of now.
        """
        candidates = self.candidates
        if len(candidates) == 1:
            return candidates[0]
        flows = self._flows
        equal = self._equal
        if self._ends == paces.ends and self._size == size:
            chosen = self._chosen
            load = float(flows[chosen].outstanding)
            if (load if equal else (load + size) / self._rates[chosen]) < self._below:
                self.by = _LOAD
                return candidates[chosen]
        line = self._in_line
        if line is not None:
            found = line.first_idle(flows)
            if found is not None:
                self.by = _TURN
                return found
        chosen = 0
        first = candidates[0]
        least: float = flows[0].outstanding if equal else (flows[0].outstanding + size) / self._rates[0]
        below = inf
        credits: int = first.tx_credits
        seq: int = first.seq
        by_load = by_credits = by_turn = False
        for at in range(1, len(candidates)):
            load = flows[at].outstanding if equal else (flows[at].outstanding + size) / self._rates[at]
            if load > least:
                by_load = True
                if load < below:
                    below = load
                continue
            one = candidates[at]
            if load < least:
                by_load = True
                by_credits = by_turn = False
                below = least
            else:
                below = load
                if one.tx_credits < credits:
                    by_credits = True
                    continue
                if one.tx_credits == credits:
                    if one.seq == seq:
                        continue
                    by_turn = True
                    if one.seq > seq:
                        continue
                else:
                    by_credits = True
                    by_turn = False
            chosen = at
            least = load
            credits = one.tx_credits
            seq = one.seq
        self.by = _TURN if by_turn else _CREDITS if by_credits else _LOAD if by_load else self.settled
        self._chosen = chosen
        self._below = below
        self._ends = paces.ends
        self._size = size
        return candidates[chosen]
