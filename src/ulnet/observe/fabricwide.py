"""What no node of a fabric sees alone: what one knows of another, and whether ways lead there and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from ulnet.observe.fleet import Member
from ulnet.observe.rails import net_of
from ulnet.observe.snapshot import lines_of, records

__all__ = ["Fabric", "Sight", "names", "paths"]

_NO_DISCOVERY: Final = 0x2  # in `peer state` (spec discovery.md §2)
_NAMED: Final = 3  # of many nodes


class Sight(NamedTuple):
    """Something that is not as it should be, at these nodes."""

    level: Literal["error", "warning", "note"]
    where: tuple[str, ...]
    text: str


def names(some: Iterable[str]) -> str:
    """For people: the first few, and how many more."""
    each = sorted(some)
    head = each if len(each) <= _NAMED + 1 else [*each[:_NAMED], f"{len(each) - _NAMED} more"]
    return head[0] if len(head) == 1 else f"{', '.join(head[:-1])} and {head[-1]}"


class Fabric:
    """The nodes that answered: who has which NID, who leads where."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members: list[Member] = [one for one in members if one.snapshot.up]
        self.silent: list[Member] = [one for one in members if not one.snapshot.up]
        self.nids: dict[str, list[str]] = {
            one.name: [str(ni["nid"]) for _, ni in one.snapshot.local_nis()] for one in self.members
        }
        self.nets: dict[str, frozenset[str]] = {
            name: frozenset(map(net_of, nids)) for name, nids in self.nids.items()
        }
        self.by_name: dict[str, Member] = {one.name: one for one in self.members}
        owners: dict[str, list[str]] = {}
        for name, nids in self.nids.items():
            for nid in nids:
                owners.setdefault(nid, []).append(name)
        self.owner: dict[str, str] = {nid: found[0] for nid, found in owners.items() if len(found) == 1}
        self.twins: dict[str, list[str]] = {nid: found for nid, found in owners.items() if len(found) > 1}

    @cached_property
    def whose(self) -> dict[str, str]:
        """The primary NID by each NID, as peers see it."""
        return {str(ni["nid"]): peer for member in self.members for peer, ni in member.snapshot.peer_nis()}

    def node_of(self, nid: str) -> str:
        """A name for the node with this NID, also of one that is not asked."""
        return self.owner.get(nid) or self.whose.get(nid, nid)

    def routes(self, member: Member) -> dict[str, set[str]]:
        """Nodes that lead to each remote net."""
        found: dict[str, set[str]] = {}
        for route in records(member.snapshot.shown("route")):
            found.setdefault(str(route.get("net")), set()).add(self.node_of(str(route.get("gateway"))))
        return found


def paths(fabric: Fabric) -> Iterator[Sight]:
    """Nodes that do not answer, NIDs that are there twice, peers that are half known, routes one way."""
    for member in fabric.silent:
        why = member.snapshot.missing.get("net", "it shows no nets")
        yield Sight("error", (member.name,), f"tells nothing: {why}")
    for name, nids in fabric.nids.items():
        if not nids:
            yield Sight("warning", (name,), "has no NI: none leads to it (`lnetctl net add`)")
    yield from _twins(fabric)
    yield from _known(fabric)
    yield from _gateways(fabric)
    yield from _there_and_back(fabric)


def _twins(fabric: Fabric) -> Iterator[Sight]:
    together: dict[tuple[str, ...], list[str]] = {}
    for nid, found in fabric.twins.items():
        together.setdefault(tuple(sorted(found)), []).append(nid)
    for where, nids in together.items():
        if all(len(nids) == len(fabric.nids[name]) for name in where):
            yield Sight("warning", where, f"the same NIDs ({names(nids)}): is one node named twice?")
        else:
            yield Sight("error", where, f"all have {names(nids)}: messages to it reach one of them")


# What one knows of another -------------------------------------------------------------------------------


def _known(fabric: Fabric) -> Iterator[Sight]:
    """Grouped by what is said: many nodes may say the same of one."""
    said: dict[str, list[str]] = {}
    owner = fabric.owner.get
    whole = {name: frozenset(nids) for name, nids in fabric.nids.items()}
    for member in fabric.members:
        rows: dict[str, list[_Row]] = {}
        for peer in records(member.snapshot.shown("peer")):
            nids = _nids(peer)
            for name in {owner(nid) for nid in nids}:
                if name is not None and name != member.name:
                    rows.setdefault(name, []).append(_Row(peer, nids))
        odd = {name: row for name, row in rows.items() if len(row) > 1 or whole[name] != set(row[0].nids)}
        reach = fabric.nets[member.name] | fabric.routes(member).keys() if odd else frozenset()
        for name, row in odd.items():
            for text in _of_one(fabric, member, fabric.by_name[name], row, reach):
                said.setdefault(text, []).append(member.name)
    for text, where in said.items():
        yield Sight("warning", tuple(where), text)


class _Row(NamedTuple):
    """A peer that has NIDs of some other node."""

    peer: Mapping[str, Any]
    nids: list[str]


def _of_one(
    fabric: Fabric, member: Member, other: Member, rows: list[_Row], reach: frozenset[str]
) -> Iterator[str]:
    there = [nid for nid in fabric.nids[other.name] if net_of(nid) in reach]
    known = {nid for row in rows for nid in row.nids}
    missing = [nid for nid in there if nid not in known]
    why = _why(member, other, rows[0].peer, min(known))
    if missing:
        count = f"{len(there) - len(missing)} of {len(there)} rails"
        yield f"{count} of {other.name} are known, {names(missing)} not: {why}"
    gone = known - set(fabric.nids[other.name])
    if gone:
        again = f"`lnetctl discover --force {_primary(rows[0].peer)}`"
        yield f"{names(gone)} is taken for {other.name}, which has no such NID now: {again}"
    if len(rows) > 1:
        primaries = names(_primary(row.peer) for row in rows)
        yield f"{other.name} is taken for {len(rows)} peers ({primaries}), each with some rails: {why}"


def _why(member: Member, other: Member, peer: Mapping[str, Any], nid: str) -> str:
    state = peer.get("peer state")
    if _discovery(other) == 0:
        return f"discovery is off on {other.name} (`lnetctl set discovery 1` there)"
    if _discovery(member) == 0:
        return f"discovery is off on {member.name} (`lnetctl set discovery 1` there)"
    if isinstance(state, int) and state & _NO_DISCOVERY:
        return f"discovery was off on {other.name} when it was asked: `lnetctl discover --force {nid}`"
    if peer.get("Multi-Rail") is not True:
        return f"it was not discovered: `lnetctl discover {nid}`"
    return f"it had fewer when it was asked, or was configured with fewer: `lnetctl discover --force {nid}`"


def _discovery(member: Member) -> Any:
    settings = member.snapshot.shown("settings")
    return settings.get("discovery") if isinstance(settings, Mapping) else None


def _nids(peer: Mapping[str, Any]) -> list[str]:
    return [str(ni["nid"]) for ni in records(peer.get("peer ni")) if "nid" in ni]


def _primary(peer: Mapping[str, Any]) -> str:
    return str(peer.get("primary nid"))


# Routes --------------------------------------------------------------------------------------------------


def _gateways(fabric: Fabric) -> Iterator[Sight]:
    """Routes by nodes that do not pass messages on, or do not lead there themselves."""
    users: dict[tuple[str, str], list[str]] = {}
    for member in fabric.members:
        for net, gateways in fabric.routes(member).items():
            for name in gateways & fabric.by_name.keys():
                users.setdefault((net, name), []).append(member.name)
    for (net, name), where in users.items():
        gateway = fabric.by_name[name]
        if "routing" in gateway.snapshot.parts and not gateway.snapshot.routes_for_others:
            text = f"the route to {net} leads to {name}, which does not route (`lnetctl set routing 1` there)"
            yield Sight("error", tuple(where), text)
        elif net not in fabric.nets[name] | fabric.routes(gateway).keys():
            text = f"the route to {net} leads to {name}, which has no NI on {net} and no route to it"
            yield Sight("error", tuple(where), text)


class _Kind(NamedTuple):
    """Nodes with the same nets and the same ways are one kind."""

    nets: frozenset[str]
    ways: frozenset[tuple[str, str]]  # remote net, node that leads there

    def by(self, other: _Kind) -> frozenset[str]:
        """Nodes that lead to the other kind."""
        return frozenset(gateway for net, gateway in self.ways if net in other.nets)


def _there_and_back(fabric: Fabric) -> Iterator[Sight]:
    kinds: dict[_Kind, list[str]] = {}
    for member in fabric.members:
        ways = frozenset((net, gateway) for net, found in fabric.routes(member).items() for gateway in found)
        kinds.setdefault(_Kind(fabric.nets[member.name], ways), []).append(member.name)
    for here, some in kinds.items():
        for there, others in kinds.items():
            if here.nets & there.nets or not (here.nets and there.nets):
                continue
            out, back = here.by(there), there.by(here)
            far = f"{names(others)} on {names(there.nets)}"
            if out and not back:
                text = f"{far} by {names(out)}: no route leads back to {names(here.nets)}, no answer comes"
                yield Sight("error", tuple(some), text)
            elif out > back or not (out <= back or min(some) > min(others)):
                yield Sight("warning", tuple(some), f"{far} by {names(out)}, but back by {names(back)}")


def counted(values: Mapping[str, Any]) -> list[tuple[Any, list[str]]]:
    """Values with those that have them, the most usual first."""
    usual = Counter(map(str, values.values()))
    by_value: dict[str, tuple[Any, list[str]]] = {}
    for name, value in values.items():
        by_value.setdefault(str(value), (value, []))[1].append(name)
    return sorted(by_value.values(), key=lambda item: (-usual[str(item[0])], str(item[0])))


def health(ni: Mapping[str, Any]) -> int | None:
    """Of an NI or a peer NI; None: not known."""
    value = lines_of(ni, "health stats").get("health value")
    return value if type(value) is int else None
