"""`route add`, `route del`, `route show` (spec lnetctl.md §1 route)."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from ulnet.control.instance import LNet
from ulnet.control.view import View
from ulnet.core.routing import Route, RoutingState, check_numbers
from ulnet.core.status import LNetError
from ulnet.dlc.documents_routing import RouteView
from ulnet.dlc.model import RouteAdd, RouteDel, RouteShow
from ulnet.nid import Net, NetType, Nid, NidError
from ulnet.node.admin.names import read_nids
from ulnet.node.admin.turns import others

__all__ = ["add_routes", "backup_routes", "delete_routes", "routes_of", "show_routes"]


async def add_routes(core: LNet, request: RouteAdd) -> None:
    """Add a route over each of the gateways, or none; others have their turn meanwhile. Raises LNetError."""
    gateways = core.gateways
    net = _net(request.net)
    nids = read_nids([request.gateway])
    if request.health_sensitivity < 1:
        text = (
            f"health_sensitivity {request.health_sensitivity} is out of range: use 1 or more, or leave it out"
        )
        raise LNetError(errno.EINVAL, text)
    if request.replace:
        _change_routes(core, net, nids, request)
        return
    if request.shared:
        nids = _for_this_node(core, net, nids, request)
    for at, nid in enumerate(nids):
        await others(at)
        gateways.table.check(Route(net, nid, request.hop, request.priority), core.nets, core.nis)
    added = []
    try:
        for at, nid in enumerate(nids):
            await others(at)
            added.append(gateways.add(net, nid, request.hop, request.priority))
    except BaseException:  # given up, too
        gateways.remove(added)
        raise


def _for_this_node(core: LNet, net: Net, nids: list[Nid], request: RouteAdd) -> list[Nid]:
    """The gateways that this node can use, of those that all nodes share.

    A node that is one of them begins to route, unless it was told whether it routes. Raises LNetError.
    """
    for nid in nids:
        if nid.net == net:  # for no node is that right
            words = f"a gateway to {net} has an NI on another net, over which it is reached: name that one"
            raise LNetError(errno.EINVAL, f"route to {net} over {nid}: {words}")
    own = [nid for nid in nids if nid in core.nis]
    if own and not request.as_told and core.router.state is RoutingState.DISABLED:
        core.router.enable(True)
        core.report(f"routing is switched on: {own[0]} of this node is a gateway to {net}")
    if net in core.nets:
        return []
    left = [nid for nid in nids if nid.net in core.nets and nid not in core.nis]
    if not (left or own):
        core.report(f"no route to {net} over {request.gateway}: this node is on no net of that gateway")
    return left


def _change_routes(core: LNet, net: Net, nids: list[Nid], request: RouteAdd) -> None:
    """Give routes another hop and priority; what uses them goes on."""
    check_numbers(request.hop, request.priority)
    for route in [route for nid in nids for route in core.gateways.table.find(net, nid)]:
        route.hops, route.priority = request.hop, request.priority
    core.gateways.routes_changed()


async def delete_routes(core: LNet, request: RouteDel) -> None:
    """Delete the routes over all of the gateways at once, or none. Raises LNetError.

    Others have their turn while they are looked for.
    """
    net = _net(request.net)
    routes: dict[Nid, Route] = {}
    for at, nid in enumerate(read_nids([request.gateway])):
        await others(at)
        routes.update({route.gateway: route for route in core.gateways.table.find(net, nid)})
    core.gateways.remove(routes.values())


def show_routes(core: View, request: RouteShow) -> Iterator[RouteView | None]:
    """The routes that all filters let through; None for another one. Raises LNetError(EINVAL, ENXIO)."""
    net = None if request.net is None else _net(request.net)
    nids = None if request.gateway is None else set(read_nids([request.gateway]))
    for route in _those_left(core):
        shown = (
            (net is None or route.net == net)
            and (nids is None or route.gateway in nids)
            and (request.hop is None or route.hops == request.hop)
            and (request.priority is None or route.priority == request.priority)
        )
        yield _view(core, route, request.verbosity) if shown else None


def backup_routes(core: View) -> Iterator[RouteView]:
    """What a restore needs."""
    return map(_kept, _those_left(core))


def _those_left(core: View) -> Iterator[Route]:
    """The routes that there are, without those that are removed until it is their turn."""
    table = core.gateways.table
    return (route for route in table if route in table.over(route.gateway))


def routes_of(core: View, request: RouteAdd | RouteDel) -> list[RouteView]:
    """Those that a request is about, by whichever NIDs of their gateways; as a backup has them.

    Raises LNetError(EINVAL, ENXIO).
    """
    net = _net(request.net)
    nids = set(read_nids([request.gateway]))
    primaries = {peer.primary_nid for nid in nids if (peer := core.peers.find(nid)) is not None}
    return [
        _kept(route)
        for route in core.gateways.table.to(net)
        if route.gateway in nids
        or ((peer := core.peers.find(route.gateway)) is not None and peer.primary_nid in primaries)
    ]


def _kept(route: Route) -> RouteView:
    return RouteView(str(route.net), str(route.gateway), route.hops, route.priority)


def _view(core: View, route: Route, verbosity: int) -> RouteView:
    view = RouteView(str(route.net), str(route.gateway))
    if verbosity:
        view.hop = route.hops
        view.priority = route.priority
        view.state = "up" if _is_checked(core, route) and not core.gateways.why_down(route) else "down"
        view.type = "single-hop" if route.ends_there else "multi-hop"
    return view


def _is_checked(core: View, route: Route) -> bool:
    """Whether its gateway was ever heard; bonding checks its own."""
    if route.gateway.net.type == NetType.BOND or core.gateways.settings.alive_router_check_interval <= 0:
        return True
    peer = core.peers.find(route.gateway)
    return peer is not None and any(pni.heard_at >= 0 for pni in peer.members.values())


def _net(text: str) -> Net:
    """A net's name; with the errno of the real tool for what is none."""
    try:
        return Net.parse(text)
    except NidError as bad:
        raise LNetError(errno.ENXIO, str(bad)) from None
