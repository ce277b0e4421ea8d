"""How long starting takes: `lnetd` until it has answered a peer's message, `lnetctl` there and back."""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from competitors.ulnet_base import new_node
from players import HERE

DAEMON, ASKING = "127.4.0.1", "127.4.0.2@tcp"
PATIENCE = 30.0
HOW = (
    "Wall time from starting the process, medians. `lnetd` has one NI from a file; a second node, there "
    "before, pings it as soon as its port is open. `lnetctl net show` asks that daemon. For comparison an "
    "interpreter that does nothing."
)
HEADS = ["", "ms", "slowest–fastest"]
_CONFIG = "net:\n  - net type: tcp\n    local NI(s):\n      - nid: {nid}\n"


@dataclass(slots=True)
class Starts:
    """Milliseconds, all runs."""

    interpreter: list[float] = field(default_factory=list)
    daemon: list[float] = field(default_factory=list)
    command: list[float] = field(default_factory=list)


def measure(rounds: int, tell: Callable[[str], None]) -> Starts:
    """All three in turn, `rounds` times."""
    tell("start of lnetd, lnetctl")
    starts = Starts()
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "src")}
    for _ in range(rounds):
        starts.interpreter.append(_timed([sys.executable, "-c", "pass"], environment))
        with asyncio.Runner() as runner:
            _daemon(runner, starts, environment)
    return starts


def _timed(words: list[str], environment: dict[str, str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return (time.perf_counter() - began) * 1e3


def _daemon(runner: asyncio.Runner, starts: Starts, environment: dict[str, str]) -> None:
    with socket.socket() as probe:
        probe.bind((DAEMON, 0))
        port: int = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="ulnet-start-") as folder:
        socket_path, config = Path(folder, "lnetd.sock"), Path(folder, "lnet.yaml")
        config.write_text(_CONFIG.format(nid=f"{DAEMON}@tcp"))
        words = [sys.executable, "-m", "ulnet.cli.lnetd", "--socket", str(socket_path)]
        words += ["--config", str(config), "--accept", "all", "--accept-port", str(port)]
        node = new_node(port)
        runner.run(node.start())
        try:
            node.add_ni(ASKING)
            began = time.perf_counter()
            with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as daemon:
                try:
                    _await_port(daemon, port)
                    runner.run(node.ping(f"{DAEMON}@tcp", timeout=PATIENCE))
                    starts.daemon.append((time.perf_counter() - began) * 1e3)
                    while not socket_path.exists():
                        time.sleep(0.01)
                    lnetctl = [sys.executable, "-m", "ulnet.cli.lnetctl", "--socket", str(socket_path)]
                    starts.command.append(_timed([*lnetctl, "net", "show"], environment))
                finally:
                    daemon.terminate()
        finally:
            runner.run(node.close())


def _await_port(daemon: subprocess.Popen[str], port: int) -> None:
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        if daemon.poll() is not None:
            assert daemon.stderr is not None
            raise RuntimeError(f"lnetd ended: {daemon.stderr.read().strip()}")
        with socket.socket() as probe:
            if probe.connect_ex((DAEMON, port)) == 0:
                return
        time.sleep(0.002)
    raise RuntimeError(f"lnetd does not listen after {PATIENCE:.0f} s")


def cells(starts: Starts) -> list[list[str]]:
    """Medians as rows of text."""
    named = {
        "an interpreter, `python -c pass`": starts.interpreter,
        "`lnetd` until its first message is answered": starts.daemon,
        "`lnetctl net show`": starts.command,
    }
    return [
        [what, f"{statistics.median(runs):.0f}", f"{max(runs):.0f}–{min(runs):.0f}"]
        for what, runs in named.items()
    ]
