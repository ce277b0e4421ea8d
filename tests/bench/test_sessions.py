"""The benchmark of large sessions: all nodes answer and get their turn, simulated and as processes."""

from __future__ import annotations

import pytest

import sessions

pytestmark = pytest.mark.requirement("LST")


@pytest.mark.parametrize("count", [4, pytest.param(100, marks=pytest.mark.long)])
def test_a_simulated_session(count: int) -> None:
    found = sessions.simulate(count)
    assert (found.answers, found.errors) == (count, 0)
    (row,) = sessions.simulated_cells({f"{count}, pure": found})
    assert len(row) == len(sessions.SIMULATED_HEADS)


@pytest.mark.parametrize("count", [4, pytest.param(20, marks=pytest.mark.long)])
def test_processes_in_one_session(count: int) -> None:
    told: list[str] = []
    report = sessions.measure_processes(count, 1.0, told.append)
    assert told == [f"a session of {count} processes"]
    assert [test["name"] for test in report["tests"]] == [
        "write, none check", "write, full check", "read, none check", "read, full check"
    ]  # fmt: skip
    for test in report["tests"]:
        assert len(test["nodes"]) == count // 2 and not test["errors"]
    rows = sessions.process_cells(report)
    assert all(len(row) == len(sessions.PROCESSES_HEADS) for row in rows)
