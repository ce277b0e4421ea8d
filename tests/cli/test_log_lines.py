"""Logs as JSON lines: names of events are stable, documented, and on the lines of a daemon."""

from __future__ import annotations

import ast
import json
import logging
import re
from pathlib import Path

import pytest

from support.daemon import Daemon, lnetd
from support.netns import Cluster
from ulnet.cli.log_lines import _Json
from ulnet.core.lines import EVENTS, Line, longer
from ulnet.core.notices import Notices

ROOT = Path(__file__).parents[2]


def used() -> set[str]:
    """The names that are given in the source: `Line("name", …)`, `{"event": "name"}`, `_tell("name", …)`."""
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        if path.name == "lines.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in EVENTS:
                found.add(node.value)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Line":
                first = node.args[0]
                if isinstance(first, ast.Constant):
                    assert first.value in EVENTS, (path, first.value)
    return found


def test_each_name_is_given_somewhere_and_none_is_unknown() -> None:
    assert used() == set(EVENTS)


def test_the_page_has_each_event() -> None:
    page = (ROOT / "docs" / "watching.md").read_text()
    assert dict(re.findall(r"(?m)^\| `([a-z_.]+)` \| (.*) \|$", page[page.index("## Logs") :])) == EVENTS


def test_a_daemons_lines_are_json(two_hosts: Cluster, tmp_path: Path) -> None:
    """A cable that is pulled and plugged: interface, NI and net, and what the lines are about."""
    host = two_hosts.hosts[0]
    daemon = Daemon(tmp_path / "s", "--log-format", "json", "--drain", "0", before=host.words())
    assert daemon.process.stderr is not None
    try:
        assert daemon.lnetctl("net", "add", "--net", "tcp", "--if", host.interface()).code == 0
        two_hosts.set_cable(host, 0, False)
        lines = []
        for line in daemon.process.stderr:
            lines.append(json.loads(line))
            if lines[-1]["event"] == "net.state" and lines[-1]["state"] != "ACTIVE":
                break
        two_hosts.set_cable(host, 0, True)
        lines += map(json.loads, daemon.stop().err.splitlines())
    finally:
        daemon.end()
    lines = [*map(json.loads, daemon.first_lines), *lines]
    by_event = {line["event"]: line for line in lines}
    assert {"daemon.ready", "interface.down", "ni.state", "net.state", "daemon.stopping"} <= set(by_event)
    assert set(by_event) <= set(EVENTS)
    assert by_event["daemon.ready"]["socket"] == str(tmp_path / "s")
    assert (by_event["interface.down"]["nid"], by_event["interface.down"]["interface"]) == (
        host.nid(),
        "rail0",
    )
    assert by_event["ni.state"]["nid"] == host.nid()
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
        assert line["level"] in ("debug", "info", "warning", "error")
        assert line["message"] and line["logger"].startswith("ulnet")


def test_a_line_is_one_line_whatever_others_have_put_into_it() -> None:
    line = longer(Line("bond.odd", "bad: \n2026 lnetd: error: \x1b[2J\x9b"), ", and\r more")
    assert line == r"bad: \n2026 lnetd: error: \x1b[2J\x9b, and\r more"
    assert isinstance(line, Line)


def test_a_daemon_that_cannot_start_says_so_as_json(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("net: 7\n")
    process = lnetd(
        "--log-format", "json", "--socket", str(tmp_path / "s"), "--config", str(tmp_path / "bad.yaml")
    )
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert json.loads(err.splitlines()[-1])["event"] == "daemon.refused"


def test_what_is_told_of_a_line_and_the_journals_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    line = Line("path.stalled", 'path "ä"\n', source="a", to=7)
    record = logging.LogRecord("ulnet", logging.WARNING, "f", 1, line, None, None)
    told = json.loads(_Json().format(record))
    assert (told["event"], told["from"], told["to"], told["message"]) == (
        "path.stalled",
        "a",
        "7",
        'path "ä"\\n',
    )
    assert "\n" not in _Json().format(record)
    monkeypatch.setenv("JOURNAL_STREAM", "1:2")
    assert _Json().format(record).startswith('<4>{"time": ')
    plain = logging.LogRecord("ulnet.x", logging.INFO, "f", 1, "a %s", ("b",), None)
    assert json.loads(_Json().format(plain)[3:])["event"] == "other"
    try:
        raise ValueError("x")
    except ValueError as bad:
        failed = logging.LogRecord("ulnet", 40, "f", 1, "a", None, (ValueError, bad, bad.__traceback__))
    assert "ValueError: x" in json.loads(_Json().format(failed)[3:])["traceback"]


def test_lines_that_stand_for_others_keep_their_event() -> None:
    now = 0.0
    said: list[str] = []
    notices = Notices(lambda: now, said.append)
    for _ in range(3):
        notices.say("kind", Line("path.moves", "text", to="x"))
    now = 2.0
    notices.say("kind", Line("path.moves", "text", to="x"))
    assert said == ["text", "text (and 2 more like this)"]
    assert isinstance(said[1], Line)
    assert (said[1].event, said[1].about) == ("path.moves", {"to": "x"})
    assert longer("a", "b") == "ab"
