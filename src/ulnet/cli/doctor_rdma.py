"""What keeps o2ib nets from working on a host: devices, ports, connection manager, libraries, memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ulnet.cli.findings import Finding
from ulnet.host import Link
from ulnet.host.rdma_facts import RdmaFacts, RdmaPort

__all__ = ["diagnose_rdma"]

_ENOUGH: int = 64 << 20  # bytes of locked memory: some connections, and bulk under way
_STATES = {
    "INIT": "it waits for a subnet manager: start opensm on one host, or that of a switch",
    "ARMED": "the subnet manager is about to set it up",
    "DOWN": "look at its cable, and whether its interface is up",
}


def diagnose_rdma(facts: RdmaFacts, links: Sequence[Link], wanted: bool) -> Iterator[Finding]:
    """What may go wrong, each with what mends it; nothing without a device, unless one is `wanted`."""
    if not facts.ports:
        if wanted:
            text = (
                "this host has no RDMA device: load the driver of its card, or make one of an Ethernet "
                "interface, `modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0`"
            )
            yield Finding("error", "rdma", 0, text)
        return
    for port in facts.ports:
        yield from _port(port, links)
    if facts.missing:
        text = (
            f"{' and '.join(facts.missing)} cannot be loaded: `apt-get install rdma-core ibverbs-providers`"
        )
        yield Finding("error", "rdma", 0, text)
    if not facts.manager:
        text = "the connection manager is not there (/dev/infiniband/rdma_cm): `modprobe rdma_ucm`"
        yield Finding("error", "rdma", 0, text)
    if facts.locked is not None and facts.locked < _ENOUGH:
        text = (
            f"only {facts.locked >> 10} KiB of memory may be locked, and o2ib registers all that it moves: "
            "`ulimit -l unlimited`, or LimitMEMLOCK=infinity in the service"
        )
        yield Finding("warning", "memlock", 0, text)


def _port(port: RdmaPort, links: Sequence[Link]) -> Iterator[Finding]:
    if port.state != "ACTIVE":
        why = _STATES.get(port.state, "it carries nothing")
        yield Finding("warning", str(port), 0, f"the port is in state {port.state or 'unknown'}: {why}")
    named = [link for link in links if link.name in port.netdevs]
    if port.link_layer != "Ethernet":
        return
    for link in named:
        if not any(":" not in address.ip for address in link.addresses):
            text = (
                f"its interface {link.name} has no IPv4 address, which the NID of an o2ib net is: give it one"
            )
            yield Finding("warning", str(port), 0, text)
    if named and port.state == "ACTIVE" and not port.ipv4_gids:
        names = ", ".join(port.netdevs)
        text = f"it has no RoCE v2 GID for an IPv4 address: take {names} down and up, with its address"
        yield Finding("warning", str(port), 0, text)
