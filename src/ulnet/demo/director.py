"""Runs the two node processes of the demo and tells how they fare."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ulnet.demo.transfer import SMALLEST_CHUNK
from ulnet.demo.worker import Job

__all__ = ["DemoError", "Result", "move"]

_LINE_LIMIT = 1 << 20
_PORTS = range(20000, 32000)  # below those from which the system takes source ports


class DemoError(Exception):
    """The demo could not do its work; the text says why."""


@dataclass
class Result:
    """What both nodes reported at the end. Rates are bytes per second."""

    size: int
    seconds: float
    rails: dict[str, int]
    sent_digest: str
    received_digest: str
    statistics: dict[str, str] = field(default_factory=dict)
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


def addresses(rails: int) -> tuple[list[str], list[str]]:
    """The NIDs of the sending and of the receiving node: a loopback address a rail."""
    sender = [f"127.0.{rail}.1@tcp" for rail in range(1, rails + 1)]
    receiver = [f"127.0.{rail}.2@tcp" for rail in range(1, rails + 1)]
    return sender, receiver


def free_port(hosts: list[str]) -> int:
    """A TCP port that is free on all these addresses. Raises DemoError."""
    for port in random.sample(_PORTS, 50):
        with contextlib.ExitStack() as stack:
            try:
                for host in hosts:
                    stack.enter_context(socket.socket()).bind((host, port))
            except OSError:
                continue
            return port
    raise DemoError("no TCP port is free on all the demo's loopback addresses: end what uses so many")


async def move(
    source: Path, size: int, target: Path, rails: int, on_progress: Callable[[dict[str, Any]], None]
) -> Result:
    """Move source (of size bytes) to target between two node processes. Raises DemoError."""
    sender_nids, receiver_nids = addresses(rails)
    port = free_port([nid.partition("@")[0] for nid in (*sender_nids, *receiver_nids)])
    receiver = await _start(Job("receive", receiver_nids, sender_nids, str(target), size, port))
    sender: asyncio.subprocess.Process | None = None
    try:
        await _expect_ready(receiver)
        sender = await _start(Job("send", sender_nids, receiver_nids, str(source), size, port))
        received, sent = await asyncio.gather(
            _follow(receiver, "receiving node", on_progress), _follow(sender, "sending node", on_progress)
        )
        return Result(
            size=size,
            seconds=sent["seconds"],
            rails=received["rails"],
            sent_digest=sent["digest"],
            received_digest=received["digest"],
            statistics={"sending node": sent["statistics"], "receiving node": received["statistics"]},
            cpu_seconds={"sending node": sent["cpu"], "receiving node": received["cpu"]},
        )
    finally:
        await _end(receiver)
        if sender is not None:
            await _end(sender)


async def _start(job: Job) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "ulnet.demo.worker",
        json.dumps(asdict(job)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=_LINE_LIMIT,
    )


async def _expect_ready(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line or json.loads(line).get("state") != "ready":
        raise DemoError("the receiving node did not start: its message is above")


async def _follow(
    process: asyncio.subprocess.Process, name: str, on_progress: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Pass progress on until the node's last line; that line, with the rails' counts, is the answer."""
    assert process.stdout is not None
    rails: dict[str, int] = {}
    while line := await process.stdout.readline():
        told: dict[str, Any] = json.loads(line)
        rails = told.get("rails", rails)
        if told["state"] == "done":
            return {**told, "rails": rails}
        on_progress(told)
    raise DemoError(f"the {name} stopped before the end: its message is above")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()  # the node waits for this
    try:
        await asyncio.wait_for(process.wait(), 10)
    except TimeoutError:
        process.kill()
        await process.wait()
