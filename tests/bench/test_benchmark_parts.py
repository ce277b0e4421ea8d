"""Many peers, starting, the table of aims, the picture: they run and reckon right, no figure is judged."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

import aims
import compiled
import crowd
import plot
import start
from crowd_hub import SHAPES
from players import COMPETITORS, Competitor, builds
from report import Row, summarize
from runner import Run, environment_of
from work import Work, cpu_of

BULK = Work("bulk-stream", "1 MiB one-way", "stream", 1 << 20, 1024, 0)  # 1 GiB
TRIP = Work("small-roundtrip", "There and back", "roundtrip", 64, 100, 0)


RUNS = {
    "c": [Run(1024, 0.1, 0.2, 0, 0)],
    "ulnet_compiled": [Run(1024, 0.125, 0.22, 0, 0)],
    "zmq_dealer": [Run(1024, 0.3, 0.4, 0, 0)],
}


def rows() -> list[tuple[Work, list[Row]]]:
    trip = {"c": [Run(100, 1, 1, 70, 90)], "ulnet_compiled": [Run(100, 1, 1, 80, 99)]}
    return [(BULK, summarize(BULK, RUNS)), (TRIP, summarize(TRIP, trip))]


def line(table: list[list[str]], *beginning: str) -> list[str]:
    (found,) = [one for one in table if one[: len(beginning)] == list(beginning)]
    return found


def test_beside_a_missed_aim_stands_what_c_has_of_it() -> None:
    found = rows()
    found[0] = (BULK, summarize(BULK, {**RUNS, "zmq_dealer": [Run(1024, 0.2, 0.4, 0, 0)]}))
    told = line(aims.of_loopback(found), "1 MiB one-way", "rate, compiled", "pyzmq DEALER/ROUTER")
    assert told[4:] == ["1.60×", "**missed**; C 2.00×"]
    assert line(aims.of_loopback(rows()), *told[:3])[4:] == ["2.40×", "reached"]


def test_aims_are_held_against_what_was_measured_over_loopback() -> None:
    table = aims.of_loopback(rows())
    rate = line(table, "1 MiB one-way", "rate, compiled", "C program")
    assert rate[3:] == ["≥ 0.9×", "0.80×", "**missed**"]
    assert line(table, "1 MiB one-way", "CPU, compiled")[3:] == ["≤ 1.2×", "1.10×", "reached"]
    dealer = line(table, "1 MiB one-way", "rate, compiled", "pyzmq DEALER/ROUTER")
    assert dealer[3:] == ["≥ 2×", "2.40×", "reached"]
    assert line(table, "There and back", "p50, compiled", "C program")[4:] == ["1.14×", "reached"]
    assert line(table, "small-ack", "rate, pure")[4:] == ["not measured", ""]
    text = aims.markdown("Over loopback", "ulnet, some day", table)
    assert text.startswith("### Over loopback\n\nulnet, some day.\n\n|")
    assert "\n| 1 MiB one-way | rate, compiled | C program | ≥ 0.9× | 0.80× | **missed** |\n" in text


def test_aims_are_held_against_what_sections_measured() -> None:
    hub = {"bare": 5 * 1024, "connected": 41 * 1024, "ratios": {"64 B": 0.9, "16 KiB": 0.5}}
    hub["growth"] = {"64 B": 0.8}
    table = aims.of_section("crowd", {"pure": hub})
    assert line(table, "many peers, 64 B", "rate, pure", "one peer")[3:] == ["≥ 0.85×", "0.9×", "reached"]
    assert line(table, "many peers, 64 B", "rate, pure", "64 peers")[4:] == ["0.8×", "**missed**"]
    assert line(table, "many peers, 16 KiB", "rate, pure")[5] == "**missed**"
    assert line(table, "many peers, 64 B", "rate, compiled", "one peer")[4] == "not measured"
    assert line(table, "an idle peer with two rails, known")[4:] == ["5 KiB", "reached"]
    assert line(table, "an idle peer with two rails, with its connections")[4:] == ["41 KiB", "**missed**"]
    table = aims.of_section("choice", {"16×16, in batches": 0.5})
    assert line(table, "16×16 NIs", "rate of sends, in batches")[4:] == ["0.5×", "**missed**"]
    assert line(table, "16×16 NIs", "rate of sends, one by one")[4:] == ["not measured", ""]
    table = aims.of_section("simulator", {"10 nodes": 7.1, "100 nodes": 3.9, "1,000 nodes": None})
    assert [row[0] for row in table] == [f"simulator, {count} nodes" for count in ("10", "100", "1,000")]
    assert [row[3:] for row in table] == [
        ["≥ 4×", "7.1×", "reached"],
        ["≥ 4×", "3.9×", "**missed**"],
        ["≥ 4×", "not measured", ""],
    ]
    assert aims.of_section("start", {}) == []
    assert aims.markdown("Starting", "ulnet, some day", []) == ""


def test_each_aim_names_players_that_there_are() -> None:
    names = {player.name for player in COMPETITORS}
    assert {aim.player for aim in aims.AIMS} | {aim.reference for aim in aims.AIMS} <= names


@pytest.mark.leaks("matplotlib keeps its fonts open")
def test_the_same_runs_make_the_same_picture(tmp_path: Path) -> None:
    paths = [tmp_path / "a.svg", tmp_path / "b.svg"]
    for path in paths:
        plot.draw(rows(), path, "On this machine.")
    first, second = (path.read_text() for path in paths)
    assert first == second
    assert "On this machine." in first
    assert "1 MiB one-way: GiB/s" in first


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert Competitor("x", "X", "", needs="no_such_module").missing() == "no_such_module"
    monkeypatch.setattr(compiled, "STAMP", tmp_path / "STAMP")
    own = Competitor("x", "X", "", build="compiled")
    assert own.missing() == "the compiled build (make wheel)"
    for stamp in ("of older sources", compiled.fingerprint() + compiled.QUICK):
        compiled.STAMP.write_text(stamp)
        assert own.missing() == "the compiled build (make wheel)"
        assert builds() == ["pure"]
    compiled.STAMP.write_text(compiled.fingerprint())
    assert own.missing() is None
    assert builds() == ["pure", "compiled"]
    monkeypatch.setattr("shutil.which", lambda tool: None)
    assert Competitor("c", "C", "", needs="cc").missing() == "a C compiler"


def test_who_is_told_to_be_compiled_must_be(tmp_path: Path) -> None:
    import sys

    environment = {**environment_of("compiled"), "PYTHONPATH": environment_of("pure")["PYTHONPATH"]}
    words = [sys.executable, "peer.py", "ulnet_node", "serve", TRIP.to_json()]
    folder = Path(crowd.__file__).parent
    done = subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode
    assert "the compiled build is to be measured" in done.stderr


def test_round_trips_go_across_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {4, 7})
    assert (cpu_of(TRIP, False), cpu_of(TRIP, True), cpu_of(BULK, True)) == (4, 7, -1)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {4})
    assert cpu_of(TRIP, True) == -1


def test_a_small_crowd_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "builds", lambda: ["pure"])
    told: list[str] = []
    hubs: dict[str, dict[str, Any]] = crowd.measure(30, 0.05, told.append)
    hub = hubs["pure"]
    assert hub["peers"] == 30
    assert hub["connections"] == 6
    table = crowd.rate_cells(hubs)
    who = ("pure", crowd.SOCKETS)
    assert [row[0] for row in table] == [f"{shape}: {one}" for shape in SHAPES for one in who]
    for row in (*table, *crowd.cpu_cells(hubs)):
        assert all(float(cell) > 0 for cell in row[1:4])
    assert all(0 < float(cell) < 10 for row in crowd.beside_cells(hubs) for cell in row[1:])
    for row in crowd.share_cells(hubs):
        assert len(row) == len(crowd.SHARE_HEADS)
        assert all(float(cell) > 0 for cell in row[4:])
    assert len(crowd.memory_cells(hubs)) == 1
    assert "30 peers" in crowd.how(hubs)


def test_starts_are_measured() -> None:
    starts = start.measure(1, lambda line: None)
    assert [len(runs) for runs in (starts.interpreter, starts.daemon, starts.command)] == [1, 1, 1]
    assert min(starts.interpreter + starts.daemon + starts.command) > 0
    assert [row[0] for row in start.cells(starts)][1] == "`lnetd` until its first message is answered"
