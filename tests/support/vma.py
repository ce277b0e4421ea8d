"""The host of the transcripts in a network namespace, and what its answers are compared by."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from support.daemon import PATIENCE, Done, environment, lnetctl

__all__ = ["VmA", "documents", "keys"]

_serial = itertools.count()


def documents(text: str) -> list[Any]:
    return [one for one in yaml.safe_load_all(re.sub(r'descr: (?:! )?(".*"|.*)', "descr: x", text)) if one]


class VmA:
    """The host of the transcripts: eth0 and eth1 with its addresses, in a network namespace."""

    def __init__(self, tmp_path: Path, *words: str) -> None:
        self.name = f"ulnet-vma-{os.getpid()}-{next(_serial)}"
        self.path = tmp_path / "vma.sock"
        self.folder = tmp_path
        self._run("ip", "netns", "add", self.name)
        ip = ("ip", "-n", self.name)
        for index in (0, 1):
            self._run(*ip, "link", "add", f"eth{index}", "type", "veth", "peer", "name", f"other{index}")
            self._run(*ip, "address", "add", f"192.168.{110 + index}.11/24", "dev", f"eth{index}")
            self._run(*ip, "link", "set", f"eth{index}", "up")
            self._run(*ip, "link", "set", f"other{index}", "up")
        self._run(*ip, "link", "set", "lo", "up")
        lnetd = [sys.executable, "-m", "ulnet.cli.lnetd", "--socket", str(self.path), *words]
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", self.name, *lnetd],
            env=environment(),
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        self.first = self.process.stderr.readline()

    def _run(self, *words: str) -> None:
        subprocess.run(words, check=True, capture_output=True, text=True)

    def __call__(self, *words: str, stdin: str = "") -> Done:
        return lnetctl("--socket", str(self.path), *words, stdin=stdin)

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE)
        self._run("ip", "netns", "del", self.name)


def keys(value: Any) -> Any:
    """Nested keys in their order, whatever the values."""
    if isinstance(value, dict):
        return [(str(key), keys(item)) for key, item in value.items()]
    return [keys(item) for item in value] if isinstance(value, list) else None
