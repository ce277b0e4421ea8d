"""Requests as a configuration file in today's form: what `read_config` reads is written back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ulnet.dlc import model
from ulnet.dlc.config_bond import bond_item
from ulnet.dlc.config_peer import LOCKED
from ulnet.dlc.model import Request, Tunables
from ulnet.dlc.model_bond import BondAdd
from ulnet.dlc.tunables import TUNABLES

__all__ = ["document_of"]

_ORDER = (
    "access",
    *("use_tcp_bonding", "net", "ip2nets", "route", "routing", "buffers", "peer", "peers", "global", "udsp"),
    "selection",
)


def document_of(requests: Iterable[Request]) -> dict[str, Any]:
    """The sections that ask for these; requests that no file makes are left out."""
    found: dict[str, Any] = {}
    for request in requests:
        if isinstance(request, model.NetAdd):
            _net(found.setdefault("net", []), request)
        elif isinstance(request, BondAdd):
            ni = bond_item(request)
            found.setdefault("net", []).append({"net type": request.net, "local NI(s)": [ni]})
        elif isinstance(request, model.NetMatch):
            _match(found, request)
        elif isinstance(request, model.PeerAdd | model.PeerRefresh):
            _peer(found, request)
        elif isinstance(request, model.GlobalSet):
            values = dict(request.values)
            if "use_tcp_bonding" in values:  # by itself, before the nets that it is for
                found["use_tcp_bonding"] = values.pop("use_tcp_bonding")
            if values:
                found.setdefault("global", {}).update(values)
        elif isinstance(request, model.AccessAdd | model.UdspAdd | model.SelectionAdd):
            _rules(found, request)
        elif isinstance(request, model.RouteAdd):
            found.setdefault("route", []).append(_given(request))
        elif isinstance(request, model.RouterSet):
            found.setdefault("routing", {}).update(request.values)
        elif isinstance(request, model.RoutingSet):
            found.setdefault("routing", {})["enable"] = int(request.enable)
        elif isinstance(request, model.BuffersSet):
            found["buffers"] = _given(request)
    return {name: found[name] for name in _ORDER if name in found}


def _rules(found: dict[str, Any], request: model.AccessAdd | model.UdspAdd | model.SelectionAdd) -> None:
    if isinstance(request, model.UdspAdd):
        found.setdefault("udsp", []).append(_udsp(request))
    elif isinstance(request, model.SelectionAdd):
        found.setdefault("selection", []).append(_selection(request))
    else:
        for name, rules in _given(request).items():
            found.setdefault("access", {}).setdefault(name, []).extend(rules)


def _net(items: list[dict[str, Any]], request: model.NetAdd) -> None:
    net = request.net
    if net is None:
        net = request.nids[0].partition("@")[2] or "tcp"
    ni: dict[str, Any] = {}
    nid = request.prefer if request.interfaces else request.nids[0]
    if nid is not None:
        ni["nid"] = nid
    if request.interfaces:
        ni["interfaces"] = dict(enumerate(request.interfaces))
    ni.update(_tunables(request.tunables, request.cpts))
    if request.bonding is not None:
        ni["tcp bonding"] = int(request.bonding)
    if not items or items[-1].get("net type") != net or "local NI(s)" not in items[-1]:
        items.append({"net type": net, "local NI(s)": []})
    items[-1]["local NI(s)"].append(ni)


def _tunables(tunables: Tunables, cpts: str | None) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, one in TUNABLES.items():
        if name in tunables:
            found.setdefault("lnd tunables" if one.driver else "tunables", {})[name] = one.shown(
                tunables[name]
            )
    return {**found, **({"CPT": cpts} if cpts is not None else {})}


def _match(found: dict[str, Any], request: model.NetMatch) -> None:
    for rule in request.rules:
        more = _tunables(rule.tunables, rule.cpts)
        if rule.bond is not None:
            ranges = {"ip-range": dict(enumerate(rule.ranges))} if rule.ranges else {}
            found.setdefault("ip2nets", []).append({"net-spec": rule.net, **ranges, **bond_item(rule.bond)})
            continue
        if not rule.interfaces and not rule.ranges:  # the host's first interface: only ip2net can say so
            item = {"net type": rule.net, "ip2net": rule.net, **more}
            found.setdefault("net", []).append(item)
            continue
        item = {"net-spec": rule.net}
        if rule.interfaces:
            item["interfaces"] = dict(enumerate(rule.interfaces))
        if rule.ranges:
            item["ip-range"] = dict(enumerate(rule.ranges))
        found.setdefault("ip2nets", []).append({**item, **more})


def _peer(found: dict[str, Any], request: model.PeerAdd | model.PeerRefresh) -> None:
    nids = list(request.nids)
    if request.primary is None:
        item: dict[str, Any] = {"nids": dict(enumerate(nids))}
        if request.multi_rail is not None:
            item["Multi-Rail"] = request.multi_rail
        found.setdefault("peers", []).append(item)
        return
    item = {"primary nid": request.primary, "Multi-Rail": request.multi_rail is not False}
    if request.lock_primary:
        item["peer state"] = LOCKED
    if nids or isinstance(request, model.PeerRefresh):
        item["peer ni"] = [{"nid": nid} for nid in nids]
    found.setdefault("peer", []).append(item)


def _given(request: Request) -> dict[str, Any]:
    """The fields of a request that are not the default."""
    return {name: value for name, value in msgspec.to_builtins(request).items() if name != "op"}


def _udsp(request: model.UdspAdd) -> dict[str, Any]:
    given = _given(request)
    action = {name: given.pop(name) for name in ("priority", "weight") if name in given}
    return {**given, **({"action": action} if action else {})}


def _selection(request: model.SelectionAdd) -> dict[str, Any]:
    given = _given(request)
    return {"type": given.pop("kind"), **given}
