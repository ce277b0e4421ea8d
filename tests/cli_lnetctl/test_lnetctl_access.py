"""Access lists by command, and in files: who may do what, while the daemon runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from support.daemon import Daemon
from ulnet.cli.lnetctl import main


class Said(NamedTuple):
    code: int
    out: str
    err: str


Ask = Callable[..., Said]


@pytest.fixture
def ask(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Give lnetctl words, in this process."""
    return asking(daemon, capsys)


def asking(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> Ask:
    def run(*words: str) -> Said:
        code = main(["--socket", str(daemon.path), *words])
        return Said(code, *capsys.readouterr())

    return run


SHOWN = """\
access:
    allow:
        - portal[30-39]=10.0.0.[1-4]@tcp,10.0.0.9@tcp
    deny:
        - "*@tcp1"
        - push=lo
"""


def test_rules_come_are_shown_and_go(ask: Ask) -> None:
    assert ask("access", "show") == (0, "", "")
    allow = ("--allow", "portal[30-39]=10.0.0.[1-4]@tcp 10.0.0.9@tcp0")
    assert ask("access", "add", *allow, "--deny", "connect=*@tcp1", "-d", "push=lo") == (
        0,
        "",
        "lnetctl: note: no NI here is on 'lo' now\n",
    )
    assert ask("access", "show").out == SHOWN
    assert json.loads(ask("access", "show", "--json").out) == {
        "access": {"allow": [SHOWN.split("\n")[2][10:]], "deny": ["*@tcp1", "push=lo"]}
    }
    assert ask("access", "add", "--deny", "*@tcp1") == (0, "", "")
    assert ask("access", "show").out == SHOWN
    assert ask("access", "del", "--deny", "*@tcp1", "--deny", "push=lo") == (0, "", "")
    gone = ask("access", "del", *allow)
    assert (gone.code, gone.out) == (0, "")
    assert gone.err.startswith("lnetctl: note: who is not denied may portal30, portal31, ")
    assert ask("access", "show") == (0, "", "")


def test_all_rules_go_at_once(ask: Ask) -> None:
    ask("access", "add", "--allow", "10.0.0.1@tcp", "--deny", "push=*@tcp")
    gone = ask("access", "del", "--all")
    assert gone == (
        0,
        "",
        "lnetctl: note: who is not denied may connect now: no rule allows it to some alone\n",
    )
    assert ask("access", "show").out == ""


@pytest.mark.parametrize(
    ("words", "descr"),
    [
        (("add",), "no rule is named: give one with --allow or --deny"),
        (
            ("add", "--allow", "10.0.0.1@tcp", "--deny", "pings=10.0.0.1@tcp"),
            "deny 'pings=10.0.0.1@tcp': 'pings' is none of connect, ping, push and portalN, before the =",
        ),
        (("add", "--deny", "10.0.0.999@tcp"), "deny '10.0.0.999@tcp': NID '10.0.0.999@tcp': "),
        (("add", "--deny", ""), "deny '': a list of NIDs is empty; name at least one, such as 10.0.0.1@tcp"),
        (("del",), "name rules with --allow and --deny, or take --all of them"),
        (
            ("del", "--all", "--deny", "push=eth0"),
            "name rules with --allow and --deny, or take --all of them",
        ),
        (
            ("del", "--deny", "push=eth0", "--deny", "push=eth1"),
            "deny 'push=eth1': there is no such rule: 'lnetctl access show' has those there are",
        ),
    ],
)
def test_what_is_wrong_is_told_and_changes_nothing(ask: Ask, words: tuple[str, ...], descr: str) -> None:
    ask("access", "add", "--deny", "push=eth0")
    before = ask("access", "show").out
    refused = ask("access", *words)
    assert refused.code != 0
    assert (refused.out + refused.err).replace('\\"', '"').count(descr) == 1
    assert (refused.out + refused.err).startswith(f"{words[0]}:\n    - access:\n")
    assert ask("access", "show").out == before == "access:\n    deny:\n        - push=eth0\n"


def test_lists_are_exported_and_come_back_before_the_nets(
    start_daemon: Callable[..., Daemon], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    first = asking(start_daemon(), capsys)
    assert "access" not in first("export").out
    first("access", "add", "--allow", "portal[30-39]=10.0.0.[1-4]@tcp,10.0.0.9@tcp")
    first("access", "add", "--deny", "*@tcp1", "--deny", "push=lo")
    assert first("net", "add", "--nid", "127.0.0.1@tcp").code == 0
    for words in (("export",), ("export", "--backup")):
        text = first(*words).out
        assert text.startswith(SHOWN)
        file = tmp_path / "lnet.yaml"
        file.write_text(text)
    first("lnet", "unconfigure")
    second = start_daemon("--config", str(file), name="second.sock")
    assert asking(second, capsys)("export", "--backup").out == text


def test_a_file_adds_deletes_and_shows(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "access.yaml"
    file.write_text("access:\n  deny: push=eth0\n  allow:\n    - 10.0.0.[1-4]@tcp\n    - 10.0.0.9@tcp\n")
    assert ask("import", str(file)).code == 0
    assert ask("access", "show").out == (
        "access:\n    allow:\n        - 10.0.0.[1-4]@tcp\n        - 10.0.0.9@tcp\n"
        "    deny:\n        - push=eth0\n"
    )
    assert ask("import", "--show", str(file)).out == ask("access", "show").out
    file.write_text("access:\n  allow: 10.0.0.9@tcp\n")
    assert ask("import", "--del", str(file)).code == 0
    assert ask("access", "show").out == (
        "access:\n    allow:\n        - 10.0.0.[1-4]@tcp\n    deny:\n        - push=eth0\n"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("access:\n  allow: 10.0.0.2@tcp\n  deny: [10.0.0.999@tcp]\n", "line 2: deny '10.0.0.999@tcp': "),
        ("access:\n  allow: {a: b}\n", "line 2: 'allow' holds a list of values: begin each with '- '"),
        ("access:\n  allow:\n    - [a]\n", "line 3: 'allow' holds a list of values"),
        ("access:\n  - allow: 10.0.0.2@tcp\n", "line 2: 'access' holds keys and values"),
        ("access:\n  alow: 10.0.0.2@tcp\n", "line 2: invalid key 'alow' in access: did you mean 'allow'?"),
    ],
)
def test_a_file_with_a_bad_rule_changes_nothing(ask: Ask, tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "access.yaml"
    file.write_text(text)
    refused = ask("import", str(file))
    assert refused.code != 0
    assert words in refused.out + refused.err
    assert ask("access", "show").out == ""


def test_what_the_daemon_was_started_with_holds_beneath_a_file(
    start_daemon: Callable[..., Daemon], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As module parameters do: `apply` leaves these rules, or brings them back."""
    daemon = start_daemon("--deny", "push=*@tcp9")
    ask = asking(daemon, capsys)
    file = tmp_path / "lnet.yaml"
    file.write_text(
        "net:\n  - net type: tcp\n    local NI(s):\n      - nid: 127.0.0.1@tcp\naccess:\n  deny: ping=lo\n"
    )
    ask("access", "del", "--deny", "push=*@tcp9")
    ask("access", "add", "--allow", "10.0.0.1@tcp")
    applied = ask("import", "--apply", str(file))
    lines = [line for line in yaml.safe_load(applied.out)["apply"] if " access " in line]
    assert lines == ["+ access deny ping=lo", "+ access deny push=*@tcp9", "- access allow 10.0.0.1@tcp"]
    assert ask("access", "show").out == "access:\n    deny:\n        - ping=lo\n        - push=*@tcp9\n"
    assert " access " not in ask("import", "--apply", str(file)).out
    ask("access", "del", "--all")
    ask("lnet", "unconfigure")
    ask("lnet", "configure")
    assert ask("access", "show").out == "access:\n    deny:\n        - push=*@tcp9\n"
