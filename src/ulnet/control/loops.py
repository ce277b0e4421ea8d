"""Routing loops: LNet counts no hops, so what goes round would do so until somebody changes the routes.

Two routers that send to each other are found at once: nothing goes back to the node that it came from.
Longer loops are found by probes: a router that passes on a message from another router, to one more
router, now and then also sends a ping of its own that way. So does a node to which a message in its own name
comes to be passed on. If the ping comes back, a second one follows, and if that comes back, too, the route is
not used until the next probe.

Anybody can send in this node's name, and who is where a ping goes to knows all of it. So the second one goes
to a NID of the same net that this node makes up, with match bits that it makes up, too: only routers that
send it round can bring that back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Final

from ulnet.core.event import Event
from ulnet.core.lines import Line
from ulnet.core.md import TRUNCATE, Md
from ulnet.core.memory import Memory
from ulnet.core.routing.table import Route
from ulnet.core.sender import Sender
from ulnet.core.state import NodeState
from ulnet.core.status import LNetError
from ulnet.nid import Net, Nid
from ulnet.wire.lnet import PING_MATCH_BITS, PING_PORTAL, Header

__all__ = ["Loops"]

_INTERVAL: Final = 60.0  # seconds between probes of a route, and for which one that loops is not used
_PATIENCE: Final = 5.0  # seconds; what has not come back by then does not go round
_INFO_SIZE: Final = 272


class Probe:
    """A ping under way over `route`: by which NIDs of this node and the gateway, and what its header has."""

    __slots__ = ("bits", "dest", "last", "md", "route", "source", "via")

    def __init__(self, route: Route, source: Nid, via: Nid, md: Md, dest: Nid, bits: int, last: bool) -> None:
        self.route: Route = route
        self.source: Nid = source
        self.via: Nid = via
        self.md: Md = md
        self.dest: Nid = dest
        self.bits: int = bits
        self.last: bool = last  # nobody else knows where it goes


class Loops:
    """Finds routes that lead back here. `changed` is told when one begins to or ends."""

    __slots__ = ("_changed", "_memory", "_probed_at", "_probes", "_sender", "_state")

    def __init__(self, state: NodeState, memory: Memory, sender: Sender, changed: Callable[[], None]) -> None:
        self._state = state
        self._memory = memory
        self._sender = sender
        self._changed: Callable[[], None] = changed
        self._probes: dict[Net, Probe] = {}  # under way, by the net they go to
        self._probed_at: dict[Route, float] = {}

    def suspect(self, route: Route, source: Nid, via: Nid, dest: Nid) -> None:
        """What goes to `dest` by this route may come back: see whether it does."""
        now = self._state.clock()
        if route.net in self._probes or now - self._probed_at.get(route, -_INTERVAL) < _INTERVAL:
            return
        self._probed_at[route] = now
        self._ask(Probe(route, source, via, self._new_md(), dest, PING_MATCH_BITS, last=False))

    def _new_md(self) -> Md:
        return self._memory.md_bind(bytearray(_INFO_SIZE), _ignore, threshold=2, options=TRUNCATE)

    def _ask(self, probe: Probe) -> None:
        self._probes[probe.route.net] = probe
        self._state.timers.at(self._state.clock() + _PATIENCE, lambda: self._end(probe))
        try:
            self._sender.get(
                probe.md, probe.dest, PING_PORTAL, probe.bits, source=probe.source, via=probe.via
            )
        except LNetError:
            pass  # the node shuts down: the timer tidies up

    def _ask_again(self, first: Probe) -> None:
        """The same way, to where nobody expects it."""
        md, key = self._new_md(), self._state.secret
        chance = blake2b(md.handle.to_bytes(8, "big"), digest_size=11, key=key, person=b"loop").digest()
        dest = Nid.of(first.route.net, b"\n" + chance[:3])  # 10.0.0.0/8: not out into the Internet
        bits = int.from_bytes(chance[3:], "big")
        self._ask(Probe(first.route, first.source, first.via, md, dest, bits, last=True))

    def _end(self, probe: Probe) -> None:
        if self._probes.get(probe.route.net) is probe:
            del self._probes[probe.route.net]
        if probe.md.linked:
            self._memory.md_unlink(probe.md)

    def came_back(self, hdr: Header, routes: Iterable[Route]) -> None:
        """A message in the name of this node came to be passed on; `routes` lead where it is to go."""
        dest = hdr.dest_nid
        probe = self._probes.get(dest.net)
        if probe is None:
            for route in routes:
                net = self._state.nets.get(route.gateway.net)
                nis = [ni for ni in net.nis if ni.open and not ni.fatal] if net is not None else None
                if nis:
                    self.suspect(route, nis[0].nid, route.gateway, dest)
            return
        told = (dest, hdr.match_bits, self._memory.find_wmd(hdr.wmd))
        if told == (probe.dest, probe.bits, probe.md):
            self._end(probe)
            if probe.last:
                self._found(probe.route)
            else:
                self._ask_again(probe)

    def _found(self, route: Route) -> None:
        route.loops = True
        text = f"routing loop: what goes to {route.net} over {route.gateway} comes back to this node"
        self._state.report(Line("route.loop", text, net=route.net, nid=route.gateway))
        self._state.timers.at(self._state.clock() + _INTERVAL, lambda: self._try_again(route))
        self._changed()

    def _try_again(self, route: Route) -> None:
        route.loops = False
        self._changed()


def _ignore(event: Event) -> None:
    """Whatever the answer is: only what comes back matters."""
