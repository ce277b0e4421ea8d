"""ulnet with awaitables: `await node.put(...)` in as many tasks as the window is wide."""

from __future__ import annotations

import asyncio

from competitors import ulnet_base
from competitors.ulnet_base import PORTAL, SERVER, latencies_of
from ulnet import Node
from ulnet.nid import Nid
from work import Measured, Work, payload_of

TASKS = 64  # for small messages

serve = ulnet_base.serve


def drive(work: Work, address: str) -> Measured:
    """See `ulnet_base.drive_with`."""
    return ulnet_base.drive_with(work, address, _send)


async def _send(node: Node, work: Work, count: int) -> list[int] | None:
    if work.kind == "roundtrip":
        return await latencies_of(node, work, count)
    payload = payload_of(work.size)
    to = Nid.parse(f"{SERVER}@tcp")
    ack = work.kind == "ack"
    numbers = iter(range(count))

    async def sender() -> None:
        for _ in numbers:
            await node.put(to, PORTAL, 1, payload, ack=ack)

    width = work.window if work.size >= 4096 else TASKS
    async with asyncio.TaskGroup() as tasks:
        for _ in range(width):
            tasks.create_task(sender())
    return None
