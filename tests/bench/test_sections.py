"""The sections that are measured by themselves: they run, and leave the rest of the page alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

import access
import choice
import rails
import sections
import simulator
from rails_job import MESSAGE, Job, Outcome, steady
from run import main
from sections import Section
from support.shared import NO_HISTORY


def test_every_shape_chooses_and_sends() -> None:
    costs = choice.measure(2, 100)
    rows = choice.cells(costs)
    assert [row[0] for row in rows] == [shape.title for shape in choice.SHAPES]
    assert all(cost.send_us > 0 and cost.choice_us > 0 for runs in costs.values() for cost in runs)
    assert rows[0][4] == "1.00"


def test_messages_go_in_turns_with_rules_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = access.rules()
    assert {name: len(dict.fromkeys(some)) for name, some in lists.items()} == dict.fromkeys(
        lists, access.RULES
    )
    monkeypatch.setattr(access, "WORKS", {"64 B": (64, 3000, 64, True), "1 MiB": (1 << 20, 40, 4, False)})
    monkeypatch.setattr(access, "builds", lambda: ["pure"])
    times = access.measure(2, True, lambda text: None)
    rows = access.cells(times)
    assert [row[0] for row in rows] == ["ulnet, 64 B", "ulnet, 1 MiB"]
    assert all(len(row) == len(access.HEADS) for row in rows)
    assert all(
        pair.rates[at] > 0 and pair.cpu[at] > 0
        for some in times.pairs["pure"].values()
        for pair in some
        for at in (0, 1)
    )
    assert set(access.figures(times)) == {"64 B, pure", "1 MiB, pure"}


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


def test_a_section_says_of_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {"ulnet": "0.1.0, commit abc", "CPU": "one of them"}
    monkeypatch.setattr(sections, "machine", lambda: facts)
    table = ("", ["", "ms"], [["lnetd", "1"]])
    monkeypatch.setattr(sections, "_start", lambda *_: Section("start", "Starting", ["How."], [table]))
    section = sections.measure("start", True, 1, lambda line: None)
    assert section is not None
    assert section.origin.startswith("ulnet 0.1.0, commit abc, 2")
    assert section.origin.endswith("; one of them")
    text = sections.markdown(section)
    assert text.startswith(f"## Starting\n\nHow.\n\n{section.origin}; load average before: ")
    assert text.endswith("\n\n|  | ms |\n| --- | ---: |\n| lnetd | 1 |\n")


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
    assert "choice, calls, crowd, start, rails" in capsys.readouterr().err


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
    runs = {("before", 8): [speed], ("pure", 8): [twice], ("pure", 9): [twice]}
    assert simulator.ratios(runs, "pure") == {8: 2.0, 9: None}


def test_the_former_simulator_runs_the_same_program() -> None:
    if simulator.former() is None:
        pytest.skip(NO_HISTORY)
    former = simulator.measure_in("before", 8, 48)
    assert former.nodes == 8
    assert min(former.events, former.rate, former.messages) > 0
