"""What one node said of itself at one moment, in the parts that `lnetctl` shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ulnet.dlc import model, model_health, model_policy, model_routing

__all__ = ["PARTS", "Part", "Snapshot", "lines_of", "records"]


class Part(NamedTuple):
    """A part of a snapshot: the request that shows it, and the words of the real tool."""

    request: model.Request
    words: tuple[str, ...]
    key: str  # of what is shown, in the document


PARTS: Final[dict[str, Part]] = {
    "net": Part(model.NetShow(verbosity=4, load=True), ("net", "show", "-v", "4"), "net"),
    "peer": Part(
        model.PeerShow(verbosity=4, load=True, strangers=False), ("peer", "show", "-v", "4"), "peer"
    ),
    "route": Part(model_routing.RouteShow(verbosity=3), ("route", "show", "-v", "3"), "route"),
    "routing": Part(model_routing.RoutingShow(), ("routing", "show"), "routing"),
    "statistics": Part(model.StatsShow(), ("stats", "show"), "statistics"),
    "settings": Part(model.GlobalShow(), ("global", "show"), "global"),
    "local recovery": Part(
        model_health.RecoveryShow(local=True), ("debug", "recovery", "--local"), "Local NI recovery"
    ),
    "peer recovery": Part(
        model_health.RecoveryShow(peer=True), ("debug", "recovery", "--peer"), "Peer NI recovery"
    ),
    "udsp": Part(model_policy.UdspShow(), ("udsp", "show"), "udsp"),
}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was read, and why the rest was not.

    `parts` has the documents by the names of PARTS; `missing` says of the other parts why they are not there.
    `seconds` is how long reading took.
    """

    node: str
    parts: Mapping[str, Any]
    missing: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def up(self) -> bool:
        """Whether the node showed its nets: without these nothing is known of it."""
        return "net" in self.parts

    def shown(self, part: str) -> Any:
        """What stands under the key of a part; None where the part is missing or empty."""
        document = self.parts.get(part)
        return document.get(PARTS[part].key) if isinstance(document, dict) else None

    @property
    def routes_for_others(self) -> bool:
        """Whether it passes messages on: the lowest bit of `enable`, which 2.18 prints as 2 and 3."""
        values = [group.get("enable") for group in records(self.shown("routing"))]
        return any(isinstance(one, int) and one & 1 for one in values)

    def local_nis(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Each NI with the name of its net; not the loopback's."""
        found = []
        for net in records(self.shown("net")):
            name = str(net.get("net type", ""))
            if name != "lo":
                found += [(name, ni) for ni in records(net.get("local NI(s)")) if "nid" in ni]
        return found

    def peer_nis(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Each peer NI with the primary NID of its peer."""
        return [
            (str(peer.get("primary nid", "")), ni)
            for peer in records(self.shown("peer"))
            for ni in records(peer.get("peer ni"))
            if "nid" in ni
        ]


def records(value: object) -> list[Mapping[str, Any]]:
    """The mappings of a list; what a tool printed otherwise is left out."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def lines_of(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A mapping within a mapping; an empty one where there is none."""
    inner = value.get(name)
    return inner if isinstance(inner, dict) else {}
