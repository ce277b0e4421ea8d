"""A program in a host that is told by lines of JSON what to do, and answers by lines of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from types import ModuleType
from typing import Any

from support.netns import Host

PATIENCE = 60.0  # seconds for a node that shuts down


class Program:
    """A module of tests that runs as a process of its own, ready."""

    def __init__(self, host: Host, module: ModuleType, *words: str) -> None:
        assert module.__file__ is not None
        self.process = host.start(sys.executable, module.__file__, *words, stdin=subprocess.PIPE)
        assert self.answer() == "ready"

    def answer(self) -> Any:
        """What it says next."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, **command: Any) -> Any:
        """Tell it to do something; its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()
        return self.answer()

    def leave(self) -> None:
        """Nothing more is asked: it shuts down by itself, whatever it routed and checked."""
        _, said = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, said.decode()

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.communicate()
