"""The DLC library: what can be asked of a node, as typed calls for `Client.call` and `AsyncClient.call`.

    with Client() as node:
        node.call(add_net("tcp", ["eth0", "eth1"]))
        for net in node.call(show_nets(verbosity=1)):
            print(net.net_type, [ni.nid for ni in net.local_nis])

A call is a request with the type of its answer. What the node refuses is raised as DlcError, with errno and
one sentence; calls about many things at once (pings) return what was refused beside what was not.
"""

from __future__ import annotations

from collections.abc import Sequence

from ulnet.dlc import (
    documents,
    documents_access,
    documents_explain,
    documents_policy,
    documents_routing,
    documents_stats,
    model,
)
from ulnet.dlc.call import Call, Discovered, Pinged, nothing, reader, refuse, seconds, several
from ulnet.dlc.client import as_mapping
from ulnet.dlc.deadlines import deadline_of
from ulnet.dlc.errors import ErrorItem
from ulnet.dlc.protocol import Reply, document_of
from ulnet.dlc.yaml_out import emit_document

__all__ = [
    "Call",
    "Discovered",
    "Pinged",
    "add_access",
    "add_net",
    "add_nids",
    "add_nis_by_address",
    "add_peer",
    "add_policy",
    "add_route",
    "configure",
    "delete_access",
    "delete_net",
    "delete_nids",
    "delete_peer",
    "delete_policy",
    "delete_route",
    "discover",
    "distances",
    "explain",
    "export",
    "list_peers",
    "net_sums",
    "peer_sums",
    "ping",
    "refresh_peer",
    "reset_statistics",
    "set_discovery",
    "set_routing",
    "set_tcp_bonding",
    "set_values",
    "show_access",
    "show_nets",
    "show_ni",
    "show_peers",
    "show_policies",
    "show_routes",
    "show_statistics",
    "show_use",
    "show_values",
    "unconfigure",
]

# The node ------------------------------------------------------------------------------------------------


def configure(*, all: bool = False, large: bool = False) -> Call[None]:
    """Start LNet with `0@lo`; `all` also does what lnetd was started with, `large` prefers IPv6 NIDs."""
    return Call(model.LnetConfigure(all=all, large=large), nothing)


def unconfigure() -> Call[None]:
    """Shut LNet down; the daemon stays."""
    return Call(model.LnetUnconfigure(), nothing)


def set_values(**values: int) -> Call[None]:
    """Change node-wide settings, all or none; names as `show_values` has them."""
    return Call(model.GlobalSet(values), nothing)


def set_discovery(on: bool) -> Call[None]:
    """Switch dynamic discovery on or off."""
    return set_values(discovery=int(on))


def set_tcp_bonding(on: bool) -> Call[None]:
    """Let tcp nets that are added from now on be one NI over all their interfaces, or an NI each."""
    return set_values(use_tcp_bonding=int(on))


def show_values() -> Call[dict[str, int]]:
    """Node-wide settings by name."""
    return Call(model.GlobalShow(), reader(documents.GlobalDocument, "settings"))


def export(*, backup: bool = False) -> Call[str]:
    """The whole configuration as YAML; `backup` leaves out what a restore does not need."""

    def read(reply: Reply) -> str:
        refuse(reply)
        return emit_document(as_mapping(reply))

    return Call(model.Export(backup=backup), read)


# Nets and NIs --------------------------------------------------------------------------------------------


def add_net(
    net: str,
    interfaces: Sequence[str],
    *,
    tunables: model.Tunables | None = None,
    cpts: str | None = None,
    bonding: bool | None = None,
) -> Call[None]:
    """Add an NI for each interface (`eth0`, with CPTs `eth0[0,1]`), all or none.

    With `bonding` one NI over all of them, of a tcp net; None is what `use_tcp_bonding` says.
    """
    request = model.NetAdd(net, several(interfaces), bonding=bonding, tunables=tunables or {}, cpts=cpts)
    return Call(request, nothing)


def add_nids(
    nids: Sequence[str], *, tunables: model.Tunables | None = None, cpts: str | None = None
) -> Call[None]:
    """Add the NIs with these NIDs, all or none."""
    request = model.NetAdd(nids=several(nids), tunables=tunables or {}, cpts=cpts)
    return Call(request, nothing)


def add_nis_by_address(ip2nets: str) -> Call[None]:
    """Add the NIs that rules choose: `tcp(eth0) 192.168.0.*; tcp1 10.*.*.*`. Raises LegacyError at once."""
    from ulnet.dlc.legacy import read_ip2nets

    return Call(model.NetMatch(read_ip2nets(ip2nets)), nothing)


def delete_net(net: str, interfaces: Sequence[str] = (), *, force: bool = False) -> Call[None]:
    """Delete a net, or some interfaces of it. `force` does not wait for what is under way; else EBUSY."""
    return Call(model.NetDel(net, several(interfaces), force=force), nothing)


def delete_nids(nids: Sequence[str], *, force: bool = False) -> Call[None]:
    """Delete the NIs with these NIDs, all or none. `force` does not wait for what is under way."""
    return Call(model.NetDel(nids=several(nids), force=force), nothing)


def show_nets(net: str | None = None, *, verbosity: int = 0) -> Call[list[documents.LocalNetView]]:
    """All nets with their NIs, or one; verbosity 0 to 4."""
    return Call(model.NetShow(net, verbosity), reader(documents.NetDocument, "net"))


def show_ni(net: str, index: int, *, verbosity: int = 0) -> Call[documents.LocalNiView | None]:
    """The NI at that place of a net, counted from 0; None behind the last."""

    def read(reply: Reply) -> documents.LocalNiView | None:
        refuse(reply)
        document: documents.NetDocument = document_of(reply.result, documents.NetDocument)
        return next((ni for net in document.net for ni in net.local_nis), None)

    return Call(model.NetShow(net, verbosity, index=index), read)


# Peers ---------------------------------------------------------------------------------------------------


def add_peer(
    primary: str, nids: Sequence[str] = (), *, multi_rail: bool = True, lock_primary: bool = False
) -> Call[None]:
    """Configure a peer, or add NIDs to it; NIDs may be ranges."""
    return Call(model.PeerAdd(primary, several(nids), multi_rail, lock_primary), nothing)


def refresh_peer(
    primary: str, nids: Sequence[str], *, multi_rail: bool | None = None
) -> Call[list[ErrorItem]]:
    """Make this list the peer's NIDs; the refusals of single ones, by their index, while the rest is done."""
    return Call(model.PeerRefresh(several(nids), primary, multi_rail), lambda reply: reply.errors)


def delete_peer(primary: str, nids: Sequence[str] = (), *, force: bool = False) -> Call[None]:
    """Delete some NIDs of a peer, or the peer."""
    return Call(model.PeerDel(primary, several(nids), force), nothing)


def show_peers(
    nids: Sequence[str] = (), *, verbosity: int = 0, count: int = 0, after: str | None = None
) -> Call[list[documents.PeerView]]:
    """Peers, those with these NIDs or all; or by their NIDs, `count` (0: all) behind the NID `after`."""
    request = model.PeerShow(several(nids), verbosity, count=count, after=after)
    return Call(request, reader(documents.PeerDocument, "peer"))


def list_peers() -> Call[list[documents.NidItem]]:
    """Their primary NIDs."""
    return Call(model.PeerList(), reader(documents.PeerListDocument, "peer_list"))


# Routes and policies -------------------------------------------------------------------------------------


def add_route(net: str, gateway: str, *, hop: int = -1, priority: int = 0) -> Call[None]:
    """Reach a net by gateways."""
    return Call(model.RouteAdd(net, gateway, hop, priority), nothing)


def delete_route(net: str, gateway: str) -> Call[None]:
    """Delete routes."""
    return Call(model.RouteDel(net, gateway), nothing)


def show_routes(
    net: str | None = None, gateway: str | None = None, *, verbosity: int = 1
) -> Call[list[documents_routing.RouteView]]:
    """All routes, or those to a net, over a gateway."""
    request = model.RouteShow(net, gateway, verbosity=verbosity)
    return Call(request, reader(documents_routing.RouteDocument, "route"))


def set_routing(on: bool) -> Call[None]:
    """Forward messages for others, or no more."""
    return Call(model.RoutingSet(on), nothing)


def add_policy(
    *,
    src: str | None = None,
    dst: str | None = None,
    rte: str | None = None,
    priority: int | None = None,
    weight: int | None = None,
    index: int | None = None,
) -> Call[None]:
    """Add a selection policy at the end or at `index`, or change its priority or weight."""
    return Call(model.UdspAdd(src, dst, rte, priority=priority, weight=weight, idx=index), nothing)


def delete_policy(
    index: int | None = None, *, src: str | None = None, dst: str | None = None, rte: str | None = None
) -> Call[None]:
    """Delete a selection policy by its place or by what it matches."""
    return Call(model.UdspDel(index, src=src, dst=dst, rte=rte), nothing)


def show_policies() -> Call[list[documents_policy.UdspView]]:
    """All selection policies."""
    return Call(model.UdspShow(), reader(documents_policy.UdspDocument, "udsp"))


# Access lists ---------------------------------------------------------------------------------------------


def add_access(*, allow: Sequence[str] = (), deny: Sequence[str] = ()) -> Call[None]:
    """Add rules `[WHAT=]WHO` of who may do what here, all or none; those that are there stay."""
    return Call(model.AccessAdd(several(allow), several(deny)), nothing)


def delete_access(*, allow: Sequence[str] = (), deny: Sequence[str] = (), all: bool = False) -> Call[None]:
    """Delete rules, all that are named or none; or each there is."""
    return Call(model.AccessDel(several(allow), several(deny), all=all), nothing)


def show_access() -> Call[documents_access.AccessView]:
    """The access lists."""
    return Call(model.AccessShow(), reader(documents_access.AccessDocument, "access"))


# Statistics ----------------------------------------------------------------------------------------------


def show_statistics() -> Call[documents.Statistics]:
    """Counters of the whole node."""
    return Call(model.StatsShow(), reader(documents.StatsDocument, "statistics"))


def reset_statistics(*, all: bool = False) -> Call[None]:
    """Zero the node's counters, with `all` those of NIs and peers too."""
    return Call(model.StatsReset(all=all), nothing)


def net_sums(net: str | None = None) -> Call[list[documents_stats.SumView]]:
    """Counters added up over the NIs of each net, or of one."""
    return Call(model.SumsShow("nets", net), reader(documents_stats.SumsDocument, "sums"))


def peer_sums(nid: str | None = None) -> Call[list[documents_stats.SumView]]:
    """Counters added up over the NIDs of each peer, or of one."""
    return Call(model.SumsShow("peers", nid), reader(documents_stats.SumsDocument, "sums"))


def show_use(*, peers: bool = False, top: int = 0) -> Call[list[documents_stats.UseView]]:
    """Heat and rates of local NIs or of peer NIs, the hottest first."""
    request = model.UseShow("peers" if peers else "nets", top)
    return Call(request, reader(documents_stats.UseDocument, "use"))


# Asking around -------------------------------------------------------------------------------------------


def ping(nids: Sequence[str], *, source: str | None = None, timeout: float = 1.0) -> Call[Pinged]:
    """Ask nodes for their NIDs, at once."""

    def read(reply: Reply) -> Pinged:
        document: documents.PingDocument | None = document_of(reply.result, documents.PingDocument | None)
        if document is None:
            refuse(reply)
        return Pinged(document.ping if document is not None else [], reply.errors)

    request = model.Ping(several(nids), source, seconds(timeout))
    return Call(request, read, deadline_of(request))


def discover(nids: Sequence[str], *, force: bool = False, timeout: float = 180.0) -> Call[Discovered]:
    """Find out which NIDs peers have; `force` also where that is known."""

    def read(reply: Reply) -> Discovered:
        kind = documents.DiscoverDocument | None
        document: documents.DiscoverDocument | None = document_of(reply.result, kind)
        if document is None:
            refuse(reply)
        return Discovered(document.discover if document is not None else [], reply.errors)

    request = model.Discover(several(nids), force, timeout=seconds(timeout))
    return Call(request, read, deadline_of(request))


def distances(nids: Sequence[str]) -> Call[list[documents.DistanceView]]:
    """How far NIDs are that can be reached, the nearest first (LNetDist); EHOSTUNREACH where none can be."""
    return Call(model.Distances(several(nids)), reader(documents.DistanceDocument, "which_nid"))


def explain(target: str, *, source: str | None = None, size: int = 0) -> Call[documents_explain.ExplainView]:
    """Which path a message would take, and why."""
    return Call(model.Explain(target, source, size), reader(documents_explain.ExplainDocument, "explain"))
