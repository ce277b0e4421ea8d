"""The driver's module parameters (spec wire-socklnd.md §1, §4.3, §6, §7)."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from ulnet.core.status import LNetError

__all__ = ["MAX_SPIN", "TcpParams", "conns_for_speed"]

MAX_SPIN = 100  # microseconds: longer than a sleeping CPU takes to wake, it only costs
# Least and most of the others; Linux refuses longer times of TCP's own keepalive, and more probes (tcp(7)).
_RANGES = {
    "accept_backlog": (1, 65535),
    "accept_timeout": (0.001, 86400),
    "min_reconnectms": (0, 2**31 - 1),
    "max_reconnectms": (0, 2**31 - 1),
    "keepalive": (0, 2**31 - 1),
    "keepalive_idle": (0, 32767),
    "keepalive_intvl": (0, 32767),
    "keepalive_count": (0, 127),
    "min_bulk": (0, 2**31 - 1),
    "tx_buffer_size": (0, 2**30),
    "rx_buffer_size": (0, 2**30),
}


@dataclass(slots=True)
class TcpParams:
    """ksocklnd's and the acceptor's parameters under their own names, and a few of ours at the end.

    Raises LNetError(EINVAL) for what is out of range.
    """

    accept: str = "secure"  # secure: only source ports below 1024; all; none
    check_source: bool = True  # who calls must do so from an address of the NID that it names
    credentials: str | None = None  # directory of the certificates for nets with `security`
    accept_port: int = 988
    accept_port_bulk: int | None = None  # None: the same as accept_port
    accept_backlog: int = 4096  # the kernel's 127 makes thousands of connects slow; the system may lower it
    accept_timeout: float = 5  # seconds for a whole request, then for a whole HELLO
    sock_timeout: float = 50
    min_reconnectms: int = 1000
    max_reconnectms: int = 60000
    refused_reconnectms: int = 500  # the longest pause after "refused": that peer's host is well
    keepalive: float = 30  # seconds of silence before a NOOP; 0: never
    keepalive_idle: int = 30  # of TCP itself; none where one of the three is 0
    keepalive_intvl: int = 5
    keepalive_count: int = 5
    min_bulk: int = 1024
    typed_conns: bool = True
    enable_csum: bool = False
    round_robin: bool = True
    nonblk_zcack: bool = True
    eager_ack: bool = False
    tx_buffer_size: int = 0  # 0: the system's default
    rx_buffer_size: int = 0
    tos: int = -1
    listen: bool = True  # False: a client only, nothing is bound
    reserved_ports: bool = True  # dial from ports 1023..512 where that is permitted
    congestion: str | None = None  # TCP_CONGESTION of every socket; None: the system's
    max_handshakes: int = 4096  # inbound ones in progress: beyond it the oldest give way
    sweep_interval: float = 1  # seconds between looks at deadlines
    spin: int = 0  # microseconds to look for more after a message before the process sleeps; 0: sleep at once

    def __post_init__(self) -> None:
        if self.accept not in ("secure", "all", "none"):
            raise LNetError(
                errno.EINVAL, f"accept={self.accept!r} is none of its values: use secure, all or none"
            )
        for name in ("accept_port", "accept_port_bulk"):
            port = getattr(self, name)
            if port is not None and not 0 < port < 65536:
                raise LNetError(errno.EINVAL, f"{name}={port} is not a TCP port: use 1 to 65535")
        for name, (least, most) in _RANGES.items():
            if not least <= getattr(self, name) <= most:
                text = f"{name}={getattr(self, name)} is out of range: use {least} to {most}"
                raise LNetError(errno.EINVAL, text)
        if not 0 <= self.spin <= MAX_SPIN:
            raise LNetError(
                errno.EINVAL,
                f"spin={self.spin} is out of range: use 1 to {MAX_SPIN} microseconds, or 0 for none",
            )
        if not -1 <= self.tos <= 255:
            raise LNetError(errno.EINVAL, f"tos={self.tos} is out of range: use -1 (off) to 255")

    @property
    def bulk_port(self) -> int:
        """Where BULK and ANY connections go."""
        return self.accept_port if self.accept_port_bulk is None else self.accept_port_bulk


def conns_for_speed(mbits: int | None) -> int:
    """conns_per_peer=0: how many connections of each bulk type suit an interface of that speed."""
    if mbits is None or mbits < 1000:
        return 1
    return ((mbits // 1000).bit_length() - 1) // 2 + 1
