"""Whether packets to a peer may be tied to a device: asks the system's routes, and sends nothing.

A socket that is bound to a device uses the routes of that device alone. So two rails in one subnet leave by
their own devices; but an address of this host itself, and one that only another device leads to, are out of
its reach.
"""

from __future__ import annotations

import socket
import struct
from typing import Final, NamedTuple

from ulnet.nid import Nid

__all__ = ["leads", "shares_subnet"]

_HEADER: Final = struct.Struct("=IHHII")  # nlmsghdr
_ROUTE: Final = struct.Struct("=BBBBBBBBI")  # rtmsg
_ATTRIBUTE: Final = struct.Struct("=HH")  # rtattr
_NUMBER: Final = struct.Struct("=I")
_GET_ROUTE: Final = 26
_NEW_ROUTE: Final = 24
_REQUEST: Final = 1
_FIB_MATCH: Final = 0x2000  # the route itself, so that none is invented for the device
_TO, _FROM, _DEVICE = 1, 2, 4  # attributes
_UNICAST: Final = 1  # a type of route


class _Route(NamedTuple):
    """Its type, and the device by which it leaves."""

    type: int
    device: int


def leads(own: Nid, peer: Nid, device: str) -> bool:
    """Whether packets from our address to the peer's may be tied to that device.

    So too where nobody can tell, and where no device leads there: then the attempt says what is the matter.
    """
    try:
        index = socket.if_nametoindex(device.partition(":")[0])
        usual = _find(own, peer)
        if usual is not None and usual.type != _UNICAST:
            return False  # an address of this host, or one to which the routes forbid the way
        if usual is not None and usual.device == index:
            return True
        only = _find(own, peer, index)
        return usual is None or (only is not None and (only.type, only.device) == (_UNICAST, index))
    except OSError:
        return True


def shares_subnet(own: Nid, device: str) -> bool:
    """Whether packets to our address's own subnet leave by another device, unless tied to this one."""
    address = own.address
    neighbour = Nid.of(own.net, address[:-1] + bytes([address[-1] ^ 1]))
    try:
        index = socket.if_nametoindex(device.partition(":")[0])
        usual = _find(own, neighbour)
        if usual is not None and usual.type != _UNICAST:  # that one is ours as well
            neighbour = Nid.of(own.net, address[:-1] + bytes([address[-1] ^ 2]))
            usual = _find(own, neighbour)
    except OSError:
        return False
    return usual is not None and usual.device != index and leads(own, neighbour, device)


def _find(own: Nid, peer: Nid, device: int = 0) -> _Route | None:
    """The route of packets from our address to the peer's, of those of a device only; None: there is none."""
    family = socket.AF_INET6 if peer.is_large else socket.AF_INET
    bits = 8 * len(peer.address)
    attributes = _attribute(_TO, peer.address) + _attribute(_FROM, own.address)
    flags = 0
    if device:
        attributes += _attribute(_DEVICE, _NUMBER.pack(device))
        flags = _FIB_MATCH
    body = _ROUTE.pack(family, bits, bits, 0, 0, 0, 0, 0, flags) + attributes
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asking:
        asking.settimeout(1)
        asking.send(_HEADER.pack(_HEADER.size + len(body), _GET_ROUTE, _REQUEST, 1, 0) + body)
        answer = asking.recv(8192)
    return _read(answer)


def _attribute(kind: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value


def _read(answer: bytes) -> _Route | None:
    length, kind, *_ = _HEADER.unpack_from(answer)
    if kind != _NEW_ROUTE:
        return None  # an error: nothing leads there
    at = _HEADER.size
    route_type = _ROUTE.unpack_from(answer, at)[7]
    at += _ROUTE.size
    device = 0
    while at + _ATTRIBUTE.size <= length:
        size, name = _ATTRIBUTE.unpack_from(answer, at)
        if size < _ATTRIBUTE.size:
            break
        if name == _DEVICE:
            (device,) = _NUMBER.unpack_from(answer, at + _ATTRIBUTE.size)
        at += (size + 3) & ~3
    return _Route(route_type, device)
