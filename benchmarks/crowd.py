"""Many peers: the rate with all of them beside that with one, and the memory that an idle one takes."""

from __future__ import annotations

import json
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from crowd_hub import OWN, SHAPES
from players import HERE, builds
from runner import environment_of

PEERS, SECONDS = 1000, 0.7
FILES_A_PEER = 8  # on the side that has the listeners, too
PATIENCE = 200.0
HOW = (
    "One node with two rails and {peers:,} peers of two rails each, over loopback; the peers are nodes in a"
    " second process, with listeners of their own. Memory: growth of the node's resident set, after the "
    "first peers, while it makes the others known (configured), and until each has been sent messages of 64"
    " bytes and 16 KiB over both rails; {connections:.0f} connections a peer, without what the kernel "
    "keeps. Rates: acknowledged PUTs, 64 under way, to one peer and to all in turn, in the same process; "
    "medians. With one peer 64-byte messages share system calls; with a message to each in turn none can, "
    "which “16 at a time” allows again. CPU is the node's own."
)
RATE_HEADS = ["", "one peer, thousand/s", "all, thousand/s", "×", "one peer, CPU µs/message", "all", "×"]
MEMORY_HEADS = ["idle peer with two rails, KiB", "known", "with its connections"]

Hubs = dict[str, dict[str, Any]]  # by build: crowd_hub.Hub as JSON


def peers_possible(wish: int) -> int:
    """As many as the limit of open files allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(wish, max(hard - 100, 0) // FILES_A_PEER)


def measure(peers: int, seconds: float, tell: Callable[[str], None]) -> Hubs:
    """Each build, one after the other."""
    hubs = {}
    for build in builds():
        tell(f"{peers:,} peers, {build}")
        hubs[build] = run(build, peers, seconds)
    return hubs


def run(build: str, peers: int, seconds: float) -> dict[str, Any]:
    """One build, with new processes. Raises RuntimeError with their own words."""
    port = str(_free_port())
    environment = environment_of(build)
    pipe = subprocess.PIPE
    far_words = [sys.executable, str(HERE / "crowd_far.py"), str(peers), port]
    hub_words = [sys.executable, str(HERE / "crowd_hub.py"), str(peers), port, str(seconds)]
    with (
        tempfile.TemporaryFile("w+") as said,
        subprocess.Popen(far_words, env=environment, stdin=pipe, stdout=pipe, stderr=said, text=True) as far,
    ):
        try:
            assert far.stdout is not None
            if far.stdout.readline() != "ready\n":
                said.seek(0)
                raise RuntimeError(f"the peers did not start: {said.read().strip()}")
            done = subprocess.run(
                hub_words, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
            )
        finally:
            far.kill()
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    hub: dict[str, Any] = json.loads(done.stdout)
    return hub


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((OWN[0].partition("@")[0], 0))
        port: int = probe.getsockname()[1]
        return port


def how(hubs: Hubs) -> str:
    """What was measured."""
    hub = hubs["pure"]
    return HOW.format(peers=hub["peers"], connections=hub["connections"])


def ratio(hub: dict[str, Any], shape: str, figure: int = 0) -> float:
    """All peers against one: of the rate (0), or of the CPU time a message (1)."""
    return _median(hub, "all", shape, figure) / _median(hub, "one", shape, figure)


def _median(hub: dict[str, Any], who: str, shape: str, figure: int) -> float:
    runs: list[list[float]] = hub[who][shape]
    return statistics.median(run[figure] for run in runs)


def rate_cells(hubs: Hubs) -> list[list[str]]:
    """A row for each build and shape of traffic."""
    rows = []
    for build, hub in hubs.items():
        for shape in SHAPES:
            row = [f"{build}, {shape}"]
            for figure, scale in ((0, 1e-3), (1, 1.0)):
                row += [f"{_median(hub, who, shape, figure) * scale:.3g}" for who in ("one", "all")]
                row.append(f"{ratio(hub, shape, figure):.2f}")
            rows.append(row)
    return rows


def memory_cells(hubs: Hubs) -> list[list[str]]:
    """A row for each build."""
    return [
        [build, f"{hub['bare'] / 1024:.1f}", f"{hub['connected'] / 1024:.1f}"] for build, hub in hubs.items()
    ]
