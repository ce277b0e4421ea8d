"""A node as its documents show it, on paper: the real core with its tables, which sends nothing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from msgspec import to_builtins

from ulnet.dlc.config import read_config
from ulnet.dlc.errors import DlcError
from ulnet.dlc.model import Explain
from ulnet.dlc.yaml_out import emit_document
from ulnet.nid import Net, NetType, NidError
from ulnet.node.admin import Admin
from ulnet.node.dry_run import dry_run, invented_links, pretend_ni, pretend_peer_ni
from ulnet.observe.snapshot import PARTS, Snapshot, lines_of, records
from ulnet.observe.source import SocketSource, Source

__all__ = ["configuration", "explain", "explain_at", "on_paper"]

_MOST_CPTS = 256
_MOST_TEXT = 2000
_SECTIONS = ("net", "peer", "route", "settings", "udsp")


def configuration(snapshot: Snapshot) -> str:
    """What the node is, as a file that `lnetctl import` takes: peers that it learned are configured."""
    document: dict[str, Any] = {}
    own = {ni["nid"] for _, ni in snapshot.local_nis()} | {"0@lo"}
    for name in _SECTIONS:
        shown = snapshot.shown(name)
        if not shown:
            continue
        if name == "net":
            shown = [net for net in records(shown) if net.get("net type") != "lo"]
        elif name == "peer":
            others = [
                peer for peer in records(shown) if own.isdisjoint(_nids(peer))
            ]  # kernels list themselves
            shown = [{key: peer[key] for key in peer if key != "peer state"} for peer in others]
        elif name == "route":
            shown = [route for route in records(shown) if route.get("state") != "down"]
        document[PARTS[name].key] = shown
    return emit_document(document)


@asynccontextmanager
async def on_paper(snapshot: Snapshot) -> AsyncIterator[tuple[Admin, list[str]]]:
    """The node, and what of it could not be taken over. Kernel nodes choose by the documents' criteria."""
    config = read_config(configuration(snapshot))
    nis = snapshot.local_nis()
    ours = any("load" in ni for _, ni in nis)
    cpts = [int(cpt) for _, ni in nis for cpt in re.findall(r"\d+", str(ni.get("CPT", ""))[:_MOST_TEXT])]
    requests = [step.request for step in config.steps]
    async with dry_run(
        invented_links(requests),
        cpts=max((cpt for cpt in cpts if cpt < _MOST_CPTS), default=0) + 1,
        nets=_types(net for net, _ in nis),
        balance="expected" if ours else "documents",
    ) as admin:
        notes = [item.descr for item in config.errors]
        notes += [item.descr for item in await admin.apply(config.steps)]
        core = admin.node.core
        for _, ni in nis:
            pretend_ni(core, str(ni["nid"]), health=_health(ni), down=ni.get("status") == "down")
        for _, ni in snapshot.peer_nis():
            credits, queued = _whole(ni, "available_tx_credits"), _whole(ni, "tx_q_num_of_buf")
            pretend_peer_ni(core, str(ni["nid"]), health=_health(ni), credits=credits, queued=queued)
        for route in records(snapshot.shown("route")):
            if route.get("state") == "down":
                way = f"{route.get('net')} by {route.get('gateway')}"
                notes.append(f"the route to {way} is down: it is left out")
        yield admin, notes


def explain_at(
    source: Source, request: Explain, timeout: float, shown: Snapshot | None = None
) -> tuple[dict[str, Any], list[str]]:
    """What the node would choose, as `lnetctl explain` tells it, and what of that is not sure.

    ulnet's nodes tell it themselves; of others `shown` is what they showed, if known. Raises ValueError.
    """
    if isinstance(source, SocketSource):
        return source.ask(request, timeout), []
    snapshot = shown or source.read(timeout)
    if not snapshot.up:
        raise ValueError(f"{snapshot.node} tells nothing: {snapshot.missing.get('net', 'it shows no nets')}")
    return asyncio.run(explain(snapshot, request))


async def explain(snapshot: Snapshot, request: Explain) -> tuple[dict[str, Any], list[str]]:
    """The same, worked out from what a node showed. Raises ValueError."""
    async with on_paper(snapshot) as (admin, notes):
        try:
            reply = await admin.handle(request)
        except DlcError as refused:
            raise ValueError("; ".join([refused.descr, *notes])) from None
    document: dict[str, Any] = to_builtins(reply.document)
    for stage in document["explain"]["stages"]:
        equal = [one["name"] for one in stage["candidates"] if one["outcome"] in ("chosen", "kept")]
        turns = any(name.endswith("sequence") for one in stage["candidates"] for name in one["values"])
        if turns and len(equal) > 1:
            notes.append(f"{' and '.join(equal)} take turns: whose it is no document tells")
    return document, notes


def _nids(peer: Mapping[str, Any]) -> set[str]:
    return {str(peer.get("primary nid")), *(str(ni.get("nid")) for ni in records(peer.get("peer ni")))}


def _types(nets: Any) -> set[NetType]:
    found = {NetType.TCP}
    for name in nets:
        try:
            found.add(NetType(Net.parse(name).type))
        except (NidError, ValueError):
            continue
    return found


def _health(ni: Mapping[str, Any]) -> int | None:
    value = _whole(lines_of(ni, "health stats"), "health value")
    return value if value is not None and 0 <= value <= 1000 else None


def _whole(lines: Mapping[str, Any], name: str) -> int | None:
    value = lines.get(name)
    return value if type(value) is int else None
