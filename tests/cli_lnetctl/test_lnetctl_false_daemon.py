"""Answers that are no documents: each command says so in one error."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.false_daemon import ANSWERS, false_daemon
from ulnet.cli import trace
from ulnet.cli.lnetctl import main

COMMANDS = {
    "net": ["net", "show"],
    "peer": ["peer", "show", "-v"],
    "ping": ["ping", "10.0.0.1@tcp"],
    "discover": ["discover", "10.0.0.1@tcp"],
    "export": ["export"],
    "routing": ["routing", "show"],
    "explain": ["explain", "--to", "10.0.0.1@tcp"],
}


@pytest.mark.requirement("cfg-010")
@pytest.mark.parametrize("wrong", ANSWERS)
def test_what_is_no_document_is_one_error(
    wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "socket"
    with false_daemon(path, ANSWERS[wrong]):
        for words in (*COMMANDS.values(), ["export", str(tmp_path / "file")]):
            code = main(["--socket", str(path), *words])
            shown = capsys.readouterr()
            assert code != 0, words
            assert shown.out == "", words
            assert "the answer cannot be understood: " in shown.err, words
            assert "errno: -71" in shown.err, words
    assert not (tmp_path / "file").exists()


@pytest.mark.requirement("cfg-010")
@pytest.mark.parametrize(
    ("words", "result"),
    [
        (["explain", "--to", "10.0.0.1@tcp"], b'{"explain": 1}'),
        (["explain", "--to", "10.0.0.1@tcp"], b'{"explain": {"from": "10.0.0.1@tcp"}}'),
        (["explain", "--to", "10.0.0.1@tcp"], b'{"foo": 1}'),
        (["routing", "show"], b'{"seconds left": 5, "routing": 1}'),
        (["routing", "show"], b'{"seconds left": "x"}'),
    ],
)
def test_a_document_of_another_kind_is_one_error(
    words: list[str], result: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "socket"
    with false_daemon(path, result):
        for form in ([], ["--json"]) if words[0] == "explain" else ([],):
            assert main(["--socket", str(path), *words, *form]) != 0
            shown = capsys.readouterr()
            assert shown.out == ""
            assert "the answer cannot be understood: " in shown.err


@pytest.mark.requirement("cfg-010")
@pytest.mark.parametrize("result", [b'{"seconds left": 5}', b'{"seconds left": 5, "routing": [{"x": 1}]}'])
def test_routing_that_has_no_state_has_not_started(
    result: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "socket"
    with false_daemon(path, result):
        assert main(["--socket", str(path), "routing", "show"]) == 0
    assert "routing will have stopped within 5 s" in capsys.readouterr().out


PIECE = b"""{"trace": {"session": 1, "at": 1.5, "cursor": 1, "lost": 0, "untold": 0, "pairs": [],
    "messages": [{"at": 1.0, "type": "PUT", "bytes": 5, "peer": "10.0.0.2@tcp",
     "from": "10.0.0.1@tcp", "to": "10.0.0.2@tcp", "reason": "only path", "before": ["%s"],
     "rpc": {"kind": "CALL", "session": "1", "slot": 0, "number": 1, "method": "%s"}}]}}"""
ORDERS = rb"\u001b]0;mine\u0007\u001b[2J\nroot: all well"  # as JSON has them: for terminals, and a line


@pytest.mark.requirement("cfg-010")
@pytest.mark.parametrize(
    "result",
    [b"{}", b"null", b'{"trace": 5}', b'{"trace": {}}', PIECE.replace(b'"cursor": 1', b'"cursor": "x"')],
)
def test_what_is_no_trace_is_one_error(
    result: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "socket"
    with false_daemon(path, result):
        assert trace.main(["--socket", str(path), "--count", "1", "--interval", "0.05"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "ulnet trace: the answer cannot be understood: " in shown.err


@pytest.mark.requirement("cfg-010")
def test_the_words_of_others_in_a_trace_are_no_orders_for_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The method of a call is named by whoever calls, also in what answers that there is none."""
    path = tmp_path / "socket"
    with false_daemon(path, PIECE % (ORDERS, ORDERS)):
        assert trace.main(["--socket", str(path), "--count", "1", "--interval", "0.05", "--all"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.isprintable()
    assert line.count("root: all well") == 2
