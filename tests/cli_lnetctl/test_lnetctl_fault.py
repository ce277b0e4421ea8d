"""Fault rules by command, as the real tool takes them, on a node that runs (spec net-fault.md §1, §5)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import yaml

from support.daemon import Daemon
from support.shared import shared_path
from ulnet.cli.lnetctl import main


class Said(NamedTuple):
    code: int
    out: str
    err: str


Ask = Callable[[str], Said]
_STEP = re.compile(r"# lnetctl (.*)\n--- stdout\n((?s:.*?))--- stderr\n((?s:.*?))--- exit code: (\d+)")


def asking(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Give lnetctl a command line, in this process."""

    def run(line: str) -> Said:
        code = main(["--socket", str(daemon.path), *shlex.split(line)])
        return Said(code, *capsys.readouterr())

    return run


@pytest.fixture
def ask(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> Ask:
    """A daemon of this test's own answers."""
    return asking(daemon, capsys)


@pytest.fixture
def ask_in_vain(lasting_daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> Ask:
    """For what is refused: the next test has the same daemon."""
    return asking(lasting_daemon, capsys)


def rules(ask: Ask, kind: str) -> list[dict[str, Any]]:
    shown = ask(f"fault {kind} show")
    assert (shown.code, shown.err) == (0, "")
    document = yaml.safe_load(shown.out)
    return [] if document is None else document["fault"]


def test_commands_say_what_the_real_tool_says(ask: Ask) -> None:
    steps = _STEP.findall(shared_path("reference/20_fault.txt").read_text())
    assert len(steps) == 10
    for words, out, err, code in steps:
        got = ask(words)
        if words.endswith(" show"):  # where the real tool crashes
            assert got.code == 0
        elif words == "fault drop reset":  # where it prints help instead
            assert got == Said(0, "", "")
        else:
            assert got == Said(int(code), out, err), words


def test_a_rule_is_shown_as_it_was_given(ask: Ask) -> None:
    ask(
        "fault drop add --source '*@tcp' --dest 10.0.0.2@tcp1 -o 10.0.0.1@tcp --rate 3 "
        "-p 3 --portal 5 -m put -m GET -e local_timeout --health_error remote_dropped --drop_all"
    )
    assert rules(ask, "drop") == [
        {
            "rule_type": "drop",
            "fa_src": "*@tcp",
            "fa_dst": "10.0.0.2@tcp1",
            "fa_ptl_mask": 1 << 3 | 1 << 5,
            "fa_msg_mask": 2 | 4,
            "da_rate": 3,
            "da_interval": 0,
            "ds_dropped": 0,
            "fs_count": 0,
            "fs_put": 0,
            "fs_ack": 0,
            "fs_get": 0,
            "fs_reply": 0,
            "fa_local_nid": "10.0.0.1@tcp",
            "da_health_error_mask": 0x40 | 0x100,
            "da_drop_all": True,
        }
    ]
    assert rules(ask, "delay") == []


def test_delay_rules_and_the_newest_first(ask: Ask) -> None:
    assert ask("fault delay add -s '*' -d '*@tcp' --rate 7 --latency 2").code == 0
    assert ask("fault delay add -s 10.0.0.1@tcp -d '*' --interval 4 -l 0.5").code == 0
    newest, oldest = rules(ask, "delay")
    assert (newest["fa_src"], newest["la_interval"], newest["la_latency"]) == ("10.0.0.1@tcp", 4, 0.5)
    assert (oldest["fa_src"], oldest["la_rate"], oldest["la_latency"]) == ("*", 7, 2)
    for words in ("fault delay del", "net_delay del", "net_delay_del"):
        assert ask(words).code == 255
    assert len(rules(ask, "delay")) == 2  # who names no rule and not --all deletes nothing
    assert ask("fault delay del -s 10.0.0.1@tcp") == Said(0, "", "")
    assert [rule["la_rate"] for rule in rules(ask, "delay")] == [7]
    assert ask("fault delay del --all") == Said(0, "", "")
    assert rules(ask, "delay") == []


def test_rules_strike_a_running_node_and_count(ask: Ask, worker_number: int) -> None:
    nid = f"127.{80 + worker_number}.0.1@tcp"
    assert ask(f"net add --nid {nid}").code == 0
    assert ask(f"ping --timeout 5 {nid}").code == 0
    assert ask(f"fault drop add -s '*' -d {nid} -m GET -r 1").code == 0
    failed = ask(f"ping --timeout 0.5 {nid}")
    assert failed.code != 0
    (rule,) = rules(ask, "drop")
    assert rule["ds_dropped"] == rule["fs_count"] == rule["fs_get"] >= 1
    assert ask("fault drop reset") == Said(0, "", "")
    (rule,) = rules(ask, "drop")
    assert (rule["ds_dropped"], rule["fs_count"], rule["fs_get"]) == (0, 0, 0)
    assert ask("fault drop del -a").code == 0
    assert ask(f"ping --timeout 5 {nid}").code == 0


def test_the_words_of_lctl(ask: Ask) -> None:
    assert ask("net_drop_add -s '*@tcp' -d '*' -r 3") == Said(0, "Added drop rule *@tcp->* (1/3)\n", "")
    assert ask("net_delay add -s '*' -d '*' -r 2 -l 1").out == "Added delay rule *->* (1/2)\n"
    assert yaml.safe_load(ask("net_drop_list").out)["fault"][0]["da_rate"] == 3
    assert yaml.safe_load(ask("net_delay list").out)["fault"][0]["la_rate"] == 2
    assert yaml.safe_load(ask("fault delay list").out)["fault"][0]["la_rate"] == 2
    for words in ("net_drop_reset", "net_drop reset", "net_drop_del -a", "net_delay_del --all"):
        assert ask(words) == Said(0, "", "")
    assert rules(ask, "drop") == rules(ask, "delay") == []


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        ("drop add -s '*' -d '*'", 255, "either drop rate or interval"),
        ("delay add -s '*' -d '*' -r 1 --interval 1 -l 1", 255, "either delay rate or interval"),
        ("drop add -d '*' -r 1", 255, "both --source and --dest"),
        ("drop add -s '*' -d '*' -r x", 234, "--rate 'x' is not a number"),
        ("drop add -s '*' -d '*' -r -1", 234, "use 1 to 4294967295"),
        ("drop add -s banana -d '*' -r 1", 234, "'banana' is not an IP address"),
        ("drop add -s '*@banana' -d '*' -r 1", 234, "banana"),
        ("drop add -s '*' -d '*' -r 1 -o nobody", 234, "'nobody'"),
        ("drop add -s '*' -d '*' -r 1 -m HELLO", 234, "no message type: use one of PUT, ACK, GET, REPLY"),
        ("drop add -s '*' -d '*' -r 1 -p 64", 234, "portal 64"),
        ("drop add -s '*' -d '*' -r 1 -p 1 -m ACK", 234, "ACK and REPLY have no portal"),
        ("drop add -s '*' -d '*' -r 1 -e sunspots", 234, "'sunspots' is no health error"),
        ("drop add -s '*' -d '*' -r 1 --random", 234, "needs an interval"),
        ("delay add -s '*' -d '*' -r 1", 234, "latency 0"),
        ("delay add -s '*' -d '*' -r 1 -l soon", 234, "--latency 'soon' is not a number of seconds"),
        ("delay add -s '*' -d '*' -r 1 -l 99999999", 234, "99999999"),
        ("drop del --all -s '*'", 255, "either --all"),
        ("drop del", 255, "please provide --all for all drop rules, or --source and --dest"),
        ("delay del", 255, "please provide --all for all delay rules, or --source and --dest"),
        ("drop del -s banana", 234, "'banana'"),
        ("drop add -s '*' -d '*' -r 1 -l 1", 255, "invalid option -- 'l'"),
        ("drop forget", 255, "'forget'"),
    ],
)
def test_bad_words_are_refused_with_a_sentence_and_change_nothing(
    ask_in_vain: Ask, words: str, code: int, part: str
) -> None:
    got = ask_in_vain(f"fault {words}")
    assert got.code == code
    assert got.out == ""
    assert part in got.err
    assert rules(ask_in_vain, "drop") == rules(ask_in_vain, "delay") == []
