"""Why a peer is reached over fewer rails than there are, from what a node shows of itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ulnet.observe.snapshot import Snapshot, lines_of, records

__all__ = ["few_rails", "idle_rails", "net_of"]

_NO_DISCOVERY: Final = 0x2  # in `peer state` (spec discovery.md §2)
_FEW: Final = 100  # messages of a net's NIs below which nothing is said of their shares


def net_of(nid: object) -> str:
    """The net of a NID: `tcp1` of 10.0.0.1@tcp1."""
    return str(nid).rpartition("@")[2]


def few_rails(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Peers that messages reach over one rail though this node has several towards them, and why."""
    here: dict[str, int] = {}
    for net, _ in snapshot.local_nis():
        here[net] = here.get(net, 0) + 1
    own = {ni["nid"] for _, ni in snapshot.local_nis()}
    settings = snapshot.shown("settings")
    off = isinstance(settings, Mapping) and settings.get("discovery") == 0
    for peer in records(snapshot.shown("peer")):
        name = str(peer.get("primary nid"))
        nids = [ni.get("nid") for ni in records(peer.get("peer ni"))]
        ways = sum(here.get(net, 0) for net in {net_of(nid) for nid in nids})
        if ways < 2 or not own.isdisjoint(nids) or name == "0@lo":
            continue
        if peer.get("Multi-Rail") is not True:
            state = peer.get("peer state")
            if isinstance(state, int) and state & _NO_DISCOVERY:
                why = "discovery is off there: turn it on, or configure its NIDs by `lnetctl peer add`"
            elif off:
                why = "discovery is off here: turn it on, or configure its NIDs by `lnetctl peer add`"
            else:
                why = "it is not Multi-Rail, or was not discovered: `lnetctl discover` asks it"
            yield name, f"messages to {name} keep to one rail of {ways}: {why}"
        elif len(nids) == 1:
            why = "it told no other; look at its `lnetctl net show`"
            yield name, f"messages to {name} go to one NID: {why}"


def idle_rails(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """NIs that are up and carry nothing while others of their net are busy, and why."""
    nets: dict[str, list[Mapping[str, Any]]] = {}
    for net, ni in snapshot.local_nis():
        if ni.get("status") == "up":
            nets.setdefault(net, []).append(ni)
    for members in nets.values():
        counts = [_sent(ni) for ni in members]
        total = sum(counts)
        if total < _FEW:
            continue
        for ni, count in zip(members, counts, strict=True):
            if count * 100 < total / len(members):
                share = f"{count} of {total} messages of {len(members)} NIs of its net"
                yield str(ni["nid"]), f"{ni['nid']} sent {share}: {_why(ni, members)}"


def _sent(ni: Mapping[str, Any]) -> int:
    count = lines_of(ni, "statistics").get("send_count")
    return count if isinstance(count, int) else 0


def _why(ni: Mapping[str, Any], members: list[Mapping[str, Any]]) -> str:
    health = lines_of(ni, "health stats").get("health value")
    if isinstance(health, int) and health < 1000:
        return f"its health is {health}"
    priorities = [lines_of(one, "udsp info").get("nid priority", -1) for one in (ni, *members)]
    if all(isinstance(one, int) for one in priorities):
        mine, *others = (one if one >= 0 else 1 << 32 for one in priorities)
        if mine > min(others):
            return "a selection rule prefers another (`lnetctl udsp show`)"
    if ni.get("drained"):
        return "it is drained (`lnetctl net set --drain 0`)"
    return "peers keep to the others' NIDs, or are near another CPT: `ulnet explain --to NID`"
