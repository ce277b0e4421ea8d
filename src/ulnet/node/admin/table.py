"""Requests and the functions that execute them, and who may ask for what: to look, or to do and to change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from ulnet.control.instance import LNet
from ulnet.control.view import View
from ulnet.dlc import documents, model, model_bond
from ulnet.dlc.caller import Role
from ulnet.dlc.documents_access import AccessDocument
from ulnet.dlc.documents_explain import ExplainDocument
from ulnet.dlc.documents_faults import FaultDocument
from ulnet.dlc.documents_policy import SelectionDocument, UdspDocument
from ulnet.dlc.documents_routing import RouteDocument
from ulnet.dlc.documents_stats import SumsDocument, UseDocument
from ulnet.dlc.documents_trace import TraceDocument
from ulnet.dlc.protocol import Answer
from ulnet.dlc.request import BaseRequest
from ulnet.node.admin.access import add_access, delete_access, show_access
from ulnet.node.admin.bonds import add_bond, fail_over, set_bond, switch_slave
from ulnet.node.admin.discoveries import discover_all
from ulnet.node.admin.draining import delete_nets, set_nets
from ulnet.node.admin.explain import explain
from ulnet.node.admin.export import export
from ulnet.node.admin.faults import add_fault, delete_faults, reset_faults, show_faults
from ulnet.node.admin.health import debug_peer, set_peers, show_recovery
from ulnet.node.admin.ip2nets import match_nets
from ulnet.node.admin.nets import add_nets
from ulnet.node.admin.numa import cpts_of_nids, show_numa
from ulnet.node.admin.options import show_options
from ulnet.node.admin.peer_files import refresh_peer, remove_nids
from ulnet.node.admin.peers import add_peer, delete_peer
from ulnet.node.admin.pings import ping_all, show_distances
from ulnet.node.admin.routes import add_routes, delete_routes, show_routes
from ulnet.node.admin.routing import set_buffers, set_router, set_routing, show_routing
from ulnet.node.admin.selection import add_selection, delete_selection, show_selection
from ulnet.node.admin.settings import change_settings, settings_of
from ulnet.node.admin.show_nets import show_nets
from ulnet.node.admin.show_node import reset_statistics, show_statistics
from ulnet.node.admin.show_peers import list_peers, show_peers
from ulnet.node.admin.state import AdminState
from ulnet.node.admin.sums import sums
from ulnet.node.admin.trace import read_trace
from ulnet.node.admin.turns import Listing
from ulnet.node.admin.udsp import add_rule, delete_rules, show_rules

__all__ = ["REQUESTS", "Outcome", "Row"]

R = TypeVar("R", bound=BaseRequest)
V = TypeVar("V")
Outcome = (
    Answer | Struct | Listing | Mapping[str, Any] | None
)  # None: done, and nothing to tell; or a document


class Row(NamedTuple):
    """How a request is executed. One that `changes` the configuration waits for others that do.

    `role` is what its caller must be; what is `audited` becomes a line in the log.
    """

    do: Callable[[AdminState, Any], Outcome | Awaitable[Outcome]]
    changes: bool
    role: Role = Role.CHANGE
    audited: bool = True


def _row(
    kind: type[R], do: Callable[[AdminState, R], Outcome | Awaitable[Outcome]], changes: bool = False
) -> tuple[type[BaseRequest], Row]:
    return kind, Row(do, changes)


def _reads(
    kind: type[R], do: Callable[[AdminState, R], Outcome | Awaitable[Outcome]]
) -> tuple[type[BaseRequest], Row]:
    return kind, Row(do, False, Role.LOOK, False)


def _asks(
    kind: type[R], do: Callable[[AdminState, R], Outcome | Awaitable[Outcome]]
) -> tuple[type[BaseRequest], Row]:
    """Changes nothing that is configured, but sends something, or keeps the node busy."""
    return kind, Row(do, False, Role.CHANGE, False)


def _shows(
    kind: type[R], do: Callable[[View, R], V], document: Callable[[V], Struct]
) -> tuple[type[BaseRequest], Row]:
    return _reads(kind, lambda state, request: document(do(state.core, request)))


def _lists(
    kind: type[R], do: Callable[[View, R], Iterator[Struct | None]], document: Callable[[list[Any]], Struct]
) -> tuple[type[BaseRequest], Row]:
    """Shows what may be very many."""
    (field,) = document([]).__struct_fields__
    return _reads(kind, lambda state, request: Listing(document([]), {field: do(state.core, request)}))


def _does(kind: type[R], do: Callable[[LNet, R], Outcome]) -> tuple[type[BaseRequest], Row]:
    return _row(kind, lambda state, request: do(state.core, request))


def _changes(kind: type[R], do: Callable[[LNet, R], Outcome]) -> tuple[type[BaseRequest], Row]:
    return _row(kind, lambda state, request: do(state.core, request), True)


REQUESTS: dict[type[BaseRequest], Row] = dict(
    [
        _row(model.NetAdd, add_nets, True),
        _row(model.NetDel, delete_nets, True),
        _row(model.NetSet, set_nets, True),
        _row(model.NetMatch, match_nets, True),
        _shows(model.NetShow, show_nets, documents.NetDocument),
        _row(model_bond.BondAdd, lambda state, one: add_bond(state.core, state.bonds, one), True),
        _row(model_bond.BondSet, lambda state, one: set_bond(state.core, state.bonds, one), True),
        _row(model_bond.BondSwitch, lambda state, one: switch_slave(state.bonds, one), True),
        _row(model_bond.BondFailover, lambda state, one: fail_over(state.bonds, one), True),
        _changes(model.PeerAdd, add_peer),
        _changes(model.PeerDel, delete_peer),
        _changes(model.PeerRefresh, refresh_peer),
        _changes(model.PeerRemove, remove_nids),
        _changes(model.PeerSet, set_peers),
        _asks(model.PeerDebug, lambda state, one: debug_peer(state.core, one)),
        _lists(model.PeerShow, show_peers, documents.PeerDocument),
        _lists(model.PeerList, list_peers, documents.PeerListDocument),
        _reads(model.RecoveryShow, lambda state, one: show_recovery(state.core, one)),
        _shows(model.Explain, explain, ExplainDocument),
        _asks(
            model.Trace, lambda state, one: TraceDocument(read_trace(state.core, one))
        ),  # and keeps it going
        _asks(model.Ping, lambda state, one: ping_all(state.node, one)),
        _asks(model.Discover, lambda state, one: discover_all(state.node, one)),
        _lists(model.Distances, show_distances, documents.DistanceDocument),
        _changes(model.UdspAdd, add_rule),
        _changes(model.UdspDel, delete_rules),
        _lists(model.UdspShow, show_rules, UdspDocument),
        _changes(model.SelectionAdd, add_selection),
        _changes(model.SelectionDel, delete_selection),
        _shows(model.SelectionShow, show_selection, SelectionDocument),
        _changes(model.AccessAdd, add_access),
        _changes(model.AccessDel, delete_access),
        _shows(model.AccessShow, show_access, AccessDocument),
        _row(model.RouteAdd, lambda state, one: add_routes(state.core, one), True),
        _row(model.RouteDel, lambda state, one: delete_routes(state.core, one), True),
        _lists(model.RouteShow, show_routes, RouteDocument),
        _changes(model.RouterSet, set_router),
        _changes(model.RoutingSet, set_routing),
        _changes(model.BuffersSet, set_buffers),
        _reads(model.RoutingShow, lambda state, _: show_routing(state.core)),
        _shows(model.NumaShow, lambda core, _: show_numa(core), documents.NumaDocument),
        _lists(model.CptOfNids, cpts_of_nids, documents.CptOfNidDocument),
        _row(model.GlobalSet, change_settings, True),
        _reads(model.GlobalShow, lambda state, _: documents.GlobalDocument(settings_of(state))),
        _does(model.FaultAdd, add_fault),
        _does(model.FaultDel, delete_faults),
        _does(model.FaultReset, reset_faults),
        _shows(model.FaultShow, show_faults, FaultDocument),
        _shows(model.StatsShow, lambda core, _: show_statistics(core), documents.StatsDocument),
        _row(model.StatsReset, reset_statistics),
        _lists(model.SumsShow, sums, SumsDocument),
        _reads(
            model.UseShow,
            lambda state, one: Listing(UseDocument([]), {"use": state.meter.read(state.core, one)}),
        ),
        _reads(model.OptionsShow, show_options),
        _reads(model.Export, export),
    ]
)
