"""A node for dry runs: the real core and the real administration, with drivers that send nothing.

What a configuration would do is asked of the very code that would do it.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_address
from itertools import count

from ulnet.control.instance import LNet
from ulnet.core.lnd import NiEvent
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.selection import Balance
from ulnet.core.status import HealthStatus
from ulnet.dlc.model import LnetConfigure, NetAdd, Request
from ulnet.dlc.modprobe import Parameters
from ulnet.host import Address, Link, NumaNode, Topology
from ulnet.nid import LO_NID, NetType, Nid, NidError, NidList
from ulnet.nid.expr import split_list
from ulnet.node.admin import Admin
from ulnet.node.admin.addition import KeptSettings
from ulnet.node.node import Node

__all__ = ["INVENTED", "dry_run", "invented_links", "pretend_ni", "pretend_peer_ni"]

INVENTED = "198.18."  # addresses of interfaces of which nothing but the name is known (RFC 2544)
_MANY = 1024


class _Paper:
    """A driver that takes every NI and fails every message."""

    reports_timeout = True

    def __init__(self, core: LNet, net_type: NetType) -> None:
        self._core = core
        self.name = net_type.name.lower()
        self.net_type = net_type.value

    def startup(self, ni: NI) -> None:
        """Nothing to do."""

    def shutdown(self, ni: NI) -> None:
        """Nothing to do."""

    def retune(self, ni: NI, timeout: float) -> None:
        """Nothing to do."""

    def access_changed(self, ni: NI) -> None:
        """Nobody is connected."""

    def verify(self, ni: NI, nid: Nid) -> bool:
        """Nobody is connected."""
        return False

    def send(self, ni: NI, msgs: list[Msg]) -> None:
        """Do nothing: a dry run has no other end."""
        status, text = HealthStatus.LOCAL_ERROR, "this node exists in a dry run only"
        self._core.defer(self._core.completed, msgs, status, errno.EHOSTUNREACH, text)


@asynccontextmanager
async def dry_run(
    links: Sequence[Link],
    *,
    cpts: int = 1,
    nets: Iterable[NetType] = (NetType.TCP, NetType.O2IB),
    parameters: Sequence[Parameters] = (),
    large: bool = False,
    balance: Balance = "expected",
) -> AsyncIterator[Admin]:
    """A running node with these interfaces, so many CPTs, and the settings among module parameters."""
    nodes = tuple(
        NumaNode(at, (at,), tuple(10 if at == to else 20 for to in range(cpts))) for at in range(cpts)
    )

    def drivers(core: LNet) -> list[_Paper]:
        return [_Paper(core, net_type) for net_type in nets]

    node = Node(topology=Topology(nodes), drivers=drivers, report=lambda line: None, balance=balance)
    admin = Admin(node, host=lambda: links, parameters=parameters, drain=0.1, additions=[KeptSettings()])
    await admin.handle(LnetConfigure(large=large))
    node.core.info.stop()  # nobody asks this node who it is, and it would tell anew with each NI
    try:
        yield admin
    finally:
        await node.close(drain=0)  # nothing is on its way to anybody


def pretend_ni(core: LNet, nid: str, *, health: int | None, down: bool) -> None:
    """Let a local NI, if there is one, be as well as it is elsewhere."""
    ni = core.nis.get(_parsed(nid))
    if ni is None:
        return
    if health is not None:
        core.health.values.set_ni(ni, health)
    if down:
        core.ni_event(ni, NiEvent.FATAL)


def pretend_peer_ni(
    core: LNet, nid: str, *, health: int | None, credits: int | None, queued: int | None
) -> None:
    """Let a peer NI, if there is one, be as well and as busy as it is elsewhere; `queued` in bytes."""
    pni = core.peers.find_ni(_parsed(nid))
    if pni is None:
        return
    if health is not None:
        core.health.values.set_peer(pni, health)
    if credits is not None:
        pni.tx_credits = credits
    if queued is not None:
        pni.tx_queued_bytes = queued


def _parsed(nid: str) -> Nid:
    try:
        return Nid.parse(nid)
    except NidError:
        return LO_NID


def invented_links(requests: Iterable[Request], known: Sequence[Link] = ()) -> list[Link]:
    """Interfaces that make the requests possible: those known, the others with the NIDs that are given."""
    links = {link.name: link for link in known}
    there = {one.ip for link in known for one in link.addresses}
    number = count(1)
    for request in requests:
        if not isinstance(request, NetAdd):
            continue
        ips = _addresses(request.nids)
        for at, text in enumerate(request.interfaces):
            name = text.partition("[")[0]
            prefer = _addresses([request.prefer]) if request.prefer is not None and at == 0 else []
            ips_here = prefer or ([] if name in links else [_invented(next(number))])
            _give(links, name, ips_here)
            there.update(ips_here)
        for ip in ips:
            if ip not in there:
                there.add(ip)
                _give(links, "lo" if ip.startswith("127.") else f"has-{ip}", [ip])
    return list(links.values())


def _give(links: dict[str, Link], name: str, ips: Iterable[str]) -> None:
    link = links.get(name) or Link(name, len(links) + 1, loopback=name == "lo")
    more = tuple(
        Address(ip, 8 if ip.startswith("127.") else 24, family=2 if ip_address(ip).version == 4 else 10)
        for ip in ips
        if ip not in {one.ip for one in link.addresses}
    )
    links[name] = replace(link, addresses=(*link.addresses, *more))


def _addresses(texts: Iterable[str]) -> list[str]:
    found: list[str] = []
    for text in texts:
        for one in split_list(text):
            try:
                nids: list[Nid] = NidList.parse(one).expand(_MANY)
                found += [nid.ip for nid in nids]
            except NidError:  # the node will say what is wrong with it
                continue
    return found


def _invented(number: int) -> str:
    return f"{INVENTED}{number >> 8 & 0xFF}.{number & 0xFF}"
