"""CPTs and settings from the command line, with a daemon that believes in a machine of a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from support.daemon import Daemon, lnetd
from support.shared import shared_path
from support.transcripts import read_steps
from ulnet.cli.lnetctl import run

MACHINE = """
nodes:
    - {cpus: 0-3, distances: [10, 21], interfaces: [eth0]}
    - {cpus: 4-7, distances: [21, 10]}
"""


@pytest.fixture
def big(start_daemon: Callable[..., Daemon], tmp_path: Path) -> Daemon:
    path = tmp_path / "machine.yaml"
    path.write_text(MACHINE)
    return start_daemon("--topology", str(path))


@pytest.mark.requirement("CPT", "cfg-025", "cfg-030")
def test_cpts_are_shown_given_and_changed(big: Daemon) -> None:
    assert big.lnetctl("numa", "show").out == (
        "numa:\n    range: 0\n    CPTs:\n"
        '        - cpt: 0\n          cpus: 0-3\n          nodes: "0"\n          distances: 0:10 1:21\n'
        '        - cpt: 1\n          cpus: 4-7\n          nodes: "1"\n          distances: 0:21 1:10\n'
    )
    assert big.lnetctl("net", "add", "--nid", "127.0.0.1@tcp", "--cpt", "[1]").code == 0
    shown = big.lnetctl("net", "show", "-v", "--net", "tcp").out
    assert shown.endswith('            dev cpt: -1\n            CPT: "[1]"\n')
    assert big.lnetctl("net", "set", "--nid", "127.0.0.1@tcp", "--cpt", "*").code == 0
    assert 'CPT: "[0,1]"' in big.lnetctl("net", "show", "-v", "--net", "tcp").out
    assert '    CPT: "[0,1]"' in big.lnetctl("export", "--backup").out
    answer = big.lnetctl("cpt-of-nid", "10.0.0.2@tcp", "10.0.0.[3-5]@tcp").out
    assert {one["cpt"] for one in yaml.safe_load(answer)["cpt-of-nid"]} <= {0, 1}


def test_explain_takes_a_cpt_that_exists(big: Daemon) -> None:
    for words in (("net", "add", "--nid", "127.0.0.1@tcp"), ("peer", "add", "--prim_nid", "127.0.0.2@tcp")):
        assert big.lnetctl(*words).code == 0
    assert big.lnetctl("explain", "--to", "127.0.0.2@tcp", "--numa", "1").code == 0
    done = big.lnetctl("explain", "--to", "127.0.0.2@tcp", "--numa", "2")
    assert done.code == 222
    assert "CPT 2 does not exist: this node's CPTs are 0 to 1" in done.err


def test_cpts_out_of_range_and_the_cpt_of_a_nid_are_as_recorded(daemon: Daemon) -> None:
    """On one CPT, like the recorded machine: `--cpt [9]` and `cpt-of-nid`."""
    steps = {step.command: step for step in read_steps(shared_path("reference"))}
    recorded = steps["lnetctl net add --net tcp1 --if eth1 --cpt [9]"]
    done = daemon.lnetctl("net", "add", "--nid", "127.0.0.1@tcp1", "--cpt", "[9]", "--cpu", "x")
    assert done.code == 255  # no such option
    done = daemon.lnetctl("net", "add", "--nid", "127.0.0.1@tcp1", "--cpt", "[9999]")
    assert "CPTs are 0 to" in done.err
    assert _without_words(done.err) == _without_words(recorded.err)
    nid = "192.168.110.12@tcp"
    assert daemon.lnetctl("cpt-of-nid", nid).out.splitlines()[:2] == ["cpt-of-nid:", f"- nid: {nid}"]


def _without_words(text: str) -> list[str]:
    return [line.split(' "')[0] for line in text.splitlines()]


@pytest.mark.requirement("cfg-090")
def test_settings_are_set_and_refused_as_recorded(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status, errno and shape of each `set` of the recording, but for nonsense that it let pass."""
    lenient = {"discovery 2", "discovery -1", "numa_range -1", "drop_asym_route 3"}
    compared = 0
    for step in read_steps(shared_path("reference")):
        words = step.command.split()
        wanted = words[:2] == ["lnetctl", "set"] and len(words) == 4 and words[2] not in NOT_BUILT
        if step.file != "14_set" or not wanted:
            continue
        code = run(words[1:], str(daemon.path))
        out, err = capsys.readouterr()
        if " ".join(words[2:]) in lenient:
            assert code == 234, step.command
        else:
            assert (code, out) == (step.code, step.out), step.command
            assert _without_words(err)[:3] == _without_words(step.err)[:3], step.command
        compared += 1
    assert compared > 40


NOT_BUILT = ("routing", "tiny_buffers", "small_buffers", "large_buffers")


def test_a_setting_needs_one_value(daemon: Daemon) -> None:
    for words in ((), ("1", "2")):
        done = daemon.lnetctl("set", "max_intf", *words)
        assert done.code == 234
        assert "takes one value" in done.err
    assert daemon.lnetctl("set", "max_intf", "100").code == 0
    assert "max_interfaces: 100" in daemon.lnetctl("global", "show").out


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("nodes: 3", (), "no topology"),
        (MACHINE, ("--cpu-pattern", "0[9]"), "no CPU 9"),
        (MACHINE, ("--cpu-npartitions", "9"), "1 to 8 partitions"),
    ],
)
def test_a_machine_that_cannot_be_is_told_and_nothing_starts(
    tmp_path: Path, text: str, words: tuple[str, ...], said: str
) -> None:
    path = tmp_path / "machine.yaml"
    path.write_text(text)
    process = lnetd("--socket", str(tmp_path / "sock"), "--topology", str(path), *words)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said in err
    assert "Traceback" not in err
