"""History: what is kept survives a kill, stays within its size, and is told in words that help."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from observe.conftest import Answers, Tool
from observe.test_probe import net, route
from support.daemon import PATIENCE, Daemon, Done, environment
from support.ports import free_port
from ulnet.observe.changes import NODE, Event
from ulnet.observe.history import History, HistoryError
from ulnet.observe.page import as_text
from ulnet.observe.snapshot import PARTS, Snapshot
from ulnet.observe.summary import Summary, summarize

A, B = "10.0.0.1@tcp", "10.0.1.1@tcp1"
START = 1_700_000_000.0


def ni(
    nid: str, sent: int = 0, *, health: int = 1000, status: str = "up", timeouts: int = 0
) -> dict[str, Any]:
    return {
        "nid": nid,
        "status": status,
        "statistics": {"send_count": sent, "recv_count": sent, "drop_count": 0},
        "health stats": {"health value": health, "timeouts": timeouts},
    }


def seen(*nis: dict[str, Any], **more: Any) -> Snapshot:
    nets = [net(one["nid"].rpartition("@")[2], one) for one in nis]
    sent = sum(one["statistics"]["send_count"] for one in nis)
    statistics = {"send_count": sent, "recv_count": sent, "send_length": 1000 * sent, "recv_length": 0}
    return Snapshot("node", {"net": {"net": nets}, "statistics": {"statistics": statistics}, **more})


SILENT = Snapshot("node", {}, dict.fromkeys(PARTS, "no answer in 10 s"))


def play(path: Path, *snapshots: Snapshot, step: float = 10.0) -> tuple[list[Event], Summary]:
    """Read so often; the events, and the whole as it is told."""
    with History(str(path / "h.db"), create=True) as history:
        found = [event for at, one in enumerate(snapshots) for event in history.add(one, START + at * step)]
        return found, summarize(history, START, START + len(snapshots) * step)


def test_a_rail_that_goes_down_and_comes_back(tmp_path: Path) -> None:
    events, summary = play(
        tmp_path,
        seen(ni(A, 100), ni(B, 100)),
        seen(ni(A, 200), ni(B, 200)),
        seen(ni(A, 300), ni(B, 200, health=900, timeouts=3)),
        seen(ni(A, 400), ni(B, 200, status="down", health=900, timeouts=3)),
        seen(ni(A, 500), ni(B, 300, timeouts=3)),
    )
    assert events == [
        Event("recording began", NODE),
        Event("NI health", B, "1000", "900", "3 timed out"),
        Event("NI status", B, "up", "down"),
        Event("NI status", B, "down", "up"),
        Event("NI is well", B, "900", "1000"),
    ]
    rails = {rail.nid: rail for rail in summary.rails}
    assert (rails[A].sent, rails[B].sent, rails[B].failed) == (400, 200, 3)
    assert (rails[B].down, rails[B].unwell, rails[B].least_health) == (10, 10, 900)
    assert summary.sent_bytes == 600_000
    assert summary.look_at == [
        f"{B} was down for 10 s: see its link, cable and switch port",
        f"{B} was not at full health for 10 s, 900 at least: 3 timed out",
    ]


def test_a_node_that_is_silent_and_begins_anew(tmp_path: Path) -> None:
    events, summary = play(tmp_path, seen(ni(A, 500)), SILENT, SILENT, seen(ni(A, 30)), seen(ni(A, 40)))
    assert events[1:] == [
        Event("does not answer", NODE, why="no answer in 10 s"),
        Event("answers again", NODE),
        Event("counters began anew", NODE, why="LNet was started anew, or its counters were reset"),
    ]
    assert summary.silent == 20
    assert summary.rails[0].sent == 40
    assert summary.look_at[0].startswith("the node did not answer for 20 s")


def test_peers_routes_and_settings(tmp_path: Path) -> None:
    def peers(*members: tuple[str, str, int]) -> dict[str, Any]:
        return {
            "peer": [
                {
                    "primary nid": primary,
                    "peer ni": [{"nid": nid, "state": "up", "health stats": {"health value": value}}],
                }
                for primary, nid, value in members
            ]
        }

    def ways(*states: str) -> dict[str, Any]:
        return {"route": [route("o2ib", f"10.0.0.{at}@tcp", state) for at, state in enumerate(states)]}

    one, other = "10.0.0.8@tcp", "10.0.0.9@tcp"
    events, _ = play(
        tmp_path,
        seen(ni(A), peer=peers((one, one, 1000)), route=ways("up"), settings={"global": {"retry_count": 2}}),
        seen(
            ni(A),
            peer=peers((one, one, 400), (one, other, 1000)),
            route=ways("down", "up"),
            settings={"global": {"retry_count": 3}},
        ),
        seen(ni(A), peer=peers((other, other, 1000)), route=ways()),
    )
    assert events[1:] == [
        Event("peer NI health", one, "1000", "400"),
        Event("peer NI is new", other, after=one),
        Event("route", "o2ib by 10.0.0.0@tcp", "up", "down"),
        Event("route is new", "o2ib by 10.0.0.1@tcp", after="up"),
        Event("setting", "retry_count", "2", "3"),
        Event("peer NI is gone", one, before=one),
        Event("peer NI has another peer", other, one, other),
        Event("route is gone", "o2ib by 10.0.0.0@tcp"),
        Event("route is gone", "o2ib by 10.0.0.1@tcp"),
    ]


def test_parts_that_are_missing_are_no_change(tmp_path: Path) -> None:
    peer = {"peer": [{"primary nid": A, "peer ni": [{"nid": A}]}]}
    whole = seen(ni(A), peer=peer, route={"route": [route("o2ib", A, "up")]})
    events, _ = play(tmp_path, whole, seen(ni(A)), whole)
    assert events == [Event("recording began", NODE)]


def test_a_rail_that_nobody_uses_is_worth_a_look(tmp_path: Path) -> None:
    _, summary = play(tmp_path, *(seen(ni(A, 1000 * at), ni(B, at)) for at in range(5)))
    assert summary.look_at == [
        f"{B} carried 0% of the messages of 2 rails, though it was up: do peers know it? "
        "`ulnet explain --to NID` tells what is chosen"
    ]


def test_time_that_nobody_recorded_is_told(tmp_path: Path) -> None:
    with History(str(tmp_path / "h.db"), create=True) as history:
        for at in (0, 10, 20, 30, 5000, 5010):
            history.add(seen(ni(A)), START + at)
        summary = summarize(history, START, START + 6000)
    assert summary.unseen == 4960
    assert summary.look_at == ["nobody recorded for 83 min: what happened then is not here"]


def test_a_clock_that_is_set_back_loses_nothing(tmp_path: Path) -> None:
    with History(str(tmp_path / "h.db"), create=True) as history:
        for at in (100.0, 50.0, 50.0, 101.0):
            history.add(seen(ni(A)), START + at)
        assert [reading.at - START for reading in history.readings(0, START + 200)] == pytest.approx(
            [100.0, 100.001, 100.002, 101.0], abs=1e-4
        )


def test_a_day_of_four_rails_stays_within_its_size(tmp_path: Path) -> None:
    """Every ten seconds: 8,640 readings. All of them are kept."""
    rails = [f"10.0.{at}.1@tcp{at}" for at in range(4)]
    with History(str(tmp_path / "h.db"), create=True) as history:
        for at in range(8640):
            history.add(seen(*(ni(nid, at * 50) for nid in rails)), START + 10 * at)
        assert len(history.readings(0, START + 90_000)) == 8640
        assert history.size < 8 << 20


def test_a_full_file_drops_the_oldest(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    with History(str(path), create=True, max_size=1) as history:  # at least 1 MiB
        for at in range(6000):
            history.add(seen(*(ni(f"10.0.{one}.1@tcp{one}", at) for one in range(8))), START + 10 * at)
            assert history.size <= (1 << 20) + 65536
        readings = history.readings(0, START + 60_000)
        assert readings[-1].at == START + 59_990
        assert readings[0].at > START
        assert len(readings) > 500
    assert path.stat().st_size < 3 << 20


def test_what_is_older_is_forgotten(tmp_path: Path) -> None:
    with History(str(tmp_path / "h.db"), create=True) as history:
        for at in range(10):
            history.add(seen(ni(A)), START + at)
        history.forget(START + 7)
        assert len(history.readings(0, START + 20)) == 3
        assert history.events(0, START + 20) == []


def foreign_file(path: Path) -> str:
    path.write_text("this is no database, and longer than its header" * 10)
    return "file is not a database"


def foreign_database(path: Path) -> str:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE mine (x)")
    return "is no history of ulnet: name another file"


def later_version(path: Path) -> str:
    History(str(path), create=True).close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA user_version = 9")
    return "is of version 9; this ulnet reads 1"


def a_folder(path: Path) -> str:
    path.mkdir()
    return "unable to open database file"


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("make", [foreign_file, foreign_database, later_version, a_folder])
def test_files_that_are_none_of_ours_stay_as_they_are(
    tmp_path: Path, make: Callable[[Path], str], create: bool
) -> None:
    path = tmp_path / "x.db"
    why = make(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(HistoryError, match=why):
        History(str(path), create=create)
    assert not path.is_file() or path.read_bytes() == before


def test_no_file() -> None:
    with pytest.raises(HistoryError, match="there is no such file; `ulnet record` makes one"):
        History("/no/such/file")


def test_pages_escape_what_nodes_say(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>@tcp"
    with History(str(tmp_path / "h.db"), create=True) as history:
        for at in range(3):
            history.add(seen(ni(evil, at * 1000), ni(A, at, health=1000 - at)), START + at * 10)
        summary = summarize(history, START, START + 60)
    words = ("--since", "2020-01-01", "--html", str(tmp_path / "page.html"), str(tmp_path / "h.db"))
    assert ulnet("report", *words).code == 1
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page
    assert page.count("<svg") == 1
    assert "http" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    ).replace("https://matplotlib.org", "")
    assert "NI health 1000 → 999, 2 times" in as_text(summary)


# Commands ------------------------------------------------------------------------------------------------


def ulnet(*words: str, **more: str) -> Done:
    done = subprocess.run(
        [sys.executable, "-m", "ulnet", *words],
        env=environment(**more), capture_output=True, text=True, check=False, timeout=PATIENCE,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr)


def test_nothing_that_was_told_is_lost_when_the_recorder_is_killed(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path / "s", "--accept", "all", "--accept-port", str(free_port()))
    path = tmp_path / "h.db"
    command = [sys.executable, "-m", "ulnet", "record", "--every", "0.1", "--verbose"]
    try:
        assert daemon.lnetctl("net", "add", "--nid", "127.6.3.1@tcp").code == 0
        for lives in (1, 2, 3):
            words = [*command, "--socket", str(daemon.path), str(path)]
            with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True) as recorder:
                assert recorder.stdout is not None
                told = 0
                for line in recorder.stdout:
                    told += line.startswith("reading")
                    if told == 5:
                        break
                recorder.kill()
            assert recorder.returncode == -signal.SIGKILL
            with History(str(path)) as history:
                assert len(history.readings(0, time.time() + 60)) >= lives * told == lives * 5
                assert sum(one.event.kind == "recording began" for one in history.events(0, 1e10)) == lives
        with closing(sqlite3.connect(path)) as database, database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    finally:
        daemon.end()
    done = ulnet("report", "--since", "1h", str(path))
    assert "127.6.3.1@tcp" in done.out
    assert "recording began" in done.out


def test_a_rail_s_bad_hour_is_told_from_its_record(
    tmp_path: Path, make_tool: Callable[[Answers], Tool]
) -> None:
    """A kernel node by its tool: a rail goes down while it is recorded."""

    def shown(status: str) -> dict[str, tuple[str, str, object]]:
        document = {"net": [net("tcp", ni(A, 5)), net("tcp1", ni(B, 5, status=status))]}
        return {"net show -v 4": (yaml.safe_dump(document), "", 0)}

    tool = make_tool(shown("up"))
    path, page = tmp_path / "h.db", tmp_path / "report.html"
    words = [
        sys.executable,
        "-m",
        "ulnet",
        "record",
        "--every",
        "0.1",
        "--verbose",
        "--tool",
        tool.command,
        str(path),
    ]
    with subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, text=True) as recorder:
        assert recorder.stdout is not None
        for line in recorder.stdout:
            if line == "reading 2\n":
                tool.answer(shown("down"))
            if line == f"{B}: NI status down\n":
                tool.answer(shown("up"))
            if line == f"{B}: NI status up\n":
                break
        recorder.send_signal(signal.SIGTERM)
        recorder.communicate(timeout=PATIENCE)
    assert recorder.returncode == 0
    done = ulnet(
        "report", "--since", "today" if time.localtime().tm_hour else "1h", "--html", str(page), str(path)
    )
    assert done.code == 1
    assert f"{B}: NI status up → down" in done.out
    assert f"{B} was down for" in done.out
    assert "<svg" in page.read_text()
    found = json.loads(ulnet("report", "--json", str(path)).out)
    assert {rail["nid"]: rail["down"] > 0 for rail in found["rails"]} == {A: False, B: True}


@pytest.mark.parametrize(
    "words",
    [
        ["report", "/no/such/file"],
        ["report", "--since", "soon"],
        ["report", "--since", "1h", "--until", "2h"],
        ["record", "--every", "0"],
        ["record", "--max-size", "0"],
        ["record", "/"],
        ["record", "--socket", "a", "--kernel"],
    ],
)
def test_words_that_make_no_history(words: list[str]) -> None:
    done = ulnet(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err


def test_a_disk_that_is_full_is_told(tmp_path: Path) -> None:
    done = ulnet("record", "/dev/full/x")
    assert done.code == 1
    assert done.err.startswith("ulnet record: /dev/full/x: ")
    if os.geteuid():
        (tmp_path / "r").mkdir(mode=0o500)
        assert ulnet("record", str(tmp_path / "r" / "x")).code == 1
