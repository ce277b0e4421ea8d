"""What a rule is about: nets, or NIDs, by pattern (spec udsp.md §2)."""

from __future__ import annotations

from dataclasses import dataclass

from ulnet.nid import Net, NetPattern, Nid, NidError
from ulnet.nid.address_pattern import AddressPattern
from ulnet.nid.errors import shown
from ulnet.nid.net import IP_TYPES

__all__ = ["Descriptor"]

_LONGEST = 1024  # characters


@dataclass(frozen=True, slots=True)
class Descriptor:
    """`tcp[1-3]` (nets), or `10.1.1.[2-4]@tcp` (NIDs); equal when they are written alike."""

    nets: NetPattern
    addresses: AddressPattern | None = None

    @classmethod
    def parse(cls, text: str) -> Descriptor:
        """The descriptor that text is. Raises NidError."""
        if len(text) > _LONGEST:
            raise NidError(f"{shown(text)} has {len(text)} characters, {_LONGEST} are allowed: use ranges")
        address, at, net = text.rpartition("@")
        nets = NetPattern.parse(net)
        if not at:
            return cls(nets)
        if address == "*" and nets.type in IP_TYPES:
            raise NidError(f"{shown(text)}: an address has four parts here; write *.*.*.*@{nets}")
        return cls(nets, AddressPattern.parse(address, nets.type))

    @property
    def is_net(self) -> bool:
        """Whether nets are meant; such a descriptor matches no NID."""
        return self.addresses is None

    def match_net(self, net: Net) -> bool:
        """Whether nets are meant, and this is one of them."""
        return self.addresses is None and self.nets.match(net)

    def match_nid(self, nid: Nid) -> bool:
        """Whether NIDs are meant, and this is one of them."""
        return self.addresses is not None and self.nets.match(nid.net) and self.addresses.match(nid.address)

    def covers(self, other: Descriptor) -> bool:
        """Whether other is written alike, or is the name of a single net or NID that this one matches."""
        if self == other:
            return True
        try:
            if other.is_net:
                return self.match_net(Net.parse(str(other)))
            return self.match_nid(Nid.parse(str(other)))
        except NidError:
            return False

    def __str__(self) -> str:
        if self.addresses is None:
            return str(self.nets)
        address = str(self.addresses)
        if self.nets.type in IP_TYPES:
            address = address.replace("*", "[0-255]")  # as today's tool prints an octet of any value
        return f"{address}@{self.nets}"
