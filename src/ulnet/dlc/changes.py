"""What brings a node from one configuration to another: requests, in an order under which messages go on.

Both configurations are those that a node exports, so that each thing stands there in one form. What comes is
added before what goes is deleted. An NI comes back anew only where it cannot be changed while it runs: its
NID, and what a net has from its first NI.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, TypeVar

import msgspec

from ulnet.core.routing import RoutingSettings
from ulnet.dlc import model
from ulnet.dlc.differences import Change, compare, meaning_of
from ulnet.dlc.model import Request
from ulnet.dlc.model_bond import BondAdd, BondSet
from ulnet.dlc.settings import READ_ONLY, SETTINGS
from ulnet.dlc.tunables import DEFAULT, TUNABLES

__all__ = ["Configuration", "Todo", "changes", "place_of"]

K = TypeVar("K")
R = TypeVar("R")
_OF_NET = [name for name, one in TUNABLES.items() if not one.live]  # fixed by the first NI of a net
_LIVE_OF_NET = [name for name, one in TUNABLES.items() if one.live and not one.driver]
_LIVE = [name for name, one in TUNABLES.items() if one.driver and one.live]
_Place = tuple[str, str]  # a net, and the interfaces of an NI or, without interface, its NID


class Todo(NamedTuple):
    """A request, and what it changes. Of a group each waits until all before it were done."""

    request: Request
    changes: list[Change]
    group: str = ""


def place_of(one: model.NetAdd) -> _Place:
    """What tells an NI of an export from others."""
    if one.interfaces:
        return one.net or "", " ".join(one.interfaces)
    return one.nids[0].partition("@")[2], one.nids[0]


class Configuration:
    """What the requests of an export come to; `nids` has the NID of each NI."""

    def __init__(self, requests: Iterable[Request], nids: Mapping[_Place, str]) -> None:
        self.requests = list(requests)
        self.nids = nids
        self.nis: dict[_Place, model.NetAdd] = {}
        self.bonds: dict[str, BondAdd] = {}
        self.routes: dict[tuple[str, str], model.RouteAdd] = {}
        self.peers: dict[str, model.PeerRefresh] = {}
        self.rules: list[model.UdspAdd] = []
        self.access: dict[tuple[str, str], None] = {}  # rules, each with the list that has it
        self.settings: dict[str, int] = {name: one.default for name, one in SETTINGS.items() if one.own}
        self.router = asdict(RoutingSettings())
        self.forwards: bool = False
        self.buffers: model.BuffersSet | None = None
        for one in self.requests:
            self._take(one)
        self.routes = dict(sorted(self.routes.items()))  # they have no order, and each node shows another

    def _take(self, one: Request) -> None:
        if isinstance(one, model.NetAdd):
            self.nis[place_of(one)] = one
        elif isinstance(one, BondAdd):
            self.bonds[f"{one.slaves[0].partition('@')[0]}@{one.net}"] = one
        elif isinstance(one, model.RouteAdd):
            self.routes[one.net, one.gateway] = one
        elif isinstance(one, model.PeerRefresh):
            self.peers[str(one.primary)] = one
        elif isinstance(one, model.UdspAdd):
            self.rules.append(msgspec.structs.replace(one, idx=None))
        elif isinstance(one, model.AccessAdd):
            self.access |= dict.fromkeys([("allow", rule) for rule in one.allow])
            self.access |= dict.fromkeys([("deny", rule) for rule in one.deny])
        elif isinstance(one, model.GlobalSet):
            self.settings |= {name: value for name, value in one.values.items() if name not in READ_ONLY}
        elif isinstance(one, model.RouterSet):
            self.router |= one.values
        elif isinstance(one, model.RoutingSet):
            self.forwards = one.enable
        elif isinstance(one, model.BuffersSet):
            self.buffers = one

    def on_net(self, net: str) -> list[_Place]:
        """The places of a net's NIs."""
        return [place for place in self.nis if place[0] == net]


def changes(now: Configuration, wanted: Configuration) -> list[Todo]:
    """What is to be done, in the order in which it disturbs least. A step that is refused may come later."""
    nets = _nets_anew(now, wanted)
    groups = [([*now.on_net(net)], [*wanted.on_net(net)]) for net in nets]
    groups += [([place], [place]) for place in now.nis if _has_other_nid(now, wanted, place, nets)]
    anew = {place for old, _ in groups for place in old}
    nids = {now.nids[place] for place in anew}
    bonds = _bonds_anew(now, wanted, nids)
    blocking, others_gone = _gone_bonds(now, wanted, bonds, nids)
    free_routes, blocked_routes = _new_routes(now, wanted)
    return [
        *_new_access(now, wanted),
        *_settings(now, wanted),
        *_changed_nets(now, wanted, nets),
        *(_added(ni) for place, ni in _missing(now.nis, wanted.nis) if place[0] not in nets),
        *_changed_nis(now, wanted, anew),
        *(_added(bond) for nid, bond in _missing(now.bonds, wanted.bonds) if nid not in bonds),
        *free_routes,
        *_changed_routes(now, wanted),
        *_peers(now, wanted),
        *_changed_bonds(now, wanted, bonds),
        *blocking,
        *(todo for old, new in groups for todo in _anew(now, wanted, old, new)),
        *(_added(wanted.bonds[nid]) for nid in bonds),
        *_rules(now.rules, wanted.rules),
        *(_gone(model.RouteDel(*key), route) for key, route in _missing(wanted.routes, now.routes)),
        *_gone_peers(now, wanted),
        *blocked_routes,
        *others_gone,
        *(_ni_gone(now, place) for place, _ in _missing(wanted.nis, now.nis) if place not in anew),
        *_last_settings(now, wanted),
        *_gone_access(now, wanted),
    ]


def _missing(here: Mapping[K, R], there: Mapping[K, R]) -> list[tuple[K, R]]:
    """What is there, and not here."""
    return [(key, one) for key, one in there.items() if key not in here]


def _added(request: Request) -> Todo:
    return Todo(request, [Change(thing, "", None, values) for thing, values in meaning_of([request]).items()])


def _gone(request: Request, was: Request) -> Todo:
    return Todo(request, [Change(thing, "", values, None) for thing, values in meaning_of([was]).items()])


def _differ(request: Request, was: Request, becomes: Request) -> Todo:
    return Todo(request, compare(meaning_of([was]), meaning_of([becomes])))


# Settings and routing ------------------------------------------------------------------------------------


def _settings(now: Configuration, wanted: Configuration) -> Iterator[Todo]:
    """All but a lower limit of NIs, which those that are to go may exceed."""
    values = _others(now.settings, wanted.settings)
    if _lower_limit(now, wanted):
        del values["max_interfaces"]
    if values:
        before = model.GlobalSet({name: now.settings[name] for name in values})
        yield _differ(model.GlobalSet(values), before, model.GlobalSet(values))
    router = _others(now.router, wanted.router)
    if router:
        before_it = model.RouterSet({name: now.router[name] for name in router})
        yield _differ(model.RouterSet(router), before_it, model.RouterSet(router))
    if wanted.forwards and not now.forwards:
        yield _differ(model.RoutingSet(True), model.RoutingSet(False), model.RoutingSet(True))
    if wanted.buffers is not None and wanted.buffers != now.buffers:
        yield _differ(wanted.buffers, now.buffers or model.BuffersSet(), wanted.buffers)


def _new_access(now: Configuration, wanted: Configuration) -> Iterator[Todo]:
    """What lists have more: first, before there are nets that it is for, and all together."""
    rules = [rule for rule, _ in _missing(now.access, wanted.access)]
    if rules:
        yield _added(model.AccessAdd(*_lists(rules)))


def _gone_access(now: Configuration, wanted: Configuration) -> Iterator[Todo]:
    """What they have no more: last, when what comes in its place holds."""
    rules = [rule for rule, _ in _missing(wanted.access, now.access)]
    if rules:
        yield _gone(model.AccessDel(*_lists(rules)), model.AccessAdd(*_lists(rules)))


def _lists(rules: Iterable[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """The rules that allow, and those that deny."""
    rules = list(rules)
    return [text for name, text in rules if name == "allow"], [text for name, text in rules if name == "deny"]


def _last_settings(now: Configuration, wanted: Configuration) -> Iterator[Todo]:
    if now.forwards and not wanted.forwards:
        yield _differ(model.RoutingSet(False), model.RoutingSet(True), model.RoutingSet(False))
    if _lower_limit(now, wanted):
        name = "max_interfaces"
        was, becomes = (model.GlobalSet({name: one.settings[name]}) for one in (now, wanted))
        yield _differ(becomes, was, becomes)


def _lower_limit(now: Configuration, wanted: Configuration) -> bool:
    return wanted.settings["max_interfaces"] < now.settings["max_interfaces"]


def _others(now: Mapping[str, int], wanted: Mapping[str, int]) -> dict[str, int]:
    return {name: value for name, value in wanted.items() if now.get(name) != value}


def _new_routes(now: Configuration, wanted: Configuration) -> tuple[list[Todo], list[Todo]]:
    """Those that can come at once, and those whose gateways are peers that first have to go."""
    going = {nid for peer in now.peers.values() if _must_go(peer, wanted) for nid in _nids_of(peer)}
    routes = [route for _, route in _missing(now.routes, wanted.routes)]
    free = [_added(route) for route in routes if route.gateway not in going]
    return free, [_added(route) for route in routes if route.gateway in going]


def _changed_routes(now: Configuration, wanted: Configuration) -> Iterator[Todo]:
    for key, route in wanted.routes.items():
        old = now.routes.get(key)
        if old is not None and (old.hop, old.priority) != (route.hop, route.priority):
            yield _differ(msgspec.structs.replace(route, replace=True), old, route)


# NIs -----------------------------------------------------------------------------------------------------


def _nets_anew(now: Configuration, wanted: Configuration) -> list[str]:
    """The nets that stay, and cannot be what they shall be without all their NIs being taken away."""
    found = []
    for net in dict.fromkeys(place[0] for place in now.nis):
        old, new = now.on_net(net), wanted.on_net(net)
        if old and new:
            first, then = now.nis[old[0]], wanted.nis[new[0]]
            bonded = [one for one in (first, then) if _is_bonded(one)]
            if _of_net(first) != _of_net(then) or (bonded and (old != new or len(bonded) == 1)):
                found.append(net)
    return found


def _is_bonded(one: model.NetAdd) -> bool:
    return bool(one.bonding) or len(one.interfaces) > 1


def _of_net(one: model.NetAdd) -> list[int | None]:
    return [one.tunables.get(name) for name in _OF_NET]


def _has_other_nid(now: Configuration, wanted: Configuration, place: _Place, nets: Sequence[str]) -> bool:
    return place in wanted.nis and place[0] not in nets and now.nids[place] != wanted.nids[place]


def _changed_nets(now: Configuration, wanted: Configuration, anew: Collection[str]) -> Iterator[Todo]:
    """What changes of a net while it is there."""
    for net in dict.fromkeys(place[0] for place in now.nis if place[0] not in anew):
        place, new = now.on_net(net)[0], wanted.on_net(net)
        if new:
            first, then = now.nis[place].tunables, wanted.nis[new[0]].tunables
            differ = [name for name in _LIVE_OF_NET if first.get(name) != then.get(name)]
            if differ:
                request = model.NetSet(nids=[now.nids[place]], tunables={name: then[name] for name in differ})
                changed = [Change(f"net {net}", name, first.get(name), then[name]) for name in differ]
                yield Todo(request, changed)


def _changed_nis(now: Configuration, wanted: Configuration, anew: Collection[_Place]) -> Iterator[Todo]:
    """What changes while an NI runs."""
    for place, new in wanted.nis.items():
        old = now.nis.get(place)
        if old is None or place in anew:
            continue
        given = {
            name: new.tunables.get(name, DEFAULT)
            for name in _LIVE
            if new.tunables.get(name) != old.tunables.get(name)
        }
        cpts = new.cpts if new.cpts != old.cpts else None
        if given or cpts:
            request = model.NetSet(nids=[now.nids[place]], cpts=cpts, tunables=given)
            same = new.tunables | {name: old.tunables[name] for name in _LIVE_OF_NET}
            yield _differ(request, old, msgspec.structs.replace(new, tunables=same))


def _ni_gone(now: Configuration, place: _Place) -> Todo:
    return _gone(model.NetDel(nids=[now.nids[place]]), now.nis[place])


def _anew(
    now: Configuration, wanted: Configuration, old: Iterable[_Place], new: Iterable[_Place]
) -> Iterator[Todo]:
    yield from (_ni_gone(now, place)._replace(group=str(old)) for place in old)
    yield from (_added(wanted.nis[place])._replace(group=str(old)) for place in new)


def _bonds_anew(now: Configuration, wanted: Configuration, nids: Collection[str]) -> list[str]:
    """The bonding NIs that are wanted and have, or get, a slave that itself comes back anew."""
    slaves = {
        nid: {*bond.slaves, *(now.bonds[nid].slaves if nid in now.bonds else ())}
        for nid, bond in wanted.bonds.items()
    }
    return [nid for nid, some in slaves.items() if not some.isdisjoint(nids)]


def _gone_bonds(
    now: Configuration, wanted: Configuration, anew: Collection[str], nids: Collection[str]
) -> tuple[list[Todo], list[Todo]]:
    """Those that keep NIs from going for a moment, which come back anew or not, and the others."""
    gone = {nid: bond for nid, bond in now.bonds.items() if nid in anew or nid not in wanted.bonds}
    blocking = {nid for nid, bond in gone.items() if nid in anew or not set(bond.slaves).isdisjoint(nids)}
    todos = {nid: _gone(model.NetDel(nids=[nid]), bond) for nid, bond in gone.items()}
    others = [todo for nid, todo in todos.items() if nid not in blocking]
    return [todo for nid, todo in todos.items() if nid in blocking], others


def _changed_bonds(now: Configuration, wanted: Configuration, anew: Collection[str]) -> Iterator[Todo]:
    for nid, bond in wanted.bonds.items():
        old = now.bonds.get(nid)
        if old is not None and old != bond and nid not in anew:
            options = msgspec.structs.replace(bond.options, servers=bond.options.servers or [])
            yield _differ(BondSet(nid, bond.slaves, options), old, bond)


# Peers ---------------------------------------------------------------------------------------------------


def _peers(now: Configuration, wanted: Configuration) -> Iterator[Todo]:
    for primary, peer in wanted.peers.items():
        old = now.peers.get(primary)
        if old is None:
            yield _added(peer)
        elif _must_go(old, wanted):
            yield from _without_routes(now, wanted, old, [_peer_gone(old), _added(peer)])
        elif _nids_of(old) != _nids_of(peer) or old.lock_primary != peer.lock_primary:
            yield _differ(peer, old, peer)


def _must_go(old: model.PeerRefresh, wanted: Configuration) -> bool:
    """Whether a peer cannot stay what it is, for good or for a moment."""
    new = wanted.peers.get(str(old.primary))
    if new is None:
        return True
    return old.multi_rail != new.multi_rail or (old.lock_primary and not new.lock_primary)


def _gone_peers(now: Configuration, wanted: Configuration) -> Iterator[Todo]:
    for _, peer in _missing(wanted.peers, now.peers):
        yield from _without_routes(now, wanted, peer, [_peer_gone(peer)])


def _peer_gone(peer: model.PeerRefresh) -> Todo:
    return _gone(model.PeerDel(peer.primary, force=peer.lock_primary), peer)


def _nids_of(peer: model.PeerRefresh) -> set[str]:
    return {str(peer.primary), *peer.nids}


def _without_routes(
    now: Configuration, wanted: Configuration, peer: model.PeerRefresh, steps: Iterable[Todo]
) -> Iterator[Todo]:
    """Steps that a peer's being a gateway forbids."""
    nids = _nids_of(peer)
    routes = [key for key in wanted.routes if key in now.routes and key[1] in nids]
    group = [_gone(model.RouteDel(*key), wanted.routes[key]) for key in routes]
    group += [*steps, *(_added(wanted.routes[key]) for key in routes)]
    yield from (todo._replace(group=str(peer.primary)) for todo in group)


# Selection rules -----------------------------------------------------------------------------------------


def _rules(now: Sequence[model.UdspAdd], wanted: Sequence[model.UdspAdd]) -> Iterator[Todo]:
    """Rules that stay in their order stay; the others go and come."""
    places = {_rule(one): at for at, one in enumerate(now)}
    kept = _longest_rising([places[_rule(one)] for one in wanted if _rule(one) in places])
    for at, rule in enumerate(now):
        if at not in kept:
            request = model.UdspDel(src=rule.src, dst=rule.dst, rte=rule.rte)
            yield Todo(request, [Change(_name(rule), "", _values(rule, at), None)])
    for at, rule in enumerate(wanted):
        if places.get(_rule(rule)) not in kept:
            inserted = msgspec.structs.replace(rule, idx=at)
            yield Todo(inserted, [Change(_name(rule), "", None, _values(rule, at))])


def _name(rule: model.UdspAdd) -> str:
    (name,) = meaning_of([rule])
    return name


def _values(rule: model.UdspAdd, place: int) -> dict[str, Any]:
    (values,) = meaning_of([rule]).values()
    return {**values, "place": place}


def _rule(one: model.UdspAdd) -> tuple[str | int | None, ...]:
    return one.src, one.dst, one.rte, one.priority, one.weight


def _longest_rising(numbers: Sequence[int]) -> set[int]:
    """The numbers of the longest rising subsequence."""
    ends: list[int] = []  # of the best subsequence of each length
    chains: list[tuple[int, ...]] = []
    for number in numbers:
        at = bisect_left(ends, number)
        chain = (*(chains[at - 1] if at else ()), number)
        ends[at : at + 1] = [number]
        chains[at : at + 1] = [chain]
    return set(chains[-1]) if chains else set()
