"""`lnetctl ping` and `discover` between two hosts, as real nodes were recorded to answer them."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.daemon import PATIENCE, Done, environment
from support.netns import Cluster, Host
from support.shared import shared_path
from support.transcripts import Step, read_steps

# What is said otherwise here, and why (docs/compatibility.md).
OTHERWISE = {
    "lnetctl ping": "an error that says what is missing, where the real tool fails to write",
    "lnetctl discover": "an error in YAML, where the real tool prints a sentence",
    "lnetctl ping 192.168.110.12": "a NID without a net is on tcp",
    "lnetctl ping --bogus 1": "unknown options are refused",
    "lnetctl ping vmB@tcp": "a host of that name is not known here",
    "lnetctl ping 192.168.110.250@tcp": "gives up before the system knows that no such host is there",
}


class Side:
    """An lnetd on one host."""

    def __init__(self, host: Host, path: Path) -> None:
        self.host = host
        self.path = path
        command = [sys.executable, "-m", "ulnet.cli.lnetd", "--socket", str(path)]
        self.process = host.start(*command, env=environment())
        assert self.process.stderr is not None
        assert b"ready" in self.process.stderr.readline()

    def __call__(self, *words: str) -> Done:
        command = [sys.executable, "-m", "ulnet.cli.lnetctl", "--socket", str(self.path), *words]
        done = subprocess.run(
            command, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def sides(two_hosts: Cluster, tmp_path: Path) -> Iterator[list[Side]]:
    made = [Side(host, tmp_path / f"{host.number}.sock") for host in two_hosts.hosts]
    yield made
    for side in made:
        side.process.terminate()
        side.process.communicate(timeout=PATIENCE)


def local(text: str, sides: list[Side]) -> str:
    """A recorded text with the addresses of this cluster."""
    for number, side in enumerate(sides, 11):
        for rail, net in enumerate(("192.168.110", "192.168.111")):
            text = text.replace(f"{net}.{number}@", f"{side.host.address(rail)}@")
    return text.replace("192.168.110.250@", sides[0].host.address(0).rpartition(".")[0] + ".250@")


def facts(text: str) -> Any:
    """The YAML without the words of errors: the errno says it."""
    found = [one for one in yaml.safe_load_all(text) if one is not None]
    for one in found:
        for item in one.get("manage", []):
            item.pop("descr", None)
            for value in item.values():
                if isinstance(value, dict):
                    value.pop("descr", None)
    return found


def differs(step: Step, done: Done, sides: list[Side]) -> str | None:
    if step.command in OTHERWISE:
        return None
    if bool(done.code) != bool(step.code):
        return f"status {done.code}, really {step.code}: {done.out}{done.err}"
    real, ours = facts(local(step.out + "\n" + step.err, sides)), facts(done.out + "\n" + done.err)
    return None if real == ours else f"{ours}, really {real}"


@pytest.mark.requirement("dyn-005", "dyn-015", "tst-005")
@pytest.mark.parametrize(
    ("file", "rails"), [("01_first_contact", "rail0"), ("11_ping_discover", "rail0,rail1")]
)
def test_pings_and_discoveries_answer_as_recorded(sides: list[Side], file: str, rails: str) -> None:
    for side in sides:
        assert side("net", "add", "--net", "tcp", "--if", rails).code == 0
    by_name = dict(zip(("vmA", "vmB"), sides, strict=True))
    steps = [
        step
        for step in read_steps(shared_path("reference"))
        if step.file == file
        and step.command.split()[1] in ("ping", "discover")
        and not (step.host == "vmA" and ".11@tcp" in step.command)  # itself, over rails that are not joined
    ]
    if file == "01_first_contact":
        steps = steps[:4]  # then a rail is added there
    for step in steps:
        done = by_name[step.host](*shlex.split(local(step.command, sides))[1:])
        difference = differs(step, done, sides)
        assert difference is None, f"{step.command}: {difference}"
    assert len(steps) >= 4
    shown = yaml.safe_load(sides[0]("peer", "show", "-v", "4", "--nid", sides[1].host.nid(0)).out)
    assert shown["peer"][0]["peer state"] == 273


@pytest.mark.requirement("dyn-060")
def test_verify_and_force_do_not_go_together(sides: list[Side]) -> None:
    refused = sides[0]("discover", "--force", "--verify", sides[1].host.nid(0))
    assert refused.code == 234
    assert "exclude each other" in refused.err
    refused = sides[0]("set", "discovery", "maybe")
    assert refused.code == 255
    assert sides[0]("set", "discovery", "verify").code == 0
    assert "discovery: 2" in sides[0]("global", "show").out
