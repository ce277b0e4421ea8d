"""Calls in random worlds with faults: executed at most once, each ends exactly once, nothing is kept."""

from __future__ import annotations

import pytest

from rpc.sim_calls import run_seed
from ulnet.rpc.pending import Pending
from ulnet.rpc.sessions import Session, Verdict

pytestmark = pytest.mark.requirement("ULP")

GROUP = 30


@pytest.mark.parametrize("first", range(1, 121, GROUP))
def test_random_worlds(first: int) -> None:
    for seed in range(first, first + GROUP):
        run_seed(seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(10_000, 30_000, 500))
def test_more_random_worlds(first: int) -> None:
    for seed in range(first, first + 500):
        run_seed(seed)


def fails_within(seeds: int) -> bool:
    for seed in range(1, seeds + 1):
        try:
            run_seed(seed)
        except AssertionError:
            return True
    return False


def test_a_server_that_executes_repetitions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Session.judge

    def wrong(self: Session[object], slot: int, number: int) -> Verdict:
        verdict = judge(self, slot, number)
        return Verdict.NEW if verdict in (Verdict.ANSWERED, Verdict.RUNNING) else verdict

    monkeypatch.setattr(Session, "judge", wrong)
    assert fails_within(30)


def test_a_client_that_is_too_sure_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    end = Pending._not_known_there
    monkeypatch.setattr(Pending, "_not_known_there", lambda self, sure: end(self, True))
    assert fails_within(30)
