"""The benchmark of routers: each player moves a stream, and what is shown follows from the runs."""

from __future__ import annotations

import pytest

import routed
from routed_peer import Routed
from support.netns import Cluster


@pytest.mark.parametrize("player", ["direct", "routed", "relay"])
def test_each_player_moves_a_stream(
    player: str, namespaces_work: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routed, "WARMUP", 0.3)
    cluster = Cluster(3, 2 * routed.RAILS, "400mbit")
    try:
        result = routed._run(cluster, player, 0.7)
    finally:
        cluster.close()
    assert result.outcome.rate > 0
    assert not result.outcome.failed
    assert (result.cpu > 0) == (player != "direct")


def test_a_killed_router_is_survived(namespaces_work: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routed, "WARMUP", 0.3)
    monkeypatch.setattr(routed, "KILL_AFTER", 0.3)
    cluster = Cluster(4, 2 * routed.RAILS, "400mbit")
    try:
        outcome = routed._run(cluster, "killed", 2.0).outcome
    finally:
        cluster.close()
    assert outcome.messages > len(outcome.failed)


def test_what_is_shown() -> None:
    results = {
        "direct": [routed.Result(Routed(100e6, 100))],
        "routed": [routed.Result(Routed(95e6, 100), 0.6)],
        "relay": [routed.Result(Routed(99e6, 100), 0.5)],
    }
    rows = routed.cells(results)[1]
    assert rows[0] == ["ulnet, direct", "100.0", "1.000", "–", "–"]
    assert rows[1] == ["ulnet, routed", "95.0", "0.950", "0.60", "1.20"]
    rows = routed.killed_cells([Routed(90e6, 100, ["a"], 0.2), Routed(91e6, 100, [], 0.4)])[1]
    assert rows == [["ulnet, median (worst)", "0.30 (0.40)", "1", "90.5"]]
