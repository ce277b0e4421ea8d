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

from crowd_hub import FEW, OWN, SHAPES
from crowd_meter import WARM
from players import HERE, builds
from runner import environment_of

PEERS, SECONDS = 1000, 0.7
SOCKETS = "plain sockets"  # beside the builds of ulnet
FILES_A_PEER = 8  # on the side that has the listeners, too
PATIENCE = 200.0
HOW = (
    "One node with two rails and {peers:,} peers of two rails each, over loopback. A second process is all "
    "the peers, with listeners of their own: it speaks what is on the wire as kernel nodes do (HELLO, "
    "pings, ACKs; `crowd_far.py`), so that the figures are the node's. Memory: growth of the node's "
    "resident set, after the first peers, while it makes the others known (configured), and until each has "
    "been sent messages of 64 bytes and 16 KiB over both rails; {connections:.0f} connections a peer, "
    "without what the kernel keeps. Rates: acknowledged PUTs, 64 under way, to one peer, to {few} and to "
    "all in turn, in the same process; medians. With one peer 64-byte messages share calls to the kernel by "
    "the dozen; with a message to each in turn none can, be it {few} peers or all, so the last column is "
    "what grows with their number alone; “16 at a time” shares again. “{sockets}” are one epoll, headers "
    "and payloads at both ends and nothing of LNet (`crowd_sockets.py`): what Python and the kernel allow. "
    "CPU is the node's own, that of the other process stands apart. Each rate is measured once {warm} "
    "rounds are over. `crowd_profile.py` tells more (docs/design/measured.md)."
)
RATE_HEADS = ["thousand messages/s", "one peer", f"{FEW} peers", "all", "all : one", f"all : {FEW}"]
CPU_HEADS = ["CPU µs/message", *RATE_HEADS[1:]]
SHARE_HEADS = ["CPU µs/message", "kernel: one peer", f"{FEW} peers", "all"]
SHARE_HEADS += ["other side: one peer", f"{FEW} peers", "all"]
BESIDE_HEADS = ["rate, of that of plain sockets", *RATE_HEADS[1:4]]
MEMORY_HEADS = ["idle peer with two rails, KiB", "known", "with its connections"]

Hubs = dict[str, dict[str, Any]]  # by build, or SOCKETS: crowd_hub.Hub as JSON


def peers_possible(wish: int) -> int:
    """As many as the limit of open files allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(wish, max(hard - 100, 0) // FILES_A_PEER)


def measure(peers: int, seconds: float, tell: Callable[[str], None]) -> Hubs:
    """Each build, one after the other, and plain sockets."""
    hubs = {}
    for build in (*builds(), SOCKETS):
        tell(f"{peers:,} peers, {build}")
        hubs[build] = run(build, peers, seconds)
    return hubs


def run(build: str, peers: int, seconds: float) -> dict[str, Any]:
    """One build, with new processes. Raises RuntimeError with their own words."""
    environment = environment_of(build)
    pipe = subprocess.PIPE
    numbers = [str(peers), str(free_port())]
    if build == SOCKETS:
        far_words = [sys.executable, str(HERE / "crowd_sockets.py"), "far", *numbers]
        hub_words = [sys.executable, str(HERE / "crowd_sockets.py"), "hub", *numbers, str(seconds)]
    else:
        far_words = [sys.executable, str(HERE / "crowd_far.py"), *numbers]
        hub_words = [sys.executable, str(HERE / "crowd_hub.py"), *numbers, str(seconds)]
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
                [*hub_words, str(far.pid)],
                env=environment,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        finally:
            far.kill()
        said.seek(0)
        heard = said.read()
    if done.returncode:
        raise RuntimeError(f"{done.stderr.strip()}\n{heard}".strip())
    hub: dict[str, Any] = json.loads(done.stdout)
    return hub


def free_port() -> int:
    """One where nobody listens on the node's address."""
    with socket.socket() as probe:
        probe.bind((OWN[0].partition("@")[0], 0))
        port: int = probe.getsockname()[1]
        return port


def how(hubs: Hubs) -> str:
    """What was measured."""
    hub = hubs["pure"]
    return HOW.format(peers=hub["peers"], connections=hub["connections"], few=FEW, sockets=SOCKETS, warm=WARM)


def ratio(hub: dict[str, Any], shape: str, figure: int = 0, against: str = "one") -> float:
    """All peers against one, or `few`: of the rate (0), or of the CPU time a message (1)."""
    return _median(hub, "all", shape, figure) / _median(hub, against, shape, figure)


def _median(hub: dict[str, Any], who: str, shape: str, figure: int) -> float:
    runs: list[list[float]] = hub[who][shape]
    return statistics.median(run[figure] for run in runs)


def rate_cells(hubs: Hubs) -> list[list[str]]:
    """A row for each build and shape of traffic."""
    return _cells(hubs, 0, 1e-3)


def cpu_cells(hubs: Hubs) -> list[list[str]]:
    """The same, of the CPU time."""
    return _cells(hubs, 1, 1.0)


def share_cells(hubs: Hubs) -> list[list[str]]:
    """A row for each: how much of the CPU time is the kernel's, and how much the other process takes."""
    return [
        [f"{shape}: {build}"]
        + [f"{_median(hub, who, shape, figure):.3g}" for figure in (2, 3) for who in ("one", "few", "all")]
        for shape in SHAPES
        for build, hub in hubs.items()
    ]


def beside_cells(hubs: Hubs) -> list[list[str]]:
    """A row for each build and shape of traffic: its rate beside that of plain sockets with as many peers."""
    plain = hubs[SOCKETS]
    return [
        [f"{shape}: {build}"]
        + [
            f"{_median(hub, who, shape, 0) / _median(plain, who, shape, 0):.2f}"
            for who in ("one", "few", "all")
        ]
        for shape in SHAPES
        for build, hub in hubs.items()
        if build != SOCKETS
    ]


def _cells(hubs: Hubs, figure: int, scale: float) -> list[list[str]]:
    rows = []
    for shape in SHAPES:
        for build, hub in hubs.items():
            row = [f"{shape}: {build}"]
            row += [f"{_median(hub, who, shape, figure) * scale:.3g}" for who in ("one", "few", "all")]
            row += [f"{ratio(hub, shape, figure, against):.2f}" for against in ("one", "few")]
            rows.append(row)
    return rows


def memory_cells(hubs: Hubs) -> list[list[str]]:
    """A row for each build."""
    return [
        [build, f"{hub['bare'] / 1024:.1f}", f"{hub['connected'] / 1024:.1f}"]
        for build, hub in hubs.items()
        if build != SOCKETS
    ]
