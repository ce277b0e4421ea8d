"""The scripts whose tables docs/design/measured.md shows: they run, reckon right and explain themselves."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import crowd
import crowd_profile
import ends
import rails_profile
import roundtrip
import simulator_profile
from players import COMPETITORS, HERE
from ulnet.core.selection import paths
from work import WORKS

SCRIPTS = ("crowd_profile", "ends", "rails_profile", "roundtrip", "simulator_profile", "small_rails")
PLAYERS = [player for player in COMPETITORS if player.name in ("c", "ulnet_node")]
CACHEGRIND = """#!/bin/sh
for last; do rounds=$last; done
echo "$((rounds * 10))"
echo "==1== I   refs:      $((rounds * 5)),000
==1== I1  misses:      $((rounds * 200))
==1== LLi misses:      $rounds
==1== D   refs:        $rounds  (1 rd   + 1 wr)
==1== D1  misses:      $((rounds * 100))  (1 rd   + 1 wr)
==1== LLd misses:      $rounds  (1 rd   + 1 wr)
==1== D1  miss rate:   3.6% (4.7%     +   2.7%  )
==1== LL refs:         $rounds  (1 rd   + 1 wr)
==1== LL misses:       $((rounds * 30))  (1 rd   + 1 wr)" >&2
"""


@pytest.mark.parametrize("script", SCRIPTS)
def test_each_tells_how_to_use_it(script: str) -> None:
    words = [sys.executable, str(HERE / f"{script}.py")]
    if script == "ends":
        words.append("bulk-get")
    told = subprocess.run([*words, "--help"], capture_output=True, text=True, check=True, timeout=60).stdout
    assert f"Example: python benchmarks/{script}.py" in " ".join(told.split())
    done = subprocess.run([*words, "--faster"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "unrecognized arguments: --faster" in done.stderr


def test_each_end_of_a_work_is_told() -> None:
    work = replace(next(work for work in WORKS if work.name == "bulk-get"), count=16, warmup=2)
    cases = [ends.Case(player, player.title, {}) for player in PLAYERS]
    c = next(player for player in COMPETITORS if player.name == "c")
    cases += [ends.touching(c, 64)] if c.missing() is None else []
    table = ends.table(work, ends.measure(work, cases, 1))
    assert [line.split(" | ")[0] for line in table[2:]] == [f"| {case.title}" for case in cases]
    assert all(line.count("|") == table[0].count("|") for line in table)
    calls = ends.calls(work, PLAYERS[1])
    assert {line.split(" | ")[0] for line in calls[2:]} == {"| takes payload", "| sends payload"}


def test_round_trips_are_measured_beside_what_leaves_something_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(roundtrip, "WORK", replace(roundtrip.WORK, count=20, warmup=5))
    monkeypatch.setattr("sys.argv", ["roundtrip.py", "--rounds", "1"])
    assert roundtrip.main() == 0
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[2:]]
    assert len(rows) >= 7
    assert all(float(row[1]) > 0 for row in rows)


def test_many_peers_are_told_by_their_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(crowd_profile, "COUNTS", (1, 6))
    monkeypatch.setattr(crowd_profile, "SECONDS", 0.05)
    for player, shape in (("pure", "64 B, 16 at a time"), (crowd.SOCKETS, "16 KiB")):
        crowd_profile.cpu_table(player, shape)
        rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("| 1 |", "| 6 |"))]
        assert len(rows) == 2


def test_bytecodes_of_a_message_are_told_by_function(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(crowd_profile, "STEPPED", (1, 6))
    monkeypatch.setattr(crowd_profile, "STEPPED_SECONDS", 1.0)
    crowd_profile.steps_table("64 B, 16 at a time")
    _, title, _, heads, _, every, *rows = capsys.readouterr().out.splitlines()
    assert title.startswith("pure: 64 B, 16 at a time")
    assert "6 peers" in heads
    for at in (3, 5):  # bytecodes a message; of one peer and of many they are nearly alike
        told = [float(row.split("|")[at]) for row in rows if "|" in row]
        assert 100 < sum(told) <= float(every.split("|")[at]) + len(told)  # rounded each
    (put,) = (row for row in rows if "core/sender.py:Sender.put " in row)
    assert all(0.5 < float(put.split("|")[at]) < 2 for at in (2, 4))  # calls a message


def test_instructions_and_lines_are_those_of_the_right_number_of_peers(tmp_path: Path) -> None:
    for peers, count in ((64, 7), (500, 9)):
        text = f"desc: Trigger: peers{peers}\nevents: Ir Dr DLmr\ntotals: {count}00 3 {count}\n"
        (tmp_path / f"out.{peers}").write_text(text)
    assert crowd_profile._counted(tmp_path, 500) == {"Ir": 900, "Dr": 3, "DLmr": 9}
    with pytest.raises(RuntimeError, match="valgrind wrote nothing"):
        crowd_profile._counted(tmp_path, 5)


def test_a_message_and_a_choice_over_rails_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {title: {most: 2 + 16 / most for most in rails_profile.MOST} for title in rails_profile.TITLES}
    monkeypatch.setattr(rails_profile, "measure", lambda rounds: found)
    monkeypatch.setattr("sys.argv", ["rails_profile.py"])
    rails_profile.main()
    *_, last = capsys.readouterr().out.splitlines()
    assert [cell.strip() for cell in last.split("|")[-5:-1]] == ["2.25", "2.00", "16.0", "1.00"]


def test_a_send_that_is_chosen_for_is_the_difference_of_two_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    valgrind = tmp_path / "valgrind"
    valgrind.write_text(CACHEGRIND)
    valgrind.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("sys.argv", ["rails_profile.py", "--singly"])
    rails_profile.main()
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split("|")[1].strip() for row in rows] == list(rails_profile.SINGLY)
    assert all(row.endswith("| 500.0 | 20.0 | 10.0 | 3.0 |") for row in rows)


def test_sends_are_as_many_as_asked_for() -> None:
    assert [rails_profile.singly(title, 12) for title in rails_profile.SINGLY] == [12] * 4


@pytest.mark.pure
def test_the_parts_of_a_batch_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    rails_profile.parts_table(2)
    _, _, *rows = capsys.readouterr().out.splitlines()
    assert [row.split("|")[1].strip() for row in rows] == rails_profile.TITLES
    counts = [[int(re.sub(r".*\(|\)|,", "", cell)) for cell in row.split("|")[2:6]] for row in rows]
    assert all(sum(parts) == whole for *parts, whole in counts)
    alone, *several = (first for _, first, _, _ in counts)
    assert all(first > alone + 400 for first in several)  # bytecodes: there is something to choose


@pytest.mark.pure
def test_more_messages_join_where_more_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rails_profile, "COUNT", 200)
    monkeypatch.setattr(paths, "_MOST_MESSAGES", paths._MOST_MESSAGES)  # to be put back
    best = rails_profile.measure(1)
    assert set(best) == set(rails_profile.TITLES)
    assert all(0 < best[title][most] < float("inf") for title in best for most in rails_profile.MOST)


def test_an_event_of_the_simulator_is_the_difference_of_two_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    valgrind = tmp_path / "valgrind"
    valgrind.write_text(CACHEGRIND)
    valgrind.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("sys.argv", ["simulator_profile.py"])
    simulator_profile.main()
    rows = capsys.readouterr().out.splitlines()[2:]
    assert rows == [f"| {nodes} | 500 | 20 | 10 | 3 |" for nodes in simulator_profile.NODES]


def test_more_rounds_of_the_simulator_are_more_events() -> None:
    assert simulator_profile.run(8, 2) > simulator_profile.run(8, 1) > 0
