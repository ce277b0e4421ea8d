"""`ulnet sim --on`: a Dask cluster plays the seeds, with the results that they have here."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import dask.config
import distributed  # noqa: F401 - its defaults, which outlive what a test sets
import pytest

from support.ports import free_port
from ulnet.cli.ulnet import main
from ulnet.sim.scenario import read_scenario

pytestmark = [
    pytest.mark.pure,  # the workers of a cluster are processes of the other build
    pytest.mark.leaks("LocalCluster leaves threads of its loop and of its pools behind"),
    pytest.mark.filterwarnings("default"),  # those of LocalCluster's end are not ours
]
Capture = pytest.CaptureFixture[str]
PLANTED = "support.planted_recipe:RECIPE"


@pytest.fixture(autouse=True)
def own_port(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    port = free_port()
    monkeypatch.setenv("DASK_DISTRIBUTED__COMM__ULNET__ACCEPT_PORT", str(port))  # of the workers
    with dask.config.set({"distributed.comm.ulnet.accept-port": port}):
        yield


def digest(told: str) -> str:
    found = re.search(r"\. Digest ([0-9a-f]{16})\n", told)
    assert found is not None
    return found[1]


def test_a_sweep_has_the_same_digest_wherever_it_is_played(capsys: Capture) -> None:
    assert main(["sim", "--seeds", "1..12"]) == 0
    here = capsys.readouterr().out
    assert main(["sim", "--seeds", "1..12", "--on", "local"]) == 0
    there = capsys.readouterr()
    assert there.out.startswith("12 runs, 0 failed.")
    assert "12/12" in there.err
    assert digest(there.out) == digest(here)
    assert main(["sim", "--seeds", "2..13"]) == 0
    assert digest(capsys.readouterr().out) != digest(here)


def test_the_first_failure_is_cut_down(capsys: Capture, tmp_path: Path) -> None:
    small = tmp_path / "small.yaml"
    words = ["sim", "--recipe", PLANTED, "--seeds", "5..6", "--on", "local", "--save", str(small), "--json"]
    assert main(words) == 1
    told = capsys.readouterr()
    assert [json.loads(line)["seed"] for line in told.out.splitlines()] == [5, 6]
    assert "seed 5: FAILED: planted" in told.err
    assert f"the same again: ulnet sim --recipe {PLANTED} --seed 5" in told.err
    assert [event.kind for event in read_scenario(small).events] == ["put"]


def test_what_cannot_be(capsys: Capture) -> None:
    assert main(["sim", "--seed", "1", "--on", "local", "--trace"]) == 2
    assert "leave --trace and --plot" in capsys.readouterr().err
    assert main(["sim", "--seed", "1", "--on", "nonsense://1"]) == 2
    assert "--on nonsense://1: " in capsys.readouterr().err


def test_ctrl_c_ends_a_sweep_on_processes_of_its_own_without_a_traceback() -> None:
    """A terminal sends SIGINT to all processes of the command: to those that play, too."""
    words = ["-m", "ulnet", "sim", "--seeds", "1..100000", "--on", "local"]
    env = {**os.environ, "DASK_DISTRIBUTED__COMM__ULNET__ACCEPT_PORT": str(free_port())}
    terminal, theirs = os.openpty()  # progress is for those who look
    told = b""
    try:
        with subprocess.Popen([sys.executable, *words], stderr=theirs, process_group=0, env=env) as sweep:
            os.close(theirs)
            while not re.search(rb"[1-9]\d*/100000", told):
                told += os.read(terminal, 4096)
            os.killpg(sweep.pid, signal.SIGINT)
            with suppress(OSError):  # EIO: the last process that has it is gone
                while some := os.read(terminal, 4096):
                    told += some
            assert sweep.wait() == 130
    finally:
        os.close(terminal)
    assert b"Traceback" not in told
