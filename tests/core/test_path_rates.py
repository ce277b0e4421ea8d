"""The rates of paths, in a closed loop: what is delivered lets the next message set out, by the path chosen.

Paths either share one bottleneck, which serves in order, or have one each.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass
from itertools import pairwise

import pytest

from ulnet.core.path_load import InFlight, PathLoad
from ulnet.core.selection.candidates import TRIAL, Candidates

SIZE = 1 << 20  # bytes of a message


@dataclass
class Loop:
    """What each path carried, in messages, and the bytes of all in a second."""

    carried: list[int]
    rate: float


def closed_loop(
    capacities: list[float], measured: list[float], *, shared: bool, seed: int, messages: int = 2048
) -> Loop:
    """Send messages, 16 at a time, over paths whose rates have been measured before."""
    rng = random.Random(seed)
    paths = [PathLoad() for _ in capacities]
    for path, rate in zip(paths, measured, strict=True):
        for _ in range(4):
            path.take(int(rate), 1.0, 0, 0.0)
    candidates, peer = Candidates(capacities), PathLoad()
    carried = [0] * len(paths)
    free = [0.0] * len(paths)  # when a bottleneck has served all
    under_way: list[tuple[float, int, InFlight]] = []
    now, sent = 0.0, 0

    def send() -> None:
        nonlocal sent
        candidates.note_rates(paths, sent)
        costs = candidates.expected(SIZE)
        chosen = costs.index(min(costs))
        in_flight = InFlight(paths[chosen], peer, SIZE)
        in_flight.begin(now)
        server = 0 if shared else chosen
        rate = sum(capacities) if shared else capacities[chosen]
        free[server] = max(free[server], now) + SIZE / rate * rng.uniform(0.7, 1.3)
        carried[chosen] += 1
        sent += 1
        heapq.heappush(under_way, (free[server], sent, in_flight))

    for _ in range(16):
        send()
    while under_way:
        now, _, in_flight = heapq.heappop(under_way)
        in_flight.answered(now)
        if sent < messages:
            send()
    return Loop(carried, messages * SIZE / now)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("lean", [2.0, 3.0, 7.0])
def test_a_lean_on_paths_that_share_a_bottleneck_does_not_confirm_itself(seed, lean):
    loop = closed_loop([1e9, 1e9], [2e9 * lean / (lean + 1), 2e9 / (lean + 1)], shared=True, seed=seed)
    assert min(loop.carried) / sum(loop.carried) > 0.4


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("times", [2, 4, 10])
def test_paths_of_unequal_capacity_carry_what_they_can(seed, times):
    capacities = [1e9, 1e9 / times]
    loop = closed_loop(capacities, capacities, shared=False, seed=seed)
    assert min(loop.carried) / sum(loop.carried) == pytest.approx(1 / (times + 1), rel=0.1)
    assert loop.rate > 0.97 * sum(capacities)


def test_a_path_that_delivers_no_more_on_trial_is_tried_ever_more_rarely():
    path = PathLoad()
    tried = []
    for sample in range(3000):
        before = path.on_trial
        path.take(1 << 20, 0.01, 0, 0.0)
        if path.on_trial and not before:
            tried.append(sample)
    gaps = [after - before for before, after in pairwise(tried)]
    assert gaps[:4] == sorted(gaps[:4])
    assert gaps[1] > 1.5 * gaps[0]
    assert 500 < max(gaps) < 600  # … but tried it is
    assert len(set(gaps[-3:])) == 1


def test_a_path_on_trial_is_taken_for_faster_than_measured_but_not_for_the_fastest():
    slow, fast = PathLoad(), PathLoad()
    slow.rate, fast.rate = 1e6, 8e6
    candidates = Candidates(["slow", "fast"])
    candidates.note_rates([slow, fast], 1)
    assert candidates.expected(SIZE)[0] == SIZE / 1e6
    slow.on_trial = fast.on_trial = True
    candidates.note_rates([slow, fast], 2)
    assert candidates.expected(SIZE) == [SIZE / (TRIAL * 1e6), SIZE / 8e6]
    slow.rate = 5e6
    candidates.note_rates([slow, fast], 3)
    assert candidates.expected(SIZE) == [SIZE / 8e6, SIZE / 8e6]
