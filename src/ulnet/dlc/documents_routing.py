"""Routes and router buffers as `route show` and `routing show` print them (spec lnetctl.md §5)."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

__all__ = ["BufferView", "RouteDocument", "RouteView", "RoutingDocument"]


class RouteView(Struct):
    """One route; all but the first two from verbosity 1 on."""

    net: str
    gateway: str
    hop: int | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    state: str | UnsetType = UNSET
    type: str | UnsetType = UNSET


class RouteDocument(Struct):
    """`route show`."""

    route: list[RouteView]


class BufferView(Struct):
    """One pool of router buffers."""

    npages: int
    nbuffers: int
    credits: int
    mincredits: int


class RoutingDocument(Struct, rename={"seconds_left": "seconds left"}):
    """`routing show`: the pools of each CPT and the state, then the numbers of buffers; empty before any.

    `seconds_left`: until routing has started, or has stopped at the latest.
    """

    routing: list[dict[str, int | dict[str, BufferView]]] = []
    buffers: dict[str, int] = {}
    seconds_left: int | UnsetType = UNSET
