"""The failover benchmark: its figures are reckoned right, and each player gets through each fault."""

from __future__ import annotations

import math
import time

import pytest

import failover
import sections
from failover_job import MESSAGE, Job, Outcome

SECOND = float(MESSAGE)  # a capacity of one message a second


def outcome(*messages: tuple[float, float | None], faulted: float = 10.0, over: float = 20.0) -> Outcome:
    found = Outcome([began for began, _ in messages], [ended for _, ended in messages])
    found.faulted, found.over = faulted, over
    return found


def test_a_gap_is_where_less_than_half_comes_through() -> None:
    steady = outcome(*((9.0 + n, 10.0 + n) for n in range(11)))
    assert steady.gap(SECOND) == 0
    holes = outcome((9, 11), (9, 12), (9, 15), (9, 16.5), (9, 18))
    assert holes.gap(SECOND) == 3  # the intervals of 3 s; those of 2 s and less are half of the rate
    assert outcome((9, 9.5)).gap(SECOND) == 10


def test_the_oldest_message_decides_how_long_the_stall_was() -> None:
    overtaken = outcome((9, 10.5), (9, 14.0), (9, 11), (9, 12))
    assert overtaken.stall() == 3.5
    assert outcome((1, 2), (9, 10.5)).stall() == 0.5  # what was before the fault counts not
    lost = outcome((9, 11), (9, None))
    assert (lost.stall(), lost.lost) == (math.inf, 1)


def test_goodput_and_reconnection() -> None:
    run = outcome((9, 11), (9, 12), (9, 19))
    run.restarted = 11.5
    assert run.goodput(10, 14) == MESSAGE / 2
    assert run.reconnected() == 0.5


def test_rows_tell_the_median_and_the_largest() -> None:
    run = outcome((9, 11), (9, 12.5))
    results: failover.Results = {scene.name: {"ulnet": [], "mptcp": []} for scene in failover.SCENES}
    results["near"]["ulnet"] = [run, run, outcome((9, 14))]
    (row,) = failover.cells(results)
    assert row[:2] == ["link down, near", "ulnet"]
    assert row[3] == "1.50 (4.00)"
    assert len(row) == len(failover.HEADS)


RUNS = [
    pytest.param(player, scene, id=f"{player} {scene.name}", marks=[] if now else pytest.mark.long)
    for player in failover.PLAYERS
    for scene in failover.SCENES
    for now in [(player, scene.name) in {("ulnet", "hole"), ("ulnet", "restart"), ("mptcp", "restart")}]
]


def outcome_of(player: str, scene: failover.Scene, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """One run of that player alone, in that scene alone."""
    monkeypatch.setattr(failover, "PLAYERS", {player: player})
    monkeypatch.setattr(failover, "SCENES", [scene])
    told: list[str] = []
    results = failover.measure(1, told.append)
    if any("left out" in line for line in told):
        pytest.skip(told[-1])
    assert results[scene.name][player], told
    (run,) = results[scene.name][player]
    return run


@pytest.mark.parametrize(("player", "scene"), RUNS)
def test_each_player_gets_through_each_fault(
    player: str, scene: failover.Scene, namespaces_work: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = outcome_of(player, scene, monkeypatch)
    assert run.lost == 0
    assert run.answers(0, run.faulted)
    assert run.answers(run.faulted, math.inf)
    assert (run.restarted > 0) == (scene.name == "restart")


@pytest.mark.long
@pytest.mark.parametrize("player", failover.PLAYERS)
def test_nothing_is_lost_where_the_peer_takes_long_to_start(
    player: str, namespaces_work: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_again = failover._Run._serve_again

    def late(run: failover._Run) -> None:
        time.sleep(8)  # as on a machine with much else to do; the stream itself is over after some 4
        serve_again(run)

    monkeypatch.setattr(failover._Run, "_serve_again", late)
    run = outcome_of(player, next(scene for scene in failover.SCENES if scene.name == "restart"), monkeypatch)
    assert run.restarted > run.over
    assert run.reported > 0
    assert run.lost == 0


def test_where_there_are_no_namespaces_it_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rails.why_no_namespaces", lambda: "network namespaces need root")
    told: list[str] = []
    assert sections.measure("failover", True, 1, told.append) is None
    assert "failover: left out" in told[-1]


def test_a_job_survives_its_words() -> None:
    job = Job("ulnet", ["10.0.0.1"], ["10.0.0.2"], 3.5)
    assert Job.from_json(job.to_json()) == job
