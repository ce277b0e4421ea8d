"""ulnet with event handlers: each completion starts the next PUT; no task or future per message."""

from __future__ import annotations

from competitors import ulnet_base
from competitors.ulnet_base import CREDITS, UNDER_WAY, latencies_of, pump
from ulnet import Node
from work import Measured, Work

serve = ulnet_base.serve


def drive(work: Work, address: str) -> Measured:
    """See `ulnet_base.drive_with`."""
    return ulnet_base.drive_with(work, address, send)


async def send(node: Node, work: Work, count: int) -> list[int] | None:
    """Keep a window of messages under way."""
    if work.kind == "roundtrip":
        return await latencies_of(node, work, count)
    window = work.window
    if work.kind == "stream":
        window = min(CREDITS, max(UNDER_WAY // work.size, window))
    await pump(node, work, count, window)
    return None
