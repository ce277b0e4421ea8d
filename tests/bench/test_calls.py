"""The section of calls: all players answer, and aims are held against it. No figure is judged."""

from __future__ import annotations

from typing import Any

import pytest

import aims
import calls
import sections
from calls_job import Job, Outcome

HERE = calls.Place((calls._start, calls._start), [calls.LOCAL], [calls.REMOTE])


@pytest.mark.parametrize("kind", ["echo", "fetch"])
def test_each_player_calls(kind: Any) -> None:
    size = 64 if kind == "echo" else 3 << 20
    for player in calls._players(kind):
        job = Job(player, kind, size, 3, 0.1, 0.02, HERE.local, HERE.remote, calls.PORT)
        outcome = calls.run(HERE, [job])
        assert outcome.count >= 3, player
        assert 0 < outcome.p50_us <= outcome.p99_us


def test_a_crowd_is_several_processes_of_one_server() -> None:
    job = Job("pure", "echo", 64, 0, 0.1, 0.02, HERE.local, HERE.remote, calls.PORT)
    (one, (alone,)), (many, jobs) = calls._crowd(job, 6)
    assert (one, alone.tasks) == ("one client", 6)
    assert (many, [(each.first, each.clients) for each in jobs]) == ("6 clients", [(0, 3), (3, 3)])
    assert calls.run(HERE, jobs).count >= 6


def test_the_memory_of_an_idle_client_is_measured() -> None:
    found = calls._memory("pure", 60)
    assert list(found) == [
        "at the server",
        "at the server, of its peer and connections",
        "at the client, beside its node",
    ]


def test_a_player_that_fails_is_told_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(place: calls.Place, jobs: list[Job]) -> Outcome:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(calls, "run", fails)
    told: list[str] = []
    runs: dict[str, list[Outcome]] = {}
    calls._keep(runs, "pure", HERE, [], told.append)
    assert told == ["failed: ulnet.rpc: no such luck"]
    assert calls.small_cells(runs) == []


def results() -> calls.Results:
    def runs(**rates: float) -> dict[str, list[Outcome]]:
        return {player: [Outcome(int(rate), 1.0, 0.5, 100, 200)] for player, rate in rates.items()}

    return calls.Results(
        small={"loopback": runs(compiled=20_000, asyncio=100_000, zmq=10_000, grpc=1000)},
        bulk={"loopback": runs(compiled=300, gets=310, zmq=100)},
        crowd={"one client": runs(compiled=1000), "1,000 clients": runs(compiled=700)},
        memory={"pure": {"at the server": 41 * 1024}},
    )


def test_aims_are_held_against_calls() -> None:
    table = {(line[0], line[2]): line[3:] for line in aims.of_section("calls", calls.figures(results()))}
    echo, fetch = "calls of 64 B, loopback", "8 MiB fetched by a call, loopback"
    assert table[echo, "grpc.aio"] == ["≥ 10×", "20×", "reached"]
    assert table[echo, "zmq.asyncio DEALER/ROUTER"] == ["≥ 3×", "2×", "**missed**"]
    assert table[echo, "asyncio protocol by hand"] == ["≥ 0.7×", "0.2×", "**missed**"]
    assert table[fetch, "plain `get`s"] == ["≥ 0.9×", "0.968×", "reached"]
    assert table[fetch, "grpc.aio"] == ["≥ 6×", "not measured", ""]
    assert table["1,000 clients", "one client, as many calls"] == ["≥ 0.6×", "0.7×", "reached"]
    assert table["an idle client, at its server", "–"] == ["≤ 40 KiB", "41 KiB", "**missed**"]


def test_the_tables_have_a_row_for_each_player(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "measure", lambda *_: results())
    section = sections.measure("calls", True, 1, lambda line: None)
    assert section is not None
    text = sections.markdown(section)
    assert "| ulnet.rpc, compiled | 20 | 20–20 | 100 | 200 | 25.0 | 0.20 |" in text
    assert "| zmq.asyncio DEALER/ROUTER | 0.781 | 0.781–0.781 | 0.64 | 0.32 |" in text
    assert "| 1,000 clients, compiled | 0.7 | 0.7–0.7 | 100 | 200 | 0.70 |" in text
    assert "| at the server, pure | 41.0 |" in text
