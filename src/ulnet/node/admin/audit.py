"""What was changed, by whom: one line of JSON in the log for each request that changes something."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import msgspec

from ulnet.control.view import View
from ulnet.core.lines import Line
from ulnet.core.status import LNetError
from ulnet.dlc.caller import Caller
from ulnet.dlc.model_faults import FaultShow
from ulnet.dlc.model_policy import SelectionShow, UdspShow
from ulnet.dlc.request import BaseRequest
from ulnet.node.admin.access import show_access
from ulnet.node.admin.bonded_nets import interfaces_of
from ulnet.node.admin.bonds import bond_of
from ulnet.node.admin.faults import show_faults
from ulnet.node.admin.names import read_nids
from ulnet.node.admin.routes import routes_of
from ulnet.node.admin.routing import backup_routing
from ulnet.node.admin.selection import show_selection
from ulnet.node.admin.settings import settings_of
from ulnet.node.admin.state import AdminState
from ulnet.node.admin.udsp import show_rules

__all__ = ["Audit"]

_log = logging.getLogger("ulnet.audit")
_MOST: Final = 100  # things that one line tells to have changed
_Leaves = dict[str, Any]


class Audit:
    """One request that changes something: made before it, and told after."""

    def __init__(self, state: AdminState, request: BaseRequest, caller: Caller, running: bool) -> None:
        self._state = state
        self._request = request
        self._caller = caller
        self._before = _picture(state, request) if running else {}

    def tell(self, refused: Sequence[str], running: bool) -> None:
        """Write the line: who, what, what it was before and is after, and what was refused."""
        after = _picture(self._state, self._request) if running else {}
        before = self._before
        names = [name for name in before | after if before.get(name) != after.get(name)]
        changed = {name: [before.get(name), after.get(name)] for name in names[:_MOST]}
        line: dict[str, Any] = {
            "user": self._caller.user,
            "uid": self._caller.uid,
            "pid": self._caller.pid,
            "request": msgspec.to_builtins(self._request),
            "changed": changed,
        }
        if len(names) > _MOST:
            line["more"] = len(names) - _MOST
        if refused:
            line["refused"] = refused[:_MOST]
        about = {name: _json(value) for name, value in line.items()}
        _log.info("%s", Line("control.changed", f"audit: {_json(line)}", **about))


def _json(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _picture(state: AdminState, request: BaseRequest) -> _Leaves:
    """What the request is about, as names and values."""
    show = _SHOWS.get(request.entity)
    if show is None:
        return {}
    try:
        shown = msgspec.to_builtins(show(state, request))
    except LNetError:  # what is named cannot be: the request itself is refused
        return {}
    return dict(_leaves("", shown)) if shown else {}


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}" if name else str(key), inner)
    elif isinstance(value, list) and any(isinstance(inner, (Mapping, list)) for inner in value):
        for at, inner in enumerate(value):
            yield from _leaves(f"{name}[{_title(inner) or at}]", inner)
    else:
        yield name, value


def _title(value: Any) -> str:
    """By what an item of a list is known from one time to the other."""
    if isinstance(value, Mapping):
        for key in ("net type", "nid", "primary nid", "net"):
            if value.get(key):
                return str(value[key]) + (f" {value['gateway']}" if value.get("gateway") else "")
    return ""


def _peers(core: View, request: BaseRequest) -> dict[str, Any]:
    """The peers that have the NIDs of a request."""
    named = [getattr(request, "primary", None), *getattr(request, "nids", ())]
    found = {}
    for nid in read_nids(text for text in named if text is not None):
        peer = core.peers.find(nid)
        if peer is not None:
            nids = {str(pni.nid): {"health": pni.health} for pni in peer.members.values()}
            found[str(peer.primary_nid)] = {
                "configured": peer.configured,
                "multi_rail": peer.multi_rail,
                "nids": nids,
            }
    return found


def _nets(core: View) -> dict[str, Any]:
    """The NIs, with all that can be configured of them."""
    return {
        str(ni.nid): {
            "interfaces": interfaces_of(ni) or {},
            "cpts": list(ni.cpts),
            "health": ni.health,
            "drained": not ni.open,
            "tunables": asdict(ni.net.tunables),
            "lnd tunables": asdict(ni.lnd_tunables) if ni.lnd_tunables is not None else {},
            "bond": bond_of(ni, state=False),
        }
        for ni in core.nis.values()
    }


_SHOWS: Final[Mapping[str, Callable[[AdminState, Any], Any]]] = {
    "net": lambda state, _: _nets(state.core),
    "bond": lambda state, _: _nets(state.core),
    "peer": lambda state, one: _peers(state.core, one),
    "route": lambda state, one: routes_of(state.core, one),
    "routing": lambda state, _: list(backup_routing(state.core)),
    "buf": lambda state, _: list(backup_routing(state.core)),
    "global": lambda state, _: settings_of(state),
    "udsp": lambda state, _: list(show_rules(state.core, UdspShow())),
    "access": lambda state, _: show_access(state.core),
    "selection": lambda state, one: show_selection(state.core, SelectionShow(one.kind)),
    "fault": lambda state, one: show_faults(state.core, FaultShow(one.kind)),
}
