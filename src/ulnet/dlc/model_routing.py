"""Requests about routes and forwarding (spec lnetctl.md §1 route, §4)."""

from __future__ import annotations

from typing import ClassVar

from ulnet.dlc.request import BaseRequest, Verbosity

__all__ = ["BuffersSet", "RouteAdd", "RouteDel", "RouteShow", "RouterSet", "RoutingSet", "RoutingShow"]


class RouteAdd(BaseRequest, tag="route.add"):
    """A net is reached through gateways; `gateway` may be a range or a list, hop -1 is undefined.

    With `replace` a route that is there gets this hop and priority. `shared`: all nodes of a cluster have the
    same text, so what is not for this one is passed over, and a node whose own NID is a gateway begins to
    route; `as_told`: another request says whether it routes.
    """

    verb = "add"
    entity = "route"
    net: str
    gateway: str
    hop: int = -1
    priority: int = 0
    health_sensitivity: int = 1
    replace: bool = False
    shared: bool = False
    as_told: bool = False


class RouteDel(BaseRequest, tag="route.del"):
    """Delete routes to a net through gateways."""

    verb = "del"
    entity = "route"
    net: str
    gateway: str


class RouteShow(BaseRequest, tag="route.show"):
    """Routes, filtered by what is given."""

    verb = "show"
    entity = "route"
    net: str | None = None
    gateway: str | None = None
    hop: int | None = None
    priority: int | None = None
    verbosity: Verbosity = 0


class RoutingSet(BaseRequest, tag="routing.set"):
    """Forward messages for others, or not."""

    verb: ClassVar[str] = "add"
    entity = "routing"
    enable: bool


class RouterSet(BaseRequest, tag="router.set"):
    """Settings of routing, all or none; names are those of the kernel's module parameters."""

    verb = "add"
    entity = "routing"
    values: dict[str, int]


class BuffersSet(BaseRequest, tag="buffers.set"):
    """How many router buffers of each size there are, over all CPTs; None keeps them."""

    verb = "add"
    entity = "buf"
    tiny: int | None = None
    small: int | None = None
    large: int | None = None


class RoutingShow(BaseRequest, tag="routing.show"):
    """Whether messages are forwarded, and the router buffers."""

    verb = "show"
    entity = "routing"
