"""The transcripts of a real node, command by command: the same YAML, keys in the same order, the same errno.

Where ulnet differs, the command is in DIFFERENT with the reason, and docs/compatibility.md says so too.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from support.daemon import Done
from support.replay import difference
from support.shared import shared_path
from support.transcripts import Step, read_steps
from support.vma import VmA
from ulnet.cli.lnetctl import main

USAGE = "words that make no command: one line and status 255, where the real tool prints help and returns 0"
MISSING = "what is missing is an error in YAML, where the real tool prints a sentence or its help"
VALUES = "values that cannot be are refused, where the real tool ignores them or configures something else"
SILENT = "what is refused is told, with its errno, where the real tool says nothing"
DRIVERS = "there is no RDMA device, or no driver for that net: the errno is that of ulnet"
RULES = "ip2nets: a rule that matches nothing is an error; text that is no rule is EINVAL"
STATE = "the transcript goes on from what a command did there that is refused here, or from an earlier file"
HELP = "help is ulnet's own"
CRASH = "the real tool crashes"
FIRST = "without any net in parameters there is tcp on the first interface, as in 2.15.8"

# By command, or by command and the one before it.
DIFFERENT = {
    r".* --bogus|net add (--net tcp1 )?(eth1|tcp1)|stats show bogus|peer show 1.*|peer show --nid"
    r"|service-id --nid .*|cpt-of-nid .* --ncpts 4": USAGE,
    r"net add|net add --net tcp|net add --if eth1|net add --net tcp1 --if|net add --nid banana|net del"
    r"|set discovery": MISSING,
    r"net add .*(credits|timeout|cpt|peer) (-5|-2|banana)|net add .*--credits 0|net add .*--tos 300"
    r"|net add .*--if eth1 eth0|net set .*banana|set \w+ (2|-1|3)|.*--hop banana"
    r"|route add .*--health_sensitivity 0": VALUES,
    r"net set|net set --nid 1.2.3.4.*|net set .*5000|net set --net tcp9 .*|route show --net banana"
    r"|route add .*--gateway 192.168.110.11@tcp": SILENT,
    r"net add --net (o2ib|kfi) .*": DRIVERS,
    r"net add --ip2net (banana|tcp3.eth1. 10.*)": RULES,
    r"net del --net tcp[13]|peer show|export( --backup)?": STATE,
    r"set|global|udsp add": HELP,
    r"lnet configure --all; net show": FIRST,
    r"udsp show --idx 1": CRASH,
    r"debug nidlist 192.*o2ib": "commas in brackets and between NIDs are both understood",
    r"set routing .*": "the text names the rule",
    r"peer show -v 4 --nid 192.168.110.12@tcp": "what a pair rule comes to is shown, which it is not there",
}
NETS = ["net add --net tcp --if eth0,eth1"]
PEER = "peer add --prim_nid 192.168.110.12@tcp --nid 192.168.111.12@tcp"
# What the commands of earlier files have left on that node.
FILES = {
    "13_net_errors": NETS,
    "14_set": [*NETS, "net add --net tcp1 --if eth0"],
    "16_udsp": [*NETS, PEER],
    "19_lnet": NETS,
    "22_isolated_errors": NETS,
}
# Counters, times, settings of other files.
VALUES_DIFFER = re.compile(r"(net|peer|stats|global|route) show.*")


@pytest.mark.requirement("cfg-060", "cfg-070", "tst-005")
@pytest.mark.parametrize("file", FILES)
def test_what_a_real_node_said_is_said_again(
    file: str, vma: Callable[..., VmA], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = shared_path("reference")
    host = vma()
    for command in FILES[file]:
        assert main(["--socket", str(host.path), *command.split()]) == 0
    replayed = 0
    for step, words, before in steps_of(folder, file):
        capsys.readouterr()
        code = main(["--socket", str(host.path), *words])
        shown = capsys.readouterr()
        values_differ = VALUES_DIFFER.fullmatch(" ".join(words)) is not None
        different = difference(step, Done(code, shown.out, shown.err), values_differ)
        if different and not reason(words, before):
            pytest.fail(f"{step.command}: {different}\n{shown.out[:2000]}{shown.err[:2000]}")
        replayed += 1
    assert replayed > 10


def steps_of(folder: Path, file: str) -> list[tuple[Step, list[str], list[str]]]:
    """Each command that is replayed, its words, and those of the one before it."""
    found: list[tuple[Step, list[str], list[str]]] = []
    for step in read_steps(folder):
        if step.file == file and step.host == "vmA" and re.match(r"lnetctl [^;|>$]*$", step.command):
            words = shlex.split(step.command)[1:]
            if words[0] not in ("ping", "discover"):  # nobody is there to answer
                before = found[-1][1] if found else []
                found.append((step, [word.replace("/share", str(folder)) for word in words], before))
    return found


def names(words: list[str], before: list[str]) -> list[str]:
    """How a command is called in the list of differences."""
    command = " ".join(words).strip()
    return [command, f"{' '.join(before).strip()}; {command}"]


def reason(words: list[str], before: list[str]) -> str | None:
    called = names(words, before)
    return next(
        (why for pattern, why in DIFFERENT.items() if any(re.fullmatch(pattern, name) for name in called)),
        None,
    )


def test_every_difference_has_its_place() -> None:
    folder = shared_path("reference")
    commands = {
        name for file in FILES for _, words, before in steps_of(folder, file) for name in names(words, before)
    }
    unused = [
        pattern for pattern in DIFFERENT if not any(re.fullmatch(pattern, command) for command in commands)
    ]
    assert unused == []
