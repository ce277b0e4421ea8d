"""Routing as one node has it: its parts, and where they meet the others (spec routing.md)."""

from __future__ import annotations

import errno
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from ulnet.control.loops import Loops
from ulnet.core.guard.identity import is_identity
from ulnet.core.memory import Memory
from ulnet.core.msg import Incoming, Msg
from ulnet.core.ni import MAX_HEALTH, NI
from ulnet.core.peer import Peer, PeerFlag, PeerNi
from ulnet.core.routing.choose import RoutedSelector
from ulnet.core.routing.forward import Forwarding
from ulnet.core.routing.gateways import Gateways
from ulnet.core.routing.router import Router
from ulnet.core.selection import Selector
from ulnet.core.state import NodeState
from ulnet.core.states import PeerNiState
from ulnet.core.status import HealthStatus, LNetError
from ulnet.nid import LO_NID, Net, Nid
from ulnet.wire.lnet import Header

if TYPE_CHECKING:
    from ulnet.control.discovery import Discovery
    from ulnet.control.health import Health
    from ulnet.control.self_info import SelfInfo
    from ulnet.core.lnd import Payload
    from ulnet.core.sender import Sender

__all__ = ["Routing"]

_UNDER_CHECK = int(PeerFlag.RTR_DISCOVERY)
_CHECKED = int(PeerFlag.RTR_DISCOVERED)
_SHARE: Final = 1 / 3  # of the time of a PUT: unanswered for so long it is copied over another gateway
_ASYMMETRIC: Final = "it came over a router that is no gateway to its net (drop_asym_route)"


class Routing:
    """Routes, their gateways, and what passes through this node."""

    __slots__ = (
        "_discovery",
        "_forwarding",
        "_health",
        "_info",
        "_memory",
        "_sender",
        "_state",
        "gateways",
        "paths",
    )

    def __init__(
        self,
        state: NodeState,
        selector: Selector,
        gateways: Gateways,
        paths: RoutedSelector,
        sender: Sender,
        discovery: Discovery,
        info: SelfInfo,
        health: Health,
        memory: Memory,
    ) -> None:
        self._state = state
        self._sender = sender
        self._discovery = discovery
        self._info = info
        self._health = health
        self._memory = memory
        self.gateways: Gateways = gateways
        self.paths: RoutedSelector = paths
        loops = Loops(state, memory, sender, gateways.routes_changed)
        self._forwarding = Forwarding(
            state, gateways, selector, paths, loops.came_back, loops.suspect, sender, self._tell
        )

    @property
    def router(self) -> Router:
        """The state of this node as a router."""
        return self._forwarding.router

    def forward(self, ni: NI, hdr: Header, from_nid: Nid, rx: Payload) -> None:
        """A header came that names another node."""
        self._forwarding.take(ni, hdr, from_nid, rx)
        hop = self._state.peers.find_ni(from_nid) if self._state.forwards else None
        if hop is not None and (ni.unhealthy or hop.unhealthy):
            self._health.heard(ni, hop)

    def received(self, incoming: Incoming, status: HealthStatus) -> None:
        """A payload is in its router buffer, or will never be."""
        self._forwarding.received(incoming, status)

    def passed_on(self, msg: Msg, status: HealthStatus) -> None:
        """A message was sent on, or could not be."""
        self._forwarding.sent(msg, status)

    def forget_rx(self, rx: object) -> None:
        """A connection died."""
        self._forwarding.forget_rx(rx)

    def close(self) -> None:
        """The node shuts down."""
        self.router.close()
        self.gateways.clear()

    # Sending ---------------------------------------------------------------------------------------

    def relay(self, msg: Msg) -> None:
        """Send a message on once more."""
        why = self._forwarding.launch(msg)
        if why:
            self._sender.fail(msg, errno.EHOSTUNREACH, why)

    def lost_behind(self, gateway: Nid, nets: Collection[Net] | None) -> None:
        """A gateway lost nets, or is dead (None): what waits for it leaves, what has left may be lost."""
        peer = self._state.peers.find(gateway)
        for pni in list(peer.members.values()) if peer is not None else ():
            self._sender.credits.leave(None, pni)
        self._state.defer(self._look_behind, gateway, nets)

    def _look_behind(self, gateway: Nid, nets: Collection[Net] | None) -> None:
        """What was under way over a gateway, to those nets (None: any), may be lost."""
        peer = self._state.peers.find(gateway)

        def is_lost(put: Msg) -> bool:
            goal, hop = put.hdr.dest_nid.net, put.next_nid
            if peer is None or hop is None or goal == hop.net:
                return False
            return (nets is None or goal in nets) and peer.owns(hop)

        if peer is not None:
            self._sender.guard.copy_lost(is_lost)

    # Receiving -------------------------------------------------------------------------------------

    def last_hop(self, ni: NI, hdr: Header, from_nid: Nid) -> PeerNi | str:
        """The peer NI that passed on a message for this node, or why the message must be dropped."""
        hop = self._state.peers.learn(from_nid)
        if hop is None:
            return "too many unknown peers"
        gateways = self.gateways
        if self._state.settings.drop_asym_route and not gateways.leads_over(hop.peer, hdr.src_nid.net):
            return _ASYMMETRIC
        if gateways.any_dead:
            gateways.heard_over(hop, hdr.src_nid.net)
        if hop.health < MAX_HEALTH and gateways.is_gateway(hop.peer):
            self._health.values.set_peer(hop, MAX_HEALTH)
        return hop

    def leads_over(self, nid: Nid, net: Net) -> bool:
        """Whether that next hop is a gateway of ours to a net."""
        peer = self._state.peers.find(nid)
        return peer is not None and self.gateways.leads_over(peer, net)

    # Gateways --------------------------------------------------------------------------------------

    def check_gateway(self, gateway: Nid, net: Net) -> None:
        """Check a gateway on one net: ping it there, push to it, whatever is known."""
        pni = self._state.peers.learn(gateway)
        if pni is None or not self._state.running:
            self.gateways.checks.answered(gateway)
            return
        peer = pni.peer
        there = peer.nets[net].nis if net in peer.nets else (pni,)
        peer.check_nid = max(there, key=lambda one: one.health).nid
        peer.check_timeout = self.gateways.settings.router_ping_timeout or None
        peer.mark(_UNDER_CHECK)

        def done(error: LNetError | None, found: Peer | None) -> None:
            now = found or self._state.peers.find(gateway)
            if now is not None:
                now.check_nid = None
                now.mark(_CHECKED, _UNDER_CHECK)
            peer.check_nid = None
            self.gateways.check_ended(gateway, net, error is not None)
            if found is not None:
                self._discovery.gateway_lives(found)
                self._look_over(found)

        try:
            self._discovery.discover(gateway, force=True, done=done)
        except LNetError as refused:
            done(refused, None)

    def _look_over(self, peer: Peer) -> None:
        """Copy PUTs that a gateway left unanswered for long over another one, as identities allow.

        The gateway answers for itself, and may swallow what it is to pass on. Or all is well, and the PUT
        waits for memory: then what becomes of its copy, of which there is one at a time, costs it nothing.
        """
        memory, now, most = self._memory, self._state.clock(), self._state.settings.retry_count
        lost = {}
        for pni in list(peer.members.values()):
            for md in memory.at_hop(pni.nid):
                put = md.put
                if put is None or put.next_nid != pni.nid or put.hdr.dest_nid.net == pni.nid.net or md.refs:
                    continue
                late = md.deadline_slot >= 0 and now >= put.queued_at + _SHARE * memory.deadline_of(md, 0.0)
                free = late and not put.exact and put.master is None and is_identity(put.wmd)
                first = put.copy_of is None and (put.attempts is None or not put.attempts.count)
                if free and first and most > 0 and self.gateways.has_other(put):
                    lost[put] = put.queued_at
                    self._health.resender.spare(put)
                    if pni.health:
                        self._health.overdue(md)
        self._sender.guard.copy_all(lost)

    def aliveness(self, pni: PeerNi) -> str:
        """`up` or `down` of a peer NI whose aliveness matters: a gateway's, or any on a router; else `NA`."""
        if pni.nid.net not in self._state.nets or not self.gateways.always_judged(pni):
            return "NA"
        return "down" if pni.said_down or pni.state is PeerNiState.FAILED else "up"

    # Being a router --------------------------------------------------------------------------------

    def nis_changed(self) -> None:
        """Our NIs, or what is said of them: others hear of it, of a router's status under the same number."""
        if self._state.forwards and self._info.has_other_statuses():
            self._tell()
        else:
            self._info.rebuild()
            self._discovery.tell_peers()

    def _tell(self) -> None:
        """What this node says of itself has another status, in place; all who know its rails hear of it."""
        self._info.routes = self.router.announced
        self._info.silent_nids = self.router.silent_nids
        self._info.refresh()
        for peer in self._state.peers:
            if peer.multi_rail and peer.primary_nid != LO_NID:
                self._discovery.push_anyway(peer)
