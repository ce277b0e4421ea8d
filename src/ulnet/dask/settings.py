"""What Dask's configuration says of `ulnet://`, under `distributed.comm.ulnet`."""

from __future__ import annotations

import errno
from dataclasses import dataclass

import dask.config

from ulnet.core.status import LNetError

__all__ = ["Settings", "settings"]

_WHERE = "distributed.comm.ulnet"
dask.config.update_defaults(
    {"distributed": {"comm": {"ulnet": {"networks": None, "accept-port": 9988, "linger": "2s"}}}}
)


@dataclass(frozen=True)
class Settings:
    """The rails of each process, the TCP port of all, and how long a node outlives its last comm.

    `networks` are nets and their interfaces as LNet's module parameter has them: `tcp(eth0),tcp1(eth1)`.
    """

    networks: str | None
    accept_port: int
    linger: float  # seconds


def settings() -> Settings:
    """What is set now. Raises LNetError(EINVAL)."""
    networks = dask.config.get(f"{_WHERE}.networks", None)
    port = dask.config.get(f"{_WHERE}.accept-port", 9988)
    if not isinstance(port, int) or not 0 < port < 65536:
        raise LNetError(errno.EINVAL, f"{_WHERE}.accept-port={port!r} is not a TCP port: use 1 to 65535")
    if networks is not None and not isinstance(networks, str):
        text = f"{_WHERE}.networks={networks!r}: give nets and interfaces, as 'tcp(eth0),tcp1(eth1)'"
        raise LNetError(errno.EINVAL, text)
    linger = dask.utils.parse_timedelta(dask.config.get(f"{_WHERE}.linger", "2s"))
    return Settings(networks, port, linger)
