"""Routes with their gateways: which there are, and which can be used (spec routing.md §1–§3)."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ulnet.core.lines import Line
from ulnet.core.msg import ANSWERS, Msg
from ulnet.core.peer import Peer, PeerFlag, PeerNi
from ulnet.core.routing.checks import Checks
from ulnet.core.routing.liveness import GatewayView, cached_after_ping, why_down
from ulnet.core.routing.settings import RoutingSettings
from ulnet.core.routing.table import Route, RouteTable
from ulnet.core.state import NodeState
from ulnet.core.status import LNetError
from ulnet.nid import Net, NetType, Nid
from ulnet.wire.ping import NiStatus, PingInfo

if TYPE_CHECKING:
    from ulnet.core.parts import Parts

__all__ = ["Gateways"]

_MULTI_RAIL = int(PeerFlag.MULTI_RAIL)
_NO_DISCOVERY = int(PeerFlag.NO_DISCOVERY)
_ROUTER_ENABLED = int(PeerFlag.ROUTER_ENABLED)


class Gateways:
    """The routes of one node. Gateways are known by the NIDs that routes give them.

    So they stay the same when peers merge, split, or get another primary NID.
    """

    __slots__ = (
        "_alive",
        "_chance",
        "_nids",
        "_parts",
        "_seen",
        "_state",
        "_usable",
        "_usable_at",
        "any_dead",
        "checks",
        "settings",
        "table",
    )

    def __init__(self, state: NodeState, parts: Parts) -> None:
        self._state = state
        self._parts = parts
        self.settings: RoutingSettings = RoutingSettings()
        self.table: RouteTable = RouteTable(state.peers.find, self._place)
        self.checks: Checks = Checks(
            state.timers,
            state.clock,
            lambda gateway, net: parts.check_gateway(gateway, net),
            self.shared_nets,
            lambda: self.settings.alive_router_check_interval,
        )
        self._alive: dict[Nid, bool] = {}
        self.any_dead: bool = False  # of them
        self._nids: dict[Nid, frozenset[Nid]] = {}  # those of each, as it last told
        self._seen: dict[Nid, dict[Net, bool]] = {}  # what each last told of its nets
        self._chance = state.cookie
        self._usable: dict[Net, list[Route]] = {}
        self._usable_at = -1  # the generation for which these hold

    def _place(self, count: int) -> int:
        self._chance = (self._chance * 6364136223846793005 + 1442695040888963407) & (2**64 - 1)
        return (self._chance >> 33) % count

    # Configuration ---------------------------------------------------------------------------------

    def add(self, net: Net, gateway: Nid, hops: int, priority: int) -> Route:
        """Add a route and check its gateway at once.

        Raises LNetError and changes nothing: EINVAL, EEXIST, EHOSTUNREACH, ENOSPC, ENOMEM, ESHUTDOWN.
        """
        state = self._state
        state.must_run()
        route = Route(net, gateway, hops, priority)
        self.table.check(route, state.nets, state.nis)
        pni = state.peers.learn(gateway)
        if pni is None:
            raise LNetError(errno.ENOMEM, f"too many unknown peers: cannot remember gateway {gateway}")
        if pni.listed:
            state.peers.split(pni)
        route.alive = self._alive.setdefault(gateway, not self.settings.check_routers_before_use)
        self.table.insert(route)
        self.routes_changed()
        self._parts.net_reached(net)
        if gateway.net.type != NetType.BOND:
            self.checks.watch(gateway)
        return route

    def remove(self, routes: Iterable[Route]) -> None:
        """Delete routes, but for those that are gone already."""
        for route in routes:
            if route in self.table.to(route.net):
                self.table.remove(route)
                self._gone(route)

    def _gone(self, route: Route) -> None:
        if not self.table.over(route.gateway):
            self._alive.pop(route.gateway, None)  # with the first of several that went together
            self._seen.pop(route.gateway, None)
            self._nids.pop(route.gateway, None)
            self.checks.forget(route.gateway)
        self.routes_changed()

    def routes_changed(self) -> None:
        """Which routes can be used may be different now."""
        self.any_dead = not all(self._alive.values())
        self._state.generation.invalidate("routes")

    def set(self, values: Mapping[str, int]) -> None:
        """Change settings of routing, all or none. Raises LNetError(EINVAL)."""
        self.settings.change(values)
        self.checks.interval_changed()
        self.routes_changed()

    def clear(self) -> None:
        """Delete all routes."""
        self.remove(self.table)

    def must_not_be_local(self, net: Net) -> None:
        """A net is to become local. Raises LNetError(EUSERS) if routes lead there."""
        routes = self.table.to(net)
        if routes:
            raise LNetError(
                errno.EUSERS,
                f"net {net} is known as remote, over gateway {routes[0].gateway}: "
                "delete the routes to it first",
            )

    def needed_for(self, peer: Peer) -> str:
        """Why a peer must stay, "" if no route goes over it."""
        route = next((route for gateway in self.of_peer(peer) for route in self.table.over(gateway)), None)
        if route is None:
            return ""
        names = f"--net {route.net} --gateway {route.gateway}"
        return f"it is a gateway to net {route.net}; delete that route first: 'lnetctl route del {names}'"

    def is_itself(self, gateway: Nid, nid: Nid) -> bool:
        """Whether a gateway has told that it has this NID: messages to it end there."""
        return nid in self._nids.get(gateway, ())

    def router_credits(self, net: Net) -> int:
        """How many messages from one peer NI of a net may be passing through (spec routing.md §6)."""
        local = self._state.nets.get(net)
        if local is None:
            return 0
        tunables = local.tunables
        return tunables.peer_buffer_credits or self.settings.peer_buffer_credits or tunables.peer_credits

    # How gateways are --------------------------------------------------------------------------------

    def is_gateway(self, peer: Peer) -> bool:
        """Whether routes go over this peer."""
        return not self._alive.keys().isdisjoint(peer.members.keys())

    def is_router(self, peer: Peer) -> bool:
        """Whether this peer passes on messages of others: it tells so, or routes go over it."""
        return bool(peer.flags & _ROUTER_ENABLED) or self.is_gateway(peer)

    def always_judged(self, pni: PeerNi) -> bool:
        """Whether a peer NI has health although its peer has no other.

        Routers judge all, and all judge gateways: with them there is a choice where a peer has one NID.
        """
        return self._state.forwards or self.is_gateway(pni.peer)

    def has_other(self, msg: Msg) -> bool:
        """Whether a message that failed has a gateway to try, other than the one that it went to."""
        final, hop = msg.hdr.dest_nid, msg.next_nid
        if hop is None:
            return False
        if final == hop:
            free = not msg.exact and (msg.source is None or msg.template.type in ANSWERS)
            peer = self._state.peers.find(hop) if free and self._alive else None
            return peer is not None and self.lead_to(peer)
        same = self.table.same_gateway
        return any(not same(route.gateway, hop) for route in self.usable(final.net))

    def lead_to(self, peer: Peer) -> bool:
        """Whether a Multi-Rail peer can be reached over other nodes, on a net that this node is not on."""
        return peer.multi_rail and any(
            not peer.owns(route.gateway) for net in peer.nets for route in self.usable(net)
        )

    def of_peer(self, peer: Peer) -> Iterator[Nid]:
        """The NIDs by which routes call this peer."""
        if not self.is_gateway(peer):  # most are none
            return iter(())
        return iter([gateway for gateway in self._alive if peer.owns(gateway)])

    def shared_nets(self, gateway: Nid) -> list[Net]:
        """The nets that a gateway and this node are on."""
        peer = self._state.peers.find(gateway)
        nets = peer.nets if peer is not None else (gateway.net,)
        return [net for net in nets if net in self._state.nets]

    def view(self, gateway: Nid) -> GatewayView:
        """What is known of a gateway now."""
        peer = self._state.peers.find(gateway)
        flags = peer.flags if peer is not None else 0
        both = self._state.settings.discovery and flags & _MULTI_RAIL and not flags & _NO_DISCOVERY
        nets: dict[Net, bool] = {}
        for net in peer.nets.values() if peer is not None else ():
            nets[net.net] = any(not pni.said_down for pni in net.nis)
        return GatewayView(
            alive=self._alive.get(gateway, False),
            discovers=bool(both),
            forwards=bool(flags & _ROUTER_ENABLED),
            nets=nets,
        )

    def why_down(self, route: Route) -> str:
        """Why a route cannot be used now, "" if it can."""
        if route.gateway.net.type == NetType.BOND:
            return "routing loop" if route.loops else ""  # bonding judges its paths itself
        told = route.net.type != NetType.BOND  # pings do not tell of bonding nets
        avoid = self.settings.avoid_asym_router_failure and told
        return why_down(route, self.view(route.gateway), bool(avoid))

    def usable(self, net: Net) -> list[Route]:
        """The routes to a net that can be used now."""
        now = self._state.generation.number
        if self._usable_at != now:
            self._usable.clear()
            self._usable_at = now
        routes = self._usable.get(net)
        if routes is None:
            routes = self._usable[net] = [route for route in self.table.to(net) if not self.why_down(route)]
        return routes

    # News of gateways --------------------------------------------------------------------------------

    def told(self, peer: Peer, info: PingInfo) -> None:
        """A peer tells of its NIs, in an answer or a push."""
        for gateway in self.of_peer(peer):
            nets: dict[Net, bool] = {}
            for entry in info.entries:
                nets[entry.nid.net] = nets.get(entry.nid.net, False) or entry.status != NiStatus.DOWN
            seen = self._seen.get(gateway, {}).items()
            lost = {net for net, was_up in seen if was_up and not nets.get(net)}
            if lost:
                self._parts.lost_behind(gateway, lost)
            self._seen[gateway] = nets
            self._nids[gateway] = frozenset(entry.nid for entry in info.entries)

    def discovered(self, peer: Peer, failed: bool) -> None:
        """A round of discovery ended, whoever wanted it: a gateway that answered lives, as it told."""
        if failed or not self.is_gateway(peer):
            return
        avoid = bool(self.settings.avoid_asym_router_failure)
        for gateway in self.of_peer(peer):
            self._lives(gateway, "it answers")
            view = self.view(gateway)
            view = view._replace(nets=self._seen.get(gateway, view.nets))
            for route in self.table.over(gateway):
                route.alive, route.single_hop = cached_after_ping(route, view, avoid)
        for route in self.table.drop_twins(self.of_peer(peer)):
            self._gone(route)
        self.routes_changed()

    def _lives(self, gateway: Nid, why: str) -> None:
        if not self._alive[gateway]:
            self._alive[gateway] = True
            self._state.notice(Line("gateway.up", f"gateway {gateway} is up: {why}", nid=gateway))

    def check_ended(self, gateway: Nid, net: Net, failed: bool) -> None:
        """The check of a gateway on one net ended. It is dead when all its nets failed in turn."""
        self.checks.answered(gateway)
        watched = self.checks.find(gateway)
        if watched is None:
            return
        if not failed:
            watched.failed.clear()
            return
        watched.failed.add(net)
        left = [other for other in self.shared_nets(gateway) if other not in watched.failed]
        if left:
            self.checks.hurry(gateway)
            return
        watched.failed.clear()
        if self._alive[gateway]:
            self._alive[gateway] = False
            text = f"gateway {gateway} is down: no NID of it answers; its routes are not used"
            self._state.report(Line("gateway.down", text, nid=gateway))
        for route in self.table.over(gateway):
            route.alive = False
        self.routes_changed()
        self._parts.lost_behind(gateway, None)

    def heard_over(self, pni: PeerNi, source: Net) -> None:
        """A message from that net came over a gateway: it and its routes there live."""
        for gateway in self.of_peer(pni.peer):
            if self._alive[gateway]:
                continue
            self._lives(gateway, f"a message from {source} came over it")
            pni.said_down = False
            for route in self.table.to(source):
                if route.gateway == gateway:
                    route.alive = True
            self.routes_changed()

    def leads_over(self, peer: Peer, net: Net) -> bool:
        """Whether there is a route to a net over this peer."""
        return any(peer.owns(route.gateway) for route in self.table.to(net))
