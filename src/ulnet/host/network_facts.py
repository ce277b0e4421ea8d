"""What the kernel's network settings are, as plain values: for `ulnet doctor`."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ulnet.host.netlink import links
from ulnet.host.values import HostError, Link

__all__ = ["NetworkFacts", "network_facts"]

_CONF = Path("/proc/sys/net/ipv4/conf")
_PER_LINK = ("arp_ignore", "arp_announce", "rp_filter")
_WHOLE = {
    "unprivileged_port_start": "net/ipv4/ip_unprivileged_port_start",
    "rmem_max": "net/core/rmem_max",
    "wmem_max": "net/core/wmem_max",
}


@dataclass(slots=True)
class NetworkFacts:
    """Made by hand in tests. `conf["eth0"]["arp_ignore"]`, also for "all"; `rules` are (source, table)."""

    links: list[Link]
    conf: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    rules: list[tuple[str, int]] = field(default_factory=list)  # policy rules by source address
    table_devices: Mapping[int, set[str]] = field(default_factory=dict)  # devices with routes, by table
    whole: Mapping[str, int] = field(default_factory=dict)
    kernel_lnet: bool = False  # the kernel's own LNet is loaded
    root: bool = True

    def effective(self, link: str, name: str) -> int | None:
        """The value in force: the larger of the link's and that for all."""
        values = [self.conf[key][name] for key in (link, "all") if name in self.conf.get(key, {})]
        return max(values) if values else None


def network_facts(root: bool) -> NetworkFacts:
    """The facts of this network namespace; not to be called where an event loop runs. Raises HostError."""
    here = links()
    conf = {
        name: {key: value for key in _PER_LINK if (value := _number(_CONF / name / key)) is not None}
        for name in ["all", *(link.name for link in here)]
    }
    rules, devices = _routing()
    found = {name: _number(Path("/proc/sys") / path) for name, path in _WHOLE.items()}
    whole = {name: value for name, value in found.items() if value is not None}
    return NetworkFacts(here, conf, rules, devices, whole, _lnet_is_loaded(), root)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _lnet_is_loaded() -> bool:
    try:
        return any(line.startswith("lnet ") for line in Path("/proc/modules").read_text().splitlines())
    except OSError:
        return False


def _routing() -> tuple[list[tuple[str, int]], dict[int, set[str]]]:
    try:
        from pyroute2 import IPRoute, NetlinkError
    except ImportError:
        raise HostError(errno.ENOSYS, "routes cannot be listed: pyroute2 is not installed") from None
    rules: list[tuple[str, int]] = []
    devices: dict[int, set[str]] = {}
    try:
        with IPRoute() as netlink:
            names = {one["index"]: one.get_attr("IFLA_IFNAME") for one in netlink.get_links()}
            for rule in netlink.get_rules():
                source = rule.get_attr("FRA_SRC")
                if source:
                    rules.append((source, _table(rule, "FRA_TABLE")))
            for route in netlink.get_routes():
                name = names.get(route.get_attr("RTA_OIF"))
                if name is not None:
                    devices.setdefault(_table(route, "RTA_TABLE"), set()).add(name)
    except NetlinkError as error:
        raise HostError(error.code, f"the kernel does not list its routes: {error}") from None
    return rules, devices


def _table(message: Any, attribute: str) -> int:
    return int(message.get_attr(attribute) or message["table"])
