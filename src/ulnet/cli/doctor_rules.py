"""Pitfalls of hosts with several interfaces: the real tool has scripts for them (spec lnetctl.md §1)."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_interface

from ulnet.cli.findings import Finding
from ulnet.host import Link
from ulnet.host.network_facts import NetworkFacts

__all__ = ["diagnose"]

_PRIVILEGED = 1024
_RESERVED_PORT = 988
_SMALL_BUFFER = 1 << 20


def diagnose(facts: NetworkFacts) -> Iterator[Finding]:
    """What may go wrong, each with the command that mends it."""
    used = [link for link in facts.links if not link.loopback and link.addresses]
    for link in used:
        yield from _link(link)
    for subnet, names in _shared_subnets(used).items():
        yield from _shared(facts, subnet, names)
    if len(used) > 1:
        yield from _reverse_paths(facts, used)
        mtus = {link.name: link.mtu for link in used if link.up}
        if len(set(mtus.values())) > 1:
            text = ", ".join(f"{name} {mtu}" for name, mtu in mtus.items())
            yield _note("mtu", f"interfaces have different MTUs ({text}): fine, if their nets have")
    yield from _whole(facts)


def _link(link: Link) -> Iterator[Finding]:
    if not link.up:
        text = f"interface {link.name} is off: `ip link set {link.name} up`"
        yield Finding("warning", link.name, 0, text)
    elif not link.carrier:
        yield Finding("warning", link.name, 0, f"interface {link.name} has no carrier: look at its cable")
    if not any(address.usable for address in link.addresses):
        text = f"interface {link.name} has only addresses that no NID can have (link-local or tentative)"
        yield _note(link.name, text)


def _shared_subnets(links: list[Link]) -> dict[str, list[str]]:
    """IPv4 networks on which several interfaces are."""
    found: dict[str, list[str]] = {}
    for link in links:
        for address in link.addresses:
            if ":" not in address.ip and link.up:
                net = str(ip_interface(f"{address.ip}/{address.prefixlen}").network)
                if link.name not in found.setdefault(net, []):
                    found[net].append(link.name)
    return {net: names for net, names in found.items() if len(names) > 1}


def _shared(facts: NetworkFacts, subnet: str, names: list[str]) -> Iterator[Finding]:
    both = " and ".join(names)
    for name in names:
        ignore, announce = (facts.effective(name, key) for key in ("arp_ignore", "arp_announce"))
        if ignore == 0:
            text = (
                f"{both} are both on {subnet}, and {name} answers ARP for the others' addresses: "
                "rails get mixed "
                f"up; `sysctl -w net.ipv4.conf.{name}.arp_ignore=1`"
            )
            yield Finding("error", name, 0, text)
        if announce is not None and announce < 2:
            text = (
                f"{both} are both on {subnet}, and {name} announces the others' addresses in its ARP "
                "requests; "
                f"`sysctl -w net.ipv4.conf.{name}.arp_announce=2`"
            )
            yield Finding("error", name, 0, text)
    for link in facts.links:
        if link.name in names:
            yield from _source_route(facts, link, subnet)


def _source_route(facts: NetworkFacts, link: Link, subnet: str) -> Iterator[Finding]:
    """Each address needs a rule that sends what comes from it out of its own device."""
    for address in link.addresses:
        if ":" in address.ip:
            continue
        tables = [table for source, table in facts.rules if source == address.ip]
        if not any(link.name in facts.table_devices.get(table, set()) for table in tables):
            table = 100 + link.index
            text = (
                f"no rule sends packets from {address.ip} out of {link.name}: the kernel uses the "
                "first route to "
                f"{subnet}, for kernel peers' answers too; `ip route add {subnet} dev {link.name} "
                f"table {table}; "
                f"ip rule add from {address.ip} table {table}` (ulnet binds its own connections to "
                "the device)"
            )
            yield Finding("warning", link.name, 0, text)


def _reverse_paths(facts: NetworkFacts, links: list[Link]) -> Iterator[Finding]:
    for link in links:
        if facts.effective(link.name, "rp_filter") == 1:
            text = (
                f"rp_filter is strict (1) on {link.name}: packets that the routes would answer "
                "another way are "
                f"dropped in silence; `sysctl -w net.ipv4.conf.{link.name}.rp_filter=2`"
            )
            yield Finding("warning", link.name, 0, text)


def _whole(facts: NetworkFacts) -> Iterator[Finding]:
    if facts.kernel_lnet:
        text = (
            "the kernel's own LNet is loaded and may hold port 988 on these addresses: use others, or "
            "`lnetctl lnet unconfigure` of the kernel's tool"
        )
        yield Finding("warning", "lnet", 0, text)
    start = facts.whole.get("unprivileged_port_start", _PRIVILEGED)
    if not facts.root and start > _RESERVED_PORT:
        text = (
            "not root: peers with accept=secure (kernel nodes' default) refuse connections from this "
            "user, and "
            "port 988 cannot be listened at; give lnetd CAP_NET_BIND_SERVICE"
        )
        yield Finding("warning", "ports", 0, text)
    for name in ("rmem_max", "wmem_max"):
        if facts.whole.get(name, _SMALL_BUFFER) < _SMALL_BUFFER:
            text = f"net.core.{name} is {facts.whole[name]}: fast rails want {_SMALL_BUFFER} or more"
            yield _note(name, text)


def _note(where: str, text: str) -> Finding:
    return Finding("note", where, 0, text)
