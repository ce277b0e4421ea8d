"""A daemon that does not answer: every command has a deadline, and says so when it is over."""

from __future__ import annotations

import errno
import signal

import pytest

from support.daemon import Daemon
from ulnet.cli.lnetctl import main
from ulnet.dlc import deadlines
from ulnet.dlc.client import DEADLINE


@pytest.mark.requirement("cfg-010")
@pytest.mark.parametrize(
    "words", [["net", "show"], ["net", "del", "--net", "tcp"], ["export"], ["ping", "0@lo"]]
)
def test_a_stopped_daemon_is_given_up(
    daemon: Daemon, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 < DEADLINE <= 30
    monkeypatch.setattr(deadlines, "DEADLINE", 0.2)
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        code = main(["--socket", str(daemon.path), *words])
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    shown = capsys.readouterr()
    assert (code, shown.out) == (256 - errno.ETIMEDOUT, "")
    assert f"no answer from {daemon.path} in " in shown.err
    assert daemon.lnetctl("net", "show").code == 0


@pytest.mark.long
def test_a_stopped_daemon_is_given_up_by_the_command_itself(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("support.daemon.PATIENCE", DEADLINE + 30)
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        done = daemon.lnetctl("net", "show")
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    assert (done.code, done.out) == (256 - errno.ETIMEDOUT, "")
