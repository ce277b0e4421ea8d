"""`export` (spec lnetctl.md §4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import UNSET, Struct

from ulnet.dlc.documents import ExportDocument
from ulnet.dlc.model import Export, NetShow, RouteShow, UdspShow
from ulnet.node.admin.access import show_access
from ulnet.node.admin.routes import backup_routes, show_routes
from ulnet.node.admin.routing import backup_routing
from ulnet.node.admin.settings import settings_of
from ulnet.node.admin.show_nets import backup_nets, show_nets
from ulnet.node.admin.show_peers import export_peers
from ulnet.node.admin.state import AdminState
from ulnet.node.admin.turns import Listing
from ulnet.node.admin.udsp import show_rules

__all__ = ["export"]


def export(state: AdminState, request: Export) -> Listing:
    """The whole configuration; a backup is what a restore needs."""
    core = state.core
    nets = backup_nets(core, state.host()) if request.backup else show_nets(core, NetShow(verbosity=2))
    access = show_access(core) if core.access else UNSET
    document = ExportDocument(access, nets, [], [], *backup_routing(core), settings_of(state))
    lists: Mapping[str, Iterator[Struct | None]] = {
        "route": backup_routes(core) if request.backup else show_routes(core, RouteShow(verbosity=1)),
        "peer": export_peers(core, request.backup),
        "udsp": show_rules(core, UdspShow()),
    }
    return Listing(document, lists)
