"""Candidates in the order of their turns, so that an idle one is found without looking at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ulnet.core.flow import Flow

__all__ = ["Line"]

_LOOK: Final = 6  # candidates in turn that are looked at before all are


class Line:
    """Who was used longest ago comes first.

    Turns only ever grow: whose turn is what it was when they lined up has its place still. So nobody has to
    tell of what is used, and they line up anew when hardly anybody is left in place.
    """

    __slots__ = ("_at", "_candidates", "_credits", "_order", "_turns")

    def __init__(self, candidates: Sequence[Any]) -> None:
        self._candidates = candidates
        self._order: list[int] = []
        self._turns: list[int] = []
        self._at = 0  # those before it have been used since
        self._credits = 0  # of who is idle, at most

    def first_idle(self, flows: Sequence[Flow]) -> int:
        """Who is best by load, credits and turn, and by turn alone; -1: all must be weighed to know.

        `flows` are those of the candidates. Nobody can be better than one that is idle and whose turn came
        first; that turns decided is known as soon as another one is as idle.
        """
        candidates, order, turns = self._candidates, self._order, self._turns
        at, end = self._at, len(order)
        while at < end and candidates[order[at]].seq != turns[at]:
            at += 1
        self._at = at
        if end - at < 2:
            self._line_up()
            return -1
        most = self._credits
        found = -1
        for place in range(at, min(at + _LOOK, end)):
            index = order[place]
            one = candidates[index]
            if one.tx_credits != most or one.seq != turns[place] or flows[index].outstanding:
                continue
            if found < 0:
                found = place
            else:
                return -1 if turns[place] == turns[found] else order[found]
        return -1

    def _line_up(self) -> None:
        candidates = self._candidates
        turns = [one.seq for one in candidates]
        self._order = sorted(range(len(turns)), key=turns.__getitem__)
        self._turns = sorted(turns)
        self._at = 0
        self._credits = max([one.max_tx_credits for one in candidates])
