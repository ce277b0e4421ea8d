"""Two configurations, compared by what they mean and not by how they are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ulnet.control.access import rule_text
from ulnet.core.status import LNetError
from ulnet.dlc import model
from ulnet.dlc.config_bond import bond_item
from ulnet.dlc.model import Request, Tunables
from ulnet.dlc.model_bond import BondAdd
from ulnet.dlc.settings import BUFFERS, READ_ONLY, SETTINGS
from ulnet.dlc.tunables import TUNABLES
from ulnet.nid import Net, Nid, NidError, NidList

__all__ = ["Change", "Meaning", "compare", "meaning_of"]

_MANY = 4096
_DEFAULTS = {name: one.default for name, one in TUNABLES.items()}
_UNKNOWN = frozenset({"nid", "CPT", *(name for name, default in _DEFAULTS.items() if default is None)})

Meaning = dict[str, dict[str, Any]]  # "peer 10.0.0.2@tcp": {"Multi-Rail": True, "NIDs": [...]}


class Change(NamedTuple):
    """One difference: of a whole thing (`field` is empty then), or of one value. None: not there."""

    thing: str
    field: str
    before: Any
    after: Any

    def __str__(self) -> str:
        if not self.field:
            sign, values = ("-", self.before) if self.after is None else ("+", self.after)
            return f"{sign} {self.thing}{_details(values)}"
        return f"~ {self.thing}: {self.field} {_shown(self.before)} -> {_shown(self.after)}"


def _details(values: Mapping[str, Any]) -> str:
    text = ", ".join(f"{name} {_shown(value)}" for name, value in values.items())
    return f": {text}" if text else ""


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return "default" if value is None else str(value)


def compare(before: Meaning, after: Meaning) -> list[Change]:
    """What is in one and not in the other; a value that is not given is its default."""
    changes = []
    for thing, old in before.items():
        new = after.get(thing)
        if new is None:
            changes.append(Change(thing, "", old, None))
            continue
        for field in dict.fromkeys((*old, *new)):
            was, now = (values.get(field, _default(thing, field)) for values in (old, new))
            if was != now and not (field in _UNKNOWN and None in (was, now)):
                changes.append(Change(thing, field, was, now))
    changes += [Change(thing, "", None, new) for thing, new in after.items() if thing not in before]
    return [change for change in changes if not _is_default_setting(change)]


def _default(thing: str, field: str) -> object:
    return _DEFAULTS.get(field) if thing.startswith("net ") else None


def _is_default_setting(change: Change) -> bool:
    """A setting that only one side gives, at its default value."""
    if not change.thing.startswith("setting ") or change.field:
        return False
    name = change.thing.removeprefix("setting ")
    given = change.before or change.after
    return name in SETTINGS and bool(given["value"] == SETTINGS[name].default)


def meaning_of(requests: Iterable[Request]) -> Meaning:
    """What requests of a file come to, thing by thing."""
    found: Meaning = {}
    bonding = False  # what `use_tcp_bonding` says so far
    for request in requests:
        if isinstance(request, model.NetAdd):
            _nis(found, request, bonding)
        elif isinstance(request, BondAdd):
            found[f"net {_net(request.net)} bond {' '.join(request.slaves)}"] = bond_item(request).get(
                "bond", {}
            )
        elif isinstance(request, model.NetMatch):
            for rule in request.rules:
                given = [*rule.interfaces, *rule.ranges]
                found[f"ip2nets {_net(rule.net)} {' '.join(given)}".strip()] = _tunables(
                    rule.tunables, rule.cpts
                )
        elif isinstance(request, model.PeerAdd | model.PeerRefresh):
            _peer(found, request)
        elif isinstance(request, model.GlobalSet | model.RouterSet):
            bonding = bool(request.values.get("use_tcp_bonding", bonding))
            for name, value in request.values.items():
                if name not in READ_ONLY:
                    found[f"setting {name}"] = {"value": value}
        elif isinstance(request, model.UdspAdd | model.SelectionAdd):
            _rule(found, request)
        elif isinstance(request, model.AccessAdd):
            found.update({thing: {} for thing in _access(request)})
        elif isinstance(request, model.RouteAdd):
            _routes(found, request)
        elif isinstance(request, model.RoutingSet):
            found["routing"] = {"enable": int(request.enable)}
        elif isinstance(request, model.BuffersSet):
            sizes = {name: getattr(request, name) for name in BUFFERS}
            found["buffers"] = {name: size for name, size in sizes.items() if size is not None}
    return found


def _nis(found: Meaning, request: model.NetAdd, bonding: bool) -> None:
    values = _tunables(request.tunables, request.cpts)
    one_ni = bonding if request.bonding is None else request.bonding
    if one_ni:
        values["tcp bonding"] = 1
    for name in [" ".join(request.interfaces)] if one_ni and request.interfaces else request.interfaces:
        prefer = {"nid": _nid(request.prefer)} if request.prefer is not None else {}
        found[f"net {_net(request.net or '')} NI {name}"] = {**prefer, **values}
    for text in request.nids:
        for nid in _expanded([text]):
            found[f"net {nid.partition('@')[2]} NI {nid}"] = dict(values)


def _tunables(tunables: Tunables, cpts: str | None) -> dict[str, Any]:
    return {**tunables, **({"CPT": cpts} if cpts is not None else {})}


def _peer(found: Meaning, request: model.PeerAdd | model.PeerRefresh) -> None:
    nids = _expanded([*([request.primary] if request.primary else []), *request.nids])
    if not nids:
        return
    thing = f"peer {nids[0]}"
    before = found.get(thing, {}).get("NIDs", []) if isinstance(request, model.PeerAdd) else []
    found[thing] = {
        "Multi-Rail": request.multi_rail is not False,
        "NIDs": sorted({*before, *nids}),
        **({"locked": True} if request.lock_primary else {}),
    }


def _rule(found: Meaning, request: model.UdspAdd | model.SelectionAdd) -> None:
    if isinstance(request, model.SelectionAdd):
        given = [request.kind, request.net, request.nid, request.local, request.remote]
        thing = f"selection {' '.join(name for name in given if name)}"
        found[thing] = {"priority": request.priority or 0, "side": request.side}
        return
    names = ("src", "dst", "rte")
    what = " ".join(
        f"{name} {getattr(request, name)}" for name in names if getattr(request, name) is not None
    )
    at = sum(thing.startswith("udsp ") for thing in found)
    values = {"place": at, "priority": request.priority}
    weight = getattr(request, "weight", None)
    found[f"udsp {what}"] = {**values, **({"weight": weight} if weight is not None else {})}


def _routes(found: Meaning, request: model.RouteAdd) -> None:
    for gateway in _expanded([request.gateway]):
        found[f"route {_net(request.net)} by {gateway}"] = {"hop": request.hop, "priority": request.priority}


def _expanded(texts: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for text in texts:
        try:
            found.update(dict.fromkeys(map(str, NidList.parse(text).expand(_MANY))))
        except NidError:
            found[text] = None
    return list(found)


def _access(request: model.AccessAdd) -> Iterator[str]:
    """The rules, each in the form in which a node shows it, if it is one."""
    for name, rules in (("allow", request.allow), ("deny", request.deny)):
        for text in rules:
            try:
                yield f"access {name} {rule_text(name, text)}"
            except LNetError:
                yield f"access {name} {text}"


def _nid(text: str) -> str:
    try:
        return str(Nid.parse(text))
    except NidError:
        return text


def _net(text: str) -> str:
    try:
        return str(Net.parse(text))
    except NidError:
        return text
