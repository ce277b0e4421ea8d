"""`lst` with daemons as processes of their own: the commands of the transcript, and what goes wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from support.daemon import PATIENCE, Daemon, Done, environment
from support.ports import free_port
from support.shared import shared_path
from ulnet.cli.lst_text import Picked, rates
from ulnet.cli.lst_words import COMMANDS, parser_of
from ulnet.cli.parsers import actions_of
from ulnet.dlc.documents_selftest import CountersView, NodeCounters

pytestmark = pytest.mark.requirement("LST")


class Lab(NamedTuple):
    """Daemons with selftest; the first one keeps the sessions."""

    daemons: list[Daemon]
    nids: list[str]

    def lst(self, *words: str, key: str = "77", **more: str) -> Done:
        return lst(self.daemons[0].path, *words, key=key, **more)


def lst(socket: Path, *words: str, key: str = "77", **more: str) -> Done:
    done = subprocess.run(
        [sys.executable, "-m", "ulnet.cli.lst", *words],
        env={**environment(**more), "ULNET_SOCKET": str(socket), "LST_SESSION": key},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Lab]]:
    folder = tmp_path_factory.mktemp("lst")
    port = str(free_port())
    with ExitStack() as stack:

        def begin(count: int, *words: str) -> Lab:
            lab = Lab([], [])
            for number in range(count):
                path = folder / f"{number}" / "lnetd.sock"
                daemon = Daemon(path, "--accept", "all", "--accept-port", port, *words)
                stack.callback(daemon.end)
                lab.daemons.append(daemon)
                lab.nids.append(f"127.6.0.{number + 1}@tcp")
                assert daemon.lnetctl("net", "add", "--nid", lab.nids[-1]).code == 0
            return lab

        yield begin


@pytest.fixture(scope="module")
def lab(start: Callable[..., Lab]) -> Lab:
    return start(3, "--selftest")


@pytest.fixture(autouse=True)
def no_session_stays(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "lab" in request.fixturenames:
        found: Lab = request.getfixturevalue("lab")
        shown = re.search(r"KEY: (\d+)", found.lst("show_session").out)
        found.lst("end_session", key=shown[1] if shown else "77")


def masked(text: str) -> str:
    """The text without its numbers, apart from those that are given by the commands."""
    lines = []
    for line in text.splitlines():
        if line.startswith("["):  # how wide a number is depends on it
            line = re.sub(r"\d+(\.\d+)? +", "N ", line)
        lines.append(line)
    return "\n".join(lines)


def sessions() -> list[list[tuple[list[str], str]]]:
    """The sessions of the transcript: commands with what they print."""
    found: list[list[tuple[list[str], str]]] = []
    for line in shared_path("reference/51_o2ib_lst.txt").read_text().splitlines(keepends=True):
        if line.startswith("+ lst new_session"):
            found.append([])
        if line.startswith("+ lst "):
            found[-1].append((line.split()[2:], ""))
        elif found and not line.startswith(("+", "#")):
            words, text = found[-1][-1]
            found[-1][-1] = (words, text + line)
    return found


@pytest.mark.parametrize("number", [0, 1], ids=["brw", "ping"])
def test_a_session_of_the_transcript(lab: Lab, number: int) -> None:
    client, server = lab.nids[1:]

    def ours(text: str) -> str:
        return text.replace("192.168.110.11@o2ib", client).replace("192.168.110.12@o2ib", server)

    commands = sessions()[number]
    assert len(commands) == 11
    for words, expected in commands:
        done = lab.lst(*(ours("1" if word == "4" else word) for word in words))
        assert (done.code, done.err) == (0, ""), words
        assert masked(done.out) == masked(ours(expected)), words


def test_bulk_really_moves(lab: Lab) -> None:
    lab.lst("new_session", "rw")
    lab.lst("add_group", "c", lab.nids[1])
    lab.lst("add_group", "s", lab.nids[2])
    words = ("--from", "c", "--to", "s", "brw", "r", "s=1m", "c=full")
    assert lab.lst("add_test", "--concurrency", "4", *words).code == 0
    assert lab.lst("run").out == "batch is running now\n"
    rpc = lab.lst("stat", "--rpc", "--bw", "--mbs", "--avg", "--count", "1", "--delay", "1", "c").out
    found = re.search(r"^\[RPC Bandwidth of c\]\n\[R\] Avg: 0.00 .*\n\[W\] Avg: ([\d.]+) +MB/s $", rpc, re.M)
    assert found and float(found[1]) > 0
    assert lab.lst("query").out.startswith("Batch is running on 1 of 1 nodes")
    assert lab.lst("stop").code == 0
    assert lab.lst("query").out.startswith("Batch is idle")
    assert lab.lst("list_batch", "batch").out.splitlines()[0] == "Batch: batch Tests: 1 State: 176"
    assert lab.lst("show_error", "c", lab.nids[2]).out.splitlines()[-1].startswith("Total 0 error nodes")


def test_groups(lab: Lab) -> None:
    a, b, c = lab.nids
    lab.lst("new_session")
    assert lab.lst("add_group", "all", "127.6.0.[1-3]@tcp").out == "127.6.0.[1-3]@tcp are added to session\n"
    assert lab.lst("add_group", "one", f"12345-{b}").code == 0
    assert lab.lst("list_group").out == "1) all\n2) one\nTotal 2 groups\n"
    assert lab.lst("list_group", "all").out == ("\tACTIVE\tBUSY\tDOWN\tUNKNOWN\tTOTAL\nall\t3\t0\t0\t0\t3\n")
    assert f"12345-{a}: Active" in lab.lst("list_group", "--all", "all").out
    pinged = lab.lst("ping", "--group", "all")
    assert pinged.out.splitlines()[0] == f"12345-{a}: Active [session: session id: {a}]"
    assert lab.lst("update_group", "--remove", c, "all").code == 0
    assert "all\t2" in lab.lst("list_group", "all").out
    lost = lab.lst("ping", "--nodes", c)
    assert lost.code == 1 and "Unknown [session: <NULL> id: LNET_NID_ANY]" in lost.out
    assert lab.lst("del_group", "all").code == 0
    assert lab.lst("add_test", "--from", "one", "--to", "one", "ping").code == 0
    busy = lab.lst("del_group", "one")
    assert busy.code == 1 and "part of a test" in busy.err
    shown = lab.lst("show_session").out
    assert shown == f"session ID: {a}, KEY: 77 FEATURES: 1 NODES: 1\n"


def test_a_node_that_is_down_or_busy(lab: Lab, start: Callable[..., Lab]) -> None:
    lab.lst("new_session", "mine")
    lab.lst("add_group", "g", lab.nids[1])
    theirs = lst(lab.daemons[2].path, "new_session", "theirs", key="5")
    assert theirs.code == 0
    added = lst(lab.daemons[2].path, "add_group", "g", lab.nids[1], key="5")
    assert added.code == 1 and "is busy: it has session mine of 127.6.0.1@tcp" in added.err
    silent = lab.lst("add_group", "h", "127.6.0.9@tcp")
    assert silent.code == 1 and "12345-127.6.0.9@tcp is down" in silent.err
    assert lab.lst("list_group", "h").out.endswith("h\t0\t0\t1\t0\t1\n")
    lst(lab.daemons[2].path, "end_session", key="5")


def test_nodes_that_a_test_goes_without_are_told(lab: Lab) -> None:
    """It was added to the others without a word."""
    lab.lst("new_session")
    assert lab.lst("add_group", "c", lab.nids[1], "127.6.0.9@tcp").code == 1
    assert lab.lst("add_group", "s", lab.nids[2]).code == 0
    added = lab.lst("add_test", "--from", "c", "--to", "s", "ping")
    assert (added.code, added.out) == (0, "Test was added successfully\n")
    (line,) = added.err.splitlines()
    assert line.startswith("12345-127.6.0.9@tcp is down, and not in the test: ")
    assert lab.lst("add_test", "--from", "s", "--to", "s", "ping").err == ""


def test_names_of_other_nodes_sessions_do_not_write_to_the_terminal(
    lab: Lab, start: Callable[..., Lab]
) -> None:
    """Whoever answers there has chosen the name."""
    lab.lst("new_session", "mine\x1b[2J\nlies")
    lab.lst("add_group", "g", lab.nids[1])
    other = lab.daemons[2].path
    assert lst(other, "new_session", "theirs", key="5").code == 0
    busy = lst(other, "add_group", "g", lab.nids[1], key="5").err
    shown = lst(other, "ping", "--nodes", lab.nids[1], key="5").out
    for told in (busy, shown):
        assert "mine\ufffd[2J\ufffdlies" in told and "\x1b" not in told
    lst(other, "end_session", key="5")


def test_sessions_by_key_and_by_force(lab: Lab) -> None:
    assert lab.lst("show_session").err.startswith("lst: there is no session")
    assert lab.lst("new_session", "one").code == 0
    refused = lab.lst("show_session", key="78")
    assert refused.code == 1 and "session one has another key: set LST_SESSION to 77" in refused.err
    assert "there is a session already" in lab.lst("new_session", "two", key="78").err
    forced = lab.lst("new_session", "--force", "--timeout", "60", "two", key="78", LST_FEATURES="0")
    assert forced.out == "SESSION: two FEATURES: 0 TIMEOUT: 60 FORCE: Yes\n"
    lab.lst("add_group", "g", lab.nids[1], key="78")
    odd = lab.lst("add_test", "--from", "g", "--to", "g", "brw", "size=100", key="78")
    assert odd.code == 1 and "it is whole pages" in odd.err
    assert lab.lst("end_session", key="78").code == 0
    assert "features 0x4" in lab.lst("new_session", LST_FEATURES="4").err


def test_a_daemon_has_selftest_off_unless_told(lab: Lab, tmp_path: Path) -> None:
    port = _port_of(lab)
    daemon = Daemon(tmp_path / "lnetd.sock", "--accept", "all", "--accept-port", port)
    try:
        assert daemon.lnetctl("net", "add", "--nid", "127.6.0.8@tcp").code == 0
        assert "selftest" not in daemon.lnetctl("global", "show").out
        lab.lst("new_session")
        refused = lab.lst("add_group", "g", "127.6.0.8@tcp")
        assert (refused.code, refused.out) == (1, "") and "selftest is off there" in refused.err
        assert lst(daemon.path, "new_session", "own").code == 0  # its console commands others
    finally:
        daemon.end()


def test_selftest_is_off_until_it_is_switched_on(lab: Lab) -> None:
    daemon = lab.daemons[1]
    assert "selftest: 1" in daemon.lnetctl("global", "show").out
    assert daemon.lnetctl("set", "selftest", "0").code == 0
    assert "selftest" not in daemon.lnetctl("global", "show").out
    lab.lst("new_session")
    refused = lab.lst("add_group", "g", lab.nids[1])
    assert refused.code == 1 and "selftest is off there" in refused.err
    assert daemon.lnetctl("set", "selftest", "1").code == 0
    assert lab.lst("update_group", "--refresh", "g").code == 0
    assert lab.lst("list_group", "g").out.endswith("g\t1\t0\t0\t0\t1\n")
    wrong = daemon.lnetctl("set", "selftest", "2")
    assert wrong.code != 0 and "use 0 to 1" in wrong.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["banana"], "no command"),
        (["add_group"], "the following arguments are required"),
        (["add_test", "--from", "a", "--to", "b", "brw", "size=2m"], "size=2m is no size"),
        (["add_test", "--from", "a", "--to", "b", "brw", "check=all"], "none of none, simple"),
        (["add_test", "--from", "a", "--to", "b", "brw", "off=4"], "multiple of 8"),
        (["add_test", "--from", "a", "--to", "b", "brw", "up"], "no parameter of brw"),
        (["add_test", "--from", "a", "--to", "b", "ping", "up"], "ping takes no parameters"),
        (["add_test", "--from", "a", "--to", "b", "--distribute", "1", "ping"], "no ratio"),
        (["add_test", "--from", "a", "--to", "b", "--concurrency", "1025", "ping"], "out of range"),
        (["ping"], "tell whom"),
        (["update_group", "g"], "required"),
        (["update_group", "--clean", "dead", "g"], "states are"),
        (["new_session", "x" * 32], "no name"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_words_that_make_no_command(lab: Lab, words: list[str], text: str) -> None:
    done = lab.lst(*words)
    assert done.code == 2 and text in done.err and "Traceback" not in done.err


# Of the real tool (spec selftest.md §7).
OPTIONS = {
    "new_session": "timeout force",
    "end_session": "",
    "show_session": "",
    "ping": "group batch session nodes server timeout",
    "add_group": "",
    "del_group": "",
    "update_group": "clean refresh remove",
    "list_group": "active busy down unknown all",
    "stat": "lnet rpc bw rate read write max min avg mbs timeout delay count",
    "show_error": "session",
    "add_batch": "",
    "run": "timeout",
    "stop": "force",
    "list_batch": "test active invalid all server",
    "query": "test server timeout delay loop active idle error all",
    "add_test": "batch loop concurrency distribute from to",
}


def test_all_commands_and_options_of_the_real_tool_are_there() -> None:
    assert list(OPTIONS) == list(COMMANDS)
    for command, names in OPTIONS.items():
        known = {name for action in actions_of(parser_of(command)) for name in action.option_strings}
        assert {f"--{name}" for name in names.split()} <= known, command


@pytest.mark.parametrize("key", ["", "abc", "-1", "9" * 30])
def test_a_session_needs_a_key(lab: Lab, key: str) -> None:
    done = lab.lst("show_session", key=key)
    assert done.code == 2 and "LST_SESSION is no number" in done.err


def test_unknown_groups_and_batches(lab: Lab) -> None:
    lab.lst("new_session")
    for words, text in (
        (["list_group", "g"], "no group g"),
        (["run", "b"], "no batch b"),
        (["run"], "has no test"),
        (["stat", "--count", "1", "10.0.0.1@tcp"], "in no group"),
        (["stat", "--count", "1", "what?"], "what?"),
        (["add_group", "g", "10.0.0.1@nix"], "nix"),
        (["add_batch", "batch"], "exists"),
        (["query", "--test", "3"], "has 0 tests"),
    ):
        done = lab.lst(*words)
        assert done.code == 1 and text in done.err and done.err.count("\n") == 1, words


def test_help_tells_every_command() -> None:
    done = lst(Path("/nowhere"), "--help")
    assert done.code == 0 and all(f"  {name} " in done.out for name in ("new_session", "add_test", "query"))
    assert lst(Path("/nowhere"), "add_test", "--help").code == 0
    assert lst(Path("/nowhere")).code == 2


def test_without_a_daemon_a_node_of_its_own_keeps_the_session(tmp_path: Path, lab: Lab) -> None:
    socket = tmp_path / "lnetd.sock"
    assert "no lnetd answers" in lst(socket, "show_session").err
    port = lab.daemons[0].lnetctl("net", "show").out and _port_of(lab)
    begun = lst(socket, "new_session", "--port", port, "own")
    assert begun.out == "SESSION: own FEATURES: 1 TIMEOUT: 300 FORCE: No\n", begun
    assert f"no lnetd answers on {socket}: a node was started that keeps this session" in begun.err
    try:
        assert lst(socket, "add_group", "g", lab.nids[1]).code == 0
        pinged = lst(socket, "ping", "--session").out
        assert re.match(r"12345-127\.6\.0\.2@tcp: Active \[session: own id: 127\..*@tcp\]\n", pinged)
    finally:
        ended = lst(socket, "end_session")
    assert ended.code == 0
    deadline = os.times().elapsed + PATIENCE
    while (tmp_path / "lst.sock").exists() and os.times().elapsed < deadline:
        os.sched_yield()
    assert not (tmp_path / "lst.sock").exists()


def test_the_node_that_is_named_is_asked_alone(lab: Lab, tmp_path: Path) -> None:
    nobody, named = tmp_path / "nobody.sock", str(lab.daemons[0].path)
    assert lst(nobody, "--socket", named, "new_session", "rw").code == 0
    shown = lst(nobody, f"--socket={named}", "show_session")
    assert (shown.code, shown.out.split()[0]) == (0, "rw")
    assert lst(nobody, "--socket", named, "end_session").code == 0
    refused = lst(lab.daemons[0].path, "--socket", str(nobody), "new_session", "rw")
    assert refused.code == 1 and str(nobody) in refused.err
    assert list(tmp_path.iterdir()) == []  # no node was started there
    assert lab.lst("show_session").code == 1
    for words in (["--socket"], ["--socket", named], ["--socket=", "show_session"]):
        wrong = lst(nobody, *words)
        assert wrong.code == 2 and "lst --socket PATH show_session" in wrong.err


def _port_of(lab: Lab) -> str:
    words = lab.daemons[0].process.args
    assert isinstance(words, list)
    return str(words[words.index("--accept-port") + 1])


PLAN = """\
name: pair
groups:
  c: [{0}]
  s: [{1}]
interval: 0.2
tests:
- name: bulk
  from: c
  to: s
  brw: write
  size: 64k
  seconds: 0.5
  expect: {{bandwidth: {2}}}
matrix:
  group: c
  seconds: 0.1
"""


def selftest(socket: Path, *words: str) -> Done:
    done = subprocess.run(
        [sys.executable, "-m", "ulnet", "selftest", *words],
        env=environment(ULNET_SOCKET=str(socket)) | {"ULNET_SOCKET": str(socket)},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("daemon", [True, False], ids=["by lnetd", "by a node of its own"])
def test_a_plan_is_run_reported_and_compared(lab: Lab, tmp_path: Path, daemon: bool) -> None:
    socket = lab.daemons[0].path if daemon else tmp_path / "none.sock"
    plan, report, page = tmp_path / "plan.yaml", tmp_path / "report.json", tmp_path / "report.html"
    words = ["--port", _port_of(lab), "--json", str(report), "--html", str(page)]
    plan.write_text(PLAN.format(lab.nids[1], lab.nids[2], 0.001))
    done = selftest(socket, "run", str(plan), *words)
    assert (done.code, done.err) == (0, ""), done
    assert done.out.startswith("bulk: brw write, ") and ": met\n" in done.out
    assert page.read_text().startswith("<!DOCTYPE html>")
    same = selftest(socket, "compare", str(report), str(report))
    assert same.code == 0 and "bulk: bandwidth" in same.out and "WORSE" not in same.out
    plan.write_text(PLAN.format(lab.nids[1], lab.nids[2], 1e9))
    missed = selftest(socket, "run", str(plan), "--port", _port_of(lab))
    assert missed.code == 1 and "MISSED" in missed.out
    odd = selftest(socket, "run", str(report), "--port", _port_of(lab))
    assert odd.code == 2 and "no plan of tests" in odd.err


def test_a_plan_is_run_by_the_node_that_is_named(lab: Lab, tmp_path: Path) -> None:
    """And by no other one, whatever else answers: traffic would leave from another host."""

    def sent() -> int:
        shown = yaml.safe_load(lab.daemons[0].lnetctl("net", "show", "-v", "--net", "tcp").out)
        return int(shown["net"][0]["local NI(s)"][0]["statistics"]["send_count"])

    plan, report = tmp_path / "plan.yaml", tmp_path / "report.json"
    plan.write_text(PLAN.format(lab.nids[1], lab.nids[2], 0.001))
    before = sent()
    named = (str(plan), "--socket", str(lab.daemons[0].path), "--port", _port_of(lab))
    done = selftest(tmp_path / "none.sock", "run", *named)
    assert (done.code, done.err) == (0, ""), done
    assert sent() > before
    missing = tmp_path / "missing.sock"
    words = (str(plan), "--json", str(report), "--socket", str(missing))
    refused = selftest(lab.daemons[0].path, "run", *words)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith(f"ulnet selftest: no lnetd answers on {missing}: ")
    assert not report.exists()


def test_words_of_ulnet_selftest(tmp_path: Path) -> None:
    assert "run takes 1 files" in selftest(tmp_path / "x", "run").err
    assert selftest(tmp_path / "x", "run", str(tmp_path / "none.yaml")).code == 2
    nameless = selftest(tmp_path / "x", "serve", "--socket", str(tmp_path / "y"))
    assert nameless.code == 1 and "--networks or --nid" in nameless.err
    files = ("a.json", "b.json")
    for words in (("--tolerance", "5", *files), (files[0], "--tolerance", "5", files[1])):
        between = selftest(tmp_path / "x", "compare", *words)
        assert between.code == 2 and between.err.startswith(
            "ulnet selftest: no report: a.json cannot be read"
        )


@pytest.mark.parametrize(
    ("text", "why"), [("", " is empty"), ("\n", " is empty"), ("[]", ": Expected `object`, got `array`")]
)
def test_a_file_that_is_no_report_is_named(tmp_path: Path, text: str, why: str) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(text)
    done = selftest(tmp_path / "x", "compare", str(bad), str(bad))
    assert (done.code, done.out, done.err) == (2, "", f"ulnet selftest: no report: {bad}{why}\n")


def test_rates_keep_their_units_in_80_columns() -> None:
    def counted(at: float, count: int, length: int) -> CountersView:
        lnet = dict.fromkeys(("recv_count", "send_count"), count) | dict.fromkeys(
            ("recv_length", "send_length"), length
        )
        return CountersView("clients", [NodeCounters("10.0.0.1@tcp", at, lnet=lnet)])

    fast = list(rates(counted(0.0, 0, 0), counted(1.0, 12_345_678, 99_999 << 20), Picked()))
    assert fast[1] == "[R] Avg: 12345678 RPC/s Min: 12345678 RPC/s Max: 12345678 RPC/s"
    assert fast[4] == "[R] Avg: 99999.00 MiB/s Min: 99999.00 MiB/s Max: 99999.00 MiB/s "
    assert len(fast) == 6 and max(map(len, fast)) <= 80
