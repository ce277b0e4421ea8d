"""How far NIDs are from a node (LNetDist): which of a peer's NIDs is the nearest."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import NamedTuple

from ulnet.control.view import View
from ulnet.core.status import LNetError
from ulnet.nid import LO_NID, Net, Nid

__all__ = ["Distance", "by_distance", "distance_to"]


class Distance(NamedTuple):
    """`hops`: 0 for a NID of this node, 1 on a net of this node, more over gateways.

    `order` breaks ties between equals: the place of the net among this node's nets. `source` is the NID
    that a message leaves from as a rule.
    """

    nid: Nid
    hops: int
    order: int
    source: Nid


def distance_to(core: View, nid: Nid) -> Distance:
    """How far a NID is. Raises LNetError(EHOSTUNREACH): no net of this node, and no route that is up."""
    nets = list(core.nets)
    if nid == LO_NID or nid in core.nis:
        return Distance(nid, 0, nets.index(nid.net), nid)
    if nid.net in core.nets:
        return Distance(nid, 1, nets.index(nid.net), _source(core, nid.net))
    found = [
        route for route in core.gateways.table.to(nid.net) if route.alive and route.gateway.net in core.nets
    ]
    if not found:
        text = f"{nid} is out of reach: net {nid.net} is none of this node's and has no route that is up"
        text += "; add an NI there, or a route with 'lnetctl route add'"
        raise LNetError(errno.EHOSTUNREACH, text)
    best = min(found, key=lambda route: (route.distance, route.priority, nets.index(route.gateway.net)))
    near = best.gateway.net
    return Distance(nid, best.distance + 1, nets.index(near), _source(core, near))


def by_distance(core: View, nids: Iterable[Nid]) -> list[Distance]:
    """The NIDs that can be reached, the nearest first. Raises LNetError(EHOSTUNREACH) where there is none."""
    found: list[Distance] = []
    why = LNetError(errno.EINVAL, "no NID is named: write one or more, such as 10.0.0.2@tcp")
    for nid in nids:
        try:
            found.append(distance_to(core, nid))
        except LNetError as refused:
            why = refused
    if not found:
        raise why
    return sorted(found, key=lambda one: (one.hops, one.order))


def _source(core: View, net: Net) -> Nid:
    """The first NI of a net that is up, else the first."""
    nis = core.nets[net].nis
    return next((ni.nid for ni in nis if ni.up), nis[0].nid)
