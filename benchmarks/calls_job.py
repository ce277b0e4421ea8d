"""What one run of calls is told and tells; the part of it that all players share."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Ask = Callable[[], Awaitable[object]]
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Job:
    """One run: `tasks` that call one after another for `seconds`; addresses of a rail each.

    `echo` sends `size` bytes there and back, `fetch` has `size` bytes sent here. A crowd has `clients`, each
    with a node of its own, the first of which is number `first`, and as many tasks in all.
    """

    player: str
    kind: Literal["echo", "fetch"]
    size: int
    tasks: int
    seconds: float
    warmup: float
    local: list[str]
    remote: list[str]
    port: int
    clients: int = 0
    first: int = 0

    def to_json(self) -> str:
        """For another process's command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The reverse of `to_json`."""
        return cls(**json.loads(text))


@dataclass(slots=True)
class Outcome:
    """What came of it, as the calling process has it; `cpu` is that of both processes."""

    count: int
    wall: float
    cpu: float
    p50_us: float
    p99_us: float


async def ask_for(job: Job, asks: Sequence[Ask], server: int) -> Outcome:
    """Have each asked again and again: to warm up, then, once the harness says so, to be measured.

    `server` is the process id of the other side.
    """
    await _ask_until(asks, time.perf_counter() + job.warmup)
    print(json.dumps("ready"), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    cpu, began = _cpu(server), time.perf_counter()
    latencies = await _ask_until(asks, began + job.seconds)
    wall, cpu = time.perf_counter() - began, _cpu(server) - cpu
    latencies.sort()
    p50, p99 = latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]
    return Outcome(len(latencies), wall, cpu, p50 / 1000, p99 / 1000)


async def _ask_until(asks: Sequence[Ask], end: float) -> list[int]:
    latencies: list[int] = []
    clock = time.perf_counter_ns
    last = int(end * 1e9)

    async def worker(ask: Ask) -> None:
        now = clock()
        while True:
            began = now
            await ask()
            now = clock()
            latencies.append(now - began)
            if now >= last:
                break

    async with asyncio.TaskGroup() as tasks:
        for ask in asks:
            tasks.create_task(worker(ask))
    return latencies


def _cpu(other: int) -> float:
    """Seconds of CPU time, of this process and the other one, with all threads."""
    fields = Path(f"/proc/{other}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / _TICKS
