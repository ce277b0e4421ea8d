"""Executes requests on a Node: checks everything, then changes; errors as DlcError."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import UNSET

from ulnet.core.status import LNetError
from ulnet.dlc import model, model_bond
from ulnet.dlc.config import Step, step_error
from ulnet.dlc.documents import (
    CptOfNidDocument,
    DistanceDocument,
    DistanceView,
    ExportDocument,
    GlobalDocument,
    Globals,
    NetDocument,
    NumaDocument,
    PeerDocument,
    PeerListDocument,
)
from ulnet.dlc.documents_explain import ExplainDocument
from ulnet.dlc.documents_faults import FaultDocument
from ulnet.dlc.documents_policy import SelectionDocument, UdspDocument
from ulnet.dlc.documents_routing import RouteDocument
from ulnet.dlc.documents_trace import TraceDocument
from ulnet.dlc.errors import DlcError, ErrorItem
from ulnet.dlc.modprobe import Parameters, is_setting, tune
from ulnet.dlc.protocol import Answer
from ulnet.host import HostError, Link, links, placed
from ulnet.lnd.bond import BondLnd
from ulnet.node.admin.addition import Addition
from ulnet.node.admin.bonds import add_bond, fail_over, set_bond, switch_slave
from ulnet.node.admin.discoveries import discover_all
from ulnet.node.admin.draining import drain_and_delete, set_drained
from ulnet.node.admin.explain import explain
from ulnet.node.admin.faults import add_fault, delete_faults, reset_faults, show_faults
from ulnet.node.admin.health import debug_peer, set_nis, set_peers, show_recovery
from ulnet.node.admin.ip2nets import NO_MATCH, match_nets
from ulnet.node.admin.names import read_nids
from ulnet.node.admin.nets import NoInterface, add_nis, without_labels
from ulnet.node.admin.numa import cpts_of_nids, show_numa
from ulnet.node.admin.peer_files import refresh_peer, remove_nids
from ulnet.node.admin.peers import add_peer, delete_peer
from ulnet.node.admin.pings import ping_all
from ulnet.node.admin.routes import add_routes, backup_routes, delete_routes, show_routes
from ulnet.node.admin.routing import backup_routing, set_buffers, set_routing, show_routing
from ulnet.node.admin.selection import add_selection, delete_selection, show_selection
from ulnet.node.admin.settings import change_settings
from ulnet.node.admin.show_nets import backup_nets, show_nets
from ulnet.node.admin.show_node import show_globals
from ulnet.node.admin.show_peers import export_peers, list_peers, show_peers
from ulnet.node.admin.statistics import Statistician
from ulnet.node.admin.trace import read_trace
from ulnet.node.admin.udsp import add_rule, delete_rules, show_rules
from ulnet.node.distances import by_distance
from ulnet.node.node import Node

__all__ = ["Admin"]

_DONE = Answer()


class Admin:
    """The one place where requests meet a node, whether they come from a socket, a file or a program.

    `host` lists the host's links; `startup` is what `lnet configure --all` does, in order; `parameters` are
    those of the modules: their settings are in force once LNet is configured, and those of drivers for
    all nets that say nothing else. `additions` take requests of their own.
    """

    def __init__(
        self,
        node: Node,
        *,
        host: Callable[[], Sequence[Link]] = links,
        startup: Sequence[Step] = (),
        parameters: Sequence[Parameters] = (),
        drain: float = 5.0,
        additions: Sequence[Addition] = (),
    ) -> None:
        self.node = node
        self._additions = additions
        self.startup = startup
        self._parameters = parameters
        self._host = host
        self._drain = drain
        self._large = False
        self._changing = asyncio.Lock()
        self._handlers: dict[type[Any], Callable[[Any], Awaitable[Answer]]] = {
            model.LnetConfigure: self._configure,
            model.LnetUnconfigure: self._unconfigure,
            model.NetAdd: self._net_add,
            model.NetDel: self._net_del,
            model.NetShow: self._net_show,
            model.NetSet: self._net_set,
            model.NetMatch: self._net_match,
            model_bond.BondAdd: self._bond_add,
            model_bond.BondSet: self._bond_set,
            model_bond.BondSwitch: self._bond_switch,
            model_bond.BondFailover: self._bond_failover,
            model.PeerAdd: self._peer_add,
            model.PeerDel: self._peer_del,
            model.PeerShow: self._peer_show,
            model.PeerList: self._peer_list,
            model.PeerRefresh: self._peer_refresh,
            model.PeerRemove: self._peer_remove,
            model.Explain: self._explain,
            model.Trace: self._trace,
            model.Ping: self._ping,
            model.Discover: self._discover,
            model.NumaShow: self._numa_show,
            model.CptOfNids: self._cpt_of_nid,
            model.Distances: self._distances,
            model.GlobalShow: self._global_show,
            model.GlobalSet: self._global_set,
            model.UdspAdd: self._udsp_add,
            model.UdspDel: self._udsp_del,
            model.UdspShow: self._udsp_show,
            model.SelectionAdd: self._selection_add,
            model.SelectionDel: self._selection_del,
            model.SelectionShow: self._selection_show,
            model.RouteAdd: self._route_add,
            model.RouteDel: self._route_del,
            model.RouteShow: self._route_show,
            model.RouterSet: self._router_set,
            model.RoutingSet: self._routing_set,
            model.BuffersSet: self._buffers_set,
            model.RoutingShow: self._routing_show,
            model.PeerSet: self._peer_set,
            model.PeerDebug: self._peer_debug,
            model.RecoveryShow: self._recovery_show,
            model.FaultAdd: self._fault_add,
            model.FaultDel: self._fault_del,
            model.FaultReset: self._fault_reset,
            model.FaultShow: self._fault_show,
            model.Export: self._export,
            **Statistician(node).handlers,
        }
        for addition in additions:
            self._handlers |= addition.handlers

    async def handle(self, request: model.Request) -> Answer:
        """Execute a request. Raises DlcError when it is refused; nothing has changed then."""
        handler = self._handlers.get(type(request))
        try:
            if handler is None:
                text = f"section or command '{request.entity}' is not built yet in this version of ulnet"
                raise LNetError(errno.EOPNOTSUPP, text)
            if not self.node.running and request.entity != "lnet":
                raise _not_configured(request)
            return await handler(request)
        except (LNetError, HostError) as refused:
            raise DlcError(refused.errno, refused.text, verb=request.verb, entity=request.entity) from refused

    async def apply(self, steps: Sequence[Step]) -> list[ErrorItem]:
        """Execute the requests of a file in order, all of them; the errors of those that were refused."""
        errors: list[ErrorItem] = []
        for step in steps:
            try:
                answer = await self.handle(step.request)
            except DlcError as refused:
                errors.append(step_error(step, refused.item))
            else:
                errors += [step_error(step, item) for item in answer.errors]
        return errors

    # LNet as a whole -------------------------------------------------------------------------------

    async def _configure(self, request: model.LnetConfigure) -> Answer:
        async with self._changing:
            if self.node.running:
                return _DONE
            await self.node.start()
            self.begin_additions()
            self._large = request.large
        errors = await self.set_parameters()
        return Answer(errors=errors + (await self.apply(self.startup) if request.all else []))

    def begin_additions(self) -> None:
        """LNet is up. Raises LNetError."""
        for addition in self._additions:
            addition.begin()

    async def end_additions(self) -> None:
        """LNet is about to shut down."""
        for addition in self._additions:
            await addition.end()

    async def set_parameters(self) -> list[ErrorItem]:
        """Put the settings among the module parameters in force."""
        requests = [one for parameters in self._parameters for one in parameters.requests if is_setting(one)]
        return await self.apply([Step(request, 0) for request in requests])

    async def _unconfigure(self, request: model.LnetUnconfigure) -> Answer:
        async with self._changing:
            await self.end_additions()
            await self.node.close(self._drain)
        return _DONE

    # Nets ------------------------------------------------------------------------------------------

    async def _net_add(self, request: model.NetAdd) -> Answer:
        async with self._changing:
            self._tune(request)
            try:
                add_nis(self.node.core, request, self._links(), self._large)
            except NoInterface as missing:
                if not request.in_file:
                    raise
                raise DlcError(NO_MATCH, missing.text, verb="add", entity="import") from None
        return _DONE

    def _tune(self, request: model.NetAdd | model.NetMatch) -> None:
        """What the drivers' module parameters say holds where the request says nothing."""
        for parameters in reversed(self._parameters):  # the last one counts
            tune([request], parameters.drivers)

    def _links(self) -> list[Link]:
        return placed(self._host(), self.node.machine.topology)

    async def _net_match(self, request: model.NetMatch) -> Answer:
        async with self._changing:
            self._tune(request)
            core, here = self.node.core, self._links()
            bonds, drain = self.node.bond, self._drain
            return Answer(errors=await match_nets(core, request, here, self._large, bonds, drain))

    # Bonding NIs -----------------------------------------------------------------------------------

    def _bonds(self) -> BondLnd:
        assert self.node.bond is not None
        return self.node.bond

    async def _bond_add(self, request: model_bond.BondAdd) -> Answer:
        async with self._changing:
            add_bond(self.node.core, self._bonds(), request)
        return _DONE

    async def _bond_set(self, request: model_bond.BondSet) -> Answer:
        async with self._changing:
            set_bond(self.node.core, self._bonds(), request)
        return _DONE

    async def _bond_switch(self, request: model_bond.BondSwitch) -> Answer:
        async with self._changing:
            switch_slave(self._bonds(), request)
        return _DONE

    async def _bond_failover(self, request: model_bond.BondFailover) -> Answer:
        async with self._changing:
            fail_over(self._bonds(), request)
        return _DONE

    async def _net_del(self, request: model.NetDel) -> Answer:
        async with self._changing:
            request = without_labels(self.node.core, request, self._links())
            await drain_and_delete(self.node.core, request, self._drain)
        return _DONE

    async def _net_show(self, request: model.NetShow) -> Answer:
        core = self.node.core
        return Answer(
            NetDocument(show_nets(core, request.net, request.verbosity, request.load, request.index))
        )

    async def _net_set(self, request: model.NetSet) -> Answer:
        async with self._changing:
            nis = set_nis(self.node.core, request)
            if request.drain is not None:
                await set_drained(self.node.core, nis, bool(request.drain), self._drain)
        return _DONE

    # Peers -----------------------------------------------------------------------------------------

    async def _peer_add(self, request: model.PeerAdd) -> Answer:
        async with self._changing:
            add_peer(self.node.core, request)
        return _DONE

    async def _peer_del(self, request: model.PeerDel) -> Answer:
        async with self._changing:
            return Answer(notes=delete_peer(self.node.core, request))

    async def _peer_refresh(self, request: model.PeerRefresh) -> Answer:
        async with self._changing:
            return Answer(errors=refresh_peer(self.node.core, request))

    async def _peer_remove(self, request: model.PeerRemove) -> Answer:
        async with self._changing:
            return Answer(errors=remove_nids(self.node.core, request))

    async def _peer_set(self, request: model.PeerSet) -> Answer:
        async with self._changing:
            set_peers(self.node.core, request)
        return _DONE

    async def _peer_debug(self, request: model.PeerDebug) -> Answer:
        debug_peer(self.node.core, request)
        return _DONE

    async def _recovery_show(self, request: model.RecoveryShow) -> Answer:
        return Answer(show_recovery(self.node.core, request))

    async def _peer_show(self, request: model.PeerShow) -> Answer:
        views = show_peers(
            self.node.core,
            request.nids,
            request.verbosity,
            request.load,
            count=request.count,
            after=request.after,
        )
        return Answer(PeerDocument(views))

    async def _peer_list(self, request: model.PeerList) -> Answer:
        return Answer(PeerListDocument(list_peers(self.node.core)))

    async def _explain(self, request: model.Explain) -> Answer:
        return Answer(ExplainDocument(explain(self.node.core, request)))

    async def _trace(self, request: model.Trace) -> Answer:
        return Answer(TraceDocument(read_trace(self.node.core, request)))

    async def _ping(self, request: model.Ping) -> Answer:
        return await ping_all(self.node, request)

    async def _discover(self, request: model.Discover) -> Answer:
        return await discover_all(self.node, request)

    # Selection policies ----------------------------------------------------------------------------

    async def _udsp_add(self, request: model.UdspAdd) -> Answer:
        async with self._changing:
            add_rule(self.node.core, request)
        return _DONE

    async def _udsp_del(self, request: model.UdspDel) -> Answer:
        async with self._changing:
            delete_rules(self.node.core, request)
        return _DONE

    async def _udsp_show(self, request: model.UdspShow) -> Answer:
        return Answer(UdspDocument(show_rules(self.node.core, request.idx, request.verbosity)))

    async def _selection_add(self, request: model.SelectionAdd) -> Answer:
        async with self._changing:
            add_selection(self.node.core, request)
        return _DONE

    async def _selection_del(self, request: model.SelectionDel) -> Answer:
        async with self._changing:
            delete_selection(self.node.core, request)
        return _DONE

    async def _selection_show(self, request: model.SelectionShow) -> Answer:
        return Answer(SelectionDocument(show_selection(self.node.core, request)))

    # Routing ---------------------------------------------------------------------------------------

    async def _route_add(self, request: model.RouteAdd) -> Answer:
        async with self._changing:
            add_routes(self.node.core, request)
        return _DONE

    async def _route_del(self, request: model.RouteDel) -> Answer:
        async with self._changing:
            delete_routes(self.node.core, request)
        return _DONE

    async def _route_show(self, request: model.RouteShow) -> Answer:
        return Answer(RouteDocument(show_routes(self.node.core, request)))

    async def _routing_set(self, request: model.RoutingSet) -> Answer:
        async with self._changing:
            set_routing(self.node.core, request)
        return _DONE

    async def _router_set(self, request: model.RouterSet) -> Answer:
        async with self._changing:
            self.node.core.gateways.set(request.values)
        return _DONE

    async def _buffers_set(self, request: model.BuffersSet) -> Answer:
        async with self._changing:
            set_buffers(self.node.core, request)
        return _DONE

    async def _routing_show(self, request: model.RoutingShow) -> Answer:
        return Answer(show_routing(self.node.core))

    # The node --------------------------------------------------------------------------------------

    async def _numa_show(self, request: model.NumaShow) -> Answer:
        return Answer(NumaDocument(show_numa(self.node.core)))

    async def _cpt_of_nid(self, request: model.CptOfNids) -> Answer:
        return Answer(CptOfNidDocument(cpts_of_nids(self.node.core, request)))

    async def _distances(self, request: model.Distances) -> Answer:
        found = by_distance(self.node.core, read_nids(request.nids))
        return Answer(DistanceDocument([DistanceView(str(a.nid), a.hops, str(a.source)) for a in found]))

    async def _global_show(self, request: model.GlobalShow) -> Answer:
        return Answer(GlobalDocument(self._globals()))

    def _globals(self) -> Globals:
        shown = show_globals(self.node.core)
        for addition in self._additions:
            for name, setting in addition.settings.items():
                setattr(shown, name, setting.get() or UNSET)
        return shown

    async def _global_set(self, request: model.GlobalSet) -> Answer:
        added = {name: setting for one in self._additions for name, setting in one.settings.items()}
        async with self._changing:
            change_settings(
                self.node.core, {name: value for name, value in request.values.items() if name not in added}
            )
            for name in added.keys() & request.values.keys():
                added[name].set(request.values[name])
        return _DONE

    # Fault rules -----------------------------------------------------------------------------------

    async def _fault_add(self, request: model.FaultAdd) -> Answer:
        add_fault(self.node.core, request)
        return _DONE

    async def _fault_del(self, request: model.FaultDel) -> Answer:
        delete_faults(self.node.core, request)
        return _DONE

    async def _fault_reset(self, request: model.FaultReset) -> Answer:
        reset_faults(self.node.core, request)
        return _DONE

    async def _fault_show(self, request: model.FaultShow) -> Answer:
        return Answer(FaultDocument(show_faults(self.node.core, request)))

    async def _export(self, request: model.Export) -> Answer:
        core = self.node.core
        nets = backup_nets(core, self._host()) if request.backup else show_nets(core, None, 2)
        peers = export_peers(core, request.backup)
        routes = backup_routes(core) if request.backup else show_routes(core, model.RouteShow(verbosity=1))
        routing, buffers = backup_routing(core)
        return Answer(
            ExportDocument(nets, routes, peers, routing, buffers, self._globals(), show_rules(core))
        )


def _not_configured(request: model.Request) -> LNetError:
    """What the real tool says: adding an NI to a node that is down has an errno of its own."""
    number = errno.ESHUTDOWN if isinstance(request, model.NetAdd) else errno.ENETDOWN
    return LNetError(number, "LNet is not configured on this node: run 'lnetctl lnet configure' first")
