"""Nodes to look at: a real one with a control socket, and stand-ins for the kernel's tool."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

_TOOL = """\
import json, sys, time, os
answers = json.load(open({answers!r}))
with open({log!r}, "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
out, err, code = answers.get(" ".join(sys.argv[1:]), answers.get("*", ["", "", 0]))
sys.stdout.write(out)
sys.stdout.flush()
sys.stderr.write(err)
if code == "hangs":
    time.sleep(1000)
if code == "leaves a child":
    if os.fork() == 0:
        time.sleep(1000)
    os._exit(0)
if code == "endless":
    while True:
        sys.stdout.write("x" * 65536)
if code == "dies":
    os.kill(os.getpid(), 9)
sys.exit(code)
"""

Answers = Mapping[str, tuple[str, str, object]]


class Tool:
    """A program that answers as it was told; `asked` is what it was run with."""

    def __init__(self, folder: Path, answers: Answers) -> None:
        self._answers, self._log = folder / "answers.json", folder / "asked"
        script = folder / "lnetctl.py"
        script.write_text(_TOOL.format(answers=str(self._answers), log=str(self._log)))
        self.command = shlex.join([sys.executable, "-S", str(script)])
        self.answer(answers)

    def answer(self, answers: Answers) -> None:
        """From now on."""
        self._answers.write_text(json.dumps(answers))

    @property
    def asked(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []


@pytest.fixture
def make_tool(tmp_path: Path) -> Callable[[Answers], Tool]:
    return lambda answers: Tool(tmp_path, answers)


@pytest.fixture(scope="session")
def prometheus_tools() -> Path:
    """The folder of promtool and prometheus, from PATH or from Debian's package as setup unpacks it."""
    found = shutil.which("promtool")
    if found is not None and os.access(Path(found).parent / "prometheus", os.X_OK):
        return Path(found).parent
    folder = Path(sys.prefix) / "debian" / "usr" / "bin"
    if not (folder / "promtool").exists():
        pytest.skip("promtool is not here: install Debian's prometheus, or let `make dev` unpack it")
    return folder
