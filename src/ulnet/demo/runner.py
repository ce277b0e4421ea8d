"""Runs the two node processes of the demo, has a rail cut if asked to, and tells how they fare."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ulnet.demo.network import DemoError, DemoNetwork
from ulnet.demo.signals import cancelled_by_signals
from ulnet.demo.transfer import SMALLEST_CHUNK
from ulnet.demo.worker import Job

__all__ = ["CUT_AT", "REPAIR_AT", "Result", "move"]

_LINE_LIMIT = 1 << 20
CUT_AT, REPAIR_AT = 0.2, 0.45  # of the file

OnProgress = Callable[[dict[str, Any]], None]


@dataclass
class Result:
    """What both nodes reported at the end. Rates are bytes per second."""

    size: int
    seconds: float
    rails: dict[str, int]
    sent_digest: str
    received_digest: str
    statistics: dict[str, str] = field(default_factory=dict)
    resends: dict[str, int] = field(default_factory=dict)
    cpu_seconds: dict[str, float] = field(default_factory=dict)

    @property
    def intact(self) -> bool:
        """Whether the destination has the source's bytes."""
        return self.sent_digest == self.received_digest

    def judgeable(self, rails: int) -> bool:
        """Whether the file had enough pieces to tell whether the rails shared them."""
        return self.size >= 8 * rails * SMALLEST_CHUNK

    def fair(self, rails: int) -> bool:
        """Whether every rail carried at least half of an even share."""
        shares = [count / self.size for count in self.rails.values()]
        return len(shares) == rails and min(shares) >= 0.5 / rails


class _Cutter:
    """Has the last rail cut, and repaired, when so much of the file has arrived."""

    def __init__(self, network: DemoNetwork, size: int, tell: OnProgress) -> None:
        self._network = network
        self._size = size
        self._tell = tell
        self._due = [(CUT_AT * size, True), (REPAIR_AT * size, False)]
        self.nodes: list[asyncio.subprocess.Process] = []

    def look(self, told: dict[str, Any]) -> None:
        """Act if it is time."""
        self._tell(told)
        if self._due and told.get("received", 0) >= self._due[0][0]:
            _, cut = self._due.pop(0)
            self._network.act(cut)
            order = self._network.order(cut)
            for node in self.nodes:
                if order is not None and node.stdin is not None:
                    node.stdin.write(f"{order}\n".encode())
            self._tell({"state": "cut" if cut else "repaired"})


async def move(
    source: Path,
    size: int,
    target: Path,
    network: DemoNetwork,
    on_progress: OnProgress,
    *,
    seconds: float = 0,
    bond: bool = False,
) -> Result:
    """Move source (of size bytes) to target between two node processes.

    Raises DemoError, and CancelledError on SIGHUP and SIGTERM, when both nodes have ended.
    With `seconds` it is slowed down to take that long, and a rail is cut and repaired meanwhile. With `bond`
    it goes between bonding NIs in standby mode, whose default slave is on the last rail.
    """
    pace = size / seconds if seconds else 0.0
    cutter = _Cutter(network, size, on_progress)
    look = cutter.look if seconds else on_progress
    receiving = Job(
        "receive", network.receivers, network.senders, str(target), size, network.port, pace, bond
    )
    sending = Job("send", network.senders, network.receivers, str(source), size, network.port, pace, bond)
    nodes = cutter.nodes
    with cancelled_by_signals() as interruption:
        try:
            nodes.append(await _start(network, receiving))
            await _expect_ready(nodes[0])
            nodes.append(await _start(network, sending))
            received, sent = await asyncio.gather(
                _follow(nodes[0], "receiving node", look), _follow(nodes[1], "sending node", look)
            )
        finally:
            interruption.wait()
            await asyncio.gather(*map(_end, nodes))
    return Result(
        size=size,
        seconds=sent["seconds"],
        rails=received["rails"],
        sent_digest=sent["digest"],
        received_digest=received["digest"],
        statistics={"sending node": sent["statistics"], "receiving node": received["statistics"]},
        resends={"sending node": sent["resends"], "receiving node": received["resends"]},
        cpu_seconds={"sending node": sent["cpu"], "receiving node": received["cpu"]},
    )


async def _start(network: DemoNetwork, job: Job) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *network.words(job.role),
        sys.executable,
        "-m",
        "ulnet.demo.worker",
        json.dumps(asdict(job)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_LIMIT,
        process_group=0,  # what a terminal sends to the runner's is not for the nodes: they are told
    )


async def _expect_ready(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line or json.loads(line).get("state") != "ready":
        raise DemoError("the receiving node did not start: its message is above")


async def _follow(process: asyncio.subprocess.Process, name: str, on_progress: OnProgress) -> dict[str, Any]:
    """Pass progress on until the node's last line; that line, with the rails' counts, is the answer."""
    assert process.stdout is not None
    rails: dict[str, int] = {}
    while line := await process.stdout.readline():
        told: dict[str, Any] = json.loads(line)
        rails = told.get("rails", rails)
        if told["state"] == "done":
            return {**told, "rails": rails}
        on_progress({**told, "node": name})
    raise DemoError(f"the {name} stopped before the end: its message is above")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()  # the node waits for this, or gives its work up
    try:
        await asyncio.wait_for(process.wait(), 10)
    except TimeoutError:
        process.kill()
        await process.wait()
