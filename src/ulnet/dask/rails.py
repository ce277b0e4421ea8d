"""The NIs of a process: one for each rail, with an address that no other process has."""

from __future__ import annotations

import errno
import secrets
from collections.abc import Iterable
from ipaddress import IPv4Address, ip_address

from ulnet.core.status import LNetError, of_system
from ulnet.core.tunables import NetTunables
from ulnet.dlc.legacy import LegacyError, read_networks
from ulnet.dlc.model import NetAdd
from ulnet.host import HostError, Link, link_named, link_with_address, links
from ulnet.node import Node

__all__ = ["add_rails", "is_loopback"]

_TRIES = 64  # addresses of loopback
_TAKEN = (errno.EADDRINUSE, errno.EEXIST)
# Both ways there are as many pieces of frames under way as their windows allow. With the usual 8 credits,
# requests for the next pieces and frames would wait for their turn behind those that go the other way.
_TUNABLES = NetTunables(peer_credits=128, credits=1024)


def add_rails(node: Node, networks: str | None, ip: str, exactly: bool) -> tuple[str, str]:
    """Give a node its NIs, and return the address that it is called by (`ip`, or one beside it) and its net.

    Each process has NIDs of its own. On loopback it takes any address of 127.0.0.0/8 that is free; on another
    interface `ip` if it is free, else a free one of the same interface. `exactly`: `ip` or none. Raises
    LNetError: EADDRINUSE, EINVAL, EADDRNOTAVAIL.
    """
    try:
        if networks is not None:
            return _add_networks(node, networks, ip, exactly)
        link = link_with_address(ip)
        candidates = [ip] if exactly else _beside(link, ip)
        return _add_first_free(node, "tcp", link, candidates), "tcp"
    except (HostError, LegacyError) as bad:
        raise LNetError(getattr(bad, "errno", errno.EINVAL), str(bad)) from None


def is_loopback(ip: str) -> bool:
    """Whether an address is one of loopback's."""
    return ip_address(ip).is_loopback


def _add_networks(node: Node, networks: str, ip: str, exactly: bool) -> tuple[str, str]:
    """All rails. The process is called by an address on the first net: other processes name it so."""
    known = links()
    named = first = ""
    for request in read_networks(networks):
        if not isinstance(request, NetAdd):
            text = f"networks {networks!r}: name the interfaces of each net, as 'tcp(eth0),tcp1(eth1)'"
            raise LNetError(errno.EINVAL, text)
        net = request.net or "tcp"
        first = first or net
        for name in request.interfaces:
            link = link_named(name, known)
            asked = net == first and any(address.ip == ip for address in link.addresses)
            candidates = [ip] if asked and exactly else _beside(link, ip if asked else "")
            taken = _add_first_free(node, net, link, candidates)
            if asked or not named:
                named = taken
    if exactly and named != ip:
        raise LNetError(
            errno.EADDRNOTAVAIL, f"{ip} is no address of net {first} of networks {networks!r}: give one of it"
        )
    return named, first


def _beside(link: Link, ip: str) -> list[str]:
    """The address asked for, then the others of its interface."""
    if link.loopback and ":" not in ip:
        others: Iterable[str] = (
            str(IPv4Address((127 << 24) + (1 << 16) + secrets.randbelow((1 << 24) - (1 << 17))))
            for _ in range(_TRIES)
        )
    else:
        version = ip_address(ip).version if ip else 4
        usable = [address.ip for address in link.addresses if address.usable]
        others = [other for other in usable if other != ip and ip_address(other).version == version]
    return [*([ip] if ip else []), *others]


def _add_first_free(node: Node, net: str, link: Link, candidates: list[str]) -> str:
    for candidate in candidates:
        try:
            node.add_ni(f"{candidate}@{net}", interface=link.name, tunables=_TUNABLES)
        except LNetError as refused:
            if refused.errno not in _TAKEN:
                raise
        else:
            return candidate
    raise of_system(
        errno.EADDRINUSE,
        f"{', '.join(candidates[:4]) or 'no address'} of {link.name}: another process has each of them. Each "
        f"process of a host needs one of its own: `ip address add 10.0.0.7/24 dev {link.name}`, or start "
        "fewer processes there (one worker without nanny)",
    )
