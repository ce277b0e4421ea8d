"""What this host has of RDMA, as plain values, read from sysfs: for `ulnet doctor`."""

from __future__ import annotations

import ctypes
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

__all__ = ["RdmaFacts", "RdmaPort", "rdma_facts"]

_IPV4_MAPPED = "0000:0000:0000:0000:0000:ffff:"
_LIBRARIES = ("libibverbs.so.1", "librdmacm.so.1")


@dataclass(slots=True)
class RdmaPort:
    """A port of a device. `state` as sysfs has it (ACTIVE, INIT, DOWN …); `netdevs` are its interfaces."""

    device: str
    number: int
    state: str
    link_layer: str = "Ethernet"  # or InfiniBand
    netdevs: tuple[str, ...] = ()
    ipv4_gids: int = 0  # of RoCE v2, for IPv4 addresses

    def __str__(self) -> str:
        return f"{self.device}/{self.number}"


@dataclass(slots=True)
class RdmaFacts:
    """Made by hand in tests. `locked` bytes may be locked by this user; None: no limit."""

    ports: list[RdmaPort]
    manager: bool = True  # the connection manager can be used
    missing: tuple[str, ...] = ()  # libraries that cannot be loaded
    locked: int | None = None


def rdma_facts(sysfs: Path = Path("/sys/class"), dev: Path = Path("/dev")) -> RdmaFacts:
    """The facts of this host."""
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return RdmaFacts(
        ports=[_port(path) for path in sorted(sysfs.glob("infiniband/*/ports/*"))],
        manager=(dev / "infiniband/rdma_cm").exists(),
        missing=tuple(name for name in _LIBRARIES if not _loads(name)),
        locked=None if limit == resource.RLIM_INFINITY else limit,
    )


def _port(path: Path) -> RdmaPort:
    netdevs = dict.fromkeys(filter(None, (_text(one) for one in sorted(path.glob("gid_attrs/ndevs/*")))))
    gids = [
        gid
        for gid in path.glob("gids/*")
        if _text(gid).startswith(_IPV4_MAPPED) and _text(path / "gid_attrs/types" / gid.name) == "RoCE v2"
    ]
    state = _text(path / "state").partition(": ")[2]
    layer = _text(path / "link_layer") or "InfiniBand"
    return RdmaPort(path.parent.parent.name, int(path.name), state, layer, tuple(netdevs), len(gids))


def _text(path: Path) -> str:
    with suppress(OSError):  # an empty place of a table cannot be read
        return path.read_text("ascii").strip()
    return ""


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True
