"""The sections that are measured by themselves: they run, and leave the rest of the page alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import choice
import rails
import sections
import simulator
from rails_job import MESSAGE, Job, Outcome, steady
from run import main
from support.shared import NO_HISTORY


def test_every_shape_chooses_and_sends() -> None:
    costs = choice.measure(2, 100)
    rows = choice.cells(costs)
    assert [row[0] for row in rows] == [shape.title for shape in choice.SHAPES]
    assert all(cost.send_us > 0 and cost.choice_us > 0 for runs in costs.values() for cost in runs)
    assert rows[0][4] == "1.00"


@pytest.mark.parametrize("player", ["streams", "ideal", "ulnet", "mptcp"])
def test_each_player_moves_a_stream_and_a_batch_over_two_rails(
    player: str, namespaces_work: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rails, "PLAYERS", {player: player})
    monkeypatch.setattr(rails, "SCENES", [rails.Scene((400, 400), batches=1)])
    monkeypatch.setattr(rails, "WARMUP", 0.3)
    told: list[str] = []
    (outcomes,) = rails.measure(1, 0.7, told.append).values()
    if any("left out" in line for line in told):
        pytest.skip(told[-1])
    (outcome,) = outcomes[player]
    assert outcome.rate > 0, told
    assert len(outcome.paths) == (2 if player == "ulnet" else 0)
    assert len(outcome.batches) == 1
    assert outcome.subflows == (2 if player == "mptcp" else 0)


def test_a_steady_rate_leaves_out_the_ramp() -> None:
    job = Job("ulnet", [], [], [], seconds=2.0, warmup=1.0, batches=0)
    assert steady(job, 10.0, [10.1, 11.0, 11.5, 12.0, 13.5]) == 2 * MESSAGE
    with pytest.raises(RuntimeError, match="too few"):
        steady(job, 10.0, [10.1])


def test_shares() -> None:
    players = {player: [Outcome(50e6, [0.2])] for player in rails.PLAYERS}
    players["streams"] = [Outcome(60e6), Outcome(40e6), Outcome(100e6)]
    players["mptcp"] = []
    results = {scene.title: players for scene in rails.SCENES}
    _, rows = rails.stream_cells(results)
    assert rows[0][:2] == ["1 × 400", "60.0"]
    assert rows[0][2] == "0.833 (0.83–0.83)"
    assert rows[0][-1] == "–"
    (batches,) = rails.batch_cells(results)[1]
    assert batches[3].startswith("0.699")


def test_a_section_replaces_only_itself(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    section = sections.Section("rails", "Several rails", ["How."], [("", ["", "share"], [["ulnet", "1.00"]])])
    other = sections.Section("choice", "Choice", ["How much."], [("", ["", "µs"], [["4×4", "1"]])])
    page.write_text("# Benchmarks\n\nOf loopback.\n")
    sections.write(page, None, [section])
    sections.write(page, None, [other])
    first = page.read_text()
    assert first.startswith("# Benchmarks\n\nOf loopback.\n\n<!--")
    assert "| ulnet | 1.00 |" in first
    assert first.index("| 4×4 | 1 |") < first.index("| ulnet")
    section.tables[0][2][0][1] = "0.99"
    sections.write(page, None, [section])
    assert page.read_text() == first.replace("1.00", "0.99")
    sections.write(page, "# Benchmarks\n\nAnew.\n", [])
    assert page.read_text() == first.replace("1.00", "0.99").replace("Of loopback.", "Anew.")


def test_where_there_are_no_namespaces_the_rails_are_left_out_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rails, "why_no_namespaces", lambda: "network namespaces need root")
    told: list[str] = []
    assert sections.measure("rails", True, 1, told.append) is None
    assert "need root" in told[-1]


def test_an_unknown_section_gets_the_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["run.py", "--only", "roads"])
    with pytest.raises(SystemExit):
        main()
    assert "choice, crowd, start, rails" in capsys.readouterr().err


def test_the_simulator_is_measured_by_number_of_nodes() -> None:
    speed = simulator.measure(8, 48)
    assert speed.nodes == 8
    assert min(speed.made, speed.contact, speed.events, speed.rate, speed.messages, speed.unchecked) > 0
    assert speed.peak > 1
    other = simulator.measure_in("pure", 8, 48)
    assert (other.nodes, other.events) == (speed.nodes, speed.events)
    (row,) = simulator.cells({("pure", 8): [speed, other]})
    assert row[0] == "8, pure"
    assert len(row) == len(simulator.HEADS)
    assert row[6] == "–"  # nothing to be compared with
    twice = replace(speed, rate=2 * speed.rate)
    rows = simulator.cells({("before", 8): [speed], ("pure", 8): [twice]})
    assert [row[6] for row in rows] == ["1.0", "2.0"]


def test_the_former_simulator_runs_the_same_program() -> None:
    if simulator.former() is None:
        pytest.skip(NO_HISTORY)
    former = simulator.measure_in("before", 8, 48)
    assert former.nodes == 8
    assert min(former.events, former.rate, former.messages) > 0
