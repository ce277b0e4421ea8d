"""Which of its own addresses this host would use towards another."""

from __future__ import annotations

import errno
import os
from ipaddress import ip_address
from socket import AF_INET, AF_INET6, SOCK_DGRAM, socket

from ulnet.host.values import HostError

__all__ = ["source_address_for"]


def source_address_for(dst_ip: str) -> str:
    """The source address that the routes give for dst_ip. Raises HostError(ENETUNREACH, EINVAL, …).

    The kernel looks the route up when a datagram socket is connected; nothing is sent.
    """
    try:
        version = ip_address(dst_ip).version
    except ValueError:
        raise HostError(
            errno.EINVAL, f"{dst_ip!r} is not an IP address: write one such as 10.0.0.1 or fd00::1"
        ) from None
    with socket(AF_INET if version == 4 else AF_INET6, SOCK_DGRAM) as probe:
        try:
            probe.connect((dst_ip, 9))
        except OSError as error:
            number = error.errno or errno.ENETUNREACH
            raise HostError(
                number,
                f"this host has no route to {dst_ip} ({os.strerror(number)}): see `ip route get {dst_ip}`",
            ) from None
        source: str = probe.getsockname()[0]
    return source
