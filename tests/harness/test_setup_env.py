"""What `make` installs of the system, for tests and for the benchmark, and what it says where it may not."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import setup_env
from support.shared import ROOT

ASKED = {
    "test": "chromium git iproute2 openssh-client systemd tcpdump tshark zsh",
    "test-compiled": "chromium git iproute2 openssh-client systemd tcpdump tshark zsh",
    "test-long": "chromium git iproute2 openssh-client systemd tcpdump tshark zsh",
    "bench": "iproute2 openmpi-bin",
    "deb": "debhelper dpkg-dev",
    "install-trial": "debhelper debootstrap dpkg-dev iproute2 systemd-container",
    "container-trial": "debootstrap iproute2 podman runc",
}
DEV_LEFT_OUT = "the tests that need them will be SKIPPED and named at the end"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """A machine that has a compiler and none of the tools; what apt-get is asked for goes into the list."""
    asked: list[list[str]] = []

    def apt_get(packages: list[str]) -> bool:
        asked.append(packages)
        return False

    monkeypatch.setattr(setup_env, "make_venv", lambda extras, chosen: 0)
    monkeypatch.setattr(setup_env, "apt_get", apt_get)
    monkeypatch.setattr(setup_env, "compiler_packages", lambda: set[str]())
    monkeypatch.setattr("shutil.which", lambda tool, path=None: None)
    return asked


@pytest.mark.parametrize("target", ASKED)
def test_make_asks_for_the_tools_of_what_it_is_to_do(
    target: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if not shutil.which("make"):
        pytest.skip("make is not installed")
    words = ["make", "-n", "PYTHON=python3", target]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    told = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    line = next(line for line in told.splitlines() if "setup_env.py" in line and "--debian" in line)
    asked: list[list[str]] = request.getfixturevalue("bare")
    monkeypatch.setattr("sys.argv", shlex.split(line)[1:])
    assert setup_env.main() == 0
    assert asked == [ASKED[target].split()]


@pytest.mark.parametrize("target", ["check", "test", "test-slow", "test-compiled", "test-long", "test-verbs"])
def test_pytest_takes_the_words_that_make_has_for_it(target: str) -> None:
    if not shutil.which("make"):
        pytest.skip("make is not installed")
    own = ("MAKE", "PYTEST")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    words = ["make", "-n", "PYTHON=python3", target]
    told = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    lines = [shlex.split(line) for line in told.replace("\\\n", " ").splitlines() if " -m pytest " in line]
    assert lines
    for line in lines:
        options = [word for word in line[line.index("pytest") + 1 :] if not word.startswith("tests/")]
        asked = [sys.executable, "-m", "pytest", *options, "--collect-only", __file__]
        run = subprocess.run(asked, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert run.returncode in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}, run.stderr


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("dev", f"{DEV_LEFT_OUT}, and without a compiler the compiled build is not tested."),
        (
            "bench",
            "could not install gcc, iproute2, libc6-dev, openmpi-bin "
            "(that needs root, apt-get and a mirror); the benchmark leaves out what needs them: "
            "the C program, several rails, a failing rail and routers, the compiled build, Open MPI.",
        ),
        (
            "deb",
            "could not install debhelper, dpkg-dev (that needs root, apt-get and a mirror); "
            "the Debian package cannot be made, or not be tried, without them.",
        ),
    ],
)
def test_what_cannot_be_installed_is_named_with_what_is_left_out(
    extra: str,
    words: str,
    bare: list[list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(setup_env, "compiler_packages", lambda: {"gcc", "libc6-dev"})
    setup_env.install_debian_packages(extra)
    assert words in capsys.readouterr().out
    assert len(bare) == 1


def test_nothing_is_installed_where_all_is_there(
    bare: list[list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for tool in setup_env.UNPACKED:
        (tmp_path / "debian" / tool).parent.mkdir(parents=True)
        (tmp_path / "debian" / tool).touch()
    monkeypatch.setattr(setup_env, "VENV", tmp_path)
    monkeypatch.setattr("shutil.which", lambda tool, path=None: f"/usr/bin/{tool}")
    for extra in setup_env.TOOLS:
        setup_env.install_debian_packages(extra)
    assert not bare
    assert capsys.readouterr().out == ""


def test_a_tree_that_may_not_be_written_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(setup_env, "ROOT", tmp_path)
    monkeypatch.setattr(setup_env, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(setup_env, "STAMP", tmp_path / ".venv/stamp")
    monkeypatch.setattr("os.access", lambda path, mode: path != tmp_path)  # root may write anywhere
    (tmp_path / "pyproject.toml").touch()
    assert setup_env.make_venv(set(), False) == 1
    told = capsys.readouterr()
    assert told.err == (
        f"setup: .venv cannot be made: this user may not write in {tmp_path}; "
        "copy the tree to a folder of yours, and run make there.\n"
    )
    assert told.out == "" and [path.name for path in tmp_path.iterdir()] == ["pyproject.toml"]
