"""lnetd and lnetctl as processes of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

SOURCE = os.environ.get(
    "ULNET_SOURCE", str(Path(__file__).parents[2] / "src")
)  # scripts/mutants.py has copies
PATIENCE = 60.0  # seconds for a process that must start or end


def environment(**more: str) -> dict[str, str]:
    """What a process needs to find the package; nothing of the developer's own settings."""
    kept = {key: value for key, value in os.environ.items() if key not in ("ULNET_SOCKET", "JOURNAL_STREAM")}
    return {**kept, "PYTHONPATH": SOURCE, "PYTHONUNBUFFERED": "1", **more}


class Done(NamedTuple):
    """What a command said."""

    code: int
    out: str
    err: str


def without_times(lines: str) -> str:
    """Lines of the daemon's log without the local time in front of each."""
    return re.sub(r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (?=lnetd: )", "", lines)


class Daemon:
    """An lnetd that is ready."""

    def __init__(self, path: Path, *words: str, before: Sequence[str] = (), **more: str) -> None:
        """Start it and wait until it says that it is ready. `before` leads to its host: `Host.words()`."""
        self.path = path
        self.process = lnetd("--socket", str(path), *words, before=before, **more)
        self.first_lines: list[str] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.first_lines.append(line)
            if "ready" in line:
                return
        self.end()
        raise AssertionError(f"lnetd did not start: {''.join(self.first_lines)}")

    def lnetctl(self, *words: str, stdin: str = "") -> Done:
        """Run lnetctl as a process of its own."""
        return lnetctl("--socket", str(self.path), *words, stdin=stdin)

    def end(self) -> None:
        """Make sure that it is gone."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> Done:
        """Ask it to end, wait until it has."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=PATIENCE)
        return Done(self.process.returncode, out, err)


def lnetctl(*words: str, stdin: str = "", **more: str) -> Done:
    """Run lnetctl as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "ulnet.cli.lnetctl", *words],
        input=stdin,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def lnetd(*words: str, before: Sequence[str] = (), **more: str) -> subprocess.Popen[str]:
    """Start lnetd as a process of its own."""
    return subprocess.Popen(
        [*before, sys.executable, "-m", "ulnet.cli.lnetd", *words],
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
