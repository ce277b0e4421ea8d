"""What is wrong with one node's configuration, and with those of several nodes together."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ulnet.cli.check_routes import RoutedView, routed_view, routes_across, routes_of_one
from ulnet.cli.check_values import nids_named, values_of_one
from ulnet.cli.findings import Finding, Level
from ulnet.core.peer import Peer, PeerFlag
from ulnet.core.routing import RoutingState
from ulnet.dlc import model
from ulnet.dlc.config import Config, Step
from ulnet.host import Link, link_named
from ulnet.host.values import HostError
from ulnet.nid import LO_NID, Net, Nid, NidError
from ulnet.node.admin import Admin
from ulnet.node.dry_run import INVENTED, dry_run, invented_links

__all__ = ["NodeView", "across", "examine"]

_CPTS = 256  # what a file may name; how many the node has only the node knows
_FORGOTTEN = (
    "router buffers are forgotten while routing is off, as on kernel nodes: write 'routing: {enable: 1}' "
    "before them"
)


@dataclass(slots=True)
class NodeView:
    """What a file makes of a node."""

    name: str
    nids: list[Nid] = field(default_factory=list)  # those that are known, not invented
    peers: dict[Nid, list[Nid]] = field(default_factory=dict)
    peer_lines: dict[Nid, int] = field(default_factory=dict)
    multi_rail: dict[Nid, bool] = field(default_factory=dict)
    nets: set[Net] = field(default_factory=set)
    rails: int = 0
    routing: RoutedView | None = None


_MOST_FINDINGS = 200


async def examine(name: str, config: Config, facts: Sequence[Link] | None) -> tuple[list[Finding], NodeView]:
    """Run a file dry; `facts` are the host's interfaces where they are known."""
    findings = [
        Finding("error", name, line, _without_line(item.descr))
        for line, item in zip(config.lines, config.errors, strict=True)
    ]
    steps = [step for step in config.steps if not _depends_on_host(step, facts)]
    for step in config.steps:
        if _depends_on_host(step, facts):
            text = "which interfaces these rules choose depends on the host: give --host FILE or --live"
            findings.append(Finding("note", name, step.line, text))
    links = list(facts) if facts is not None else invented_links(step.request for step in steps)
    complete = len(steps) == len(config.steps)
    async with dry_run(links, cpts=_CPTS) as admin:
        core = admin.node.core
        for step in steps:
            if isinstance(step.request, model.BuffersSet) and core.router.state is RoutingState.DISABLED:
                findings.append(Finding("warning", name, step.line, _FORGOTTEN))
            for item in await admin.apply([step]):
                unsure = item.errno == -errno.EHOSTUNREACH and not complete
                level: Level = "note" if unsure else "error"
                findings.append(Finding(level, name, step.line, _without_line(item.descr)))
            findings += _address_mismatch(name, step, facts)
            if len(findings) > _MOST_FINDINGS:
                text = f"more than {_MOST_FINDINGS} things are wrong: what follows was not looked at"
                findings.append(Finding("error", name, step.line, text))
                break
        view = _view(name, admin, steps)
        view.routing = routed_view(name, core, view.nids, steps, complete)
        nets = set(core.nets)
        findings += values_of_one(name, core, steps)
    findings += routes_of_one(view.routing)
    findings += _peers_of_one(view, nets | {route.net for route in view.routing.routes})
    return [finding._replace(text=_by_interface(finding.text, links)) for finding in findings], view


def _by_interface(text: str, links: Sequence[Link]) -> str:
    """With the interfaces of the file in place of the NIDs that were invented for them."""
    names = {address.ip: link.name for link in links for address in link.addresses}

    def name(found: re.Match[str]) -> str:
        return f"that of {names[found[1]]}" if found[1] in names else found[0]

    return re.sub(rf"({re.escape(INVENTED)}\d+\.\d+)@\w+", name, text)


def _without_line(descr: str) -> str:
    head, colon, rest = descr.partition(": ")
    return rest if colon and head.startswith("line ") else descr


def _depends_on_host(step: Step, facts: Sequence[Link] | None) -> bool:
    return facts is None and isinstance(step.request, model.NetMatch)


def _address_mismatch(name: str, step: Step, facts: Sequence[Link] | None) -> Iterator[Finding]:
    request = step.request
    if facts is None or not isinstance(request, model.NetAdd) or request.prefer is None:
        return
    try:
        link = link_named(request.interfaces[0].partition("[")[0], facts)
        ip = Nid.parse(request.prefer).ip
    except (HostError, NidError):
        return  # told already
    has = [address.ip for address in link.addresses]
    if ip not in has:
        text = (
            f"interface {link.name} has {', '.join(has) or 'no address'}, not {ip}: the NI would not be "
            f"{request.prefer}; correct the nid or leave it out"
        )
        yield Finding("error", name, step.line, text)


def _view(name: str, admin: Admin, steps: Sequence[Step]) -> NodeView:
    core = admin.node.core
    view = NodeView(name, nets=set(core.nets), rails=len(core.nis) - 1)
    view.nids = [nid for nid in core.nis if nid != LO_NID and not nid.ip.startswith(INVENTED)]
    peers: list[Peer] = [peer for peer in core.peers if peer.flags & PeerFlag.CONFIGURED]
    for peer in peers:
        view.peers[peer.primary_nid] = list(peer.nids())
        view.multi_rail[peer.primary_nid] = peer.multi_rail
    owners = {nid: primary for primary, nids in view.peers.items() for nid in nids}
    for step in steps:
        request = step.request
        if isinstance(request, model.PeerAdd | model.PeerRefresh):
            for nid in nids_named([*([request.primary] if request.primary else []), *request.nids]):
                if nid in owners:
                    view.peer_lines.setdefault(owners[nid], step.line)
    return view


def _peers_of_one(view: NodeView, reachable: set[Net]) -> Iterator[Finding]:
    for primary, nids in view.peers.items():
        line = view.peer_lines.get(primary, 0)
        if len(nids) == 1 and view.rails > 1 and view.multi_rail[primary]:
            text = (
                f"peer {primary} has one NID, this node {view.rails}: messages to it use one rail; "
                "name its other "
                "NIDs, say Multi-Rail: False if it has none, or leave the peer to discovery"
            )
            yield Finding("warning", view.name, line, text)
        if not any(nid.net in reachable for nid in nids):
            where = ", ".join(dict.fromkeys(str(nid.net) for nid in nids))
            text = (
                f"peer {primary} cannot be reached: it is on {where}, where this node has no NI and no route"
            )
            yield Finding("warning", view.name, line, text)


def across(views: Sequence[NodeView]) -> Iterator[Finding]:
    """Whether the nodes' ideas of one another agree."""
    owners: dict[Nid, NodeView] = {}
    for view in views:
        for nid in view.nids:
            if nid in owners:
                text = f"{nid} is a NID of {owners[nid].name} too: each NID is that of one node"
                yield Finding("error", view.name, 0, text)
            owners.setdefault(nid, view)
    for view in views:
        for primary, nids in view.peers.items():
            others = dict.fromkeys(owners[nid].name for nid in nids if nid in owners)
            if len(others) > 1:
                text = f"peer {primary} mixes the NIDs of {' and '.join(others)}: a peer is one node"
                yield Finding("error", view.name, view.peer_lines.get(primary, 0), text)
            elif others:
                other = next(one for one in views if one.name == next(iter(others)))
                yield from _pair(view, primary, nids, other)
    yield from routes_across([view.routing for view in views if view.routing is not None])


def _pair(view: NodeView, primary: Nid, nids: Sequence[Nid], other: NodeView) -> Iterator[Finding]:
    line = view.peer_lines.get(primary, 0)
    missing = [nid for nid in other.nids if nid not in nids]
    if missing and view.multi_rail[primary]:
        names = ", ".join(map(str, missing))
        text = f"peer {primary} lacks {names}, which {other.name} has: rails stay unused; name them too"
        yield Finding("warning", view.name, line, text)
    near = [nid for nid in other.nids if nid.net in view.nets]
    if not view.multi_rail[primary] and len(near) > 1:
        text = (
            f"peer {primary} is Multi-Rail: False here, but {other.name} has {', '.join(map(str, near))}: "
            "messages keep to the NID that they are sent to; write Multi-Rail: True and name them"
        )
        yield Finding("warning", view.name, line, text)
    for nid in nids:
        if nid not in other.nids:
            text = f"peer {primary} has {nid}, which {other.name} has not: messages to it fail"
            yield Finding("error", view.name, line, text)
    back = [primary for primary, known in other.peers.items() if set(known) & set(view.nids)]
    if view is not other and view.nids and other.peers and not back:
        text = (
            f"{other.name} is a peer here, but {view.name} is none there: without discovery it answers as to "
            "a node with one rail"
        )
        yield Finding("warning", view.name, line, text)
