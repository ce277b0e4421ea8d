"""`make watch`: the dashboard on two nodes in network namespaces, with traffic and a rail that is cut.

Each node is an lnetd with two rails; LNet selftest sends bulk between them. Needs root, as the namespaces do.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ulnet.demo.network import Namespaces, namespaces

RATE = "rate 200mbit burst 256kb latency 50ms"  # of each rail, so that watching costs little
_TEST = [
    "add_test",
    "--batch",
    "bulk",
    "--keep-going",
    "--concurrency",
    "4",
    "--from",
    "left",
    "--to",
    "right",
    "brw",
]
_PATIENCE = 60.0  # seconds for a program that must start or end


class Fabric:
    """Two nodes, `left` and `right`, that send to one another; `nodes` is a file for `ulnet dash --nodes`."""

    def __init__(self, network: Namespaces, folder: Path, stack: ExitStack) -> None:
        self.network = network
        self.folder = folder
        self.nodes = folder / "nodes.yaml"
        self._stack = stack
        self.daemons: dict[str, subprocess.Popen[str]] = {}
        for name in ("left", "right"):
            for rail in range(network.rails):
                _run(
                    *self._in(name), "tc", "qdisc", "add", "dev", f"rail{rail}", "root", "tbf", *RATE.split()
                )
            self.start(name)
        lines = [f"  {name}: {{socket: {self.socket(name)}}}\n" for name in ("left", "right")]
        self.nodes.write_text("nodes:\n" + "".join(lines))

    def socket(self, name: str) -> Path:
        """The control socket of a node."""
        return self.folder / f"{name}.sock"

    def start(self, name: str) -> None:
        """Start a node's lnetd, and wait until it is ready."""
        nets = ",".join(f"tcp{rail or ''}(rail{rail})" for rail in range(self.network.rails))
        words = ["--socket", str(self.socket(name)), "--networks", nets, "--selftest", "--drain", "0.5"]
        command = [*self._in(name), sys.executable, "-m", "ulnet.cli.lnetd", *words]
        daemon = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.daemons[name] = daemon
        self._stack.callback(_end, daemon)
        assert daemon.stderr is not None
        if not any("ready" in line for line in iter(daemon.stderr.readline, "")):
            raise RuntimeError(f"lnetd of {name} did not start")
        threading.Thread(
            target=daemon.stderr.read, daemon=True
        ).start()  # so that it never waits for a reader

    def begin_traffic(self) -> None:
        """Bulk in both directions, until the session is ended or a daemon is."""
        left, right = self.network.senders[0], self.network.receivers[0]
        self.lnetctl("left", "discover", right)
        for words in (
            ("new_session", "--force", "--timeout", "3000", "watch"),
            ("add_group", "left", left),
            ("add_group", "right", right),
            ("add_batch", "bulk"),
            (*_TEST, "read", "size=256k"),
            (*_TEST, "write", "size=256k"),
            ("run", "bulk"),
        ):
            self._tool("ulnet.cli.lst", "left", *words)

    def lnetctl(self, name: str, *words: str) -> str:
        """One command to a node."""
        return self._tool("ulnet.cli.lnetctl", name, *words)

    def cut(self, rail: int, down: bool) -> None:
        """Cut a rail at the left node, or mend it."""
        state = "down" if down else "up"
        _run("ip", "-n", self.network.left, "link", "set", f"rail{rail}", state)

    def _in(self, name: str) -> list[str]:
        return self.network.words("send" if name == "left" else "receive")

    def _tool(self, module: str, name: str, *words: str) -> str:
        environment = {**os.environ, "ULNET_SOCKET": str(self.socket(name)), "LST_SESSION": "7"}
        command = [sys.executable, "-m", module, *words]
        return _run(*command, environment=environment)


@contextmanager
def fabric() -> Iterator[Fabric]:
    """Two nodes with two rails, ended afterwards."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ulnet-watch-")))
        network = stack.enter_context(namespaces(2))
        yield Fabric(network, folder, stack)


def _run(*command: str, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=_PATIENCE
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stderr is not None:
        process.stderr.close()


def main() -> int:
    """Until a signal."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--listen", default="127.0.0.1:9990", metavar="ADDRESS:PORT", help="(127.0.0.1:9990)")
    words.add_argument("--every", type=float, default=20.0, metavar="S", help="seconds between cuts (20)")
    options = words.parse_args()
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with ExitStack() as stack:
        found = stack.enter_context(fabric())
        found.begin_traffic()
        dash = [
            sys.executable,
            "-m",
            "ulnet",
            "dash",
            "--nodes",
            str(found.nodes),
            "--listen",
            options.listen,
        ]
        stack.callback(_end, subprocess.Popen(dash, text=True))
        for turn in itertools.count():
            if ended.wait(options.every / 2):
                return 0
            found.cut(1, turn % 2 == 0)
            print("rail1 is cut" if turn % 2 == 0 else "rail1 is mended", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
