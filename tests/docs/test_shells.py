"""Completion typed into real shells, on terminals: what the files in packaging/completions make of a TAB."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ulnet

ROOT = Path(__file__).parents[2]
COMPLETIONS = ROOT / "packaging" / "completions"
SOURCE = Path(ulnet.__file__).parents[1]
PATIENCE = 60.0  # seconds until a key that must have an effect counts as dead
TAB, TELL, ERASE = b"\t", b"\x14", b"\x15"

# Control-T tells in a file what stands on the line; `ready` stands there whenever a prompt is about to come.
BASH = """\
PS1=; PROMPT_COMMAND='echo ready >>"$TOLD"'
tell() { printf '%s\\n' "$READLINE_LINE" >>"$TOLD"; }
bind -x '"\\C-t": tell'
source "$COMPLETIONS/lnetctl.bash"
"""
ZSH = """\
PS1=; precmd() { echo ready >>"$TOLD" }
tell() { print -r -- "$BUFFER" >>"$TOLD" }
fpath=("$COMPLETIONS" $fpath); autoload -Uz compinit; compinit -u -D
zle -N tell; bindkey '^T' tell; bindkey '^U' kill-whole-line
"""


class Shell:
    """An interactive shell that has the completion file, in a folder with one file, `lnet.yaml`."""

    def __init__(self, name: str, folder: Path) -> None:
        home = folder / "home"
        home.mkdir()
        (home / "lnet.yaml").write_text("")
        for tool in ("lnetctl", "ulnet", "lst"):
            program = folder / tool
            run = f"from ulnet.cli.{tool} import main; raise SystemExit(main())"
            program.write_text(f"#!/bin/sh\nPYTHONPATH={SOURCE} exec {sys.executable} -c '{run}' \"$@\"\n")
            program.chmod(0o755)
        self._told = folder / "told"
        self._told.touch()
        start = folder / "start"
        start.write_text(BASH if name == "bash" else ZSH)
        words = [name, "--norc", "--noprofile", "-i"] if name == "bash" else [name, "-f", "-i"]
        self._terminal, theirs = pty.openpty()
        self._process = subprocess.Popen(
            words,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=home,
            start_new_session=True,
            env={
                "PATH": f"{folder}:{os.environ['PATH']}",
                "HOME": str(home),
                "TERM": "vt100",
                "TOLD": str(self._told),
                "COMPLETIONS": str(COMPLETIONS),
                "LC_ALL": "C",
            },
        )
        os.close(theirs)
        self._write(f". {start}\n".encode())
        self._next("ready")

    def _write(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def _next(self, wanted: str = "") -> str:
        """The next line that it tells, `ready` passed over unless it is wanted."""
        seen = b""
        patience = time.monotonic() + PATIENCE
        while time.monotonic() < patience:
            if select.select([self._terminal], [], [], 0.02)[0]:
                seen += os.read(self._terminal, 65536)
            lines = self._told.read_text().splitlines()
            found = [line for line in lines if line == wanted or (not wanted and line != "ready")]
            if found:
                self._told.write_text("")
                return found[0]
        raise AssertionError(f"nothing was told; on the screen: {seen!r}")

    def completed(self, line: str) -> str:
        """What a line has become after a TAB at its end."""
        self._write(line.encode() + TAB + TELL)
        told = self._next()
        self._write(ERASE)
        return told

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)


@pytest.fixture(params=["bash", "zsh"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    name: str = request.param
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed (Debian: apt-get install {name})")
    shell = Shell(name, tmp_path)
    try:
        yield shell
    finally:
        shell.close()


def test_a_tab_completes_commands_options_and_files(shell: Shell) -> None:
    assert shell.completed("lnetctl sta") == "lnetctl stats "
    assert shell.completed("lnetctl net sh") == "lnetctl net show "
    assert shell.completed("lnetctl net show --ver") == "lnetctl net show --verbose "
    assert shell.completed("lnetctl import ln") == "lnetctl import lnet.yaml "
    assert shell.completed("ulnet doct") == "ulnet doctor "
    assert shell.completed("ulnet check --li") == "ulnet check --live "
    assert shell.completed("lnetctl banana x") == "lnetctl banana x"
    assert shell.completed("lst new_se") == "lst new_session "
    assert shell.completed("lst add_test --conc") == "lst add_test --concurrency "
    assert shell.completed("lst add_test --from a --to b b") == "lst add_test --from a --to b brw "
    assert shell.completed("lst add_test brw check=f") == "lst add_test brw check=full "
    assert shell.completed("lst add_test brw write size=6") == "lst add_test brw write size=64k "
