"""The requests that configure and query a node (spec lnetctl.md §1).

Command line, YAML and start-up file all become these. NIDs, nets and interfaces are text here, so that
one place, the node, judges them; lists of NIDs may hold ranges (`10.0.0.[1-4]@tcp`).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ulnet.dlc.model_access import AccessAdd, AccessDel, AccessShow
from ulnet.dlc.model_bond import BondAdd, BondFailover, BondSet, BondSwitch
from ulnet.dlc.model_faults import FaultAdd, FaultDel, FaultReset, FaultShow
from ulnet.dlc.model_files import Ip2netsRule, NetMatch, PeerRefresh, PeerRemove
from ulnet.dlc.model_health import NetSet, PeerDebug, PeerSet, RecoveryShow
from ulnet.dlc.model_policy import SelectionAdd, SelectionDel, SelectionShow, UdspAdd, UdspDel, UdspShow
from ulnet.dlc.model_routing import (
    BuffersSet,
    RouteAdd,
    RouteDel,
    RouterSet,
    RouteShow,
    RoutingSet,
    RoutingShow,
)
from ulnet.dlc.model_selftest import Lst
from ulnet.dlc.model_stats import SumsShow, UseShow
from ulnet.dlc.request import BaseRequest as _Request
from ulnet.dlc.request import Seconds, Tunables, Verbosity

__all__ = [
    "PINGS_AT_ONCE",
    "AccessAdd",
    "AccessDel",
    "AccessShow",
    "BondAdd",
    "BondFailover",
    "BondSet",
    "BondSwitch",
    "BuffersSet",
    "CptOfNids",
    "Discover",
    "Distances",
    "Explain",
    "Export",
    "FaultAdd",
    "FaultDel",
    "FaultReset",
    "FaultShow",
    "GlobalSet",
    "GlobalShow",
    "Ip2netsRule",
    "LnetConfigure",
    "LnetUnconfigure",
    "Lst",
    "NetAdd",
    "NetDel",
    "NetMatch",
    "NetSet",
    "NetShow",
    "NumaShow",
    "OptionsShow",
    "PeerAdd",
    "PeerDebug",
    "PeerDel",
    "PeerList",
    "PeerRefresh",
    "PeerRemove",
    "PeerSet",
    "PeerShow",
    "Ping",
    "RecoveryShow",
    "Request",
    "RouteAdd",
    "RouteDel",
    "RouteShow",
    "RouterSet",
    "RoutingSet",
    "RoutingShow",
    "SelectionAdd",
    "SelectionDel",
    "SelectionShow",
    "StatsReset",
    "StatsShow",
    "SumsShow",
    "Trace",
    "Tunables",
    "UdspAdd",
    "UdspDel",
    "UdspShow",
    "UseShow",
]

Index = Annotated[int, msgspec.Meta(ge=0)]
PINGS_AT_ONCE = 64  # of one request; the others wait their turn


class LnetConfigure(_Request, tag="lnet.configure"):
    """Start LNet with `0@lo`. `all` also does what the start-up file says; `large` prefers IPv6 NIDs."""

    verb = "configure"
    entity = "lnet"
    all: bool = False
    large: bool = False


class LnetUnconfigure(_Request, tag="lnet.unconfigure"):
    """Shut LNet down; the daemon stays."""

    verb = "configure"
    entity = "lnet"


class NetAdd(_Request, tag="net.add"):
    """Add NIs: `net` with `interfaces` (each may carry CPTs: `eth0[0,1]`), or `nids`. All or none.

    `prefer` is the NID to take for an interface that has several addresses, if it has that one.
    `bonding`: one NI over all the interfaces, or an NI each; None is what the node's setting says.
    `in_file`: an interface that there is not is filed as the real tool's import does.
    """

    verb = "add"
    entity = "net"
    net: str | None = None
    interfaces: list[str] = []
    nids: list[str] = []
    prefer: str | None = None
    in_file: bool = False
    bonding: bool | None = None
    tunables: Tunables = {}
    cpts: str | None = None


class NetDel(_Request, tag="net.del"):
    """Delete a net, some interfaces of it, or NIs by NID.

    What is under way ends first, for some seconds; with `force` it fails.
    """

    verb = "del"
    entity = "net"
    net: str | None = None
    interfaces: list[str] = []
    nids: list[str] = []
    force: bool = False


class NetShow(_Request, tag="net.show"):
    """Local nets and their NIs, with `index` one of each net's; `net` may be a list with commas.

    With `load` how busy they are, and what decided when one was chosen.
    """

    verb = "show"
    entity = "net"
    net: str | None = None
    verbosity: Verbosity = 0
    load: bool = False
    index: Index | None = None


class PeerAdd(_Request, tag="peer.add"):
    """Configure a peer; without `primary` the first NID is it."""

    verb = "add"
    entity = "peer"
    primary: str | None = None
    nids: list[str] = []
    multi_rail: bool = True
    lock_primary: bool = False


class PeerDel(_Request, tag="peer.del"):
    """Delete NIDs of a peer, or (without `nids`) the peer."""

    verb = "del"
    entity = "peer"
    primary: str | None = None
    nids: list[str] = []
    force: bool = False


class PeerShow(_Request, tag="peer.show"):
    """Peers and their NIs; `nids` are any of theirs; `load` as with nets.

    In the order of their NIDs, at most `count` (0: all) of those whose primary NID is behind `after`. Without
    `strangers` those are left out that this node never heard itself, and that it has nothing to do with.
    """

    verb = "show"
    entity = "peer"
    nids: list[str] = []
    verbosity: Verbosity = 0
    load: bool = False
    count: Index = 0
    after: str | None = None
    strangers: bool = True


class PeerList(_Request, tag="peer.list"):
    """Primary NIDs alone."""

    verb = "show"
    entity = "peer"


class Explain(_Request, tag="explain"):
    """Which path a message would take, and why. `size` in bytes; `numa` the CPT of its memory."""

    verb = "show"
    entity = "explain"
    target: str
    source: str | None = None
    size: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)] = 0
    numa: Annotated[int, msgspec.Meta(ge=0, le=4096)] = 0


class Trace(_Request, tag="trace"):
    """What pairs carry live traffic, since `cursor` of that `session`; of one peer if `target` is given."""

    verb = "show"
    entity = "trace"
    target: str | None = None
    every_message: bool = False
    session: int = 0
    cursor: Annotated[int, msgspec.Meta(ge=0)] = 0


class Ping(_Request, tag="ping"):
    """Ask nodes for their NIDs."""

    verb = "manage"
    entity = "ping"
    nids: list[str]
    source: str | None = None
    timeout: Seconds = 1.0


class Discover(_Request, tag="discover"):
    """Find out anew which NIDs peers have; `force`: and tell them ours, whatever they know.

    `verify` only compares what they tell with what is held of them, and changes nothing.
    """

    verb = "manage"
    entity = "discover"
    nids: list[str]
    force: bool = False
    verify: bool = False
    timeout: Seconds = 180.0


class NumaShow(_Request, tag="numa.show"):
    """The CPTs, how far they are from one another, and the range within which NIs count as equally near."""

    verb = "show"
    entity = "numa"


class CptOfNids(_Request, tag="cpt-of-nid"):
    """Which CPT takes care of each NID."""

    verb = "show"
    entity = "cpt-of-nid"
    nids: list[str]


class Distances(_Request, tag="which-nid"):
    """How far NIDs are, the nearest first; those that cannot be reached are left out."""

    verb = "show"
    entity = "which-nid"
    nids: list[str]


class StatsShow(_Request, tag="stats.show"):
    """Counters of the whole node."""

    verb = "show"
    entity = "statistics"


class StatsReset(_Request, tag="stats.reset"):
    """Zero them and the counters of NIs and peer NIs; with `all` also how heat was measured."""

    verb = "reset"
    entity = "statistics"
    all: bool = False


class GlobalShow(_Request, tag="global.show"):
    """Node-wide settings."""

    verb = "show"
    entity = "global"


class GlobalSet(_Request, tag="global.set"):
    """Change node-wide settings, all or none; names as `global show` prints them."""

    verb = "add"
    entity = "global"
    values: dict[str, int]


class OptionsShow(_Request, tag="options.show"):
    """What a node was started with that holds beneath any file."""

    verb = "show"
    entity = "options"


class Export(_Request, tag="export"):
    """The whole configuration; `backup` leaves out what a restore does not need."""

    verb = "show"
    entity = "export"
    backup: bool = False


Request = (
    LnetConfigure
    | LnetUnconfigure
    | NetAdd
    | NetDel
    | NetShow
    | NetSet
    | NetMatch
    | BondAdd
    | BondSet
    | BondSwitch
    | BondFailover
    | PeerAdd
    | PeerDel
    | PeerShow
    | PeerList
    | PeerRefresh
    | PeerRemove
    | RouteAdd
    | RouteDel
    | RouteShow
    | RouterSet
    | RoutingSet
    | RoutingShow
    | BuffersSet
    | Explain
    | Trace
    | Ping
    | Discover
    | NumaShow
    | CptOfNids
    | Distances
    | StatsShow
    | StatsReset
    | SumsShow
    | UseShow
    | GlobalShow
    | GlobalSet
    | UdspAdd
    | UdspDel
    | UdspShow
    | SelectionAdd
    | SelectionDel
    | SelectionShow
    | PeerSet
    | PeerDebug
    | RecoveryShow
    | AccessAdd
    | AccessDel
    | AccessShow
    | FaultAdd
    | FaultDel
    | FaultReset
    | FaultShow
    | OptionsShow
    | Export
    | Lst
)
