"""One node of the demo, in a process of its own; tells of its progress in JSON lines on stdout."""

from __future__ import annotations

import asyncio
import hashlib
import json
import resource
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from ulnet.core.faults import Fault, FaultKind
from ulnet.core.lnd import NiEvent
from ulnet.core.status import HealthStatus, LNetError
from ulnet.demo.transfer import FileReceiver, FileSender
from ulnet.dlc.model import NetShow
from ulnet.dlc.yaml_out import emit_document
from ulnet.lnd.tcp import TcpParams
from ulnet.nid import ANY_NID, Net, NetType, Nid
from ulnet.node import Node
from ulnet.node.admin import Admin

__all__ = ["HEALTH_STEP", "Job", "cut_rail", "run"]

_BEAT = 0.1  # seconds between progress lines
HEALTH_STEP = 250  # health_sensitivity while a rail is cut: recovery takes seconds that way


@dataclass
class Job:
    """What a worker is told: its role, its NIDs, the other node's NIDs, the file and its size, the port.

    With a `pace`, in bytes a second, a rail will be cut meanwhile. With `bond` the rails, the last one first,
    are slaves of a bonding NI in standby mode, and the file goes to the other node's bonding NI.
    """

    role: str
    nids: list[str]
    peer: list[str]
    path: str
    size: int
    port: int
    pace: float = 0.0
    bond: bool = False


def run(job: Job) -> int:
    """Do the job; the last line printed is the result. 1 if the runner hung up before the end."""
    return asyncio.run(_run(job))


async def _run(job: Job) -> int:
    tcp = TcpParams(accept="all", accept_port=job.port, congestion="reno")
    async with Node(tcp=tcp, report=lambda line: _tell(state="log", line=line)) as node:
        if job.pace:
            settings = node.core.settings
            settings.health_sensitivity = HEALTH_STEP
            settings.max_recovery_ping_interval = 1
        for nid in job.nids:
            node.add_ni(nid)
        if job.bond:
            node.add_bond("bond0", job.nids[::-1], keepalive=0.5)
        else:
            node.add_peer(job.peer[0], job.peer[1:])
        orders = asyncio.create_task(_obey(node, job))
        work = asyncio.create_task(_receive(node, job) if job.role == "receive" else _send(node, job))
        await asyncio.wait([work, orders], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            await _give_up(node, work)
            await orders
            return 1
        await work
        await orders  # stay reachable until the other side is done
    return 0


async def _give_up(node: Node, work: asyncio.Task[None]) -> None:
    work.cancel()
    with suppress(asyncio.CancelledError):
        await work
    await node.close(drain=0)  # nobody waits for what is under way


async def _obey(node: Node, job: Job) -> None:
    """Cut or repair the last rail when told so, until the runner hangs up."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while order := await reader.readline():
        if job.bond:
            event = NiEvent.FATAL if order == b"cut\n" else NiEvent.RECOVERED
            node.core.ni_event(node.core.nis[Nid.parse(job.nids[-1])], event)
        elif order == b"cut\n":
            cut_rail(node, job.nids[-1], job.peer[-1])
        else:
            node.core.faults.delete(FaultKind.DROP)


def cut_rail(node: Node, here: str, there: str) -> None:
    """Let each send from or to that rail fail as it would if the rail were gone."""
    for source, dest, status in (
        (ANY_NID, Nid.parse(there), HealthStatus.REMOTE_DROPPED),
        (Nid.parse(here), ANY_NID, HealthStatus.LOCAL_TIMEOUT),
    ):
        node.core.faults.add(Fault(FaultKind.DROP, source, dest, rate=1, health=1 << status))


async def _receive(node: Node, job: Job) -> None:
    ends = {Nid.parse(there): Nid.parse(here) for here, there in zip(job.nids, job.peer, strict=True)}
    receiver = FileReceiver(node, Path(job.path), job.size, ends if job.bond else None)
    _tell(state="ready")

    def progress() -> None:
        rails = {str(nid): count for nid, count in receiver.bytes_by_rail.items()}
        _tell(state="moving", received=receiver.received, rails=rails)

    await _beating(receiver.finished(), progress)
    progress()
    await _done(node, job)


async def _send(node: Node, job: Job) -> None:
    target = Nid.parse(job.peer[0])
    if job.bond:
        target = Nid.of(Net.of(NetType.BOND), Nid.parse(job.peer[-1]).address)
    else:
        await _connect(node, job)
    sender = FileSender(node, target, Path(job.path), len(job.nids), pace=job.pace)
    started = time.monotonic()
    await _beating(sender.run(), lambda: _tell(state="moving", sent=sender.sent, health=_health(node, job)))
    await _done(node, job, seconds=time.monotonic() - started)


async def _connect(node: Node, job: Job) -> None:
    """Each rail has its connection before shares are counted: on a busy machine one may come late."""
    for here, there in zip(job.nids, job.peer, strict=True):
        with suppress(LNetError):
            await node.ping(there, source=here)


async def _done(node: Node, job: Job, **more: float) -> None:
    cpu = _cpu_seconds()
    digest = await asyncio.to_thread(_sha256, Path(job.path))
    resends = node.core.stats.resend_count
    statistics = await _statistics(node, job)
    _tell(state="done", digest=digest, statistics=statistics, resends=resends, cpu=cpu, **more)


def _health(node: Node, job: Job) -> list[tuple[int, int, str]]:
    """Of each rail: the value of its near end, that of its far end, and the near end's state."""
    core = node.core
    found = []
    for here, there in zip(job.nids, job.peer, strict=True):
        ni, pni = core.nis[Nid.parse(here)], core.peers.find_ni(Nid.parse(there))
        found.append((ni.health, pni.health if pni is not None else 0, ni.state.value))
    return found


async def _beating(work: Coroutine[Any, Any, None], beat: Callable[[], None]) -> None:
    task = asyncio.create_task(work)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=_BEAT)
            beat()
        await task
    finally:
        task.cancel()


async def _statistics(node: Node, job: Job) -> str:
    """What `lnetctl net show --net NET -v` would print, of each net."""
    documents = []
    for net in dict.fromkeys(nid.partition("@")[2] for nid in job.nids):
        shown = await Admin(node).handle(NetShow(net=net, verbosity=1))
        documents.append(emit_document(msgspec.to_builtins(shown.document)))
    return "\n".join(documents)


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
