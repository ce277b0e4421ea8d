"""What Dask's configuration says of `ulnet://`, under `distributed.comm.ulnet`."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Any, Final

import dask.config

from ulnet.core.status import LNetError

__all__ = ["Settings", "patience", "settings"]

_WHERE = "distributed.comm.ulnet"
_DEFAULTS: Final = {"networks": None, "accept-port": 9988, "linger": "2s"}
dask.config.update_defaults({"distributed": {"comm": {"ulnet": _DEFAULTS}}})


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
    networks = _set("networks")
    port = _set("accept-port")
    if not isinstance(port, int) or not 0 < port < 65536:
        raise LNetError(errno.EINVAL, f"{_WHERE}.accept-port={port!r} is not a TCP port: use 1 to 65535")
    if networks is not None and not isinstance(networks, str):
        text = f"{_WHERE}.networks={networks!r}: give nets and interfaces, as 'tcp(eth0),tcp1(eth1)'"
        raise LNetError(errno.EINVAL, text)
    linger = dask.utils.parse_timedelta(_set("linger"))
    return Settings(networks, port, linger)


def patience() -> float:
    """Seconds in which something moves where the other side is well: Dask's own `timeouts.tcp`."""
    given: float = dask.utils.parse_timedelta(dask.config.get("distributed.comm.timeouts.tcp", "30s"))
    return given


def _set(name: str) -> Any:
    """What is set; defaults are lost where settings end that were made before this module was loaded."""
    return dask.config.get(f"{_WHERE}.{name}", _DEFAULTS[name])
