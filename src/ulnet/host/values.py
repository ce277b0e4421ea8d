"""Links and addresses as plain values, so that a test can make them by hand."""

from __future__ import annotations

from dataclasses import dataclass
from socket import AF_INET, AF_INET6

__all__ = ["SCOPE_GLOBAL", "SCOPE_HOST", "SCOPE_LINK", "Address", "HostError", "Link"]

SCOPE_GLOBAL, SCOPE_LINK, SCOPE_HOST = 0, 253, 254


class HostError(Exception):
    """The host has no such thing: `errno` (positive), and one sentence with the rule and the way out."""

    def __init__(self, errno: int, text: str) -> None:
        super().__init__(text)
        self.errno = errno
        self.text = text


@dataclass(frozen=True, slots=True)
class Address:
    """One IP address of a link, with the prefix of its network."""

    ip: str
    prefixlen: int
    family: int = AF_INET
    scope: int = SCOPE_GLOBAL
    tentative: bool = False  # IPv6: not usable, its uniqueness is not settled or was disproved
    label: str = ""  # its own name, such as eth0:1, where it has one beside the link's

    @property
    def usable(self) -> bool:
        """Whether a NID can name it: neither tentative nor tied to one link (fe80::…)."""
        return not self.tentative and not (self.family == AF_INET6 and self.scope == SCOPE_LINK)


@dataclass(frozen=True, slots=True)
class Link:
    """A network interface of this host."""

    name: str
    index: int
    up: bool = True  # switched on
    carrier: bool = True  # something is at the other end
    mtu: int = 1500
    speed_mbps: int | None = None
    addresses: tuple[Address, ...] = ()
    numa_node: int = -1  # -1: unknown
    loopback: bool = False
