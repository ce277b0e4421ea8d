"""The routes: by which gateways other nets are reached (spec routing.md §1)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Final

from ulnet.core.status import LNetError
from ulnet.nid import LO_NET, Net, Nid
from ulnet.nid.net import ANY_NET

__all__ = ["MAX_HOPS", "MAX_ROUTES", "UNDEFINED_HOPS", "Route", "RouteTable", "check_numbers"]

UNDEFINED_HOPS: Final = -1
MAX_HOPS: Final = 255
MAX_ROUTES: Final = 65536
MAX_PRIORITY: Final = 2**31 - 1


class Route:
    """One way to a net: over a gateway, named by a NID on a local net.

    `alive` is what was last concluded of it; it decides only where the gateway cannot be discovered.
    `single_hop`: the gateway was seen to be on the net itself.
    """

    __slots__ = ("alive", "gateway", "hops", "loops", "net", "priority", "seq", "single_hop")

    def __init__(self, net: Net, gateway: Nid, hops: int = UNDEFINED_HOPS, priority: int = 0) -> None:
        self.net: Net = net
        self.gateway: Nid = gateway
        self.hops: int = hops
        self.priority: int = priority
        self.alive: bool = True
        self.single_hop: bool = False
        self.loops: bool = False  # what went that way was seen to come back
        self.seq: int = 0

    @property
    def distance(self) -> int:
        """Hops as they are compared: undefined ones count as one."""
        return self.hops if self.hops > 0 else 1

    @property
    def ends_there(self) -> bool:
        """Whether the gateway is on the net itself, by configuration or by what it tells."""
        return self.hops == 1 or self.single_hop


def check_numbers(hops: int, priority: int) -> None:
    """Whether a route can have these. Raises LNetError(EINVAL)."""
    if hops != UNDEFINED_HOPS and not 1 <= hops <= MAX_HOPS:
        raise LNetError(errno.EINVAL, f"hop {hops} is out of range: use 1 to {MAX_HOPS}, or leave it out")
    if not 0 <= priority <= MAX_PRIORITY:
        raise LNetError(
            errno.EINVAL, f"priority {priority} is out of range: use 0, the best, to {MAX_PRIORITY}"
        )


class RouteTable:
    """Routes by net, in an order that differs between nodes, so that these spread over gateways.

    `peer_of` tells which peer a NID belongs to (None: nobody's yet); `place(n)` picks one of n places.
    """

    __slots__ = ("_by_net", "_count", "_over", "_peer_of", "_place")

    def __init__(self, peer_of: Callable[[Nid], object], place: Callable[[int], int]) -> None:
        self._by_net: dict[Net, list[Route]] = {}
        self._over: dict[Nid, dict[Route, None]] = {}  # those of each gateway
        self._count = 0
        self._peer_of = peer_of
        self._place = place

    def __iter__(self) -> Iterator[Route]:
        return iter([route for routes in self._by_net.values() for route in routes])

    def __len__(self) -> int:
        return self._count

    def __contains__(self, net: object) -> bool:
        return net in self._by_net

    def to(self, net: Net) -> list[Route]:
        """The routes to a net."""
        return self._by_net.get(net, [])

    def over(self, gateway: Nid) -> Iterable[Route]:
        """The routes over a gateway, by the NID that they give it."""
        return self._over.get(gateway, ())

    def same_gateway(self, one: Nid, other: Nid) -> bool:
        """Whether both NIDs belong to one peer."""
        if one == other:
            return True
        peer = self._peer_of(one)
        return peer is not None and peer is self._peer_of(other)

    def check(self, route: Route, local_nets: Container[Net], own_nids: Container[Nid]) -> None:
        """Whether a route may be added. Raises LNetError: EINVAL, EEXIST, EHOSTUNREACH, ENOSPC."""
        net, gateway = route.net, route.gateway
        if net in (ANY_NET, LO_NET):
            raise LNetError(errno.EINVAL, f"there is no route to net {net}: name a net that others are on")
        if gateway.is_any or gateway.net == LO_NET:
            raise LNetError(errno.EINVAL, f"{gateway} cannot be a gateway: give the NID of another node")
        if gateway.net == net:
            raise LNetError(
                errno.EINVAL,
                f"gateway {gateway} is on net {net} itself: give its NID on a net that this node is on",
            )
        check_numbers(route.hops, route.priority)
        if net in local_nets:
            raise LNetError(errno.EEXIST, f"this node is on net {net} itself: no route to it is needed")
        if gateway.net not in local_nets:
            raise LNetError(
                errno.EHOSTUNREACH,
                f"no NI is on net {gateway.net} of gateway {gateway}: "
                "add one first, or give a NID of the gateway on a net of this node",
            )
        if gateway in own_nids:
            raise LNetError(errno.EINVAL, f"gateway {gateway} is this node itself: give another node's NID")
        if any(self.same_gateway(old.gateway, gateway) for old in self.to(net)):
            text = f"there is a route to {net} over the node of {gateway} already: "
            raise LNetError(errno.EEXIST, f"{text}delete it first to change its hops or priority")
        if len(self) >= MAX_ROUTES:
            text = f"there are {MAX_ROUTES} routes, as many as allowed: delete some first"
            raise LNetError(errno.ENOSPC, text)

    def insert(self, route: Route) -> None:
        """Add a route that was checked."""
        routes = self._by_net.setdefault(route.net, [])
        routes.insert(self._place(len(routes) + 1), route)
        self._over.setdefault(route.gateway, {})[route] = None
        self._count += 1

    def find(self, net: Net | None, gateway: Nid | None) -> list[Route]:
        """The routes to that net, over that gateway; None is any. Raises LNetError(ENOENT) for none."""
        if net is not None and net not in self._by_net:
            raise LNetError(errno.ENOENT, f"there is no route to {net}: see 'lnetctl route show'")
        found = [
            route
            for route in (self if net is None else self.to(net))
            if gateway is None or self.same_gateway(route.gateway, gateway)
        ]
        if not found:
            goal = "no route" if net is None else f"no route to {net}"
            over = "" if gateway is None else f" goes over {gateway}"
            raise LNetError(errno.ENOENT, f"{goal}{over or ' is there'}: see 'lnetctl route show'")
        return found

    def remove(self, route: Route) -> None:
        """Take a route out."""
        routes = self._by_net[route.net]
        routes.remove(route)
        over = self._over[route.gateway]
        del over[route]
        if not over:
            del self._over[route.gateway]
        self._count -= 1
        if not routes:
            del self._by_net[route.net]

    def drop_twins(self, gateways: Iterable[Nid]) -> list[Route]:
        """These were found to be one node: of its routes to one net the best stays; those that went."""
        by_net: dict[Net, list[Route]] = {}
        for gateway in gateways:
            for route in self.over(gateway):
                by_net.setdefault(route.net, []).append(route)
        gone: list[Route] = []
        for routes in by_net.values():
            best = min(routes, key=lambda route: (route.priority, route.distance))
            gone += [route for route in routes if route is not best]
        for route in gone:
            self.remove(route)
        return gone
