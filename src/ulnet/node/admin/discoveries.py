"""`discover` (spec lnetctl.md §5): many at once, answers in the order asked."""

from __future__ import annotations

import asyncio

from ulnet.control.discovery.merging import differences
from ulnet.core.status import LNetError
from ulnet.dlc.documents import DiscoverDocument, DiscoverView, NidItem
from ulnet.dlc.errors import ErrorItem
from ulnet.dlc.model import PINGS_AT_ONCE, Discover
from ulnet.dlc.protocol import Answer
from ulnet.nid import Nid
from ulnet.node.admin.managed import ManagedNode
from ulnet.node.admin.names import assumed, read_nids
from ulnet.node.admin.pings import why

__all__ = ["discover_all"]


async def discover_all(node: ManagedNode, request: Discover) -> Answer:
    """Discover or verify every NID. Raises LNetError(EINVAL) before the first if one is not a NID."""
    targets = read_nids(request.nids)
    turn = asyncio.Semaphore(PINGS_AT_ONCE)
    work = _verify if request.verify else _discover

    async def one(target: Nid) -> DiscoverView | ErrorItem:
        async with turn:
            try:
                return await work(node, target, request)
            except LNetError as failed:
                text = f"failed to discover {target}: {why(failed, target)}"
                return ErrorItem(request.verb, request.entity, -failed.errno, text)

    results = await asyncio.gather(*map(one, targets))
    errors = [result for result in results if isinstance(result, ErrorItem)]
    return Answer(
        DiscoverDocument([result for result in results if isinstance(result, DiscoverView)]),
        errors,
        assumed(request.nids) if errors else [],
    )


async def _discover(node: ManagedNode, target: Nid, request: Discover) -> DiscoverView:
    peer = await node.discover(target, force=request.force, timeout=request.timeout)
    return DiscoverView(str(peer.primary_nid), peer.multi_rail, [NidItem(str(nid)) for nid in peer.nids()])


async def _verify(node: ManagedNode, target: Nid, request: Discover) -> DiscoverView:
    """Ask the peer, and compare; what is held of it stays as it is."""
    answer = await node.ping(target, timeout=request.timeout)
    peers = node.core.peers
    peer = peers.find(target)
    view = DiscoverView(str(answer.primary_nid), bool(answer.features & answer.features.MULTI_RAIL), [])
    view.peer_ni = [NidItem(str(nid)) for nid in answer.nids]
    if peer is not None:
        view.multi_rail = peer.multi_rail
        view.differences = differences(peers, peer, answer.info, answer.primary_nid)
    return view
