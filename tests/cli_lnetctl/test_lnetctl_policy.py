"""Selection policies by command: `udsp`, the documents' `selection`, and files (spec udsp.md §6, §7)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from support.daemon import Daemon
from support.shared import shared_path
from support.transcripts import read_steps
from ulnet.cli.lnetctl import main
from ulnet.dlc.config import read_config


class Said(NamedTuple):
    code: int
    out: str
    err: str


Ask = Callable[[str], Said]


def asking(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Give lnetctl a command line, in this process."""

    def run(line: str) -> Said:
        code = main(["--socket", str(daemon.path), *line.split()])
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


def error(verb: str, entity: str, number: int, descr: str) -> str:
    return f'{verb}:\n    - {entity}:\n          errno: {number}\n          descr: "{descr}"\n'


def without_our_words(text: str) -> str:
    """A description up to where ulnet says more than the real tool does."""
    return re.sub(r'(descr: "(?:cannot \w+ udsp: )?[^:"]*):[^"]*"', r'\1"', text)


@pytest.mark.requirement("cfg-160")
def test_udsp_commands_say_what_the_real_tool_says(ask: Ask) -> None:
    steps = [step for step in read_steps(shared_path("reference")) if step.command.startswith("lnetctl udsp")]
    steps = [step for step in steps if step.file == "16_udsp"]
    assert len(steps) >= 25
    for step in steps:
        words = step.command.removeprefix("lnetctl ")
        got = ask(words)
        if words == "udsp add":  # help; the real tool exits with 0
            assert (got.code, got.out.startswith("udsp add: add a ")) == (234, True)
        elif words == "udsp show --idx 1":  # where the real tool crashes
            assert got == (
                0,
                "udsp:\n    - idx: 1\n      src: 192.168.110.11@tcp\n      action:\n          priority: 5\n",
                "",
            )
        else:
            assert (got.code, got.out, without_our_words(got.err)) == (step.code, step.out, step.err), words


@pytest.mark.requirement("cfg-160", "cfg-015", "cfg-095", "cfg-100")
def test_rules_come_go_and_are_shown(ask: Ask) -> None:
    assert ask("udsp show") == (0, "", "")
    assert ask("udsp add --src tcp") == (0, "", "")
    there = (
        "the rule for src tcp is there as idx 0; "
        "only its priority and weight can be changed, else delete it first"
    )
    assert ask("udsp add --src tcp --priority 0") == (
        114,
        "",
        error("add", "udsp", 114, f"cannot add udsp: Operation already in progress: {there}"),
    )
    assert ask("udsp add --dst 10.0.0.*@tcp --src 10.0.0.[1-2]@tcp --idx 0").code == 0
    assert ask("udsp add --src tcp --priority 3").code == 0
    assert ask("udsp show").out == (
        "udsp:\n    - idx: 0\n      src: 10.0.0.[1-2]@tcp\n      dst: 10.0.0.[0-255]@tcp\n"
        "    - idx: 1\n      src: tcp\n      action:\n          priority: 3\n"
    )
    assert ask("udsp show --idx 7") == (0, "", "")
    assert ask("udsp del --idx 2") == (
        254,
        "",
        error(
            "add",
            "udsp",
            -2,
            "cannot del udsp: No such file or directory: there is no rule with idx 2: this node has 0 to 1",
        ),
    )
    assert ask("udsp del --all") == ask("udsp show") == (0, "", "")


@pytest.mark.parametrize(
    ("line", "out", "err"),
    [
        ("udsp add --src tcp --priority -1", 'Invalid priority "-1"\n', ""),
        ("udsp add --src tcp --priority x", 'Invalid priority "x"\n', ""),
        ("udsp add --src tcp --idx -3", 'Invalid index "-3"\n', ""),
        ("udsp del --idx banana", 'Invalid index "banana"\n', ""),
        ("udsp show --idx banana", 'Invalid index "banana"\n', ""),
        ("udsp del", "Must specify --idx or --all\n", ""),
        ("udsp del --all --idx 0", "Must specify --idx or --all\n", ""),
        ("udsp add --src banana", "", "failed to parse src parameter: net 'banana' has no known type"),
        (
            "udsp add --dst *@tcp",
            "",
            "failed to parse dst parameter: '*@tcp': an address has four parts here",
        ),
        (
            "udsp add --rte 10.0.0@tcp",
            "",
            "failed to parse rte parameter: address '10.0.0' has not four parts",
        ),
        (
            "udsp add --src tcp --rte tcp1",
            "",
            "The combination of src, dst and rte is not supported: give src",
        ),
        ("udsp add --src tcp --priority 4294967295", "", "priority 4294967295 is out of range: use 0"),
    ],
)
def test_bad_words_change_nothing(ask_in_vain: Ask, line: str, out: str, err: str) -> None:
    got = ask_in_vain(line)
    assert (got.code, got.out) == (234, out)
    if err:
        assert got.err.startswith(error("add", "udsp", -22, err)[:-2])
    assert ask_in_vain("udsp show").out == ""


def test_what_a_rule_does_and_matches_is_shown_when_asked(ask: Ask) -> None:
    assert ask("net add --nid 127.0.0.2@tcp,127.0.0.3@tcp").code == 0
    for words in (
        "--src 127.0.0.*@tcp",
        "--src tcp9",
        "--src tcp --dst tcp1",
        "--rte 1.1.1.1@tcp --dst 2.2.2.2@tcp1",
    ):
        assert ask(f"udsp add {words}").code == 0
    rules = yaml.safe_load(ask("udsp show -v").out)["udsp"]
    assert [(rule["effect"].split(":")[0], rule["matches"]) for rule in rules] == [
        ("priority of local NIs", 2),
        ("priority of local nets", 0),
        ("nothing", 0),
        ("preferred gateways of peer NIs", 0),
    ]


@pytest.mark.requirement("cfg-110", "cfg-115", "cfg-120")
def test_priorities_and_preferences_are_shown_with_what_has_them(ask: Ask) -> None:
    assert ask("net add --nid 127.0.0.2@tcp,127.0.0.3@tcp").code == 0
    assert ask("peer add --prim_nid 10.0.0.9@tcp --nid 10.0.1.9@tcp1").code == 0
    for words in (
        "--src tcp --priority 1",
        "--src 127.0.0.2@tcp --priority 5",
        "--dst 10.0.0.*@tcp --priority 0",
        "--dst tcp1 --priority 2",
        "--src 127.0.0.[2-3]@tcp --dst 10.0.0.9@tcp",
    ):
        assert ask(f"udsp add {words}").code == 0
    text = ask("net show -v 4 --net tcp").out
    assert (
        "            udsp info:\n                  net priority: 1\n                  nid priority: 5\n"
        "            sent_stats:\n"
    ) in text
    infos = [ni["udsp info"] for ni in yaml.safe_load(text)["net"][0]["local NI(s)"]]
    assert infos[1] == {"net priority": 1, "nid priority": -1}
    peer = ask("peer show -v 4 --nid 10.0.0.9@tcp").out
    assert (
        "      -     nid: 10.0.0.9@tcp\n            udsp info:\n                  net priority: -1\n"
        "                  nid priority: 0\n                  Preferred source NIDs:\n"
        "                        NID-0: 127.0.0.2@tcp\n                        NID-1: 127.0.0.3@tcp\n"
        "            state: "
    ) in peer
    assert yaml.safe_load(peer)["peer"][0]["peer ni"][1]["udsp info"] == {
        "net priority": 2,
        "nid priority": -1,
    }
    assert "udsp info" not in ask("peer show -v 3").out


# The documents' commands -----------------------------------------------------------------------------


@pytest.mark.requirement("HLD-selection", "cfg-105")
def test_the_documents_commands_make_the_same_rules(ask: Ask) -> None:
    for words in (
        "net add --net o2ib[1,2] --priority 3",
        "nid add --nid 10.0.[0-3].*@tcp1",
        "nid add --nid 10.0.0.1@tcp --priority 2 --side local",
        "peer add --local 10.0.0.1@tcp --remote 10.0.0.*@tcp --priority 4",
    ):
        assert ask(f"selection {words}") == (0, "", "")
    assert ask("selection net show").out == (
        "selection:\n    - type: net\n      id: 0\n      net: o2ib[1,2]\n      priority: 3\n"
    )
    assert yaml.safe_load(ask("selection nid show").out)["selection"] == [
        {"type": "nid", "id": 1, "nid": "10.0.[0-3].[0-255]@tcp1", "priority": 0},
        {"type": "nid", "id": 2, "nid": "10.0.0.1@tcp", "side": "local", "priority": 2},
    ]
    assert yaml.safe_load(ask("selection nid show --nid 10.0.2.7@tcp1").out)["selection"][0]["id"] == 1
    assert ask("selection nid show --nid 10.0.9.7@tcp1") == (0, "", "")
    assert yaml.safe_load(ask("selection peer show --remote 10.0.0.8@tcp").out)["selection"] == [
        {"type": "peer", "id": 3, "local": "10.0.0.1@tcp", "remote": "10.0.0.[0-255]@tcp", "priority": 4}
    ]
    rules = yaml.safe_load(ask("udsp show").out)["udsp"]
    assert [{key: rule[key] for key in ("src", "dst") if key in rule} for rule in rules] == [
        {"src": "o2ib[1,2]"},
        {"dst": "o2ib[1,2]"},
        {"src": "10.0.[0-3].[0-255]@tcp1"},
        {"dst": "10.0.[0-3].[0-255]@tcp1"},
        {"src": "10.0.0.1@tcp"},
        {"src": "10.0.0.1@tcp", "dst": "10.0.0.[0-255]@tcp"},
    ]


@pytest.mark.requirement("HLD-selection")
def test_rules_are_deleted_by_id_by_match_or_by_both_if_they_agree(ask: Ask) -> None:
    for net in ("tcp", "tcp1", "tcp2", "tcp3"):
        ask(f"selection net add --net {net}")
    ask("selection nid add --nid 10.0.0.1@tcp")
    assert ask("selection net del --id 1") == (0, "", "")
    assert ask("selection net del --net tcp2") == (0, "", "")
    assert ask("selection net del --net tcp3 --id 3") == (0, "", "")
    before = ask("udsp show").out
    refused = ask("selection nid del --nid 10.0.0.1@tcp --id 0")
    assert refused.err == error(
        "del",
        "selection",
        -2,
        "no nid rule has the id 0: see 'lnetctl selection nid show'",
    )
    ask("selection net add --net tcp9")
    refused = ask("selection net del --net tcp9 --id 0")
    assert (refused.code, "not of the one for tcp9: give one of them" in refused.err) == (234, True)
    assert ask("selection net del --net tcp1").code == 254
    assert ask("selection net del --id 5").code == 0
    assert ask("udsp show").out == before
    assert [rule["id"] for rule in yaml.safe_load(ask("selection net show").out)["selection"]] == [0]


@pytest.mark.requirement("HLD-selection")
def test_a_rule_for_the_same_is_refused_or_gets_the_new_priority(ask: Ask) -> None:
    assert ask("selection nid add --nid 10.0.0.1@tcp --priority 1").code == 0
    assert ask("selection nid add --nid 10.0.0.1@tcp --priority 2").code == 0
    again = ask("selection nid add --nid 10.0.0.1@tcp --priority 2")
    assert again.err.startswith("add:\n    - selection:\n          errno: -114\n")
    assert ask("udsp add --src 10.0.0.1@tcp --priority 0").code == 0  # one side alone now differs
    shown = yaml.safe_load(ask("selection nid show").out)["selection"]
    assert [(rule["id"], rule["side"], rule["priority"]) for rule in shown] == [
        (2, "local", 0),
        (0, "remote", 2),
    ]
    assert ask("selection nid del --nid 10.0.0.1@tcp --id 0").code == 0
    assert [(rule["id"], rule["side"]) for rule in shown_rules(ask, "nid")] == [(2, "local")]
    assert ask("selection nid del --id 2").code == 0
    assert ask("udsp show").out == ""


def shown_rules(ask: Ask, kind: str) -> list[dict[str, object]]:
    shown = yaml.safe_load(ask(f"selection {kind} show").out)
    return shown["selection"] if shown else []


@pytest.mark.requirement("HLD-selection")
def test_a_rule_half_of_which_is_deleted_keeps_its_id(ask: Ask) -> None:
    assert ask("selection net add --net tcp --priority 1").code == 0
    assert ask("udsp del --idx 0").code == 0
    assert shown_rules(ask, "net") == [
        {"type": "net", "id": 0, "net": "tcp", "side": "remote", "priority": 1}
    ]
    assert ask("selection net add --net tcp --priority 3 --side local").code == 0
    assert [(rule["id"], rule["side"]) for rule in shown_rules(ask, "net")] == [(0, "remote"), (1, "local")]
    assert ask("selection net add --net tcp --priority 3 --side remote").code == 0  # they say the same again
    assert [(rule["id"], rule.get("side")) for rule in shown_rules(ask, "net")] == [(0, None)]


@pytest.mark.requirement("HLD-selection")
def test_a_file_deletes_rules_by_id_alone_or_one_side_of_them(ask: Ask, tmp_path: Path) -> None:
    for net in ("tcp", "tcp1"):
        assert ask(f"selection net add --net {net}").code == 0
    file = tmp_path / "gone.yaml"
    file.write_text(
        "selection:\n    - type: net\n      id: 0\n    - type: net\n      net: tcp1\n      side: local\n"
    )
    assert ask(f"import --del {file}").code == 0
    assert [(rule["id"], rule["side"]) for rule in shown_rules(ask, "net")] == [(1, "remote")]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("net add", "a net rule needs what it is about: give --net"),
        ("peer add --local 10.0.0.1@tcp", "a peer rule has two sides: give both --local and --remote"),
        ("net add --net 10.0.0.1@tcp", "10.0.0.1@tcp: a net rule is about a net, such as tcp1"),
        ("nid add --nid tcp", "tcp: a nid rule is about NIDs, such as"),
        ("nid add --nid 10.0.0.1@tcp --priority high", "--priority 'high' is not a number"),
        ("nid add --nid 10.0.0.1@tcp --priority -1", "priority -1 is out of range: use 0 (the highest)"),
        ("nid add --nid 10.0.0.1@tcp --side left", "--side 'left' is no side"),
        ("net add --net banana", "net 'banana' has no known type"),
    ],
)
def test_bad_selection_rules_are_refused_in_words(ask_in_vain: Ask, line: str, text: str) -> None:
    got = ask_in_vain(f"selection {line}")
    assert (got.code, got.out) == (234, "")
    assert got.err.startswith(error("add", "selection", -22, text)[:-2])
    assert ask_in_vain("udsp show").out == ""


# Files ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("cfg-165", "cfg-050", "HLD-selection", "cfg-170")
def test_rules_come_from_files_and_go_into_backups(
    start_daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    text = (
        "udsp:\n    - src: tcp\n      priority: 0\n"
        "    - idx: 0\n      dst: 10.0.0.*@tcp\n      action:\n          priority: 0\n"
        "    - src: 10.0.0.1@tcp\n      dst: 10.0.0.2@tcp\n"
        "    - rte: 10.0.0.9@tcp\n      dst: 10.0.0.2@tcp5\n"
        "selection:\n    - type: net\n      net: tcp1\n      priority: 2\n"
        "    - type: peer\n      local: 10.0.0.1@tcp\n      remote: 10.0.0.3@tcp\n      priority: 1\n"
    )
    file = tmp_path / "lnet.yaml"
    file.write_text(text)
    first = start_daemon("--config", str(file))
    shown = first.lnetctl("udsp", "show").out
    assert [tuple(rule)[1:] for rule in yaml.safe_load(shown)["udsp"]] == [
        ("dst", "action"),
        ("src", "action"),
        ("src", "dst"),
        ("dst", "rte"),
        ("src", "action"),
        ("dst", "action"),
        ("src", "dst", "action"),
    ]
    for words in (["export", "--backup"], ["export"]):
        backup = first.lnetctl(*words).out
        assert backup.endswith(shown)
        file.write_text(backup)
        again = start_daemon("--config", str(file), name=f"{len(words)}.sock")
        assert again.lnetctl("udsp", "show").out == shown


# Weights -------------------------------------------------------------------------------------------


@pytest.mark.requirement("cfg-145", "cfg-160")
def test_weights_are_set_changed_and_shown(ask: Ask) -> None:
    assert ask("udsp add --src tcp --weight 3") == (0, "", "")
    assert ask("udsp add --src 10.0.0.1@tcp --dst 10.0.0.2@tcp --weight 2").code == 0
    assert ask("udsp add --src tcp --weight 4").code == 0
    assert ask("udsp add --src tcp --weight 4").code == 114
    assert ask("udsp add --src tcp --priority 1").code == 0
    assert ask("udsp show").out == (
        "udsp:\n    - idx: 0\n      src: tcp\n      action:\n          priority: 1\n          weight: 4\n"
        "    - idx: 1\n      src: 10.0.0.1@tcp\n      dst: 10.0.0.2@tcp\n"
        "      action:\n          weight: 2\n"
    )
    assert ask("selection net add --net tcp1 --weight 5").code == 0
    assert ask("selection peer add --local 10.0.0.1@tcp --remote 10.0.0.2@tcp --weight 7").code == 0
    assert ask("selection net show --net tcp1").out == (
        "selection:\n    - type: net\n      id: 2\n      net: tcp1\n      priority: 0\n      weight: 5\n"
    )
    assert ask("selection peer show").out.endswith("remote: 10.0.0.2@tcp\n      weight: 7\n")


@pytest.mark.requirement("cfg-145")
def test_weights_are_shown_with_what_has_them(ask: Ask) -> None:
    assert ask("net add --nid 127.0.0.2@tcp").code == 0
    assert ask("peer add --prim_nid 10.0.0.9@tcp").code == 0
    before = ask("net show -v 4").out, ask("peer show -v 4").out
    for words in ("--src tcp --weight 3", "--dst 10.0.0.9@tcp --weight 2"):
        assert ask(f"udsp add {words}").code == 0
    assert ask("udsp add --src 127.0.0.2@tcp --dst 10.0.0.9@tcp --weight 5").code == 0
    nets, peers = (yaml.safe_load(ask(f"{what} show -v 4").out) for what in ("net", "peer"))
    (ni,) = nets["net"][1]["local NI(s)"]
    assert ni["udsp info"] == {"net priority": 0, "nid priority": -1, "net weight": 3}
    (pni,) = peers["peer"][0]["peer ni"]
    assert pni["udsp info"]["nid weight"] == 2
    assert pni["udsp info"]["weight by source NID"] == {"127.0.0.2@tcp": 5}
    assert ask("udsp del --all").code == 0
    assert (ask("net show -v 4").out, ask("peer show -v 4").out) == before


@pytest.mark.requirement("cfg-145", "cfg-165")
def test_weights_come_from_files_and_go_into_backups(
    start_daemon: Callable[..., Daemon], tmp_path: Path
) -> None:
    file = tmp_path / "lnet.yaml"
    file.write_text(
        "udsp:\n    - src: tcp\n      action:\n          weight: 3\n    - dst: tcp2\n      weight: 2\n"
        "selection:\n    - type: nid\n      nid: 10.0.0.1@tcp\n      priority: 2\n      weight: 9\n"
    )
    first = start_daemon("--config", str(file))
    shown = first.lnetctl("udsp", "show").out
    actions = [rule["action"] for rule in yaml.safe_load(shown)["udsp"]]
    assert actions == [
        {"priority": 0, "weight": 3},
        {"priority": 0, "weight": 2},
        {"priority": 2, "weight": 9},
        {"priority": 2, "weight": 9},
    ]
    file.write_text(first.lnetctl("export", "--backup").out)
    again = start_daemon("--config", str(file), name="again.sock")
    assert again.lnetctl("udsp", "show").out == shown


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("udsp add --src tcp --weight 0", "weight 0 is out of range: use 1 to 1000 messages"),
        ("udsp add --src tcp --weight 1001", "weight 1001 is out of range: use 1 to 1000 messages"),
        ("udsp add --src tcp --weight much", 'Invalid weight "much"'),
        ("udsp add --src tcp --weight -2", 'Invalid weight "-2"'),
        ("udsp add --dst 10.0.0.1@tcp5 --rte 10.0.0.1@tcp --weight 2", "a rule for gateways has no weight"),
        ("selection nid add --nid 10.0.0.1@tcp --weight 0", "weight 0 is out of range"),
        ("selection nid add --nid 10.0.0.1@tcp --weight x", "--weight 'x' is not a number"),
    ],
)
def test_bad_weights_change_nothing(ask_in_vain: Ask, line: str, text: str) -> None:
    got = ask_in_vain(line)
    assert got.code != 0
    assert text in got.out + got.err
    assert ask_in_vain("udsp show").out == ""


# Counters ------------------------------------------------------------------------------------------


@pytest.mark.requirement("dbg-035")
def test_load_and_choices_by_what_decided_are_shown(start_daemon: Callable[..., Daemon]) -> None:
    here, there = (start_daemon(name=name) for name in ("here.sock", "there.sock"))
    rails = ("127.0.0.{}@tcp", "127.0.1.{}@tcp1")
    for daemon, number in ((here, 1), (there, 2)):
        for rail in rails:
            words = ("net", "add", "--nid", rail.format(number), "--peer-credits", "4", "--credits", "32")
            assert daemon.lnetctl(*words).code == 0
    assert "load:" not in here.lnetctl("net", "show", "-v", "4").out
    nid, other = (rail.format(2) for rail in rails)
    assert here.lnetctl("peer", "add", "--prim_nid", nid, "--nid", other).code == 0
    assert here.lnetctl("udsp", "add", "--src", "tcp1").code == 0
    for _ in range(4):
        assert here.lnetctl("ping", nid).code == 0
    nets = yaml.safe_load(here.lnetctl("net", "show", "-v", "2", "--load").out)["net"]
    shown = {net["net type"]: net["local NI(s)"][0] for net in nets}
    ni = shown["tcp1"]
    assert {"status", "statistics", "sent_stats", "health stats", "CPT"} < ni.keys()  # one query has it all
    choices = ni["load"].pop("choices")
    assert ni["load"].pop("recv_length") > ni["load"].pop("send_length") == 0  # answers to pings
    assert ni["load"] == {
        "max_tx_credits": 32,
        "available_tx_credits": 32,
        "min_tx_credits": 31,
        "waiting": 0,
        "state": "ACTIVE",
        "resends": {},
        "up_events": 0,
        "down_events": 0,
    }
    assert choices["local-net priority"] >= 4
    assert "local-net priority" not in shown["tcp"]["load"]["choices"]
    (peer,) = yaml.safe_load(here.lnetctl("peer", "show", "--load").out)["peer"]
    load = {ni["nid"]: ni["load"] for ni in peer["peer ni"]}[other]
    assert load["choices"]["only one"] >= 4
    assert load["paths"] == {}  # small messages for which there is one path only are not counted as load


def test_rules_that_contradict_earlier_ones_are_shown_as_such(ask: Ask) -> None:
    assert ask("net add --nid 127.0.0.2@tcp,127.0.0.3@tcp").code == 0
    assert ask("peer add --prim_nid 10.0.0.9@tcp --nid 10.0.0.8@tcp").code == 0
    for words in (
        "--src 127.0.0.2@tcp --priority 1",
        "--src 127.0.0.*@tcp --priority 2",
        "--src 127.0.0.2@tcp --dst 10.0.0.9@tcp",
        "--src 127.0.0.3@tcp --dst 10.0.0.*@tcp",
        "--src 127.0.0.3@tcp --dst 10.0.0.9@tcp --weight 2",
    ):
        assert ask(f"udsp add {words}").code == 0
    text = ask("udsp show -v").out
    rules = yaml.safe_load(text)["udsp"]
    assert [(rule["matches"], rule.get("overridden", 0)) for rule in rules] == [
        (1, 0),
        (2, 1),
        (1, 0),
        (2, 1),  # of the pairs without priority and weight the first one is in force for a NID
        (1, 0),
    ]
    assert rules[4]["effect"] == "preferred local NIDs of peer NIs, and messages in a row"
    assert not read_config(text).errors
