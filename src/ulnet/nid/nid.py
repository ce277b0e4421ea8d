"""Network identifiers (spec wire-lnet.md §2): the large 20-byte struct is the value itself.

So equality, hashing and the order used for tie-breaks run at C speed, and the large wire form
needs no packing. The 64-bit form goes through two bounded caches, `NID_BY_NID4` and `NID4_BY_NID`.
"""

from __future__ import annotations

from typing import Self

from ulnet.nid.address import format_ip, format_words, parse_ipv4, parse_ipv6, parse_number
from ulnet.nid.errors import NidError, shown
from ulnet.nid.net import ANY_NET, IP_TYPES, LO_NET, Net, NetType

__all__ = ["ANY_NID", "LO_NID", "NET_BY_NID", "NID4_BY_NID", "NID_BY_NID4", "NID_BY_WIRE", "NID_SIZE", "Nid"]

NID_SIZE = 20
_ANY = b"\xff" * NID_SIZE
_ANY_NID4 = 0xFFFFFFFFFFFFFFFF
_ANY_TYPE = 0xFF
_MAX_EXTRA = 12  # address bytes beyond the first four
_IP_EXTRA = (0, 12)  # those of IPv4 and IPv6
_CACHE_LIMIT = 65536  # entries: peers choose what we look up, so every cache forgets all when full


class Nid(bytes):
    """`<address>@<net>`; made from the 20-byte struct, which is put into its one canonical form."""

    __slots__ = ()

    def __new__(cls, raw: bytes) -> Self:
        if len(raw) != NID_SIZE:
            raise NidError(f"a NID has {NID_SIZE} bytes, not {len(raw)}")
        if raw[1] == _ANY_TYPE:
            return super().__new__(cls, _ANY)
        if raw[0] > _MAX_EXTRA:
            raise NidError(f"a NID has at most 16 bytes of address, not {raw[0] + 4}")
        used = raw[0] + 8
        return super().__new__(cls, bytes(raw[:used]) + bytes(NID_SIZE - used))

    @classmethod
    def parse(cls, text: str, *, any_ok: bool = False) -> Nid:
        """The NID that text names; `*` (with any_ok) and `<?>` are the wildcard, no `@net` means tcp."""
        if text == "<?>" or (any_ok and text == "*"):
            return ANY_NID
        address, at, net_text = text.partition("@")
        net = Net.parse(net_text) if at else Net.of(NetType.TCP)
        if net == LO_NET:
            return LO_NID
        if not net.is_ip or (net.type == NetType.BOND and address.isalnum()):
            return cls.of(net, parse_number(address))
        packed = parse_ipv6(address) if ":" in address else parse_ipv4(address)
        if packed is None:
            raise NidError(
                f"NID {shown(text)}: {shown(address)} is not an IP address; "
                "write four numbers from 0 to 255 or an IPv6 address, "
                f"such as 10.0.0.1@{net} or fd00::1@{net}"
            )
        return cls.of(net, packed)

    @classmethod
    def of(cls, net: Net, address: bytes | int | str) -> Nid:
        """The NID of an address on a net: 4 to 16 bytes, a 32-bit number, or IP text."""
        if isinstance(address, str):
            return cls.parse(f"{address}@{net}")
        if isinstance(address, int):
            if not 0 <= address <= 0xFFFFFFFF:
                raise NidError(f"address {address} is not a number from 0 to 4294967295")
            address = address.to_bytes(4, "big")
        if not 4 <= len(address) <= 16:
            raise NidError(f"an address has 4 to 16 bytes, not {len(address)}")
        head = bytes((len(address) - 4, net.type)) + net.number.to_bytes(2, "big")
        return cls((head + address).ljust(NID_SIZE, b"\0"))

    @classmethod
    def from_nid4(cls, value: int) -> Nid:
        """The NID of a 64-bit (NID4) value."""
        return NID_BY_NID4[value]

    @property
    def nid4(self) -> int:
        """The 64-bit value; NidError for an address of more than four bytes."""
        return NID4_BY_NID[self]

    def truncated_nid4(self) -> int:
        """The 64-bit value that keeps only the first 32 bits of a longer address."""
        return _ANY_NID4 if self[1] == _ANY_TYPE else int.from_bytes(self[1:8], "big")

    @property
    def net(self) -> Net:
        """The net this NID is on."""
        return NET_BY_NID[self]

    @property
    def address(self) -> bytes:
        """The address: 4 bytes, or 16 for IPv6."""
        return bytes(self[4:8]) if self[1] == _ANY_TYPE else bytes(self[4 : 8 + self[0]])

    @property
    def ip(self) -> str:
        """The address as IP text."""
        address = self.address
        if len(address) not in (4, 16):
            raise NidError(f"NID {self} has an address of {len(address)} bytes, which is no IP address")
        return format_ip(address)

    @property
    def is_large(self) -> bool:
        """Whether the address is longer than four bytes, so that only the large forms can carry it."""
        return self[0] != 0 and self[1] != _ANY_TYPE

    @property
    def is_malformed(self) -> bool:
        """Whether this is on a net of IP addresses, and has none: only the wire can bring such a NID."""
        return self[0] not in _IP_EXTRA and self[1] in IP_TYPES

    @property
    def is_any(self) -> bool:
        """Whether this is the wildcard."""
        return self[1] == _ANY_TYPE

    @property
    def is_lo(self) -> bool:
        """Whether this is `0@lo`."""
        return self == LO_NID

    def __str__(self) -> str:
        if self.is_any:
            return "<?>"
        net, address = self.net, self.address
        if net.type == NetType.BOND and len(address) == 4 and not address[0]:
            return f"{int.from_bytes(address, 'big')}@{net}"  # no host's IP address begins with 0
        if net.type in IP_TYPES and len(address) in (4, 16):
            return f"{format_ip(address)}@{net}"
        if net.type in _NUMBERED and len(address) == 4:
            return f"{int.from_bytes(address, 'big')}@{net}"
        return f"{format_words(address)}@{net}"

    def __repr__(self) -> str:
        return f"Nid({str(self)!r})"


_NUMBERED = frozenset(NetType) - IP_TYPES


class _NetCache(dict[bytes, Net]):
    """Bytes 1..3 of a NID -> its net."""

    def __missing__(self, tag: bytes) -> Net:
        net = ANY_NET if tag[0] == _ANY_TYPE else Net(int.from_bytes(tag, "big"))
        if len(self) >= _CACHE_LIMIT:
            self.clear()
        self[tag] = net
        return net


class _NidToNet(dict[Nid, Net]):
    """NID -> its net: asked for many times with each message."""

    def __missing__(self, nid: Nid) -> Net:
        net = _NET_BY_TAG[nid[1:4]]
        if len(self) >= _CACHE_LIMIT:
            self.clear()
        self[nid] = net
        return net


class _Nid4ToNid(dict[int, Nid]):
    """64-bit value -> NID; the top byte, always zero, is ignored as kernel nodes do."""

    def __missing__(self, value: int) -> Nid:
        if not 0 <= value <= _ANY_NID4:
            raise NidError(f"{value} is not a 64-bit NID")
        nid = Nid(b"\0" + value.to_bytes(8, "big")[1:] + bytes(12))
        if len(self) >= _CACHE_LIMIT:
            self.clear()
        self[value] = nid
        return nid


class _NidToNid4(dict[Nid, int]):
    """NID -> 64-bit value; NidError for one that does not fit."""

    def __missing__(self, nid: Nid) -> int:
        if nid.is_large:
            raise NidError(f"NID {nid} does not fit into 64 bits; it needs a connection with large NIDs")
        value = nid.truncated_nid4()
        if len(self) >= _CACHE_LIMIT:
            self.clear()
        self[nid] = value
        return value


class _WireToNid(dict[bytes, Nid]):
    """20 bytes from the wire -> NID; NidError for an address that is too long."""

    def __missing__(self, raw: bytes) -> Nid:
        nid = Nid(raw)
        if len(self) >= _CACHE_LIMIT:
            self.clear()
        self[raw] = nid
        return nid


_NET_BY_TAG = _NetCache()
NET_BY_NID = _NidToNet()
NID_BY_NID4 = _Nid4ToNid()
NID4_BY_NID = _NidToNid4()
NID_BY_WIRE = _WireToNid()

ANY_NID = Nid(_ANY)
LO_NID = Nid.of(LO_NET, 0)
