"""What only the operating system can tell: links, addresses, routes; as plain values."""

from ulnet.host.netlink import first_address, link_named, link_with_address, links
from ulnet.host.routes import source_address_for
from ulnet.host.values import Address, HostError, Link

__all__ = [
    "Address",
    "HostError",
    "Link",
    "first_address",
    "link_named",
    "link_with_address",
    "links",
    "source_address_for",
]
