"""Routes, gateways, and the forwarding of messages for others (spec routing.md)."""

from ulnet.core.routing.pools import BufferPool
from ulnet.core.routing.settings import RoutingSettings
from ulnet.core.routing.state import RoutingState
from ulnet.core.routing.table import UNDEFINED_HOPS, Route, RouteTable, check_numbers

__all__ = [
    "UNDEFINED_HOPS",
    "BufferPool",
    "Route",
    "RouteTable",
    "RoutingSettings",
    "RoutingState",
    "check_numbers",
]
