"""Messages for others: received into a router buffer, sent on with their header kept (spec routing.md §6).

The payload is written once, by the driver that receives it, and read once, by the one that sends it on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ulnet.core.msg import Incoming, Msg, Transit
from ulnet.core.ni import MAX_HEALTH, NI
from ulnet.core.peer import PeerNi, may_be_peer
from ulnet.core.routing.choose import RoutedSelector
from ulnet.core.routing.gateways import Gateways
from ulnet.core.routing.router import OVERDUE, Router
from ulnet.core.routing.table import Route
from ulnet.core.selection import Selector
from ulnet.core.selection.criteria import is_stalled
from ulnet.core.selection.paths import Key
from ulnet.core.sender import Sender
from ulnet.core.state import NodeState
from ulnet.core.states import PeerNiState
from ulnet.core.status import HealthStatus, LNetError
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.lnet import Header

if TYPE_CHECKING:
    from ulnet.core.lnd import Payload

__all__ = ["DEAD", "Forwarding"]

_TRANSIT: Final = -2  # the kind of paths of messages that pass through
DEAD: Final = "its next hop is known to be down (peer_timeout)"
_NOT_A_ROUTER: Final = "not for this node, and routing is disabled"


class Forwarding:
    """What passes through one node.

    Every drop is counted by its reason, and gives back what the message held. `tell` pushes ping info anew.
    `came_back` and `suspect` are told what may go round (`ulnet.control.loops`).
    """

    # fmt: off
    __slots__ = ("_came_back", "_gateways", "_held", "_routed", "_router", "_selector", "_sender", "_state",
                 "_suspect")
    # fmt: on

    def __init__(
        self,
        state: NodeState,
        gateways: Gateways,
        selector: Selector,
        routed: RoutedSelector,
        came_back: Callable[[Header, Iterable[Route]], None],
        suspect: Callable[[Route, Nid, Nid, Nid], None],
        sender: Sender,
        tell: Callable[[], None],
    ) -> None:
        self._sender = sender
        self._state = state
        self._gateways = gateways
        self._selector = selector
        self._routed = routed
        self._router = Router(state, gateways.settings, self._admit, self._drop, tell)
        self._came_back = came_back
        self._suspect = suspect
        self._held: dict[object, Transit] = {}  # by their connection, which waits with them

    @property
    def router(self) -> Router:
        """The state of this node as a router."""
        return self._router

    # In --------------------------------------------------------------------------------------------

    def take(self, ni: NI, hdr: Header, from_nid: Nid, rx: Payload) -> None:
        """A header came that names another node."""
        if not self._state.forwards:
            self._refuse(ni, hdr, rx, _NOT_A_ROUTER)
            return
        if hdr.src_nid in self._state.nis:
            self._came_back(hdr, self._gateways.usable(hdr.dest_nid.net))
            self._refuse(ni, hdr, rx, "it came from this node itself: a routing loop")
            return
        sender = self._state.peers.learn(from_nid)
        if sender is None:
            self._refuse(ni, hdr, rx, "too many unknown peers")
            return
        transit = Transit(ni, sender, hdr, from_nid, rx, self._state.local_cpt())
        transit.from_router = self._gateways.is_router(sender.peer)
        transit.beside = self._gateways.is_gateway(sender.peer)
        transit.deadline = self._state.clock() + self._state.settings.transaction_timeout
        for counted in (ni.stats, sender.stats):
            counted.received[hdr.type] += 1
            counted.received_bytes += hdr.payload_length
        sender.heard_at = self._state.clock()
        if hdr.payload_length:
            self._held[rx] = transit
        ni.refs += 1
        sender.refs += 1
        if not self._router.gate.enter(transit):
            self._held.pop(rx, None)
            self._forget(transit)
            self._refuse(ni, hdr, rx, "too many messages wait for router credits of their sender")

    def forget_rx(self, rx: object) -> None:
        """A connection died while its message waited here."""
        transit = self._held.pop(rx, None)
        if transit is not None:
            transit.rx = None
            self._drop(transit, "its connection closed while it waited for a router buffer")

    def _admit(self, transit: Transit) -> None:
        size = transit.hdr.payload_length
        if not size:
            self._set_out(transit, _out(transit))
            return
        del self._held[transit.rx]
        msg = Incoming(transit.hdr, transit.ni, transit.sender, transit.from_nid)
        msg.transit = transit
        rx, transit.rx = transit.rx, None
        msg.rx = rx
        self._sender.count(1)
        assert transit.buffer is not None
        assert rx is not None
        rx.take(msg, [memoryview(transit.buffer)[:size]], size, size)

    def received(self, msg: Incoming, status: HealthStatus) -> None:
        """A payload is in its router buffer, or will never be."""
        transit = msg.transit
        assert transit is not None
        self._state.stats.msgs_alloc -= 1
        if status:
            self._drop(transit, "its connection failed on the way into the router")
            return
        out = _out(transit)
        assert transit.buffer is not None
        out.payload = [memoryview(transit.buffer)[: transit.hdr.payload_length]]
        self._set_out(transit, out)

    # Out -------------------------------------------------------------------------------------------

    def _set_out(self, transit: Transit, msg: Msg) -> None:
        msg.transit = transit
        self._sender.count(1)
        why = self.launch(msg)
        if why:
            self._state.stats.msgs_alloc -= 1
            self._drop(transit, why)

    def launch(self, msg: Msg) -> str:
        """Send a message on, for the first time or again; "" or why it cannot be."""
        transit, hdr = msg.transit, msg.hdr
        assert transit is not None
        transit.why = self._try_launch(msg, transit, hdr)
        return transit.why

    def _try_launch(self, msg: Msg, transit: Transit, hdr: Header) -> str:
        if not self._state.forwards:
            return "routing was disabled while it passed"
        if self._state.clock() > transit.deadline:
            return OVERDUE
        dest = self._state.peers.learn(hdr.dest_nid, for_others=True)
        if dest is None:
            return "too many unknown peers" if may_be_peer(hdr.dest_nid) else "its destination is no node"
        try:
            ni, pni, final = self._path(transit, dest, hdr)
        except LNetError:
            return "no route from here"
        if self._is_dead(ni, pni):
            return DEAD
        if final and hdr.dest_nid != pni.nid:
            hdr = msg.hdr = transit.hdr = hdr.copy()  # the driver keeps it for messages like this one
            hdr.dest_nid = pni.nid
        self._sender.send_on(msg, ni, pni, hdr.dest_pid if final else LNET_PID)
        return ""

    def _is_dead(self, ni: NI, pni: PeerNi) -> bool:
        """Whether a next hop failed lately and was not heard since: what went there would hold its buffer."""
        if pni.state is not PeerNiState.FAILED or pni.heard_at >= pni.failed_at:
            return False
        return self._state.clock() - pni.failed_at < ni.tunables.peer_timeout

    def _path(self, transit: Transit, dest: PeerNi, hdr: Header) -> tuple[NI, PeerNi, bool]:
        """The way on from here, and whether it is the last hop."""
        size = hdr.payload_length
        if dest.nid.net in self._state.nets:
            bound = not self._may_redirect(dest, hdr)
            key = Key(_TRANSIT, bound=bound, ping=True, pid=LNET_PID, cpt=transit.cpt)
            path = self._selector.choose(dest, key, size)
            return path.ni, path.peer_ni, True
        routed = self._routed.choose(
            dest, bound=True, ping=True, size=size, cpt=transit.cpt, not_over=transit.sender.peer
        )
        self._routed.took(routed.final, routed.route, 1)
        if routed.route is not None and transit.from_nid != hdr.src_nid:
            self._suspect(routed.route, routed.ni.nid, routed.peer_ni.nid, dest.nid)
        return routed.ni, routed.peer_ni, routed.final is routed.peer_ni

    def _may_redirect(self, dest: PeerNi, hdr: Header) -> bool:
        """Whether another NI of the peer may get it: both ends know of rails, and that one is not well."""
        if not dest.peer.multi_rail:
            return False
        if dest.health == MAX_HEALTH and not dest.said_down and not self._is_stalled(dest):
            return False
        origin = self._state.peers.find(hdr.src_nid)
        return origin is not None and origin.multi_rail

    def _is_stalled(self, dest: PeerNi) -> bool:
        """Whether no path from here to that NID makes progress."""
        usable = [ni for ni in self._state.nets[dest.nid.net].nis if ni.open and not ni.fatal]
        return bool(dest.path_loads) and all(is_stalled(ni, dest) for ni in usable)

    def sent(self, msg: Msg, status: HealthStatus) -> None:
        """A message was sent on, or could not be."""
        transit = msg.transit
        assert transit is not None
        if status:
            self._drop(transit, transit.why or "the next hop could not be reached")
            return
        stats = self._state.stats
        stats.route_count += 1
        stats.route_length += msg.hdr.payload_length
        assert msg.ni is not None
        assert msg.peer_ni is not None
        for counted in (msg.ni.stats, msg.peer_ni.stats):
            counted.sent[msg.hdr.type] += 1
            counted.sent_bytes += msg.hdr.payload_length
        self._forget(transit)
        self._router.gate.leave(transit)

    # Drops -----------------------------------------------------------------------------------------

    def _drop(self, transit: Transit, why: str) -> None:
        """End a message wherever it is on its way."""
        if transit.hdr.payload_length and transit.rx is not None:
            del self._held[transit.rx]
        rx, transit.rx = transit.rx, None
        self._refuse(transit.ni, transit.hdr, rx, why)
        self._forget(transit)
        self._router.gate.leave(transit)

    def _forget(self, transit: Transit) -> None:
        transit.ni.refs -= 1
        transit.sender.refs -= 1

    def _refuse(self, ni: NI, hdr: Header, rx: Payload | None, why: str) -> None:
        """Count a message that goes nowhere; its payload is still read off the connection."""
        self._state.drops.count(ni, None, hdr, why)
        if hdr.payload_length and rx is not None:
            rx.take(None, [], 0, hdr.payload_length)


def _out(transit: Transit) -> Msg:
    """The message as it is sent on."""
    msg = Msg(transit.hdr)
    msg.wmd = transit.hdr.wmd
    return msg
