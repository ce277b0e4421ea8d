"""The words of `route` and `routing` as tables (spec lnetctl.md §1, §2)."""

from __future__ import annotations

from ulnet.cli.lnetctl_words import Command, Option

__all__ = ["ROUTES"]

_NET = Option("net", "the net that is reached so, such as tcp1", "NET", "n")
_GATEWAY = Option("gateway", "NIDs of gateways on nets of this node, also ranges", "NIDS", "g")
_HOP = Option("hop", "nodes to the net's other end, 1 to 255 (undefined: counts as 1)", "N", kind="number")
_PRIORITY = Option("priority", "0, the best, which is the default, and up", "N", "p", "number")
_EXAMPLE = "--net tcp1 --gateway 10.0.0.[9-10]@tcp"

ROUTES = (
    Command(
        ("route", "add"),
        "reach a net through gateways",
        (
            _NET,
            _GATEWAY,
            _HOP,
            Option("hop-count", "the same as --hop", "N", kind="number"),
            _PRIORITY,
            Option("health_sensitivity", "deprecated: 1 or more; changes nothing", "N", kind="number"),
        ),
        examples=(f"lnetctl route add {_EXAMPLE}",),
        action="route_add",
        request="RouteAdd",
    ),
    Command(
        ("route", "del"),
        "delete routes",
        (_NET, _GATEWAY),
        examples=(f"lnetctl route del {_EXAMPLE}",),
        action="route_del",
        request="RouteDel",
    ),
    Command(
        ("route", "show"),
        "show routes",
        (
            _NET,
            _GATEWAY,
            Option("hop", "only routes of that many hops", "N", kind="number"),
            Option("priority", "only routes of that priority", "N", "p", "number"),
            Option("verbose", "also hops, priority, state and type", "LEVEL", "v", "level", "verbosity"),
        ),
        examples=("lnetctl route show -v --net tcp1",),
        request="RouteShow",
    ),
    Command(
        ("routing", "show"),
        "show whether this node routes, and its router buffers",
        examples=("lnetctl routing show",),
        action="routing_show",
        request="RoutingShow",
    ),
)
