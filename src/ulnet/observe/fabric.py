"""Nodes, nets, rails and routes of a fabric as one picture, from what each node that is asked shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from ulnet.observe.live import Live, PeerRow, Rail, Rates
from ulnet.observe.rails import net_of

__all__ = ["picture"]

_MOST_PEERS: Final = 2000  # that are drawn though they are not asked


def picture(lives: Sequence[Live]) -> dict[str, Any]:
    """For the page: `nodes` with their rails, `nets`, and `routes`; numbers are rounded.

    A peer that no asked node is, is a node too, as its peers see it.
    """
    owners = {nid: live for live in lives for nid in live.rails}
    gateways = {nid for live in lives for nid in (route.gateway for route in live.routes)}
    nodes = [_asked(live, at, gateways) for at, live in enumerate(lives)]
    nodes += _peers(lives, owners, gateways)
    nets = {rail["net"]: None for node in nodes for rail in node["rails"]}
    routes: dict[tuple[str, str], bool] = {}
    for live in lives:
        for route in live.routes:
            key = (route.net, route.gateway)
            routes[key] = routes.get(key, False) or route.state != "down"
            nets.setdefault(route.net)
    return {
        "nodes": nodes,
        "nets": sorted(nets),
        "routes": [{"net": net, "gateway": nid, "up": up} for (net, nid), up in routes.items()],
    }


def _asked(live: Live, at: int, gateways: set[str]) -> dict[str, Any]:
    return {
        "id": f"n{at}",
        "name": live.name,
        "asked": True,
        "silent": live.silent,
        "why": live.missing.get("net", "") if live.silent else "",
        "router": live.routing or not gateways.isdisjoint(live.rails),
        "rails": [_rail(rail) for rail in live.rails.values()],
    }


def _rail(rail: Rail) -> dict[str, Any]:
    return {
        "nid": rail.nid,
        "net": rail.net,
        "if": rail.interface,
        "state": rail.state,
        "health": rail.health,
        "why": rail.why,
        "since": rail.since,
        "credits": rail.credits,
        "most": rail.credits_max,
        "low": rail.credits_low,
        "waiting": rail.waiting,
        "resent": rail.resent,
        "failed": rail.failed,
        **_traffic(rail.rates),
    }


def _traffic(rates: Rates) -> dict[str, Any]:
    known = (rates.sent_bytes, rates.received_bytes) != (None, None)
    return {"messages": round(rates.messages, 1), "bytes": round(rates.bytes) if known else None}


def _peers(lives: Sequence[Live], owners: dict[str, Live], gateways: set[str]) -> list[dict[str, Any]]:
    """Those that are not asked, by their primary NIDs; what several see of one is added up."""
    seen: dict[str, list[PeerRow]] = {}
    for live in lives:
        for peer in live.peers.values():
            if not any(nid in owners for nid in (peer.nid, *peer.nids)):
                seen.setdefault(peer.nid, []).append(peer)
    busiest = sorted(seen.items(), key=lambda item: -sum(peer.rates.messages for peer in item[1]))
    nodes = []
    for nid, rows in sorted(busiest[:_MOST_PEERS]):
        nids = dict.fromkeys(nid for row in rows for nid in row.nids)
        nodes.append(
            {
                "id": nid,
                "name": nid,
                "asked": False,
                "silent": False,
                "why": "",
                "router": not gateways.isdisjoint(nids),
                "rails": [_seen_rail(one, rows) for one in nids],
            }
        )
    return nodes


def _seen_rail(nid: str, rows: Sequence[PeerRow]) -> dict[str, Any]:
    each = [row.by_nid[nid] for row in rows if nid in row.by_nid]
    health = min((one for _, one in each if one is not None), default=None)
    unwell = health is not None and health < 1000
    total = Rates(
        sum(rates.sent or 0.0 for rates, _ in each),
        sum(rates.received or 0.0 for rates, _ in each),
        *(
            sum(known) if (known := [value for value in values if value is not None]) else None
            for values in zip(*((rates.sent_bytes, rates.received_bytes) for rates, _ in each), strict=True)
        ),
    )
    return {
        "nid": nid,
        "net": net_of(nid),
        "state": "unwell" if unwell else "up",
        "health": health,
        "why": f"health {health}" if unwell else "",
        **_traffic(total),
    }
