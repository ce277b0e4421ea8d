"""Routing loops: LNet counts no hops, so what goes round would do so until somebody changes the routes.

Two routers that send to each other are found at once: nothing goes back to the node that it came from.
Longer loops are found by a probe: a router that passes on a message from another router, to one more
router, now and then also sends a ping of its own that way. If that comes back to be passed on, the route
is not used until the next probe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ulnet.core.event import Event
from ulnet.core.lines import Line
from ulnet.core.md import TRUNCATE, Md
from ulnet.core.memory import Memory
from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi
from ulnet.core.routing.table import Route
from ulnet.core.sender import Sender
from ulnet.core.state import NodeState
from ulnet.core.status import LNetError
from ulnet.nid import Net, Nid
from ulnet.wire.lnet import PING_MATCH_BITS, PING_PORTAL

__all__ = ["Loops"]

_INTERVAL: Final = 60.0  # seconds between probes of a route, and for which one that loops is not used
_PATIENCE: Final = 5.0  # seconds; what has not come back by then does not go round
_INFO_SIZE: Final = 272


class Loops:
    """Finds routes that lead back here. `changed` is told when one begins to or ends."""

    __slots__ = ("_changed", "_memory", "_probed_at", "_probes", "_sender", "_state")

    def __init__(self, state: NodeState, memory: Memory, sender: Sender, changed: Callable[[], None]) -> None:
        self._state = state
        self._memory = memory
        self._sender = sender
        self._changed: Callable[[], None] = changed
        self._probes: dict[Net, Route] = {}  # under way, by the net they go to
        self._probed_at: dict[Route, float] = {}

    def suspect(self, route: Route, ni: NI, pni: PeerNi, dest: Nid) -> None:
        """A message of one router goes on to another one by this route: see whether that leads back."""
        now = self._state.clock()
        if route.net in self._probes or now - self._probed_at.get(route, -_INTERVAL) < _INTERVAL:
            return
        self._probed_at[route] = now
        self._probes[route.net] = route
        md = self._memory.md_bind(bytearray(_INFO_SIZE), _ignore, threshold=2, options=TRUNCATE)
        self._state.timers.at(now + _PATIENCE, lambda: self._end(route.net, md))
        try:
            self._sender.get(md, dest, PING_PORTAL, PING_MATCH_BITS, source=ni.nid, via=pni.nid)
        except LNetError:
            pass  # the node shuts down: the timer tidies up

    def _end(self, net: Net, md: Md) -> None:
        self._probes.pop(net, None)
        if md.linked:
            self._memory.md_unlink(md)

    def came_back(self, net: Net, routes: list[Route]) -> None:
        """A message of this node to that net came back to be passed on, by one of `routes`."""
        route = self._probes.get(net)
        if route is None and len(routes) == 1:
            route = routes[0]
        if route is None or route.loops:
            return
        route.loops = True
        text = f"routing loop: what goes to {net} over {route.gateway} comes back to this node"
        self._state.report(Line("route.loop", text, net=net, nid=route.gateway))
        self._state.timers.at(self._state.clock() + _INTERVAL, lambda: self._try_again(route))
        self._changed()

    def _try_again(self, route: Route) -> None:
        route.loops = False
        self._changed()


def _ignore(event: Event) -> None:
    """Whatever the answer is: only what comes back matters."""
