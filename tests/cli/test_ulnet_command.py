"""The `ulnet` dispatcher, as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import ulnet
from support.shared import ROOT
from ulnet.cli.ulnet import COMMANDS

RUN = "import sys\nfrom ulnet.cli.ulnet import main\nstatus = main()\n"
FAKE_PING = """
import sys, types, ulnet.cli
def fake(argv):
    {body}
sys.modules["ulnet.cli.ping"] = types.SimpleNamespace(main=fake)
"""


def run(*words: str, before: str = "", after: str = "") -> subprocess.CompletedProcess[str]:
    program = f"{before}\n{RUN}\n{after}\nsys.exit(status)"
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_help_names_every_command_and_an_example() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert all(f"  {name} " in done.stdout for name in COMMANDS)
    assert "ulnet ping 192.168.110.11@tcp" in done.stdout


def test_no_words_is_a_usage_error_with_the_help() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: ulnet")


def test_version() -> None:
    builds = ("compiled", "pure Python")
    assert run("--version").stdout in [f"ulnet {ulnet.__version__} ({build})\n" for build in builds]


@pytest.mark.parametrize(
    ("word", "way_out"), [("pign", "did you mean `ulnet ping`?"), ("xyzzy", "`ulnet --help` lists them.")]
)
def test_an_unknown_command_gets_a_way_out(word: str, way_out: str) -> None:
    done = run(word)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"ulnet: '{word}' is no command of ulnet: {way_out}\n"


def test_a_command_gets_its_words_and_gives_its_status() -> None:
    done = run("ping", "--help", "x", before=FAKE_PING.format(body="print(argv); return 7"))
    assert (done.returncode, done.stdout) == (7, "['--help', 'x']\n")


@pytest.mark.parametrize(("error", "status"), [("KeyboardInterrupt", 130), ("BrokenPipeError", 141)])
def test_a_user_who_has_enough_sees_no_traceback(error: str, status: int) -> None:
    done = run("ping", before=FAKE_PING.format(body=f"raise {error}"))
    assert (done.returncode, done.stderr) == (status, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_exists(name: str) -> None:
    done = run(name, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: ulnet {name}")


def test_starting_is_light() -> None:
    """Help must not load the node, YAML or rich."""
    heavy = ["asyncio", "yaml", "rich", "msgspec", "pyroute2", "ulnet.core", "ulnet.node"]
    done = run("--help", after=f"print([name for name in {heavy} if name in sys.modules])")
    assert done.stdout.splitlines()[-1] == "[]"
