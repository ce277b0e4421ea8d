"""Candidates in the order of their turns, so that an idle one is found without looking at all."""

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import Any, Final

from ulnet.core.flow import Flow

__all__ = ["MANY", "Line"]

MANY: Final = 8  # candidates: fewer are weighed sooner than they line up
_LOOK: Final = 6  # of them, in turn, are looked at before all are


class Line:
    """Who was used longest ago comes first.

    Turns only ever grow, so nobody has to tell of what is used: who has another turn than was noted goes
    further back when it is met.
    """

    __slots__ = ("_credits", "_waiting")

    def __init__(self, candidates: Sequence[Any]) -> None:
        self._waiting = sorted([(one.seq, index, one) for index, one in enumerate(candidates)])
        self._credits = max([one.max_tx_credits for one in candidates])  # of who is idle, at most

    def first_idle(self, flows: Sequence[Flow]) -> Any:
        """Who is best by load, credits and turn, and by turn alone; None: all must be weighed to know.

        `flows` are those of the candidates. Nobody can be better than one that is idle and whose turn came
        first; that turns decided is known as soon as another one is as idle.
        """
        waiting, most = self._waiting, self._credits
        found = None
        first = at = 0
        while at < _LOOK:
            turn, index, one = waiting[at]
            if one.seq != turn:
                del waiting[at]
                insort(waiting, (one.seq, index, one))
                continue
            if one.tx_credits == most and not flows[index].outstanding:
                if found is not None:
                    return None if turn == first else found
                found = one
                first = turn
            at += 1
        return None
