"""One node of the demo, in a process of its own; tells of its progress in JSON lines on stdout."""

from __future__ import annotations

import asyncio
import hashlib
import json
import resource
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ulnet.demo.transfer import FileReceiver, FileSender
from ulnet.dlc.model import NetShow
from ulnet.dlc.yaml_out import emit_document
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import Nid
from ulnet.node import Node
from ulnet.node.admin import Admin

__all__ = ["Job", "run"]

_BEAT = 0.1  # seconds between progress lines


@dataclass
class Job:
    """What a worker is told: its role, its NIDs, the other node's NIDs, the file and its size, the port."""

    role: str
    nids: list[str]
    peer: list[str]
    path: str
    size: int
    port: int


def run(job: Job) -> int:
    """Do the job; the last line printed is the result."""
    return asyncio.run(_run(job))


async def _run(job: Job) -> int:
    async with Node(tcp=TcpParams(accept="all", accept_port=job.port, congestion="reno")) as node:
        for nid in job.nids:
            node.add_ni(nid)
        node.add_peer(job.peer[0], job.peer[1:])
        if job.role == "receive":
            await _receive(node, job)
        else:
            await _send(node, job)
    return 0


async def _receive(node: Node, job: Job) -> None:
    receiver = FileReceiver(node, Path(job.path), job.size)
    _tell(state="ready")

    def progress() -> None:
        rails = {str(nid): count for nid, count in receiver.bytes_by_rail.items()}
        _tell(state="moving", received=receiver.received, rails=rails)

    await _beating(receiver.finished(), progress)
    progress()
    digest = await asyncio.to_thread(_sha256, Path(job.path))
    _tell(state="done", digest=digest, statistics=await _statistics(node), cpu=_cpu_seconds())
    await asyncio.to_thread(sys.stdin.readline)  # stay reachable until the other side is done


async def _send(node: Node, job: Job) -> None:
    sender = FileSender(node, Nid.parse(job.peer[0]), Path(job.path), len(job.nids))
    started = time.monotonic()
    await _beating(sender.run(), lambda: _tell(state="moving", sent=sender.sent))
    seconds = time.monotonic() - started
    cpu = _cpu_seconds()
    digest = await asyncio.to_thread(_sha256, Path(job.path))
    _tell(state="done", digest=digest, seconds=seconds, statistics=await _statistics(node), cpu=cpu)
    await asyncio.to_thread(sys.stdin.readline)


async def _beating(work: Coroutine[Any, Any, None], beat: Callable[[], None]) -> None:
    task = asyncio.create_task(work)
    while not task.done():
        await asyncio.wait([task], timeout=_BEAT)
        beat()
    await task


async def _statistics(node: Node) -> str:
    """What `lnetctl net show --net tcp -v` would print."""
    shown = await Admin(node).handle(NetShow(net="tcp", verbosity=1))
    return emit_document(msgspec.to_builtins(shown.document))


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _tell(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(run(Job(**json.loads(sys.argv[1]))))
