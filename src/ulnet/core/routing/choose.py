"""The path to a node on another net: final NI, gateway, and the way there (spec selection.md §3, §7).

The choice of the pair of NIs towards the gateway is the one of any message to that peer, so that all of its
rails are used.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import NamedTuple

from ulnet.core.ni import NI
from ulnet.core.peer import Peer, PeerNet, PeerNi
from ulnet.core.routing.criteria import GATEWAY, GATEWAY_BY_DOCUMENTS, REMOTE_NET, Way, rank
from ulnet.core.routing.gateways import Gateways
from ulnet.core.routing.table import Route
from ulnet.core.selection.choice import SOURCE_GIVEN, kind_of
from ulnet.core.selection.choose import Selector, no_way
from ulnet.core.selection.criteria import CREDITS, PEER_FIXED, TURN, is_stalled
from ulnet.core.selection.paths import Key, Query
from ulnet.core.selection.trace import Explanation, stage
from ulnet.core.state import NodeState
from ulnet.core.states import PeerNiState
from ulnet.core.status import LNetError
from ulnet.nid import LNET_PID, Net, Nid

__all__ = ["RoutedPath", "RoutedSelector"]

_FINAL = (*PEER_FIXED, CREDITS, TURN)
_ANY_KIND = -1


class RoutedPath(NamedTuple):
    """From `ni` to the gateway's `peer_ni`, on to `final`; an answer that takes its way back has no route."""

    ni: NI
    peer_ni: PeerNi
    ni_by: str
    peer_ni_by: str
    final: PeerNi
    route: Route | None


class RoutedSelector:
    """Chooses gateways for one node; `selector` chooses the pair of NIs to get there."""

    __slots__ = ("_gateways", "_selector", "_seq", "_state")

    def __init__(self, state: NodeState, gateways: Gateways, selector: Selector) -> None:
        self._state = state
        self._gateways = gateways
        self._selector = selector
        self._seq = 0

    def needed(self, dest: PeerNi, source: Nid | None, bound: bool) -> bool:
        """Whether a gateway is needed to reach `dest`, or any NI of its peer if that will do.

        It is, too, where the nets that both are on carry nothing, and gateways lead to another of its nets.
        """
        nets = self._state.nets
        if source is not None:
            near = not bound and dest.peer.multi_rail and source.net in dest.peer.nets
            return source.net != dest.nid.net and not (near and not self._gateways.usable(dest.nid.net))
        if bound or not dest.peer.multi_rail:
            return dest.nid.net not in nets
        return not self._is_near(dest.peer) or (self._is_cut_off(dest.peer) and self.has_way(dest.peer))

    def has_way(self, peer: Peer) -> bool:
        """Whether gateways lead to the peer, whatever nets this node shares with it."""
        return self.has_routes and self._gateways.lead_to(peer)

    def _is_near(self, peer: Peer) -> bool:
        return any(net in self._state.nets for net in peer.nets)

    def _is_cut_off(self, peer: Peer) -> bool:
        """Whether messages fail, or make no progress, on all paths that need no gateway."""
        nets = self._state.nets
        return not any(
            ni.open and not ni.fatal and pni.state is not PeerNiState.FAILED and not is_stalled(ni, pni)
            for peer_net in peer.nets.values()
            if peer_net.net in nets
            for pni in peer_net.nis
            for ni in nets[peer_net.net].nis
        )

    def choose(
        self,
        dest: PeerNi,
        *,
        source: Nid | None = None,
        bound: bool = False,
        ping: bool = False,
        via: Nid | None = None,
        size: int = 0,
        cpt: int = 0,
        tried: Sequence[tuple[NI, PeerNi]] = (),
        not_over: Peer | None = None,
        record: Explanation | None = None,
    ) -> RoutedPath:
        """The path to `dest`, or with multi-rail to any NI of its peer unless it is `bound` to dest itself.

        `source` binds the message to one NI; `via` is the next hop by which the request of an answer came;
        `tried` are pairs on which the message failed, to be left alone while there are others; `not_over`
        is the node that a message came from, to which it must not go back.
        Changes nothing. Raises LNetError: EINVAL (source), EHOSTUNREACH.
        """
        peer = dest.peer
        query = Query(peer, size, self._state.cpts, cpt, self._state.settings.numa_range)
        free = source is None and not bound
        back = self._way_back(source, via)
        if back is not None:
            _tell(record, "answer: back over the gateway that its request came from")
            return RoutedPath(*back, SOURCE_GIVEN, SOURCE_GIVEN, dest, None)
        if free and not peer.multi_rail and not ping:
            source = self._preferred(dest)
        final = self._final(dest, query, record) if free and peer.multi_rail else dest
        net = None if source is None else self._state.source_ni(source, even_if_leaving=bound or ping).net.net
        avoided = not_over or (peer if free else None)
        ways = [way for way in self._ways(final, net, tried) if way.peer_ni.peer is not avoided]
        if not ways:
            raise self._unreachable(final, source)
        criteria = GATEWAY_BY_DOCUMENTS if self._selector.balance == "documents" else GATEWAY
        way: Way = stage("gateway", ways, criteria, query, record)[0][0]
        pni = way.peer_ni
        if self._gateways.is_itself(way.route.gateway, final.nid):
            final = pni  # the gateway is the destination: it takes only what names the NID where it arrives
        if source is not None:
            own = self._state.source_ni(source, even_if_leaving=bound or ping)
            _tell(record, f"source given: from that NI over a gateway to {final.nid}")
            return RoutedPath(own, pni, SOURCE_GIVEN, SOURCE_GIVEN, final, way.route)
        key = Key(_ANY_KIND, bound=not pni.peer.multi_rail, ping=True, pid=LNET_PID, cpt=cpt)
        if tried:
            hop = self._selector.pick_untried(self._selector.find(pni, key), None, tried, size)
        else:
            hop = self._selector.choose(pni, key, size, record)
        _tell(record, f"{self._words_for(peer)}: over a gateway to {final.nid}")
        if final is pni:
            final = hop.peer_ni
        return RoutedPath(hop.ni, hop.peer_ni, hop.ni_by, hop.peer_ni_by, final, way.route)

    def _words_for(self, peer: Peer) -> str:
        """The kind of a peer, and why a gateway is needed to reach it."""
        why = "whose nets here carry nothing" if self._is_near(peer) else "on another net"
        return f"{kind_of(peer)} {why}"

    def asks_first(self, final: PeerNi) -> bool:
        """Whether the gateway to `final` must be known before: it is the only one, or is not watched."""
        gateways = self._gateways
        return gateways.settings.alive_router_check_interval <= 0 or len(gateways.usable(final.nid.net)) == 1

    def took(self, final: PeerNi, route: Route | None, count: int) -> None:
        """Count a choice: the final NI and the route have had their turn."""
        final.seq = final.net.seq = final.peer.seq = final.peer.seq + count
        if route is not None:
            self._seq = route.seq = self._seq + count

    @property
    def has_routes(self) -> bool:
        """Whether there is any route."""
        return len(self._gateways.table) > 0

    # ---------------------------------------------------------------------------------------------

    def _preferred(self, dest: PeerNi) -> Nid | None:
        """The NI from which a peer without multi-rail always hears, if a gateway can be reached from it."""
        for nid in (*sorted(dest.preferred_nids), dest.preferred):
            ni = self._state.nis.get(nid) if nid is not None else None
            if ni is not None and ni.open and self._ways(dest, ni.net.net, ()):
                return nid
        return None

    def _way_back(self, source: Nid | None, via: Nid | None) -> tuple[NI, PeerNi] | None:
        """The NI and the gateway by which the request came, if both are still there."""
        if source is None or via is None:
            return None
        pni, ni = self._state.peers.find_ni(via), self._state.source_ni(source, even_if_leaving=True)
        if pni is None or pni.nid.net != ni.net.net or not self._gateways.is_gateway(pni.peer):
            return None
        return ni, pni

    def _final(self, dest: PeerNi, query: Query, record: Explanation | None) -> PeerNi:
        """Which NI of a multi-rail peer the message goes to in the end."""
        nets = [net for net in dest.peer.nets.values() if self._gateways.usable(net.net)]
        if not nets:
            return dest  # for which no gateway will be found
        net: PeerNet = stage("remote net", nets, REMOTE_NET, query, record)[0][0]
        pni: PeerNi = stage("final NI", net.nis, _FINAL, query, record)[0][0]
        return pni

    def _ways(self, final: PeerNi, net: Net | None, tried: Sequence[tuple[NI, PeerNi]]) -> list[Way]:
        """The routes that can be used, each with its gateway's best NI on `net`, or on any local net."""
        ways: list[Way] = []
        nets = self._state.nets if net is None else (net,)
        failed = {pni for _, pni in tried}
        for route in self._gateways.usable(final.nid.net):
            peer = self._state.peers.find(route.gateway)
            if peer is None:
                continue
            near = [pni for one in peer.nets.values() if one.net in nets for pni in one.nis]
            fresh = [pni for pni in near if pni not in failed]
            if near:
                named = any(d.match_nid(nid) for d in final.preferred_gateways for nid in peer.members)
                ways.append(Way(route, min(fresh or near, key=rank), named, bool(fresh)))
        return ways

    def _unreachable(self, final: PeerNi, source: Nid | None) -> LNetError:
        net = final.nid.net
        gateways = self._gateways
        routes = gateways.table.to(net)
        if not routes:
            text = no_way(net, ", ".join(map(str, self._state.nets)) or "none")
        elif source is not None and gateways.usable(net):
            text = f"no gateway to {net} can be reached from {source}: leave the source free"
        else:
            known = (f"{route.gateway} ({self._why_not(route)})" for route in routes)
            text = f"no gateway to {net} can be used: {', '.join(known)}"
        return LNetError(errno.EHOSTUNREACH, f"no route to {final.nid}: {text}")

    def _why_not(self, route: Route) -> str:
        if not self._gateways.shared_nets(route.gateway):
            return "no NI here is on its net"
        return self._gateways.why_down(route) or "it came from there"


def _tell(record: Explanation | None, case: str) -> None:
    if record is not None:
        record.case = case
