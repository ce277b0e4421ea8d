"""Links and their addresses by netlink (pyroute2, loaded on first use: it is slow to import)."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from ipaddress import ip_address, ip_interface
from pathlib import Path
from socket import AF_INET, AF_INET6
from typing import Any, TypeVar

from ulnet.host.values import Address, HostError, Link

__all__ = ["device_node", "first_address", "link_named", "link_with_address", "links"]

_IFF_UP, _IFF_LOOPBACK = 0x1, 0x8
_IFA_F_TENTATIVE, _IFA_F_DADFAILED = 0x40, 0x08
_SYS = Path("/sys/class/net")

_Answer = TypeVar("_Answer")


def links() -> list[Link]:
    """All links of this network namespace. Raises HostError(ENOSYS, or what the kernel says)."""
    try:
        return _outside_loop(_query)
    except OSError as error:
        raise HostError(error.errno or errno.EIO, f"netlink cannot be used here: {error}") from None


def link_named(name: str, among: Iterable[Link] | None = None) -> Link:
    """The link of that name; of an address label, such as eth0:1, with its addresses only.

    Raises HostError(ENODEV).
    """
    known = links() if among is None else list(among)
    for link in known:
        if link.name == name:
            return link
    for link in known:
        if labelled := tuple(address for address in link.addresses if name and address.label == name):
            return replace(link, addresses=labelled)
    names = ", ".join(link.name for link in known) or "none"
    raise HostError(errno.ENODEV, f"no interface is named {name!r}: this host has {names}")


def link_with_address(ip: str, among: Iterable[Link] | None = None) -> Link:
    """The link that has that address (loopback has its whole network). Raises HostError(EADDRNOTAVAIL)."""
    known = links() if among is None else list(among)
    wanted = ip_address(ip)
    text = str(wanted)
    for link in known:
        for address in link.addresses:
            if address.ip == text or (":" in address.ip and ip_address(address.ip) == wanted):
                return link
    for link in known:
        if link.loopback and any(wanted in _network(address) for address in link.addresses):
            return link
    raise HostError(
        errno.EADDRNOTAVAIL, f"{ip} is not an address of this host: `ip address` lists those it has"
    )


def _network(address: Address) -> Any:
    return ip_interface(f"{address.ip}/{address.prefixlen}").network


def first_address(link: Link, prefer_large: bool = False) -> Address:
    """The address that names the link: the first IPv4, else the first IPv6; with prefer_large the reverse.

    Raises HostError(EADDRNOTAVAIL).
    """
    usable = [address for address in link.addresses if address.usable]
    for family in (AF_INET6, AF_INET) if prefer_large else (AF_INET, AF_INET6):
        for address in usable:
            if address.family == family:
                return address
    raise HostError(
        errno.EADDRNOTAVAIL,
        f"interface {link.name} has no usable IP address: give it one with `ip address add`",
    )


def _outside_loop(query: Callable[[], _Answer]) -> _Answer:
    """query(), in a thread of its own if an event loop runs here: pyroute2 runs one itself."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return query()
    answers: list[_Answer] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            answers.append(query())
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=work, name="ulnet-netlink")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return answers[0]


def _query() -> list[Link]:
    try:
        from pyroute2 import IPRoute, NetlinkError
    except ImportError:
        raise HostError(
            errno.ENOSYS, "links cannot be listed: pyroute2 is not installed, or this is not Linux"
        ) from None
    try:
        with IPRoute() as netlink:
            addresses: dict[int, list[Address]] = {}
            for message in netlink.get_addr():
                address = _address(message)
                if address is not None:
                    addresses.setdefault(message["index"], []).append(address)
            return [_link(message, addresses.get(message["index"], [])) for message in netlink.get_links()]
    except NetlinkError as error:
        raise HostError(error.code, f"the kernel does not list its links: {error}") from None


def _address(message: Any) -> Address | None:
    ip = message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
    if message["family"] not in (AF_INET, AF_INET6) or ip is None:
        return None
    label = message.get_attr("IFA_LABEL") or ""
    flags = message.get_attr("IFA_FLAGS") or message["flags"]
    return Address(
        ip=ip,
        prefixlen=message["prefixlen"],
        family=message["family"],
        scope=message["scope"],
        tentative=bool(flags & (_IFA_F_TENTATIVE | _IFA_F_DADFAILED)),
        label=label if ":" in label else "",
    )


def _link(message: Any, addresses: list[Address]) -> Link:
    name = message.get_attr("IFLA_IFNAME")
    index = message["index"]
    # /sys may show another network namespace than ours; then it tells nothing of this link.
    known = _number(name, "ifindex") == index
    speed = _number(name, "speed") if known else None
    return Link(
        name=name,
        index=index,
        up=bool(message["flags"] & _IFF_UP),
        carrier=bool(message.get_attr("IFLA_CARRIER")),
        mtu=message.get_attr("IFLA_MTU") or 0,
        speed_mbps=speed if speed is not None and speed > 0 else None,
        addresses=tuple(addresses),
        numa_node=device_node(name) if known else -1,
        loopback=bool(message["flags"] & _IFF_LOOPBACK),
    )


def _number(link_name: str, file: str) -> int | None:
    try:
        return int(os.fsdecode((_SYS / link_name / file).read_bytes()))
    except (OSError, ValueError):  # no such file, no driver to answer, or no number
        return None


def device_node(link_name: str) -> int:
    """The NUMA node of a link's device; -1 if it has none, or none is known."""
    found = _number(link_name, "device/numa_node")
    return -1 if found is None else found
