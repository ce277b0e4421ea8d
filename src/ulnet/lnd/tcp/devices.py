"""The devices of an NI, one or several, and which of them meets which address of a peer.

A HELLO tells the addresses of an NI over several devices (spec wire-socklnd.md §3.2, "deprecated IPs").
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address
from typing import TYPE_CHECKING, Final

from ulnet.core.ni import Place
from ulnet.core.status import LNetError
from ulnet.nid import Net, Nid

if TYPE_CHECKING:
    from ulnet.core.ni import NI

__all__ = [
    "MOST_ADDRESSES",
    "AddressPair",
    "Device",
    "Pair",
    "address_number",
    "believable",
    "devices_of",
    "matched",
]

AddressPair = tuple[bytes, bytes]  # the addresses of a connection: ours and the peer's

MOST_ADDRESSES: Final = 16  # of one NI: a HELLO holds no more
_FIRST_MULTICAST: Final = 224 << 24
_LOOPBACK: Final = 127


class Device:
    """A device of an NI, with its address."""

    __slots__ = ("deaf", "down", "interface", "ip", "nid", "slow")

    def __init__(self, nid: Nid, interface: str | None) -> None:
        self.nid: Nid = nid  # its address, in the form that NIDs have
        self.ip: str = nid.ip
        self.interface: str | None = interface
        self.down: str = ""  # why it can carry nothing now
        self.slow: str = ""  # why it carries far less than it did
        self.deaf: bool = False  # it does not listen, for the interface is gone

    @property
    def place(self) -> Place:
        """The address and the interface, as the core has them."""
        return Place(self.nid, self.interface or "")


class Pair:
    """An address of ours and one of the peer's, between which connections are made."""

    __slots__ = ("addresses", "device", "pause", "retry_at", "satisfied", "target")

    def __init__(self, device: Device, target: Nid) -> None:
        self.device: Device = device
        self.target: Nid = target
        self.addresses: AddressPair = (device.nid.address, target.address)
        self.pause: float = 0.0  # after the last attempt, if that failed
        self.retry_at: float = 0.0
        self.satisfied: bool = False  # the peer wants no more connections there


def devices_of(ni: NI) -> list[Device]:
    """The devices of an NI: the one of its NID first, then those of a bonded net. Raises LNetError."""
    devices = [Device(ni.nid, ni.interface)]
    devices += [Device(place.nid, place.interface or None) for place in ni.also]
    if len(devices) > 1 and any(device.nid.is_large for device in devices):
        raise LNetError(
            errno.EAFNOSUPPORT,
            f"{ni.nid}: one NI over several devices needs IPv4 addresses, for a HELLO can tell of no others; "
            "give them some, or switch use_tcp_bonding off",
        )
    if len(devices) > MOST_ADDRESSES:
        raise LNetError(
            errno.EINVAL,
            f"{ni.nid}: {len(devices)} devices are more than the {MOST_ADDRESSES} of one NI: name fewer",
        )
    return devices


def address_number(nid: Nid) -> int:
    """The address of a NID as a number."""
    return int.from_bytes(nid.address, "big")


def believable(net: Net, own: Nid, nid: Nid, ips: Iterable[int]) -> tuple[Nid, ...]:
    """The addresses of the peer nid, which says in its HELLO that it has `ips`: its NID's is the first.

    What can be no address of another host is left out, for we are going to call them.
    """
    found: dict[Nid, None] = {nid: None}
    near = address_number(own) >> 24 == _LOOPBACK
    for number in ips:
        if 1 << 24 <= number < _FIRST_MULTICAST and (near or number >> 24 != _LOOPBACK):
            found[Nid.of(net, IPv4Address(number).packed)] = None
    return tuple(found)[:MOST_ADDRESSES]


def matched(own: Sequence[Nid], others: Sequence[Nid]) -> list[tuple[int, int]]:
    """Pairs of places in both lists: each address has a partner, and none has two while others have none.

    Addresses with the longest common beginning come together, for they are likely to share a subnet.
    """
    ranked = sorted(
        ((_distance(one, other), i, j) for i, one in enumerate(own) for j, other in enumerate(others))
    )
    left = set(range(len(own)))
    right = set(range(len(others)))
    pairs = []
    for _, i, j in ranked:
        if i in left and j in right:
            left.remove(i)
            right.remove(j)
            pairs.append((i, j))
    for _, i, j in ranked:  # the longer list has some without a partner yet
        if i in left or j in right:
            left.discard(i)
            right.discard(j)
            pairs.append((i, j))
    return sorted(pairs)


def _distance(one: Nid, other: Nid) -> int:
    return (address_number(one) ^ address_number(other)).bit_length()
