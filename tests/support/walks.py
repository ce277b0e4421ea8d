"""The shell blocks of a page, run as one script between two network namespaces."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PATIENCE = 120.0  # seconds for a whole page

CUT = "ip -n left link set rail1 down\n"
TCP1 = "until lnetctl --socket /run/$side.sock net show --net tcp1 | grep -q 'status: %s'; do sleep 0.1; done"


def blocks(page: str, language: str) -> list[str]:
    """Code blocks of one language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def environment() -> dict[str, str]:
    """The commands of this environment first, as after `make setup`."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def walk(page: str, waits: Mapping[str, str], folder: Path) -> str:
    """What all shell blocks of a page print; namespaces and files get names of their own.

    `waits` has, for each pause of the page, what its reader waits for.
    """
    script = "".join(blocks(page, "sh"))
    assert "ip netns del left" in script
    script = script.replace("make setup\nexport PATH=$PWD/.venv/bin:$PATH\n", "")  # this environment's
    for pause, wait in waits.items():
        assert script.count(pause) == 1, pause
        script = script.replace(pause, wait)
    left, right = (f"ulnet-walk-{os.getpid()}-{side}" for side in ("left", "right"))
    script = re.sub(r"(netns|netns add|netns exec|netns pids|netns del|-n) left\b", rf"\1 {left}", script)
    script = re.sub(r"(netns|netns add|netns exec|netns pids|netns del|-n) right\b", rf"\1 {right}", script)
    script = re.sub(r"/(run|tmp)/", f"{folder}/", script)
    try:
        done = subprocess.run(
            ["bash", "-e", "-c", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + script],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            env=environment(),
            check=False,
        )
    finally:
        for name in (left, right):
            pids = subprocess.run(
                ["ip", "netns", "pids", name], capture_output=True, text=True, check=False
            ).stdout
            for pid in pids.split():
                subprocess.run(["kill", "-9", pid], check=False)
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said
