"""Parameters of the driver, by the names of ko2iblnd's (spec wire-o2iblnd.md §7)."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from ulnet.core.status import LNetError

__all__ = ["O2ibParams"]


@dataclass(frozen=True, slots=True)
class O2ibParams:
    """For all o2ib nets of a node. Raises LNetError(EINVAL) for what is out of range."""

    service: int = 987  # port of the listener, in RDMA CM's port space TCP
    cksum: int = 0  # 1: messages carry a checksum
    keepalive: int = 100  # seconds of silence until a NOOP asks whether the peer is there; 0: never
    retry_count: int = 5  # how often hardware sends again what is not acknowledged
    rnr_retry_count: int = 6  # … and what finds no receive buffer; 7: for ever
    use_privileged_port: int = 1  # call from a port below 1024 where that is allowed
    listen: bool = True  # False: nobody can connect to this node, which needs no service then

    def __post_init__(self) -> None:
        for name, least, most in (
            ("service", 1, 65535),
            ("cksum", 0, 1),
            ("keepalive", 0, 2**31 - 1),
            ("retry_count", 0, 7),
            ("rnr_retry_count", 0, 7),
            ("use_privileged_port", 0, 1),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                text = f"{name}={value} is out of range: use {least} to {most}"
                raise LNetError(errno.EINVAL, text)
