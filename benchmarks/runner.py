"""Runs one competitor on one work: two processes, their figures added up."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from work import Work

HERE = Path(__file__).resolve().parent
PATIENCE = 180.0  # seconds for one run
# Over tcp as the others, and two ranks that may share a machine.
MPIRUN = (
    "mpirun -np 2 --allow-run-as-root --oversubscribe --host localhost:2 --mca pml ob1 --mca btl tcp,self"
)
MPIRUN_LOOPBACK = ["--mca", "btl_tcp_if_include", "lo", "--mca", "oob_tcp_if_include", "lo"]


@dataclass(frozen=True, slots=True)
class Competitor:
    """Who is measured: a module of `competitors`, and what it must be able to import."""

    name: str
    title: str
    how: str
    needs: str = ""
    kinds: tuple[str, ...] = ("stream", "ack", "roundtrip")
    smallest_only: bool = False  # joined frames say nothing about bulk

    def missing(self) -> str | None:
        """What is not installed; None if nothing."""
        if self.needs and importlib.util.find_spec(self.needs) is None:
            return self.needs
        if self.needs == "mpi4py" and not shutil.which("mpirun"):
            return "mpirun (Debian: openmpi-bin)"
        return None

    def takes(self, work: Work) -> bool:
        """Whether this work says anything about this competitor."""
        return work.kind in self.kinds and (not self.smallest_only or work.size < 4096)


COMPETITORS = [
    Competitor(
        "sockets",
        "plain sockets",
        "blocking; 72 bytes of header and the payload in one `sendmsg`; large ones read by `recvmsg_into` of "
        "the rest of a payload and the next header, small ones from a shared buffer. What Python can reach",
    ),
    Competitor(
        "sockets_joined",
        "plain sockets, 256 frames a call",
        "the same with 256 small messages in one `send`: what batching alone gives",
        kinds=("stream",),
        smallest_only=True,
    ),
    Competitor(
        "ulnet_node",
        "ulnet, event handlers",
        "two `ulnet.Node`s on asyncio, one NI each, one connection of each type; PUTs into one memory "
        "descriptor (peer_credits 64), the next PUT started by the event of an earlier one; LNet's own ACKs",
    ),
    Competitor(
        "ulnet_awaited",
        "ulnet, await put",
        "the same with `await node.put(…)` in as many tasks as the window is wide (64 for small messages)",
        kinds=("stream", "ack"),
    ),
    Competitor(
        "zmq_push",
        "pyzmq PUSH/PULL",
        "tcp, `copy=False`, answers over a second pair the other way; no acknowledgement of its own",
        needs="zmq",
    ),
    Competitor(
        "zmq_dealer",
        "pyzmq DEALER/ROUTER",
        "tcp, `copy=False`; the server knows whom it answers",
        needs="zmq",
    ),
    Competitor(
        "mpi",
        "Open MPI (mpi4py)",
        "two ranks over its tcp transport; it spins while it waits, which its CPU time and round trips show",
        needs="mpi4py",
    ),
]


@dataclass(slots=True)
class Run:
    """One run's figures; `cpu` is that of both processes."""

    wall: float
    cpu: float
    p50_us: float
    p99_us: float


def run_once(competitor: Competitor, work: Work, profiles: Path | None = None) -> Run:
    """One run, profiled into a folder if one is given. Raises RuntimeError with the program's own words."""
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "src")}
    if profiles is not None:
        environment["ULNET_BENCH_PROFILES"] = str(profiles)
    peer = [sys.executable, str(HERE / "peer.py"), competitor.name]
    if competitor.name == "mpi":
        words = [*MPIRUN.split(), *MPIRUN_LOOPBACK, *peer, "pair", work.to_json()]
        output = _finish(_start(words, environment))
    else:
        with _start([*peer, "serve", work.to_json()], environment) as server:
            assert server.stdout is not None
            try:
                address = json.loads(server.stdout.readline() or "{}").get("address", "")
                if not address:
                    _finish(server)
                output = _finish(_start([*peer, "drive", work.to_json(), address], environment))
                output += _finish(server)
            finally:
                server.kill()
    figures = {side: values for line in output.splitlines() for side, values in json.loads(line).items()}
    drive, serve = figures["drive"], figures["serve"]
    return Run(drive["wall"], drive["cpu"] + serve["cpu"], drive["p50_us"], drive["p99_us"])


def _start(words: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, env=environment)


def _finish(process: subprocess.Popen[str]) -> str:
    try:
        output, errors = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise RuntimeError(f"no end after {PATIENCE:.0f} s") from None
    if process.returncode or not output:
        raise RuntimeError(errors.strip() or f"exit status {process.returncode}")
    return output
