"""What should be equal in a fabric and is not: settings, tunables, MTUs; one slow or sick rail among many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median, median_high, median_low
from typing import Any, Final

from ulnet.observe.fabricwide import Fabric, Sight, counted, health, names, paths
from ulnet.observe.fleet import Member
from ulnet.observe.live import Rates
from ulnet.observe.rails import net_of
from ulnet.observe.snapshot import lines_of

__all__ = ["compare", "equals"]

_GRAVE: Final = {  # settings and tunables: what comes of it
    "discovery": "rails of nodes where it is 0 are found by none, and these find none",
    "peer_credits": "the side with fewer holds the other up; o2iblnd takes the lesser, or refuses",
    "map_on_demand": "o2iblnd must agree on it when it connects",
    "concurrent_sends": "o2iblnd of unequal sides holds one up",
}
_LEVELS: Final = ("error", "warning", "note")
_SELDOM_EQUAL: Final = {"numa_range", "CPT", "dev cpt"}  # by the machine, not by intent
_SLOW: Final = 0.5  # of what its equals carry in turns
_SLOW_PATHS: Final = 1 / 3  # of what paths over its equals were measured to carry: estimates differ
_BUSY: Final = 10.0  # messages a second of the best: with less nothing is said
_LATE: Final = 3.0  # times the median of the fabric's rails of that kind
_SAMPLES: Final = 100  # of latency: with fewer nothing is said
_RAILS: Final = 3  # with a latency: with fewer there is no median to speak of


def compare(members: Sequence[Member]) -> list[Sight]:
    """All that no node sees alone, the worst first."""
    fabric = Fabric(members)
    return sorted([*paths(fabric), *equals(fabric)], key=lambda one: _LEVELS.index(one.level))


def equals(fabric: Fabric) -> Iterator[Sight]:
    """All of it."""
    yield from _settings(fabric)
    yield from _tunables(fabric)
    yield from _mtus(fabric)
    yield from _sick(fabric)
    yield from _slow(fabric)
    yield from _late(fabric)


def _settings(fabric: Fabric) -> Iterator[Sight]:
    values: dict[str, dict[str, Any]] = {}
    for member in fabric.members:
        settings = member.snapshot.shown("settings")
        for name, value in settings.items() if isinstance(settings, Mapping) else ():
            values.setdefault(str(name), {})[member.name] = value
    for name, by_node in values.items():
        yield from _unequal(name, name, by_node)


def _tunables(fabric: Fabric) -> Iterator[Sight]:
    values: dict[tuple[str, str], dict[str, Any]] = {}
    for member in fabric.members:
        for net, ni in member.snapshot.local_nis():
            for part in ("tunables", "lnd tunables"):
                for name, value in lines_of(ni, part).items():
                    by_node = values.setdefault((net, str(name)), {})
                    where = member.name
                    if by_node.get(where, value) != value:
                        where = f"{where} ({ni['nid']})"
                    by_node[where] = value
    for (net, name), by_node in values.items():
        yield from _unequal(name, f"net {net}: {name}", by_node)


def _mtus(fabric: Fabric) -> Iterator[Sight]:
    values: dict[str, dict[str, Any]] = {}
    for member in fabric.members:
        for net, ni in member.snapshot.local_nis():
            for device in map(str, lines_of(ni, "interfaces").values()):
                if device in member.mtus:
                    values.setdefault(net, {})[f"{member.name} ({device})"] = member.mtus[device]
    for net, by_device in values.items():
        for sight in _unequal("", f"net {net}: MTU", by_device):
            text = f"{sight.text}: packets of the greater size get lost between them"
            yield sight._replace(level="warning", text=text)


def _unequal(name: str, what: str, values: Mapping[str, Any]) -> Iterator[Sight]:
    found = counted(values)
    if len(found) < 2 or name in _SELDOM_EQUAL:
        return
    text = f"{what} is " + ", ".join(f"{value} on {names(some)}" for value, some in found)
    usual = len(found[0][1]) > len(found[1][1])
    where = {one.partition(" (")[0] for _, some in found[usual:] for one in some}
    if name in _GRAVE:
        yield Sight("warning", tuple(sorted(where)), f"{text}: {_GRAVE[name]}")
    else:
        yield Sight("note", tuple(sorted(where)), text)


def _sick(fabric: Fabric) -> Iterator[Sight]:
    """Whose side is it on: a rail that most others see sick, a node that sees sick what others see well."""
    seen: dict[str, int] = {}  # nodes that know each rail
    unwell: dict[str, dict[str, int]] = {}  # health of each rail, by who sees it sick
    for member in fabric.members:
        for nid, value in _healths(fabric, member):
            seen[nid] = seen.get(nid, 0) + 1
            if value < 1000:
                unwell.setdefault(nid, {})[member.name] = value
    alone: dict[tuple[str, str], list[str]] = {}  # by observer and net: rails that few see sick
    for nid, by_node in unwell.items():
        if len(by_node) >= 2 and 2 * len(by_node) > seen[nid]:
            count = f"{len(by_node)} of {seen[nid]} nodes that know it"
            least = min(by_node.values())
            text = f"{nid} is not at full health ({least} at least) for {names(by_node)}, {count}"
            text += ": the fault is on its side (its link, cable, switch port)"
            yield Sight("warning", (fabric.owner[nid],), text)
        elif seen[nid] > 1:
            for name in by_node:
                alone.setdefault((name, net_of(nid)), []).append(nid)
    for (name, net), sick in alone.items():
        if len(sick) < 2:
            continue
        all_ = sum(net_of(nid) == net for nid, _ in _healths(fabric, fabric.by_name[name]))
        if 2 * len(sick) > all_:
            text = f"sees {names(sick)} not at full health, which others see well"
            text += f": the fault is on its own side (its rails on {net})"
            yield Sight("warning", (name,), text)


def _healths(fabric: Fabric, member: Member) -> Iterator[tuple[str, int]]:
    """Rails of other nodes, and their health as this one sees it."""
    for _, ni in member.snapshot.peer_nis():
        value, nid = health(ni), str(ni["nid"])
        if value is not None and fabric.owner.get(nid, member.name) != member.name:
            yield nid, value


def _slow(fabric: Fabric) -> Iterator[Sight]:
    """Rails that are much slower than their equals: one alone, or most of a net."""
    rails: dict[str, int] = {}  # of each net, that were compared
    found: dict[str, list[tuple[str, str]]] = {}  # node and what is said, by net
    for nid, text in (*_by_shares(fabric), *_by_paths(fabric)):
        net = net_of(nid)
        rails[net] = rails.get(net, 0) + 1
        if text:
            found.setdefault(net, []).append((fabric.node_of(nid), text))
    for net, said in found.items():
        nodes = {name for name, _ in said}
        if len(nodes) > 1 and 2 * len(said) > rails[net]:
            text = f"net {net} is much slower than its equals on most nodes: look at its switch"
            yield Sight("warning", tuple(sorted(nodes)), text)
        else:
            yield from (Sight("warning", (name,), text) for name, text in said)


def _by_shares(fabric: Fabric) -> Iterator[tuple[str, str]]:
    """Of kernel nodes, whose rails take turns: each rail, and what is said of one that falls behind."""
    for member in fabric.members:
        for equal in _equal_rails(member):
            best = max(rates.messages for rates in equal.values())
            for nid, rates in equal.items():
                behind = best >= _BUSY and rates.messages < _SLOW * best
                count = f"{rates.messages:.3g} messages/s beside {best:.3g} of its equal"
                yield nid, f"{nid} carries {count}" if behind else ""


def _equal_rails(member: Member) -> list[dict[str, Rates]]:
    """Rates of rails of the same kind that are up and that no rule ranks; ulnet's own share by speed."""
    groups: dict[tuple[str, str], dict[str, Rates]] = {}
    for net, ni in member.snapshot.local_nis():
        rates = member.rates.get(str(ni["nid"]))
        known = rates is not None and rates.sent is not None and "load" not in ni
        if known and rates is not None and ni.get("status") == "up":
            kind = (_kind(net), str(lines_of(ni, "udsp info")))
            groups.setdefault(kind, {})[str(ni["nid"])] = rates
    return [group for group in groups.values() if len(group) > 1]


def _by_paths(fabric: Fabric) -> Iterator[tuple[str, str]]:
    """By the rates that ulnet's nodes measure of each path: each rail at an end of some, and what is said."""
    rates: dict[str, dict[str, list[int]]] = {}  # by kind and rail
    for member in fabric.members:
        for _, ni in member.snapshot.peer_nis():
            for local, path in lines_of(lines_of(ni, "load"), "paths").items():
                rate = path.get("rate") if isinstance(path, Mapping) else None
                if type(rate) is int and rate > 0 and ni["nid"] != local:
                    by_rail = rates.setdefault(_kind(net_of(local)), {})
                    for end in (str(local), str(ni["nid"])):
                        by_rail.setdefault(end, []).append(rate)
    for by_rail in rates.values():
        middles = {nid: median_low(some) for nid, some in by_rail.items() if nid in fabric.owner}
        usual = median_high(middles.values()) if middles else 0
        for nid, middle in middles.items():
            speed = f"{middle / 1e6:.3g} MB/s beside {usual / 1e6:.3g} MB/s of others of its kind"
            yield nid, f"paths over {nid} carry {speed}" if middle < _SLOW_PATHS * usual else ""


def _kind(net: str) -> str:
    """The LND of a net."""
    return net.rstrip("0123456789") or net


def _late(fabric: Fabric) -> Iterator[Sight]:
    """Rails over which answers take much longer than over others of their kind."""
    kinds: dict[str, dict[str, float]] = {}
    for member in fabric.members:
        for net, ni in member.snapshot.local_nis():
            counts = lines_of(ni, "statistics")
            average, samples = counts.get("get_rtt_avg_nsec"), counts.get("get_rtt_samples")
            if isinstance(average, int) and isinstance(samples, int) and samples >= _SAMPLES:
                kinds.setdefault(_kind(net), {})[str(ni["nid"])] = average / 1e6
    for by_nid in kinds.values():
        middle = median(by_nid.values())
        for nid, value in by_nid.items():
            if len(by_nid) >= _RAILS and value > _LATE * middle:
                text = f"answers take {value:.3g} ms over {nid}, {middle:.3g} ms over others of its kind"
                yield Sight("warning", (fabric.node_of(nid),), text)
