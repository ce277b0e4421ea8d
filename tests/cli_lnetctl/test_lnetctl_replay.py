"""Transcripts of two real nodes, command by command, on two hosts with their addresses.

Files that need one host alone are in test_lnetctl_transcripts. Where ulnet differs, the command is in
OTHERWISE with the reason, and docs/compatibility.md says so too.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemon import Done
from support.replay import Hosts, difference
from support.shared import shared_path
from support.transcripts import Step, read_steps
from ulnet.cli.lnetctl import main

SILENT = "what is refused is told, with its errno, where the real tool says nothing, or only 234"
WORDS = "words that make no command, and values that cannot be, are refused"
CRASH = "the real tool crashes, or does nothing"
STATE = "peers that earlier files have left there"
CONFIGURED = "peers that were only learned are no configuration"
OTHERWISE = {
    "12_show": {
        r"export --backup.*": CONFIGURED,
        r"net show -v banana|cpt-of-nid --nid .*": WORDS,
        r"peer show --nid (banana|10.*)|debug recovery": SILENT,
        r"fault drop show": CRASH,
    },
    "17_peer": {
        r"peer (add|del|set)|peer add --prim_nid banana|peer del --nid 192.168.110.78@tcp": SILENT,
        r"peer del --prim_nid (192.168.110.(77|80)@tcp|10.2.3.4@tcp)": SILENT,
        r"peer set --nid (192.168.110.12|10.1.1.1)@tcp .*|peer show -v 3 .*": SILENT,
        r"peer add --nid 192.168.110.78@tcp": "the first NID is the primary one, as documented",
        r"peer show|peer list": STATE,
    },
    "20_fault": {r"fault (drop|delay) show|fault drop reset": CRASH},
    "21_after_traffic": {r"export --backup": CONFIGURED},
    "41_large_nids": {r"export --backup": "the NID is there, for the interface alone would not give it"},
}
RAILS = [("vmA", "net add --net tcp --if eth0,eth1"), ("vmB", "net add --net tcp --if eth0,eth1")]
KNOWN = [*RAILS, ("vmA", "discover 192.168.110.12@tcp")]
LEFT = ("ping 192.168.110.250@tcp", "ping 192.168.110.12@tcp7", "ping 192.168.110.12@o2ib")
# What had been done on those nodes before.
BEFORE = {
    "02_dynamic_ni": [
        ("vmA", "net add --net tcp --if eth0"),
        ("vmB", "net add --net tcp --if eth0"),
        ("vmA", "discover 192.168.110.12@tcp"),
    ],
    "03_multirail": RAILS,
    "12_show": [*KNOWN, ("vmA", "discover 192.168.110.11@tcp"), *(("vmA", words) for words in LEFT)],
    "17_peer": KNOWN,
    "20_fault": RAILS,
    "21_after_traffic": RAILS,
    "41_large_nids": [
        (host, words)
        for host in ("vmA", "vmB")
        for words in ("lnet unconfigure", "lnet configure --large", "net add --net tcp --if eth0")
    ],
}
# Counters, times, speeds of links, which CPTs there are.
VALUES_DIFFER = re.compile(
    r"(net|peer|stats) show.*-v.*|stats show|net show --verbose 5|export.*|peer show --nid.*"
)
PATIENCE = 60.0  # seconds until news between the two nodes have arrived


@pytest.fixture
def hosts(namespaces_work: None, tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path)
    yield made
    made.close()


def steps_of(folder: Path, file: str) -> list[Step]:
    return [step for step in read_steps(folder) if step.file == file and "lnetctl" in step.command]


def answer(hosts: Hosts, step: Step) -> Done | None:
    """What lnetctl says; None, and it is done all the same, for several commands in one line."""
    if ";" in step.command:
        for part in step.command.split(";"):
            words = shlex.split(part)
            if words[0] == "lnetctl":
                assert hosts.ask(step.host, *words[1:]).code == 0
        return None
    if not re.match(r"lnetctl [^|>$]*$", step.command):
        return None
    return hosts.ask(step.host, *shlex.split(step.command)[1:])


@pytest.mark.requirement("cfg-010", "cfg-045", "cfg-055", "cfg-060", "cfg-070", "dbg-055", "tst-005")
@pytest.mark.parametrize("file", BEFORE)
def test_two_nodes_say_what_real_nodes_said(file: str, hosts: Hosts) -> None:
    folder = shared_path("reference")
    for host, words in BEFORE[file]:
        done = hosts.ask(host, *words.split())
        assert done.code == 0 or words in LEFT, words
    compared = 0
    for step in steps_of(folder, file):
        command = step.command.removeprefix("lnetctl ").strip()
        if any(re.fullmatch(pattern, command) for pattern in OTHERWISE.get(file, {})):
            answer(hosts, step)
            continue
        values_differ = VALUES_DIFFER.fullmatch(command) is not None
        give_up = time.monotonic() + PATIENCE
        while True:
            done_now = answer(hosts, step)
            if done_now is None:
                break
            different = difference(step, done_now, values_differ)
            if different is None or " show" not in command or time.monotonic() > give_up:
                assert different is None, f"{step.command}: {different}"
                compared += 1
                break
            time.sleep(0.2)
    assert compared >= {"03_multirail": 1, "20_fault": 6, "41_large_nids": 5}.get(file, 10)


def test_every_exception_is_of_a_recorded_command() -> None:
    folder = shared_path("reference")
    for file, patterns in OTHERWISE.items():
        commands = [step.command.removeprefix("lnetctl ").strip() for step in steps_of(folder, file)]
        for pattern in patterns:
            assert any(re.fullmatch(pattern, command) for command in commands), pattern


# Of the driver kfi; and one that the real help names, and the real tool refuses.
NOT_HERE = {"net add --auth-key", "net add --traffic-class", "peer add --ip2nets", "peer del --ip2nets"}


def test_every_recorded_option_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    """Help is ulnet's own; but what the real help names, ours names too."""
    missing: set[str] = set()
    compared = 0
    for step in read_steps(shared_path("reference"), ("10_help",)):
        found = re.fullmatch(r"lnetctl ((?:\w[\w-]* )+)--help </dev/null", step.command)
        if found is None or found[1].count(" ") < 2:  # of whole groups ours names the commands only
            continue
        words = found[1].split()
        assert main([*words, "--help"]) == 0, words
        ours = set(re.findall(r"--([a-z][\w-]*)", capsys.readouterr().out))
        real = set(re.findall(r"--([a-z][\w-]*)", step.out + step.err))
        missing |= {f"{found[1]}--{option}" for option in real - ours}
        compared += 1
    assert missing == NOT_HERE
    assert compared > 20
