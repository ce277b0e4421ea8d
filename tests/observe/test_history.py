"""History: what is kept survives a kill, stays within its size, and is told in words that help."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
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
from ulnet.observe.recorder import Clock, record
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
        f"{B} was down for 10 s: see its link, cable and switch port; "
        "the node moved 0.01 MB/s then, 0.02 MB/s while all was well",
        f"{B} was not at full health for 10 s, 900 at least: 3 timed out",
    ]


def test_a_rail_that_is_down_still_and_since_when(tmp_path: Path) -> None:
    down = (seen(ni(A, 200 + 100 * at), ni(B, 0, status="down")) for at in range(3))
    _, summary = play(tmp_path, seen(ni(A), ni(B)), seen(ni(A, 100), ni(B)), *down)
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(START + 20))
    assert summary.look_at[0].startswith(f"{B} was down for 30 s and is still, since {since}: see its link")
    assert {rail.nid: rail.state for rail in summary.rails} == {A: "up", B: "down"}
    assert [(point.well, point.seconds) for point in summary.rails[1].points][-1] == (False, 10)


def test_failures_and_resends_between_two_readings_are_told(tmp_path: Path) -> None:
    """Health that fell and rose again leaves its counters; kernel nodes count resends of the whole node."""

    def ours(sent: int, timeouts: int, **resends: int) -> Snapshot:
        one = ni(A, sent, timeouts=timeouts)
        one["load"] = {"resends": dict(resends), "send_length": 10 * sent, "recv_length": sent}
        return seen(one)

    events, summary = play(tmp_path, ours(1, 0, error=1), ours(2, 3, error=1, timed_out=3), ours(3, 3))
    assert events[1:] == [
        Event("NI failures", A, why="3 timed out"),
        Event("messages sent again", A, after="3", why="3 timed_out"),
    ]
    (tmp_path / "kernel").mkdir()
    snapshots = [seen(ni(A, at)) for at in range(3)]
    for count, snapshot in zip((4, 4, 9), snapshots, strict=True):
        snapshot.parts["statistics"]["statistics"]["resend_count"] = count
    assert (summary.rails[0].sent_bytes, summary.rails[0].resent, summary.rails[0].failed) == (20, 3, 3)
    events, _ = play(tmp_path / "kernel", *snapshots)
    assert events[1:] == [Event("messages sent again", NODE, after="5")]


def test_floods_are_told_as_one(tmp_path: Path) -> None:
    rails = [[ni(A, at, timeouts=at), ni(B, at, timeouts=at)] for at in range(60)]
    _, summary = play(tmp_path, *(seen(*both) for both in rails))
    told = as_text(summary).partition("What happened\n")[2].splitlines()
    times = [[line.rpartition(", ")[2] for line in told if nid in line] for nid in (A, B)]
    assert times == [["30 times", "29 times"], ["30 times", "29 times"]]  # of five minutes each


def test_each_change_of_a_state_is_told(tmp_path: Path) -> None:
    snapshots = (seen(ni(A, at), ni(B, at, status="down" if at % 2 else "up")) for at in range(5))
    _, summary = play(tmp_path, *snapshots)
    told = as_text(summary).partition("What happened\n")[2]
    assert told.count("up → down") == told.count("down → up") == 2


def test_plots_of_long_spans_stay_small(tmp_path: Path) -> None:
    snapshots = [seen(ni(A, at, health=1000 if at % 4000 else 900)) for at in range(5000)]
    _, summary = play(tmp_path, *snapshots, step=1.0)
    (rail,) = summary.rails
    assert len(rail.points) < 2600
    assert sum(point.messages for point in rail.points) == 2 * 4999
    assert [point.health for point in rail.points if not point.well] == [900]


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


class Day:
    """A node that is read once every `every` seconds of a virtual clock, for a day; readings take a while."""

    name = "node"
    reach = "lnetctl"

    def __init__(self, every: float, shows: Callable[[int], Snapshot]) -> None:
        self.at = 0.0
        self.count = 0
        self._every, self._shows = every, shows

    def read(self, timeout: float) -> Snapshot:
        self.at += 0.3
        self.count += 1
        return self._shows(self.count)

    def configuration(self, timeout: float) -> str:
        return ""

    def close(self) -> None:
        pass

    def record(self, history: History, keep: float, told: Callable[[list[Event]], None]) -> None:
        def pause(seconds: float) -> bool:
            self.at += seconds
            return self.at >= 86400

        clock = Clock(lambda: START + self.at, lambda: self.at, pause)
        record(self, history, self._every, keep, clock, told)


def on_disk(path: Path) -> int:
    """Bytes of the file and its journal."""
    return sum(one.stat().st_size for one in (path, Path(f"{path}-wal")) if one.exists())


def test_a_day_of_four_rails_is_small(tmp_path: Path) -> None:
    """Every ten seconds: 8,640 readings. All of them are kept."""
    path = tmp_path / "h.db"
    day = Day(10, lambda count: seen(*(ni(f"10.0.{at}.1@tcp{at}", count * 50) for at in range(4))))
    with History(str(path), create=True) as history:
        day.record(history, 2 * 86400, lambda events: None)
        assert len(history.readings(0, START + 90_000)) == day.count == 8640
        assert on_disk(path) < 12 << 20
        assert summarize(history, START, START + 86400).rails[3].sent == 8639 * 50
    assert on_disk(path) < 8 << 20


def test_a_stormy_day_stays_within_its_size(tmp_path: Path) -> None:
    """Twenty peer NIs flap in each reading; looked at whenever SQLite works, not only afterwards."""
    path, most, sizes = tmp_path / "h.db", 1 << 20, []

    def shows(count: int) -> Snapshot:
        peers = [
            {
                "primary nid": nid,
                "peer ni": [{"nid": nid, "health stats": {"health value": 1000 - count % 2}}],
            }
            for nid in (f"10.0.9.{at}@tcp" for at in range(20))
        ]
        return seen(ni(A, count), ni(B, count), peer={"peer": peers})

    day = Day(60, shows)
    with History(str(path), create=True, max_size=most) as history:
        history._db.set_progress_handler(lambda: sizes.append(on_disk(path)), 2000)
        day.record(history, 30 * 86400, lambda events: None)
        history._db.set_progress_handler(None, 0)
        assert 0.5 * most < max(sizes) <= most
        readings = history.readings(0, START + 90_000)
        assert readings[-1].at - START > 86200
        assert 100 < len(readings) < day.count == 1440
        assert readings[0].at <= history.events(0, START + 90_000)[0].at


def test_what_is_kept_is_bounded_in_time(tmp_path: Path) -> None:
    with History(str(tmp_path / "h.db"), create=True) as history:
        Day(60, lambda count: seen(ni(A, count))).record(history, 3600, lambda events: None)
        readings = history.readings(0, START + 90_000)
        assert len(readings) == 61
        assert readings[-1].at - readings[0].at == pytest.approx(3600)


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


WRITES = """
import sys
from observe.test_history import START, A, ni, seen
from ulnet.observe.history import History

with History(sys.argv[1], create=True, max_size=1 << 20) as history:
    at = max((int(reading.at - START) for reading in history.readings(0, 1e12)), default=0)
    while True:
        at += 1
        history.add(seen(*(ni(f"10.0.{one}.1@tcp{one}", at) for one in range(20))), START + at)
        print(at, flush=True)
"""


def test_a_kill_in_mid_write_loses_nothing_that_was_kept(tmp_path: Path) -> None:
    """A recorder that does nothing but write, and gives up the oldest at times, is killed at any moment."""
    path, chance = tmp_path / "h.db", random.Random(7)
    for _ in range(8):
        command = [sys.executable, "-c", WRITES, str(path)]
        paths = os.pathsep.join(sys.path)
        with subprocess.Popen(
            command, env=environment(PYTHONPATH=paths), stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            first = int(writer.stdout.readline())
            deadline = threading.Timer(chance.uniform(0.001, 0.3), writer.kill)
            deadline.start()
            told = [first, *(int(line) for line in writer.stdout if line.endswith("\n"))]
        assert writer.returncode == -signal.SIGKILL
        with History(str(path)) as history:
            kept = history.readings(0, 1e12)
            assert kept[-1].at >= START + told[-1]
            each = Counter(at for at, _, _ in history.rails(0, 1e12))
            assert set(each.values()) == {21}  # each reading is whole
            assert each.keys() == {reading.at for reading in kept}
        with closing(sqlite3.connect(path)) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert on_disk(path) <= 1 << 20


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
