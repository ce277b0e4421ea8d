"""Snapshots as metrics: names, units and labels of what is exported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from ulnet.dlc import documents_counters as counters
from ulnet.observe.busiest import OTHERS, Busiest
from ulnet.observe.declared import DIRECTIONS, NI_LINES, PEER_LINES, metrics, number
from ulnet.observe.snapshot import PARTS, Snapshot, lines_of, records

__all__ = ["Families"]

_NONE: Final[dict[str, str]] = {}
_NI: Final = ("net", "nid", "interface")
_PEER_NI: Final = ("peer", "nid")
_CREDITS: Final = {
    "max_tx_credits": ("tx_credits_max", "messages that it may have under way"),
    "available_tx_credits": ("tx_credits", "messages that it may still send at once; below 0: that wait"),
    "min_tx_credits": ("tx_credits_low", "the least that its credits have been"),
    "waiting": ("tx_waiting", "messages that wait for its credits"),
}
_PEER_CREDITS: Final = {
    "max_ni_tx_credits": _CREDITS["max_tx_credits"],
    "available_tx_credits": _CREDITS["available_tx_credits"],
    "min_tx_credits": _CREDITS["min_tx_credits"],
    "tx_q_num_of_buf": ("tx_queued_bytes", "bytes that wait for its credits, or are under way"),
    "available_rtr_credits": ("router_credits", "messages for others that may still come from it"),
    "min_rtr_credits": ("router_credits_low", "the least that these have been"),
}
_STATES: Final = {  # bits of `peer state` (spec discovery.md §2)
    "discovered": 0x10,
    "discovering": 0x40,
    "up to date": 0x100,
    "to be discovered again": 0x20,
    "ping failed": 0x800,
    "push failed": 0x1000,
    "not to be discovered": 0x2,
}
_UDSP: Final = {
    "net priority": ("net_priority", "priority of its net, which a rule gave"),
    "nid priority": ("priority", "its priority, which a rule gave; 0 is first"),
}
_POOLS: Final = {0: "tiny", 1: "small", 256: "large"}  # by pages
_POOL_LINES: Final = {
    "nbuffers": ("buffers", "router buffers"),
    "credits": ("buffer_credits", "router buffers that are free; below 0: messages that wait"),
    "mincredits": ("buffer_credits_low", "the least that were free"),
}


class Families:
    """The metrics of one node, from one snapshot after the other.

    At most `peers` peers have series of their own (see `Busiest`); all others are one, `peer="others"`.
    """

    def __init__(self, peers: int = 100) -> None:
        self._busiest = Busiest(peers)
        self._found: dict[str, Metric] = {}

    def of(self, snapshot: Snapshot, now: float) -> Iterator[Metric]:
        """All families; of a node that says nothing those that tell so. `now` is in seconds."""
        self._found = {}
        self._gauge("lnet_up", "1: the node shows its nets", snapshot.up)
        self._gauge("lnet_read_seconds", "how long reading took", snapshot.seconds)
        for name in PARTS:
            missing = name in snapshot.missing
            self._gauge("lnet_part_missing", "1: the node did not show this part", missing, {"part": name})
        if snapshot.up:
            self._node(snapshot)
            self._nis(snapshot)
            self._peers(snapshot, now)
            self._routes(snapshot)
        yield from self._found.values()

    # Parts -----------------------------------------------------------------------------------------

    def _node(self, snapshot: Snapshot) -> None:
        shown = snapshot.shown("statistics")
        if isinstance(shown, Mapping):
            self._lines(counters.Statistics, "lnet", shown, {})
            for reason, count in lines_of(shown, "drops").items():
                self._count("lnet_drops", "messages dropped, by reason", count, {"reason": str(reason)})
        settings = snapshot.shown("settings")
        if isinstance(settings, Mapping):
            for name, value in settings.items():
                self._gauge("lnet_setting", "node-wide settings", value, {"name": str(name)})
        for of in ("local", "peer"):
            if f"{of} recovery" in snapshot.parts:
                queue = snapshot.shown(f"{of} recovery")
                self._gauge("lnet_recovery_nis", "NIs under recovery", _length(queue), {"of": of})
        if "udsp" in snapshot.parts:
            self._gauge(
                "lnet_selection_rules", "user-defined selection rules", _length(snapshot.shown("udsp"))
            )

    def _nis(self, snapshot: Snapshot) -> None:
        found = snapshot.local_nis()
        for net in dict.fromkeys(net for net, _ in found):
            members = [ni for one, ni in found if one == net]
            up = sum(ni.get("status") == "up" for ni in members)
            self._gauge("lnet_net_nis", "NIs of the net", len(members), {"net": net})
            self._gauge("lnet_net_nis_up", "NIs of the net whose status is up", up, {"net": net})
        for net, ni in found:
            interfaces = ",".join(map(str, lines_of(ni, "interfaces").values()))
            labels = dict(zip(_NI, (net, str(ni["nid"]), interfaces), strict=True))
            if "status" in ni:
                self._gauge("lnet_ni_up", "1: its status is up", ni["status"] == "up", labels)
            if "certificate expires" in ni:
                text = "when its certificate for secured connections ends, in seconds since 1970"
                until = _moment(ni["certificate expires"])
                self._gauge("lnet_ni_certificate_expires_seconds", text, until, labels)
            for word, view in NI_LINES.items():
                self._lines(view, "lnet_ni", lines_of(ni, word), labels)
            self._messages("lnet_ni", ni, labels)
            load = lines_of(ni, "load")
            tunables = lines_of(ni, "tunables")
            credits = load or ({"max_tx_credits": tunables["credits"]} if "credits" in tunables else {})
            for word, (name, text) in _CREDITS.items():
                if word in credits:
                    self._gauge(f"lnet_ni_{name}", text, credits[word], labels)
            if load:
                degraded = bool(lines_of(load, "degraded"))
                self._gauge("lnet_ni_degraded", "1: it is slower than it was", degraded, labels)
            self._policy_and_resends("lnet_ni", ni, labels)

    def _peers(self, snapshot: Snapshot, now: float) -> None:
        shown = records(snapshot.shown("peer"))
        self._gauge("lnet_peers", "peers", len(shown))
        multi_rail = sum(peer.get("Multi-Rail") is True for peer in shown)
        self._gauge("lnet_peers_multi_rail", "peers that are Multi-Rail", multi_rail)
        members = snapshot.peer_nis()
        self._gauge("lnet_peer_nis", "peer NIs", len(members))
        words = [word for peer in shown if isinstance(word := peer.get("peer state"), int)]
        if words:
            for state, bit in _STATES.items():
                text = "peers, by what discovery says of them; a peer may be in several states"
                there = sum(bool(word & bit) for word in words)
                self._gauge("lnet_peers_in_state", text, there, {"state": state})
        unwell = sum(
            number(lines_of(ni, "health stats").get("health value", 1000)) < 1000 for _, ni in members
        )
        self._gauge("lnet_peer_nis_unhealthy", "peer NIs whose health is below 1000", unwell)
        own, others = self._busiest.share(members, now)
        for peer, ni in own:
            labels = dict(zip(_PEER_NI, (peer, str(ni["nid"])), strict=True))
            if ni.get("state") in ("up", "down"):
                self._gauge("lnet_peer_ni_up", "1: its state is up", ni["state"] == "up", labels)
            for word, view in PEER_LINES.items():
                self._lines(view, "lnet_peer_ni", lines_of(ni, word), labels)
            self._messages("lnet_peer_ni", ni, labels)
            for word, (name, text) in _PEER_CREDITS.items():
                if word in ni:
                    self._gauge(f"lnet_peer_ni_{name}", text, ni[word], labels)
            load = lines_of(ni, "load")
            if "waiting" in load:
                name, text = _CREDITS["waiting"]
                self._gauge(f"lnet_peer_ni_{name}", text, load["waiting"], labels)
            for cause, count in lines_of(load, "connects").items():
                text = "attempts to connect that failed, by the cause"
                self._count("lnet_peer_ni_connect_failures", text, count, {"cause": str(cause), **labels})
            self._policy_and_resends("lnet_peer_ni", ni, labels)
        if others:
            labels = dict.fromkeys(_PEER_NI, OTHERS)
            for word, view in PEER_LINES.items():
                grown = {name: count for (place, name), count in others.items() if place == word}
                self._lines(view, "lnet_peer_ni", grown, labels, levels=False)
            by_type: dict[str, dict[str, float]] = {f"{way}_stats": {} for way in DIRECTIONS}
            for (block, name), total in others.items():
                if block in by_type:
                    by_type[block][name] = total
            self._messages("lnet_peer_ni", by_type, labels)

    def _routes(self, snapshot: Snapshot) -> None:
        for route in records(snapshot.shown("route")):
            if route.get("state") in ("up", "down"):
                text = "1: the gateway leads to the net"
                words = {name: str(route.get(name, "")) for name in ("net", "gateway", "hop", "priority")}
                self._gauge("lnet_route_up", text, route["state"] == "up", words)
        for group in records(snapshot.shown("routing")):
            cpt = next((str(name) for name in group if str(name).startswith("cpt")), "")
            for name, pool in group.items():
                if isinstance(pool, Mapping):
                    pages = pool.get("npages")
                    size = _POOLS.get(pages, str(name)) if isinstance(pages, int) else str(name)
                    labels = {"cpt": cpt.strip("cpt[]"), "size": size}
                    for word, (short, text) in _POOL_LINES.items():
                        if word in pool:
                            self._gauge(f"lnet_router_{short}", text, pool[word], labels)
        if "routing" in snapshot.parts:
            text = "1: the node passes messages on"
            self._gauge("lnet_routing_enabled", text, snapshot.routes_for_others)

    # Samples ---------------------------------------------------------------------------------------

    def _lines(
        self, view: Any, prefix: str, shown: Mapping[str, Any], labels: dict[str, str], *, levels: bool = True
    ) -> None:
        for word, metric in metrics(view, prefix).items():
            value = shown.get(word)
            if value is None:
                continue
            if metric.kind == "counter":
                self._count(metric.name.removesuffix("_total"), metric.help, value, labels)
            elif levels:
                self._level(metric, value, labels)

    def _level(self, metric: counters.Metric, value: Any, labels: dict[str, str]) -> None:
        if metric.name.endswith("_nsec"):
            name = metric.name.removesuffix("_nsec") + "_seconds"
            self._gauge(name, metric.help.replace("ns ", "seconds "), number(value) / 1e9, labels)
        else:
            self._gauge(metric.name, metric.help, value, labels)

    def _policy_and_resends(self, prefix: str, ni: Mapping[str, Any], labels: dict[str, str]) -> None:
        policy = lines_of(ni, "udsp info")
        for word, (name, text) in _UDSP.items():
            if number(policy.get(word, -1)) >= 0:
                self._gauge(f"{prefix}_udsp_{name}", text, policy[word], labels)
        for status, count in lines_of(lines_of(ni, "load"), "resends").items():
            text = "messages sent again, by the failure"
            self._count(f"{prefix}_resends", text, count, {"failure": str(status), **labels})

    def _messages(self, prefix: str, shown: Mapping[str, Any], labels: dict[str, str]) -> None:
        for way in DIRECTIONS:
            for kind, count in lines_of(shown, f"{way}_stats").items():
                name, text = f"{prefix}_messages", "messages by type and direction"
                self._count(name, text, count, {"direction": way, "type": str(kind), **labels})

    def _gauge(self, name: str, text: str, value: Any, labels: dict[str, str] = _NONE) -> None:
        family = self._found.get(name)
        if family is None:
            family = self._found[name] = Metric(name, text, "gauge")
        family.samples.append(Sample(name, labels, number(value)))

    def _count(self, name: str, text: str, value: Any, labels: dict[str, str] = _NONE) -> None:
        family = self._found.get(name)
        if family is None:
            family = self._found[name] = Metric(name, text, "counter")
        family.samples.append(Sample(f"{name}_total", labels, number(value)))


def _moment(value: object) -> float | None:
    """Seconds since 1970 of a time by ISO 8601."""
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return None


def _length(value: object) -> int:
    return len(value) if isinstance(value, list | dict) else 0
