"""Address patterns: `*`, `10.1.[0-3].*`, `10.0.0.0/24`, `fd00::/64`, `[1-0x1f]` (spec wire-lnet.md §2.3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from ulnet.nid.address import format_ip, parse_ipv4, parse_ipv6
from ulnet.nid.errors import NidError, shown
from ulnet.nid.expr import NumberSet
from ulnet.nid.net import IP_TYPES, NetType

__all__ = ["AddressPattern"]

_SHORT = NumberSet.one(0)  # an address of four bytes
_WAY_OUT = "write 10.0.[0-3].*, 10.0.0.0/24, fd00::/64 or *"


class AddressPattern:
    """Which addresses of a net are meant."""

    __slots__ = ()

    @staticmethod
    def parse(text: str, net_type: int = NetType.TCP) -> AddressPattern:
        """The pattern that text is on a net of that type."""
        if text == "*":
            return _Every()
        if net_type not in IP_TYPES:
            return _Number(NumberSet.parse(text, 0xFFFFFFFF, "address"))
        if ":" in text or "/" in text.rpartition("]")[2]:
            return _parse_masked(text)
        octets = text.split(".")
        if len(octets) != 4:
            raise NidError(f"address {shown(text)} has not four parts; {_WAY_OUT}")
        first, second, third, fourth = (NumberSet.parse(octet, 255, "octet") for octet in octets)
        return _Octets((first, second, third, fourth))

    def match(self, address: bytes) -> bool:
        """Whether address (4 or 16 bytes) is one of them."""
        raise NotImplementedError

    def by_byte(self) -> tuple[list[NumberSet | None], bool]:
        """What the bytes may be (None: anything), and whether that says all.

        The first is that of a NID which tells how many bytes an address has beyond four; the others follow.
        """
        raise NotImplementedError

    def overlaps(self, other: AddressPattern) -> bool:
        """Whether an address is in both, which are of one type of net."""
        pairs = zip(self.by_byte()[0], other.by_byte()[0], strict=False)
        return all(one is None or its is None or one.overlaps(its) for one, its in pairs)

    def __iter__(self) -> Iterator[bytes]:
        """Every address meant, lazily."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _Every(AddressPattern):
    def match(self, address: bytes) -> bool:
        return True

    def by_byte(self) -> tuple[list[NumberSet | None], bool]:
        return [None], True

    def __iter__(self) -> Iterator[bytes]:
        raise NidError("address * stands for every address and cannot be listed; name the addresses")

    def __str__(self) -> str:
        return "*"


@dataclass(frozen=True, slots=True)
class _Octets(AddressPattern):
    octets: tuple[NumberSet, NumberSet, NumberSet, NumberSet]

    def match(self, address: bytes) -> bool:
        return len(address) == 4 and all(
            byte in octet for byte, octet in zip(address, self.octets, strict=True)
        )

    def by_byte(self) -> tuple[list[NumberSet | None], bool]:
        return [_SHORT, *(None if octet.is_all else octet for octet in self.octets)], True

    def __iter__(self) -> Iterator[bytes]:
        return (bytes(octets) for octets in product(*self.octets))

    def __str__(self) -> str:
        return ".".join(map(str, self.octets))


@dataclass(frozen=True, slots=True)
class _Masked(AddressPattern):
    network: bytes
    bits: int

    def match(self, address: bytes) -> bool:
        if len(address) != len(self.network):
            return False
        unlike = int.from_bytes(address, "big") ^ int.from_bytes(self.network, "big")
        return unlike >> (8 * len(address) - self.bits) == 0

    def by_byte(self) -> tuple[list[NumberSet | None], bool]:
        numbers: list[NumberSet | None] = [NumberSet.one(len(self.network) - 4)]
        for at in range(0, self.bits, 8):
            free = (1 << max(at + 8 - self.bits, 0)) - 1
            byte = self.network[at // 8]
            numbers.append(NumberSet(((byte & ~free, byte | free, 1),), 255))
        return numbers, True

    def __iter__(self) -> Iterator[bytes]:
        size = len(self.network)
        free = 8 * size - self.bits
        first = int.from_bytes(self.network, "big") >> free << free
        return ((first + step).to_bytes(size, "big") for step in range(1 << free))

    def __str__(self) -> str:
        text = format_ip(self.network)
        return text if self.bits == 128 else f"{text}/{self.bits}"


@dataclass(frozen=True, slots=True)
class _Number(AddressPattern):
    numbers: NumberSet

    def match(self, address: bytes) -> bool:
        return len(address) == 4 and int.from_bytes(address, "big") in self.numbers

    def by_byte(self) -> tuple[list[NumberSet | None], bool]:
        numbers, sure = self.numbers.by_byte(4)
        return [_SHORT, *numbers], sure

    def overlaps(self, other: AddressPattern) -> bool:
        return not isinstance(other, _Number) or self.numbers.overlaps(other.numbers)

    def __iter__(self) -> Iterator[bytes]:
        return (number.to_bytes(4, "big") for number in self.numbers)

    def __str__(self) -> str:
        return str(self.numbers)


def _parse_masked(text: str) -> _Masked:
    ip, slash, length = text.partition("/")
    network = parse_ipv6(ip) if ":" in ip else parse_ipv4(ip)
    if network is None:
        raise NidError(f"address {shown(text)}: {shown(ip)} is not an IP address; {_WAY_OUT}")
    most = 8 * len(network)
    if not slash:
        return _Masked(network, most)
    if not (length.isascii() and length.isdigit() and len(length) <= 3) or not 1 <= int(length) <= most:
        raise NidError(f"address {shown(text)}: after the slash comes a prefix length from 1 to {most}")
    return _Masked(network, int(length))
