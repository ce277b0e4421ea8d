"""The words of `route` and `routing`, and the settings of a router, as tables (spec lnetctl.md §1, §2)."""

from __future__ import annotations

from ulnet.cli.lnetctl_words import Command, Option

__all__ = ["ROUTER_SETTINGS", "ROUTES"]

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
    ),
    Command(
        ("route", "del"),
        "delete routes",
        (_NET, _GATEWAY),
        examples=(f"lnetctl route del {_EXAMPLE}",),
        action="route_del",
    ),
    Command(
        ("route", "show"),
        "show routes",
        (
            _NET,
            _GATEWAY,
            Option("hop", "only routes of that many hops", "N", kind="number"),
            Option("priority", "only routes of that priority", "N", "p", "number"),
            Option("verbose", "also hops, priority, state and type", "LEVEL", "v", "level"),
        ),
        examples=("lnetctl route show -v --net tcp1",),
        action="route_show",
    ),
    Command(
        ("routing", "show"),
        "show whether this node routes, and its router buffers",
        examples=("lnetctl routing show",),
        action="routing_show",
    ),
)

ROUTER_SETTINGS = {
    "routing": "forward messages for others: 1, or 0 no more",
    "alive_router_check_interval": "seconds between checks of a gateway on a net (60); 0: only before use",
    "router_ping_timeout": "seconds for a gateway to answer, and more until a net without pings is down (50)",
    "check_routers_before_use": "take gateways for down until they were checked: 1, or 0 not to",
    "avoid_asym_router_failure": "use no gateway that lost the net behind it: 1, or 0 not to look",
    "router_peer_credits": "messages of one peer that may pass through at once; 0: its peer_credits",
    "tiny_buffers": "how many messages without payload may pass through at once; 0: 2048",
    "small_buffers": "how many messages of up to 4096 bytes; 0: 16384",
    "large_buffers": "how many messages of up to 1 MiB; 0: 1024",
}
