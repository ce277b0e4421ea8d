"""Whether a route can be used: pure functions of what is known of its gateway (spec routing.md §2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ulnet.core.routing.table import Route
from ulnet.nid import Net

__all__ = ["GatewayView", "Verdict", "cached_after_ping", "why_down"]


class GatewayView(NamedTuple):
    """A gateway as its last answers, its silence and its drivers' reports show it."""

    alive: bool  # its last check succeeded, or a message came over it since
    discovers: bool  # both sides do discovery: what it tells of itself is current
    forwards: bool  # it tells that it routes
    nets: Mapping[Net, bool]  # its nets, and whether any NI there is up


class Verdict(NamedTuple):
    """What a ping's answer says of a route."""

    alive: bool
    single_hop: bool


def why_down(route: Route, gateway: GatewayView, avoid_asym: bool) -> str:
    """Why the route cannot be used now, "" if it can."""
    if route.loops:
        return "routing loop"
    if not gateway.alive:
        return "gateway dead"
    if not gateway.discovers:
        return "" if route.alive else "gateway down when last pinged"
    if not gateway.nets.get(route.gateway.net, False):
        return f"gateway down on {route.gateway.net}"
    if avoid_asym and route.ends_there and not gateway.nets.get(route.net, False):
        return f"gateway down on {route.net}"
    return "" if gateway.forwards else "gateway does not route, or began to less than two minutes ago"


def cached_after_ping(route: Route, gateway: GatewayView, avoid_asym: bool) -> Verdict:
    """The route's `alive` and `single_hop` after its gateway answered a ping.

    A gateway that was seen on the net itself, and is not there any more, has lost it; it is no longer way.
    """
    if not (gateway.forwards and gateway.nets.get(route.gateway.net, False)):
        return Verdict(False, route.single_hop)
    single_hop = route.single_hop or route.net in gateway.nets
    if avoid_asym and (route.hops == 1 or single_hop):
        return Verdict(gateway.nets.get(route.net, False), single_hop)
    return Verdict(True, single_hop)
