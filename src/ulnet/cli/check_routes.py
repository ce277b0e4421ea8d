"""What is wrong with the routes of a file, and with those of several nodes together (spec routing.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ulnet.cli.findings import Finding
from ulnet.control.instance import LNet
from ulnet.core.routing import RoutingState
from ulnet.dlc.model import RouteAdd
from ulnet.dlc.steps import Step
from ulnet.dlc.yaml_in import MapNode, ScalarNode, SeqNode, YamlError, read_sections
from ulnet.nid import LO_NET, Net, NetType, Nid, NidError, NidList

__all__ = ["RouteGiven", "RoutedView", "routed_view", "routes_across", "routes_of_one", "states_given"]

_MANY = 4096


class RouteGiven(NamedTuple):
    """A route that a node would take, and where it is written."""

    net: Net
    gateway: Nid
    hops: int
    line: int


class RoutedView(NamedTuple):
    """What a file makes of a node, as far as routing goes."""

    name: str
    nids: Sequence[Nid]
    nets: frozenset[Net]
    routes: Sequence[RouteGiven]
    forwards: bool
    complete: bool  # no net of it depends on a host that is not known

    def routes_to(self, net: Net) -> list[RouteGiven]:
        """Its routes to one net."""
        return [route for route in self.routes if route.net == net]


def routed_view(
    name: str, core: LNet, nids: Sequence[Nid], steps: Sequence[Step], complete: bool
) -> RoutedView:
    """The node of the dry run after all steps."""
    lines = _lines(steps)
    routes = [
        RouteGiven(route.net, route.gateway, route.hops, lines.get((route.net, route.gateway), 0))
        for route in core.gateways.table
    ]
    nets = frozenset(net for net in core.nets if net != LO_NET)
    forwards = core.router.state in (RoutingState.STARTING, RoutingState.ENABLED)
    return RoutedView(name, nids, nets, routes, forwards, complete)


def _lines(steps: Sequence[Step]) -> dict[tuple[Net, Nid], int]:
    lines: dict[tuple[Net, Nid], int] = {}
    for step in steps:
        if isinstance(step.request, RouteAdd):
            try:
                net = Net.parse(step.request.net)
                for gateway in NidList.parse(step.request.gateway).expand(_MANY):
                    lines.setdefault((net, gateway), step.line)
            except NidError:
                continue  # told by the node
    return lines


def states_given(name: str, text: str) -> Iterator[Finding]:
    """Routes that a file would have down: exports tell the state, nothing sets it."""
    try:
        sections = read_sections(text)
    except YamlError:
        return  # told already
    for key, section in sections:
        if key.text != "route" or not isinstance(section, SeqNode):
            continue
        for item in section.items:
            for word, value in item.items if isinstance(item, MapNode) else ():
                if word.text == "state" and isinstance(value, ScalarNode) and value.text == "down":
                    told = (
                        "state down of a route has no effect: a route is up or down by what its gateway "
                        "answers; leave the route out if it must not be used"
                    )
                    yield Finding("note", name, word.line, told)


def routes_of_one(view: RoutedView) -> Iterator[Finding]:
    """What can be seen in one file alone."""
    if view.forwards and view.complete and len(view.nets) < 2:
        on = ", ".join(map(str, view.nets)) or "none"
        told = (
            f"routing is enabled, but this node is on one net at most ({on}): nothing can pass; "
            "add an NI on another net"
        )
        yield Finding("warning", view.name, 0, told)


def routes_across(views: Sequence[RoutedView]) -> Iterator[Finding]:
    """Whether messages would arrive by the routes of these nodes, and answers come back."""
    owners = {nid: view for view in views for nid in view.nids}
    for view in views:
        for route in view.routes:
            gateway = owners.get(route.gateway)
            if gateway is not None:
                yield from _gateway(view, route, gateway)
        yield from _ways_back(view, views)
    yield from _loops(views, owners)
    yield from _strangers(views, owners)


def _strangers(views: Sequence[RoutedView], owners: Mapping[Nid, RoutedView]) -> Iterator[Finding]:
    """Gateways that no file is of, where others beside them have files."""
    routes = [(view, route) for view in views for route in view.routes]
    known = {(route.net, route.gateway.net) for _, route in routes if route.gateway in owners}
    for view, route in routes:
        if route.gateway not in owners and (route.net, route.gateway.net) in known:
            told = (
                f"gateway {route.gateway} of the route to {route.net} is a node of none of these files: a "
                "typo, if all nodes are here"
            )
            yield Finding("note", view.name, route.line, told)


def _gateway(view: RoutedView, route: RouteGiven, gateway: RoutedView) -> Iterator[Finding]:
    which = f"gateway {route.gateway} of the route to {route.net} is {gateway.name}, which"
    if not gateway.forwards:
        told = f"{which} does not route: write 'routing: {{enable: 1}}' there"
        yield Finding("warning", view.name, route.line, told)
    if route.net in gateway.nets or not gateway.complete or route.net.type == NetType.BOND:
        return
    if not gateway.routes_to(route.net):
        told = f"{which} is neither on {route.net} nor has a route to it: messages end there"
        yield Finding("error", view.name, route.line, told)
    elif route.hops == 1:
        told = f"{which} is not on {route.net}: with hop 1 the route counts as down; leave the hop out"
        yield Finding("warning", view.name, route.line, told)


def _ways_back(view: RoutedView, views: Sequence[RoutedView]) -> Iterator[Finding]:
    """Nodes that messages reach by a route, and from where no answer comes back."""
    for other in views:
        far = [route for route in view.routes if route.net in other.nets]
        if not far or not other.complete or view.nets & other.nets:
            continue
        if not any(route.net in view.nets for route in other.routes):
            nets = " or ".join(map(str, sorted(view.nets)))
            told = (
                f"{other.name} is reached over {far[0].gateway}, but has no route back to {nets}: "
                "its answers are lost"
            )
            yield Finding("warning", view.name, far[0].line, told)


def _loops(views: Sequence[RoutedView], owners: Mapping[Nid, RoutedView]) -> Iterator[Finding]:
    told: set[tuple[Net, frozenset[str]]] = set()
    for view in views:
        for route in view.routes:
            ring = _ring(view, route.net, owners)
            key = route.net, frozenset(one.name for one in ring)
            if ring and key not in told:
                told.add(key)
                only = all(len(one.routes_to(route.net)) == 1 for one in ring)
                names = " → ".join(one.name for one in (*ring, ring[0]))
                text = f"routing loop: what goes to {route.net} {'goes' if only else 'may go'} round, {names}"
                text += ": delete one of the routes"
                yield Finding("error" if only else "warning", view.name, route.line, text)


def _ring(start: RoutedView, net: Net, owners: Mapping[Nid, RoutedView]) -> list[RoutedView]:
    """The nodes that a message from here to that net may go round among; none if it cannot come back here."""
    ways: list[list[RoutedView]] = [[start]]
    seen: set[str] = set()
    while ways:
        way = ways.pop()
        for route in way[-1].routes_to(net):
            after = owners.get(route.gateway)
            if after is start:
                return way
            if after is not None and after.name not in seen:
                seen.add(after.name)
                ways.append([*way, after])
    return []
