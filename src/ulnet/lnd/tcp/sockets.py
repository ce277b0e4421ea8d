"""Making and tuning the driver's sockets (spec wire-socklnd.md §1, §4.3)."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Container
from contextlib import suppress
from typing import Final

from ulnet.core.status import LNetError, errno_text, of_system
from ulnet.lnd.forks import of_this_process
from ulnet.lnd.tcp.params import TcpParams
from ulnet.lnd.tcp.routes import leads, shares_subnet
from ulnet.nid import Nid

__all__ = [
    "HIGHEST_RESERVED",
    "address_family",
    "check_address",
    "dial",
    "is_dead",
    "listen",
    "may_use_reserved",
    "packed",
    "reset",
    "tune",
]

HIGHEST_RESERVED: Final = 1023
_LOWEST_RESERVED: Final = 512
_TCP_CLOSE: Final = 7  # a state in TCP_INFO
_LINGER_RESET: Final = struct.pack("ii", 1, 0)
_LINGER_OFF: Final = struct.pack("ii", 0, 0)
_NEXT_PORT: Final = frozenset({errno.EADDRINUSE, errno.EADDRNOTAVAIL})


def address_family(nid: Nid) -> socket.AddressFamily:
    """The socket family of a NID's address."""
    return socket.AF_INET6 if nid.is_large else socket.AF_INET


def packed(ip: str) -> bytes:
    """The bytes of an address as a socket tells it, which may name a device behind it."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    return socket.inet_pton(family, ip.partition("%")[0])


def _endpoint(nid: Nid, port: int, device: str | None) -> tuple[str, int] | tuple[str, int, int, int]:
    """The socket address of a NID; a link-local one needs its device."""
    ip = nid.ip
    if not nid.is_large:
        return ip, port
    scope = 0
    if device is not None and ip.startswith("fe80:"):
        with suppress(OSError):
            scope = socket.if_nametoindex(device)
    return ip, port, 0, scope


def _new_socket(nid: Nid, device: str | None, params: TcpParams, shared: bool = False) -> socket.socket:
    sock = socket.socket(address_family(nid), socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    of_this_process(sock)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if device is not None:
            # Without the permission (or the device) routing alone decides.
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.partition(":")[0].encode())
        if params.congestion is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, params.congestion.encode())
        if params.tx_buffer_size:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, params.tx_buffer_size)
        if params.rx_buffer_size:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, params.rx_buffer_size)
    except OSError:
        sock.close()
        raise
    return sock


def may_use_reserved() -> bool:
    """Whether this process may call from ports below 1024."""
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", HIGHEST_RESERVED))
        except OSError as error:
            return error.errno != errno.EACCES
    return True


def listen(nid: Nid, port: int, device: str | None, params: TcpParams) -> list[socket.socket]:
    """Listening sockets on a NID's own address. Raises LNetError.

    One takes what comes by any device, and answers as the system's routes say. Where these lead to its subnet
    by another device, a second one takes what comes by its own, and answers there.
    """
    tied = device is not None and nid.ip.startswith("fe80:")
    first = _listening(nid, port, device if tied else None, params)
    if tied or device is None or not shares_subnet(nid, device):
        return [first]
    first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # only now: nobody else may listen here
    try:
        second = _listening(nid, port, device, params, shared=True)
    except LNetError:
        first.close()
        raise
    return [first, second]


def _listening(
    nid: Nid, port: int, device: str | None, params: TcpParams, shared: bool = False
) -> socket.socket:
    where = f"[{nid.ip}]:{port}" if nid.is_large else f"{nid.ip}:{port}"
    try:
        sock = _new_socket(nid, device, params, shared)
    except OSError as error:
        raise of_system(*_why_no_socket(error, params)) from None
    try:
        sock.bind(_endpoint(nid, port, device))
        sock.listen(params.accept_backlog)
    except OSError as error:
        sock.close()
        raise of_system(*_why_not_bound(error.errno or errno.EIO, nid, port, where)) from None
    return sock


def _why_no_socket(error: OSError, params: TcpParams) -> tuple[int, str]:
    number = error.errno or errno.EIO
    if number == errno.ENOENT and params.congestion is not None:
        return (
            number,
            f"congestion={params.congestion!r} is not to be had: see tcp_available_congestion_control",
        )
    return number, f"cannot make a TCP socket: {errno_text(number)}"


def _why_not_bound(number: int, nid: Nid, port: int, where: str) -> tuple[int, str]:
    if number == errno.EADDRNOTAVAIL:
        return errno.ENETDOWN, f"{nid.ip} is not an address of this host: see 'ip address' for those it has"
    if number == errno.EADDRINUSE:
        return number, (
            f"{where} is in use by another program (kernel LNet, or another node?): "
            "stop that, or set another accept_port on all nodes"
        )
    if number == errno.EACCES:
        return number, (
            f"listening on {where} is not permitted: ports below 1024 need root or CAP_NET_BIND_SERVICE; "
            f"set accept_port to 1024 or more on all nodes to do without"
        )
    return number, f"cannot listen on {where}: {errno_text(number)}"


def check_address(nid: Nid, device: str | None, params: TcpParams) -> None:
    """Raise LNetError unless the NID's address is this host's."""
    try:
        with _new_socket(nid, device, params) as sock:
            sock.bind(_endpoint(nid, 0, device))
    except OSError as error:
        raise of_system(*_why_not_bound(error.errno or errno.EIO, nid, 0, nid.ip)) from None


def dial(
    own: Nid, device: str | None, peer: Nid, port: int, params: TcpParams, taken: Container[int]
) -> socket.socket:
    """A socket that connects from our NID's address to the peer's, without waiting. Raises OSError.

    Source ports go down from 1023 while we may use them; `taken` are known to be of no use. It is tied to
    our device, unless only another one leads there.
    """
    if device is not None and not peer.ip.startswith("fe80:") and not leads(own, peer, device):
        device = None
    target = _endpoint(peer, port, device)
    if params.reserved_ports:
        for source in range(HIGHEST_RESERVED, _LOWEST_RESERVED - 1, -1):
            if source in taken:
                continue
            try:
                sock = _bound(own, source, device, params)
            except OSError as error:
                if error.errno == errno.EACCES:
                    break
                if error.errno == errno.EADDRINUSE:
                    continue
                raise
            try:
                return _connecting(sock, target)
            except OSError as error:
                if error.errno not in _NEXT_PORT:
                    raise
        else:
            raise OSError(errno.EADDRINUSE, "all reserved source ports are in use")
    return _connecting(_bound(own, 0, device, params), target)


def _bound(own: Nid, source: int, device: str | None, params: TcpParams) -> socket.socket:
    sock = _new_socket(own, device, params)
    try:
        if not source:
            # The port is then chosen by connect(), which needs it to be free for this target only.
            with suppress(OSError):
                sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
        sock.bind(_endpoint(own, source, device))
    except OSError:
        sock.close()
        raise
    return sock


def _connecting(sock: socket.socket, target: tuple[str, int] | tuple[str, int, int, int]) -> socket.socket:
    try:
        sock.connect(target)
    except BlockingIOError:
        pass
    except OSError:
        sock.close()
        raise
    return sock


_IP_BIND_ADDRESS_NO_PORT: Final = 24  # not in Python 3.11's socket module


def tune(sock: socket.socket, params: TcpParams, tos: int) -> None:
    """The options of an established connection. Raises OSError."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_OFF)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_LINGER2, -1)
    if tos >= 0:
        if sock.family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, tos)
        else:
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
    if params.keepalive_idle > 0 and params.keepalive_intvl > 0 and params.keepalive_count > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, params.keepalive_idle)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, params.keepalive_intvl)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, params.keepalive_count)


def reset(sock: socket.socket) -> None:
    """Close so that the other end sees a reset, not an end of file."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
    sock.close()


def is_dead(sock: socket.socket) -> bool:
    """Whether the connection is gone for good (reset, timed out): seen without reading from it."""
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSE
