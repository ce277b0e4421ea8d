"""NID ranges and lists, net patterns (spec wire-lnet.md §2.3, udsp.md §2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ulnet.nid.address_pattern import AddressPattern
from ulnet.nid.errors import NidError, shown
from ulnet.nid.expr import NumberSet, split_list
from ulnet.nid.net import LO_NET, Net, NetType, split_net
from ulnet.nid.nid import LO_NID, Nid

__all__ = ["NetPattern", "NidList", "NidRange"]

_MAX_NUMBER = 0xFFFF


@dataclass(frozen=True, slots=True)
class NetPattern:
    """`tcp` (number 0 only), `tcp3`, `tcp*`, `tcp[1-3,7]`."""

    type: int
    numbers: NumberSet

    @classmethod
    def parse(cls, text: str) -> NetPattern:
        """The pattern that text is."""
        net_type, rest = split_net(text)
        if net_type == NetType.LO and rest:
            raise NidError(f"net {shown(text)}: the loopback net has no number; write lo")
        return cls(net_type, NumberSet.parse(rest or "0", _MAX_NUMBER, f"net {shown(text)}: number"))

    def match(self, net: Net) -> bool:
        """Whether net is one of them."""
        return net.type == self.type and net.number in self.numbers

    def overlaps(self, other: NetPattern) -> bool:
        """Whether a net is in both."""
        return self.type == other.type and self.numbers.overlaps(other.numbers)

    def by_byte(self) -> tuple[list[NumberSet | None], bool]:
        """What each byte of a net may be (None: anything), and whether that says all."""
        numbers, sure = self.numbers.by_byte(2)
        return [NumberSet.one(self.type), *numbers], sure

    def __iter__(self) -> Iterator[Net]:
        return (Net.of(self.type, number) for number in self.numbers)

    def __str__(self) -> str:
        name = str(Net.of(self.type))
        numbers = str(self.numbers)
        return name if numbers == "0" else name + numbers


@dataclass(frozen=True, slots=True)
class NidRange:
    """An address pattern on a net pattern: `10.0.0.[1-8]@tcp1`; no `@net` means tcp."""

    addresses: AddressPattern
    nets: NetPattern

    @classmethod
    def parse(cls, text: str) -> NidRange:
        """The range that text is."""
        address, at, net = text.partition("@")
        if not at and address == "*":
            raise NidError("NID range '*' names no net; write *@tcp for every NID of that net")
        nets = NetPattern.parse(net if at else "tcp")
        if nets.type == NetType.LO:
            address = "0"  # whatever is written before @lo
        try:
            return cls(AddressPattern.parse(address, nets.type), nets)
        except NidError as error:
            raise NidError(f"NID {shown(text)}: {error}") from None

    def match(self, nid: Nid) -> bool:
        """Whether nid is one of them; the wildcard never is."""
        return not nid.is_any and self.nets.match(nid.net) and self.addresses.match(nid.address)

    def overlaps(self, other: NidRange) -> bool:
        """Whether a NID is in both."""
        return self.nets.overlaps(other.nets) and self.addresses.overlaps(other.addresses)

    def __iter__(self) -> Iterator[Nid]:
        if self.nets.type == NetType.LO:
            return iter((LO_NID,))
        return (Nid.of(net, address) for net in self.nets for address in self.addresses)

    def expand(self, limit: int) -> list[Nid]:
        """Every NID meant; NidError if there are more than limit."""
        return _expand(self, limit)

    def __str__(self) -> str:
        return str(LO_NID) if self.nets.type == LO_NET.type else f"{self.addresses}@{self.nets}"


@dataclass(frozen=True, slots=True)
class NidList:
    """NID ranges apart by blanks or commas."""

    ranges: tuple[NidRange, ...]

    @classmethod
    def parse(cls, text: str) -> NidList:
        """The list that text is."""
        ranges = tuple(NidRange.parse(item) for item in split_list(text))
        if not ranges:
            raise NidError("a list of NIDs is empty; name at least one, such as 10.0.0.1@tcp")
        return cls(ranges)

    def match(self, nid: Nid) -> bool:
        """Whether nid is in one of the ranges."""
        return any(one.match(nid) for one in self.ranges)

    def overlaps(self, other: NidList) -> bool:
        """Whether a NID is in both."""
        return any(one.overlaps(its) for one in self.ranges for its in other.ranges)

    def __iter__(self) -> Iterator[Nid]:
        return (nid for one in self.ranges for nid in one)

    def expand(self, limit: int) -> list[Nid]:
        """Every NID meant, once each, in the order written; NidError if more than limit are named.

        Those that are named again count, too.
        """
        return _expand(self, limit)

    def __str__(self) -> str:
        return ",".join(map(str, self.ranges))


def _expand(nids: Iterable[Nid], limit: int) -> list[Nid]:
    found: dict[Nid, None] = {}
    for count, nid in enumerate(nids):  # those that are named again cost as much
        if count == limit:
            raise NidError(f"{shown(nids)} names more than {limit} NIDs, the most allowed here; narrow it")
        found[nid] = None
    return list(found)
