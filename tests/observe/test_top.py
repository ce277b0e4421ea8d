"""`ulnet top`: keys and tables on an 80 × 24 screen, without colour, on a real terminal; rows of text."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from support.daemon import PATIENCE, Daemon, environment
from support.ports import free_port
from ulnet.cli.ulnet import main
from ulnet.observe.advice import advice
from ulnet.observe.live import Live, Rail
from ulnet.observe.rows import TABLES, number, sparkline
from ulnet.observe.screen import Explanation, Top
from ulnet.observe.snapshot import Snapshot


def rail(nid: str, sent: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "nid": nid,
        "status": "up",
        "interfaces": {0: "eth0"},
        "statistics": {"send_count": sent, "recv_count": 0},
        "health stats": {"health value": 1000},
        "load": {
            "send_length": sent * 1000,
            "recv_length": 0,
            "available_tx_credits": 7,
            "max_tx_credits": 8,
        },
        **more,
    }


def peer(nid: str, *nids: str, sent: int = 0, **more: Any) -> dict[str, Any]:
    nis = [{"nid": one, "statistics": {"send_count": sent, "recv_count": 0}} for one in (nid, *nids)]
    return {"primary nid": nid, "Multi-Rail": bool(nids), "peer ni": nis, **more}


def shown(nis: list[dict[str, Any]], peers: list[dict[str, Any]] | None = None) -> Snapshot:
    nets: dict[str, list[dict[str, Any]]] = {}
    for ni in nis:
        nets.setdefault(ni["nid"].split("@")[1], []).append(ni)
    net = [{"net type": name, "local NI(s)": some} for name, some in nets.items()]
    route = {"net": "tcp7", "gateway": "10.0.0.9@tcp", "hop": -1, "priority": 0, "state": "down"}
    parts = {"net": {"net": net}, "peer": {"peer": peers or []}, "route": {"route": [route]}}
    return Snapshot("node", parts)


class Scripted:
    """A source that shows what it was told to show, when it was told."""

    name = "node"
    reach = "ssh oss1 lnetctl"

    def __init__(self) -> None:
        self.more = threading.Semaphore(0)
        self.snapshots: list[Snapshot] = []
        self.closed = threading.Event()

    def show(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)
        self.more.release()

    def read(self, timeout: float) -> Snapshot:
        while not self.closed.is_set():
            if self.more.acquire(timeout=0.05):
                return self.snapshots.pop(0)
        return Snapshot("node", {}, {"net": "closed"})

    def configuration(self, timeout: float) -> str:
        return ""

    def close(self) -> None:
        self.closed.set()


A, B = "10.0.0.1@tcp", "10.0.1.1@tcp1"
FAR = "10.0.0.2@tcp"


class Screen:
    """A screen of 80 × 24 and a node to be shown there."""

    def __init__(self, app: Top, pilot: Pilot[None], source: Scripted) -> None:
        self.app, self.pilot, self.source = app, pilot, source

    async def until(self, condition: Callable[[], bool]) -> None:
        give_up = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < give_up, self.text()
            await self.pilot.pause(0.02)

    async def show(self, *nis: dict[str, Any], peers: list[dict[str, Any]] | None = None) -> None:
        before = self.app.live.shown
        self.source.show(shown(list(nis), peers))
        await self.until(lambda: self.app.live.shown is not before)
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    def table(self) -> DataTable[Any]:
        return self.app.screen_stack[0].query_one(f"#table{self.app.at}", DataTable)

    def rows(self) -> list[str]:
        table = self.table()
        return ["".join(map(str, table.get_row_at(at))) for at in range(table.row_count)]

    def head(self) -> str:
        return str(self.app.screen_stack[0].query_one("#head", Static).content)

    def text(self) -> str:
        return f"{self.head()}\n" + "\n".join(self.rows())


@dataclass
class Terminal:
    """`ulnet top` as a process on a pseudo-terminal."""

    process: subprocess.Popen[bytes]
    ours: int
    said: bytes = b""

    def end(self) -> int:
        """Its exit status; `said` is all that it wrote."""
        with suppress(OSError):  # the other end is closed
            while more := os.read(self.ours, 65536):
                self.said += more
        return self.process.wait(PATIENCE)


@asynccontextmanager
async def screen(
    explain: Callable[[str, Snapshot | None], str] = lambda nid, shown: nid,
    *,
    colour: bool = True,
    width: int = 80,
) -> AsyncIterator[Screen]:
    source = Scripted()
    app = Top(source, explain, 0.05, colour=colour)
    async with app.run_test(size=(width, 24)) as pilot:
        try:
            yield Screen(app, pilot, source)
        finally:
            source.close()
    os.environ.pop("NO_COLOR", None)


async def test_rails_with_rates_fit_into_80_columns() -> None:
    async with screen() as top:
        assert top.head() == "node: asking"
        await top.show(rail(A), rail(B, status="down"))
        await top.show(rail(A, sent=1), rail(B, status="down"))
        await top.show(rail(A, sent=50000), rail(B, status="down"))
        first, second = top.rows()
        assert first.startswith("10.0.0.1@tcp         eth0        up 1000 ")
        assert re.search(r" 7/8 ", first)
        assert "▁█" in first
        assert " down " in second
        assert top.head().endswith("2 rails, 1 NOT WELL, 0 peers, 1 routes")
        assert all(len(row) <= 80 for row in top.rows())
        heads = [str(column.label) for column in top.table().ordered_columns]
        assert sum(map(len, heads)) <= 80
        assert heads[:5] == ["NID                  ", "IF     ", "  STATE ", "HLTH ", "MSG/S▾"]
        rates = top.app.live.rails[A].rates
        assert rates.sent and rates.sent_bytes == pytest.approx(rates.sent * 1000)


async def test_60_columns_cut_no_unit_of_a_rate() -> None:
    async with screen(width=60) as top:
        await top.show(rail(A), rail(B, status="down"))
        await top.show(rail(A, sent=1), rail(B, status="down"))
        await top.show(rail(A, sent=500_000), rail(B, status="down"))
        await top.pilot.pause()
        line = top.table().render_line(1).text  # what is seen, below the heads
        rates = top.app.live.rails[A].rates
        assert line.startswith(A) and len(line) == 60
        assert rates.messages and rates.bytes and rates.messages > 1000
        assert re.search(rf" {number(rates.messages)} +{number(rates.bytes)} +7/8$", line)


def test_60_columns_cut_no_head_of_peers() -> None:
    (peers,) = [table for table in TABLES if table.name == "Peers"]
    heads = " ".join(column.fit(column.head) for column in peers.columns)
    assert heads[:60].endswith(" QUEUED B  LOW") and heads[60:61] == " "


async def test_keys_change_the_table_sort_and_filter() -> None:
    async with screen() as top:
        peers = [peer(FAR, "10.0.1.2@tcp1", sent=9), peer("10.0.0.3@tcp", sent=5)]
        await top.show(rail(A, sent=7), rail(B, sent=3), peers=peers)
        await top.press("s", "s", "s", "s", "s")  # over the last columns to the first
        assert [row.split()[0] for row in top.rows()] == [B, A]
        await top.press("r")
        assert [row.split()[0] for row in top.rows()] == [A, B]
        await top.press("2")
        split = [row.split() for row in top.rows()]
        assert [[*row[:2], row[-1]] for row in split] == [[FAR, "2", "yes"], ["10.0.0.3@tcp", "1", "no"]]
        await top.press("slash", *"no 0.3", "enter")
        assert [row.split()[0] for row in top.rows()] == ["10.0.0.3@tcp"]
        assert top.head().startswith("[filter: no 0.3] ")
        await top.press("escape")
        assert len(top.rows()) == 2
        await top.press("3")
        assert top.rows()[0].split() == ["tcp7", "10.0.0.9@tcp", "-1", "0", "down"]
        await top.press("4")
        assert "recording began" in top.rows()[0]
        await top.press("1", "q")
        assert not top.app.is_running


async def test_ctrl_c_ends_the_screen_also_in_the_filter() -> None:
    for keys in ([], ["slash"]):
        async with screen() as top:
            await top.press(*keys, "ctrl+c")
            assert top.app.return_code == 130 and not top.app.is_running


async def test_a_frozen_screen_stays_while_reading_goes_on() -> None:
    async with screen() as top:
        await top.show(rail(A))
        await top.press("space")
        await top.show(rail(A), rail(B))
        assert len(top.rows()) == 1
        assert top.head().startswith("[FROZEN] ")
        await top.press("space")
        assert len(top.rows()) == 2


async def test_the_cursor_stays_on_its_rail_and_a_silent_node_is_told() -> None:
    async with screen() as top:
        await top.show(rail(A), rail(B))
        await top.press("down")
        under = top.app._key_under_cursor(top.table())
        await top.show(rail("10.9.9.9@tcp9", sent=5), rail(A, sent=1), rail(B, sent=99999))
        assert top.app._key_under_cursor(top.table()) == under
        top.source.show(Snapshot("node", {}, {"net": "no end in 1 s"}))
        await top.until(lambda: top.app.live.silent)
        await top.pilot.pause()
        assert top.head().startswith("node DOES NOT ANSWER: no end in 1 s; shown: ")
        assert len(top.rows()) == 3


async def test_a_row_is_explained_with_commands_to_try() -> None:
    asked = []

    def explain(nid: str, shown: Snapshot | None) -> str:
        assert shown is not None
        asked.append(nid)
        return f"the way to {nid}"

    async with screen(explain) as top:
        peers = [peer(FAR, sent=1), peer("10.0.0.3@tcp"), peer("10.0.1.2@tcp1")]
        await top.show(rail(A, status="down"), rail(B), peers=peers)
        await top.show(rail(A, status="down"), rail(B), peers=[peer(FAR, sent=9), *peers[1:]])
        await top.press("slash", *A, "enter", "e")
        page = top.app.screen
        assert isinstance(page, Explanation)
        await top.until(lambda: bool(page.text))
        assert f"{A} (eth0) is down" in page.text
        assert f"the way to {FAR}" in page.text  # the busiest on its net
        assert "  ssh oss1 ip -s link show dev eth0" in page.text.splitlines()
        assert f"  ssh oss1 lnetctl ping --source {A} {FAR}" in page.text.splitlines()
        await top.show(rail(A), rail(B))  # drawn beneath
        await top.press("escape", "escape", "3", "e")  # routes are not explained
        assert not isinstance(top.app.screen, Explanation)
        await top.show(rail(A), peers=peers)
        await top.press("2", "enter")
        await top.until(lambda: len(asked) == 2)
        assert isinstance(top.app.screen, Explanation)


async def test_without_colour_all_is_said_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "")
    async with screen(colour=False) as top:
        await top.show(rail(A, status="down"), rail(B))
        assert top.app.no_color and top.app.native_ansi_color
        cells = top.table().get_row(A)
        assert not any(cell.style for cell in cells)
        assert " down " in top.text()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """An lnetd, and `ulnet top` on a pseudo-terminal of 80 × 24 that shows its rail."""
    daemon = Daemon(tmp_path / "s", "--accept", "all", "--accept-port", str(free_port()))
    try:
        assert daemon.lnetctl("net", "add", "--nid", "127.6.6.1@tcp").code == 0
        ours, theirs = pty.openpty()
        words = [sys.executable, "-m", "ulnet", "top", "--socket", str(daemon.path), "--no-colour"]
        more = {"COLUMNS": "80", "LINES": "24", "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(**more))
        os.close(theirs)
        shown = Terminal(process, ours)
        try:
            while b"127.6.6.1@tcp" not in shown.said:
                shown.said += os.read(ours, 65536)
            yield shown
        finally:
            os.close(ours)
            process.kill()
            process.wait()
    finally:
        daemon.end()


def test_on_a_real_terminal(terminal: Terminal) -> None:
    """The rail is there, no colour is asked for, q ends it."""
    os.write(terminal.ours, b"q")
    assert terminal.end() == 0
    assert not re.search(rb"\x1b\[[0-9;]*(?:3[1-7]|4[1-7]|[34]8;[25])[;m]", terminal.said)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_screen_and_leaves_the_terminal_as_it_was(
    terminal: Terminal, number: signal.Signals
) -> None:
    terminal.process.send_signal(number)
    assert terminal.end() == 128 + number
    assert b"Traceback" not in terminal.said
    for mode in (b"1049", b"25"):  # the main screen is back, the cursor is seen
        on, off = (b"l", b"h") if mode == b"1049" else (b"h", b"l")
        assert terminal.said.rindex(b"\x1b[?" + mode + on) > terminal.said.rindex(b"\x1b[?" + mode + off)


def test_printed_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    daemon = Daemon(tmp_path / "s", "--accept", "all", "--accept-port", str(free_port()))
    try:
        assert daemon.lnetctl("net", "add", "--nid", "127.6.6.2@tcp,127.6.6.3@tcp").code == 0
        assert main(["top", "--socket", str(daemon.path), "--print", "2", "--every", "0.05"]) == 0
        out = capsys.readouterr().out
        assert out.count("NID                  IF") == 2
        assert out.count("127.6.6.3@tcp") == 2
        assert max(map(len, out.splitlines())) <= 80
    finally:
        daemon.end()
    assert main(["top", "--socket", str(daemon.path), "--print", "1", "--every", "0.05"]) == 1
    assert "does not answer: no lnetd answers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((None, "-"), (0, "0"), (0.25, "0.2"), (9.96, "10.0"), (950, "950"), (999.6, "1.0k")),
        *((12345, "12.3k"), (123456, "123k"), (9.9999e5, "1.0M"), (4.2e9, "4.2G"), (7e18, "7000P")),
    ],
)
def test_numbers_are_short(value: float | None, text: str) -> None:
    assert number(value) == text


def test_sparklines() -> None:
    assert sparkline([0, 1, 2, 4], 6) == "  ▁▃▅█"
    assert sparkline([0, 4], 2, plain=True) == "_#"
    assert sparkline([0, 0], 2) == "▁▁"
    assert sparkline(range(100), 8).endswith("█")


def test_what_has_no_value_is_last_whichever_way_it_is_sorted() -> None:
    live = Live("n")
    live.take(shown([rail("c@tcp"), rail("a@tcp", load={}), rail("b@tcp")]), 1.0)
    rails = TABLES[0]
    column = next(n for n, one in enumerate(rails.columns) if one.head == "CREDITS")
    for falling in (True, False):
        assert rails.chosen(live, "", column, falling)[-1].nid == "a@tcp"


@pytest.mark.parametrize(
    ("state", "reach", "lines"),
    [
        (
            {"up": False},
            "lnetctl",
            ["ip -s link show dev eth0", "ethtool eth0", "lnetctl net show -v 4 --net tcp"],
        ),
        ({"why": "drained"}, "sudo -n lnetctl", ["sudo -n lnetctl net set --nid 1@tcp --drain 0"]),
        (
            {"health": 5, "why": "health 5"},
            "lnetctl --socket /x",
            ["lnetctl --socket /x debug recovery --local"],
        ),
        ({}, "lnetctl", ["lnetctl ping --source 1@tcp 2@tcp"]),
    ],
)
def test_advice_is_for_what_is_wrong(state: dict[str, Any], reach: str, lines: list[str]) -> None:
    one = Rail("1@tcp", "tcp", "eth0")
    for name, value in state.items():
        setattr(one, name, value)
    found = [command.line for command in advice(one, ["2@tcp"], reach)]
    assert set(lines) <= set(found)
    assert len(set(found)) == len(found)
    assert ("ethtool" in " ".join(found)) == (one.state in ("down", "unwell"))


def test_rates_after_a_restart_of_counters_and_of_kernel_nodes() -> None:
    live = Live("n")
    kernel = rail(A, 100)
    del kernel["load"]
    live.take(shown([kernel]), 10.0)
    live.take(shown([{**kernel, "statistics": {"send_count": 300, "recv_count": 50}}]), 20.0)
    assert live.rails[A].rates == (20.0, 5.0, None, None)
    live.take(shown([{**kernel, "statistics": {"send_count": 40, "recv_count": 50}}]), 30.0)
    assert live.rails[A].rates == (4.0, 0.0, None, None)
    live.take(Snapshot("n", {}, {"net": "gone"}), 40.0)
    assert live.silent and live.rails[A].rates.sent == 4.0
    live.take(shown([{**kernel, "statistics": {"send_count": 80, "recv_count": 50}}]), 50.0)
    assert live.rails[A].rates.sent == 2.0  # over the time since it was read
    assert [told.event.kind for told in live.told][-2:] == ["does not answer", "answers again"]


def test_printing_does_without_textual() -> None:
    code = "import sys, ulnet.cli.top; sys.exit('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=environment(), check=False).returncode == 0
