"""Candidates that line up are picked as those are that all are weighed (spec selection.md §4)."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ulnet.core.flow import Flow, Paces
from ulnet.core.selection.line import MANY
from ulnet.core.selection.rivals import Rivals

CREDITS = 4
SIZE = 100


class Way:
    """One candidate, and messages under way there."""

    def __init__(self, paces: Paces) -> None:
        self.flow = Flow(paces)
        self.tx_credits = self.max_tx_credits = CREDITS
        self.seq = 0

    def carry(self, seq: int) -> None:
        """One more message takes it."""
        self.seq = seq
        self.tx_credits -= 1
        self.flow.begin(SIZE, 0.0)

    def deliver(self) -> None:
        """One of its messages is through."""
        self.tx_credits += 1
        self.flow.end(SIZE, 0.0)


def weighed(ways: list[Way]) -> tuple[Way, str]:
    """The documents' words: least load, then most credits, then the earliest turn; the last that decided."""
    by, left = "settled", ways
    costs = (
        ("expected completion", lambda way: way.flow.outstanding),
        ("credits", lambda way: -way.tx_credits),
        ("sequence", lambda way: way.seq),
    )
    for name, cost in costs:
        least = min(map(cost, left))
        kept = [way for way in left if cost(way) == least]
        if len(kept) < len(left):
            by, left = name, kept
    return left[0], by


def play(rng: Random, count: int) -> Counter[str]:
    """Messages come and go at random, mostly as they are picked; what decided, and how often."""
    paces = Paces()
    ways = [Way(paces) for _ in range(count)]
    for way in ways:
        way.seq = rng.randint(0, 3)
    rivals = Rivals(ways, "settled")
    rivals.take_rates([way.flow for way in ways], paces.rates)
    decided: Counter[str] = Counter()
    limit = rng.choice((1, count // 2, count - 1, 2 * count))  # messages under way
    for seq in range(4, 120):
        picked = rivals.pick(SIZE, paces)
        assert (picked, rivals.by) == weighed(ways)
        decided[rivals.by] += 1
        if rng.random() < 0.9:
            picked.carry(seq)
        else:  # somebody who was bound to that way
            rng.choice(ways).carry(seq)
        if rng.random() < 0.3:  # an answer: it takes a credit, and is no load
            rng.choice(ways).tx_credits -= 1
        short = [way for way in ways if way.tx_credits + way.flow.outstanding // SIZE < CREDITS]
        if short and rng.random() < 0.3:
            rng.choice(short).tx_credits += 1
        under_way = [way for way in ways for _ in range(way.flow.outstanding // SIZE)]
        for way in rng.sample(under_way, max(0, len(under_way) - limit)):
            way.deliver()
    return decided


@given(rng=st.randoms(use_true_random=False), count=st.integers(2, 3 * MANY))
def test_whoever_lines_up_is_picked_as_if_all_were_weighed(rng: Random, count: int) -> None:
    play(rng, count)


@pytest.mark.parametrize("count", [MANY, 2 * MANY])
def test_turns_credits_and_load_each_decide_among_many(count: int) -> None:
    decided: Counter[str] = Counter()
    for seed in range(50):
        decided += play(Random(seed), count)
    assert min(decided[by] for by in ("expected completion", "credits", "sequence")) > 50, decided
