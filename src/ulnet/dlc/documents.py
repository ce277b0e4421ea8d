"""What a node answers, field by field in lnetctl's order and under its names (spec lnetctl.md §5).

A field that is UNSET is not printed; which are set follows from the verbosity asked for.
"""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from ulnet.dlc.documents_access import AccessView
from ulnet.dlc.documents_bond import BondPeerView, BondView
from ulnet.dlc.documents_counters import MsgCounts, NiHealth, PeerNiHealth, Statistics, TrafficStats
from ulnet.dlc.documents_load import NiLoad, PeerNiLoad
from ulnet.dlc.documents_policy import UdspView
from ulnet.dlc.documents_routing import RouteView

__all__ = [
    "CptOfNid",
    "CptOfNidDocument",
    "CptView",
    "DiscoverDocument",
    "DiscoverView",
    "DistanceDocument",
    "DistanceView",
    "ExportDocument",
    "GlobalDocument",
    "LocalNetView",
    "LocalNiView",
    "MsgCounts",
    "NetDocument",
    "NiHealth",
    "NidItem",
    "NumaDocument",
    "NumaView",
    "PeerDocument",
    "PeerListDocument",
    "PeerNiHealth",
    "PeerNiView",
    "PeerView",
    "PingDocument",
    "PingView",
    "Statistics",
    "StatsDocument",
    "TrafficStats",
    "UdspInfo",
]


class UdspInfo(
    Struct,
    rename={
        "net_priority": "net priority",
        "nid_priority": "nid priority",
        "gateways": "Preferred gateway NIDs",
        "sources": "Preferred source NIDs",
        "net_weight": "net weight",
        "nid_weight": "nid weight",
        "turns": "weight by source NID",
    },
):
    """What selection policy says of an NI; -1: nothing. Lists are numbered `NID-0` and on.

    The real tool has no weights: they are shown where there are some.
    """

    net_priority: int = -1
    nid_priority: int = -1
    gateways: dict[str, str] | UnsetType = UNSET
    sources: dict[str, str] | UnsetType = UNSET
    net_weight: int | UnsetType = UNSET
    nid_weight: int | UnsetType = UNSET
    turns: dict[str, int] | UnsetType = UNSET


class LocalNiView(
    Struct,
    rename={
        "udsp_info": "udsp info",
        "health_stats": "health stats",
        "lnd_tunables": "lnd tunables",
        "dev_cpt": "dev cpt",
        "tcp_bonding": "tcp bonding",
        "cpt": "CPT",
        "secured_until": "certificate expires",
    },
):
    """One NI."""

    nid: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    drained: int | UnsetType = UNSET
    interfaces: dict[int, str] | UnsetType = UNSET
    slaves: dict[int, str] | UnsetType = UNSET
    bond: BondView | UnsetType = UNSET
    statistics: TrafficStats | UnsetType = UNSET
    udsp_info: UdspInfo | UnsetType = UNSET
    sent_stats: MsgCounts | UnsetType = UNSET
    received_stats: MsgCounts | UnsetType = UNSET
    dropped_stats: MsgCounts | UnsetType = UNSET
    health_stats: NiHealth | UnsetType = UNSET
    tunables: dict[str, int] | UnsetType = UNSET  # under the names of `ulnet.dlc.tunables`
    lnd_tunables: dict[str, int | bool | str] | UnsetType = UNSET
    secured_until: str | UnsetType = UNSET
    dev_cpt: int | UnsetType = UNSET
    tcp_bonding: int | UnsetType = UNSET
    cpt: str | UnsetType = UNSET
    load: NiLoad | UnsetType = UNSET


class LocalNetView(Struct, rename={"net_type": "net type", "local_nis": "local NI(s)"}):
    """One net."""

    net_type: str
    local_nis: list[LocalNiView]


class NetDocument(Struct):
    """`net show`."""

    net: list[LocalNetView]


class NidItem(Struct):
    """A NID in a list of NIDs."""

    nid: str


class PeerNiView(Struct, rename={"udsp_info": "udsp info", "health_stats": "health stats"}):
    """One peer NI."""

    nid: str
    udsp_info: UdspInfo | UnsetType = UNSET
    state: str | UnsetType = UNSET
    max_ni_tx_credits: int | UnsetType = UNSET
    available_tx_credits: int | UnsetType = UNSET
    min_tx_credits: int | UnsetType = UNSET
    tx_q_num_of_buf: int | UnsetType = UNSET
    available_rtr_credits: int | UnsetType = UNSET
    min_rtr_credits: int | UnsetType = UNSET
    refcount: int | UnsetType = UNSET
    statistics: TrafficStats | UnsetType = UNSET
    sent_stats: MsgCounts | UnsetType = UNSET
    received_stats: MsgCounts | UnsetType = UNSET
    dropped_stats: MsgCounts | UnsetType = UNSET
    health_stats: PeerNiHealth | UnsetType = UNSET
    load: PeerNiLoad | UnsetType = UNSET
    bond: BondPeerView | UnsetType = UNSET


class PeerView(
    Struct,
    rename={
        "primary_nid": "primary nid",
        "multi_rail": "Multi-Rail",
        "peer_state": "peer state",
        "peer_ni": "peer ni",
    },
):
    """One peer."""

    primary_nid: str
    multi_rail: bool
    peer_state: int | UnsetType = UNSET
    differences: list[str] | UnsetType = UNSET
    peer_ni: list[PeerNiView] = []


class PeerDocument(Struct):
    """`peer show`."""

    peer: list[PeerView]


class PeerListDocument(Struct, rename={"peer_list": "peer list"}):
    """`peer list`."""

    peer_list: list[NidItem]


class PingView(Struct, rename={"primary_nid": "primary nid", "multi_rail": "Multi-Rail"}):
    """One node's answer."""

    primary_nid: str
    multi_rail: bool
    peer_ni: list[NidItem]


class PingDocument(Struct):
    """`ping`: the nodes that answered, in the order asked."""

    ping: list[PingView]


class DiscoverView(Struct, rename={"primary_nid": "primary nid", "multi_rail": "Multi-Rail"}):
    """One peer as it is now; `differences` between what is held of it and what it says, if asked for."""

    primary_nid: str
    multi_rail: bool
    peer_ni: list[NidItem]
    differences: list[str] | UnsetType = UNSET


class DiscoverDocument(Struct):
    """`discover`: the peers that were discovered, in the order asked."""

    discover: list[DiscoverView]


class StatsDocument(Struct):
    """`stats show`."""

    statistics: Statistics


class CptView(Struct):
    """One CPT; distances as `0:10 1:21`."""

    cpt: int
    cpus: str | UnsetType = UNSET
    nodes: str | UnsetType = UNSET
    distances: str | UnsetType = UNSET


class NumaView(Struct, rename={"cpts": "CPTs"}):
    """NUMA as path selection sees it."""

    range: int
    cpts: list[CptView]


class NumaDocument(Struct):
    """`numa show`."""

    numa: NumaView


class CptOfNid(Struct):
    """Which CPT takes care of a NID."""

    nid: str
    cpt: int


class CptOfNidDocument(Struct, rename={"cpt_of_nid": "cpt-of-nid"}):
    """`cpt-of-nid`."""

    cpt_of_nid: list[CptOfNid]


class DistanceView(Struct):
    """How many hops a NID is away, 0 for one of the node's own; and what a message leaves from."""

    nid: str
    hops: int
    source: str


class DistanceDocument(Struct, rename={"which_nid": "which-nid"}):
    """`ulnet which-nid`, the nearest first."""

    which_nid: list[DistanceView]


class GlobalDocument(Struct, rename={"settings": "global"}):
    """`global show`. Settings that kernel nodes have not are told where they are not the default."""

    settings: dict[str, int]  # under the names of `ulnet.dlc.settings`


class ExportDocument(Struct, rename={"settings": "global"}):
    """`export`. Who may do what comes first: it holds before there are nets then."""

    access: AccessView | UnsetType
    net: list[LocalNetView]
    route: list[RouteView]
    peer: list[PeerView]
    routing: dict[str, int]
    buffers: dict[str, int]
    settings: dict[str, int]
    udsp: list[UdspView] = []
