"""`ping` (spec lnetctl.md §5): many at once, answers in the order asked; how far NIDs are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from ulnet.control.view import View
from ulnet.core.status import LNetError, errno_text
from ulnet.dlc.documents import DistanceView, NidItem, PingDocument, PingView
from ulnet.dlc.errors import ErrorItem
from ulnet.dlc.model import PINGS_AT_ONCE, Distances, Ping
from ulnet.dlc.protocol import Answer
from ulnet.nid import Nid
from ulnet.node.admin.managed import ManagedNode
from ulnet.node.admin.names import assumed, one_nid, read_nids, reading_nids
from ulnet.node.distances import by_distance

__all__ = ["ping_all", "show_distances", "why"]


async def ping_all(node: ManagedNode, request: Ping) -> Answer:
    """Ping every NID of the request. Raises LNetError(EINVAL) before the first if one is not a NID."""
    targets = read_nids(request.nids)
    source = one_nid(request.source) if request.source is not None else None
    turn = asyncio.Semaphore(PINGS_AT_ONCE)

    async def one(target: Nid) -> PingView | ErrorItem:
        async with turn:
            return await _ping(node, target, source, request)

    results = await asyncio.gather(*map(one, targets))
    errors = [result for result in results if isinstance(result, ErrorItem)]
    return Answer(
        PingDocument([result for result in results if isinstance(result, PingView)]),
        errors,
        assumed(request.nids) if errors else [],
    )


async def _ping(node: ManagedNode, target: Nid, source: Nid | None, request: Ping) -> PingView | ErrorItem:
    try:
        result = await node.ping(target, timeout=request.timeout, source=source)
    except LNetError as failed:
        text = f"failed to ping {target}: {why(failed, target)}"
        return ErrorItem(request.verb, request.entity, -failed.errno, text)
    peer = node.core.peers.find(target) if node.running and not target.is_lo else None
    primary = target if peer is None else peer.primary_nid  # as far as it is known: a ping discovers nobody
    multi_rail = peer is not None and peer.multi_rail
    return PingView(str(primary), multi_rail, [NidItem(str(nid)) for nid in result.nids])


def why(failed: LNetError, target: Nid) -> str:
    """The errno's words as the real tool prints them, then the reason if it says more."""
    words = errno_text(failed.errno)
    reason = failed.text.removeprefix(f"{target}: ")
    if reason.casefold().startswith(words.casefold()):
        return words + reason[len(words) :]
    return f"{words} ({reason})"


def show_distances(core: View, request: Distances) -> Iterator[DistanceView | None]:
    """The nearest first. Raises LNetError: EINVAL, EHOSTUNREACH."""
    nids: dict[Nid, None] = {}
    yield from reading_nids(request.nids, nids)
    for one in by_distance(core, nids):
        yield DistanceView(str(one.nid), one.hops, str(one.source))
