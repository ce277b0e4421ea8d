"""`ulnet sim`: what it prints, writes, draws and refuses."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from pathlib import Path

import pytest

from ulnet.cli.ulnet import main
from ulnet.core.memory import Memory
from ulnet.sim.scenario import read_scenario

FOLDER = Path(__file__).resolve().parents[2] / "scenarios"
RAILS = str(FOLDER / "lnetctl-yaml.yaml")
Capture = pytest.CaptureFixture[str]


PLANTED = "support.planted_recipe:RECIPE"


def test_a_scenario_is_reported_for_people(capsys: Capture) -> None:
    assert main(["sim", "run", RAILS]) == 0
    told = capsys.readouterr().out
    assert "nodes configured by lnetctl YAML" in told
    assert "192.168.2.20@tcp" in told
    assert "refused at 1.0000" in told
    assert "40 of 40 messages ended well" in told
    assert told.endswith("seed 2: all well\n")


def test_a_scenario_is_reported_as_json(capsys: Capture) -> None:
    assert main(["sim", "run", RAILS, "--json", "--seed", "9"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["seed"], report["failure"], report["messages_ok"]) == (9, "", 40)
    assert {row["node"] for row in report["rows"]} == {"client", "server"}
    assert report["checks"] > 0


def test_many_seeds_are_summed_up(capsys: Capture) -> None:
    assert main(["sim", "run", RAILS, "--seeds", "1..3"]) == 0
    assert capsys.readouterr().out.startswith("3 runs, 0 failed. 120 of 120 messages ended well")
    assert main(["sim", "--seeds", "1..4"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("4 runs, 0 failed.")
    assert re.search(r"; [1-9]\d* fault events \(.*\d+ losses.*\); ", told)


def test_the_trace_is_the_same_each_time(capsys: Capture) -> None:
    assert main(["sim", "--seed", "7", "--trace", "--json"]) == 0
    first = capsys.readouterr().out.splitlines()
    assert main(["sim", "--seed", "7", "--trace", "--json"]) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == first[:-1]
    assert len(first) > 20


def test_a_failure_names_its_seed_and_is_cut_down(capsys: Capture, tmp_path: Path) -> None:
    small = tmp_path / "small.yaml"
    assert main(["sim", "--recipe", PLANTED, "--seed", "5", "--save", str(small)]) == 1
    told = capsys.readouterr()
    assert "seed 5: FAILED: planted" in told.out
    assert f"the same again: ulnet sim --recipe {PLANTED} --seed 5" in told.err
    assert [event.kind for event in read_scenario(small).events] == ["put"]
    assert "cut down to 1 events" in told.err
    assert f"ulnet sim run {small} --recipe {PLANTED} --seed 5" in told.err
    assert main(["sim", "run", str(small), "--recipe", PLANTED]) == 1  # it fails as the long one did
    assert main(["sim", "run", str(small)]) == 0


@pytest.mark.pure
def test_a_disk_that_is_full_is_told_with_the_file_s_name(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """/dev/full keeps nothing, as a full disk; a file that was begun there does not stay."""
    assert main(["sim", "--recipe", PLANTED, "--seed", "5", "--save", "/dev/full"]) == 2
    assert capsys.readouterr().err.endswith(
        "ulnet sim: /dev/full cannot be written: No space left on device\n"
    )

    def no_space(number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    small = tmp_path / "small.yaml"
    monkeypatch.setattr(os, "fsync", no_space)  # where a file system that allocates late says so
    assert main(["sim", "--recipe", PLANTED, "--seed", "5", "--save", str(small)]) == 2
    assert f"{small} cannot be written: No space left on device\n" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.pure  # compiled callers hold the method itself
def test_a_bug_is_a_failure_not_a_crash(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Memory, *arguments: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(Memory, "complete", fails)
    assert main(["sim", "run", RAILS]) == 1
    assert "FAILED: RuntimeError: planted seed 2, " in capsys.readouterr().out


@pytest.mark.leaks("matplotlib keeps its fonts open")
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_goodput_is_drawn(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"rails.{suffix}"
    assert main(["sim", "run", str(FOLDER / "crash-and-restart.yaml"), "--plot", str(path)]) == 0
    begin = {"png": b"\x89PNG", "svg": b"<?xml"}[suffix]
    assert path.read_bytes().startswith(begin)
    if suffix == "svg":
        assert "restart server" in path.read_text()


WRONG = [
    (["sim", "run", "none.yaml"], "none.yaml cannot be read"),
    (["sim", "run", RAILS, "--plot", "rails.pdf"], "a plot is .png or .svg"),
    (["sim", "--recipe", "soup", "--seed", "1"], "recipe 'soup'"),
    (["sim", "--recipe", "json:loads", "--seed", "1"], "json:loads is no recipe"),
    (["sim"], "usage: ulnet sim"),
]


@pytest.mark.parametrize(("words", "answer"), WRONG, ids=[answer for _, answer in WRONG])
def test_wrong_words_are_refused(words: list[str], answer: str, capsys: Capture) -> None:
    assert main(words) == 2
    told = capsys.readouterr()
    assert answer in told.err
    assert not told.out


def test_seeds_are_a_range(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as end:
        main(["sim", "--seeds", "9..1"])
    assert end.value.code == 2
    assert "'9..1' is no range of seeds: write it as 1..100" in capsys.readouterr().err


def test_a_plot_without_matplotlib_says_how_to_get_it(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["sim", "run", RAILS, "--plot", "rails.png"]) == 2
    assert (
        f"--plot needs matplotlib: {sys.executable} -m pip install 'ulnet[plot]'" in capsys.readouterr().err
    )


def test_help_has_an_example(capsys: Capture) -> None:
    with pytest.raises(SystemExit):
        main(["sim", "run", "--help"])
    assert "ulnet sim run scenarios/two-rails.yaml --plot rails.png" in capsys.readouterr().out
