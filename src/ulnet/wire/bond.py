"""What bonding NIs say to each other and to bonding data servers (docs/wire-bond.md).

Every message is in its sender's byte order, which the magic shows. NIDs are 20-byte structs, which have none.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Any, Final

from ulnet.nid.errors import NidError
from ulnet.nid.net import NetType
from ulnet.nid.nid import Nid
from ulnet.wire.errors import Buffer, ByteOrder, WireError
from ulnet.wire.lnet import PING_PORTAL, Header, MsgType

__all__ = [
    "BEACON_SIZE",
    "KIND_BITS",
    "MAGIC",
    "MATCH_BITS",
    "MAX_SLAVES",
    "MAX_VERSION",
    "MAX_WEIGHT",
    "Answer",
    "Beacon",
    "BondHello",
    "Capability",
    "Configuration",
    "Kind",
    "Mode",
    "Policy",
    "Register",
    "Resolve",
    "SlaveEntry",
    "SlaveStatus",
    "kind_of",
]

MAGIC: Final = 0x0EEB1958
MATCH_BITS: Final = MAGIC << 32  # and the kind in the lowest byte
KIND_BITS: Final = 0xFF
MAX_SLAVES: Final = 64
MAX_VERSION: Final = 64
MAX_WEIGHT: Final = 0xFFFF
_MAX_BEACONS: Final = 64

_STAMPS: Final = {"little": struct.Struct("<IIII"), "big": struct.Struct(">IIII")}
_HEAD: Final = {"little": struct.Struct("<20sBBBxHH"), "big": struct.Struct(">20sBBBxHH")}
_SLAVE: Final = {"little": struct.Struct("<20sHBx"), "big": struct.Struct(">20sHBx")}
_RESOLVE: Final = {"little": struct.Struct("<II20s20s"), "big": struct.Struct(">II20s20s")}
_ANSWER: Final = {"little": struct.Struct("<IIII20sI"), "big": struct.Struct(">IIII20sI")}
_PAIR: Final = {"little": struct.Struct("<II"), "big": struct.Struct(">II")}
_STAMPS_SIZE: Final = 16
_HEAD_SIZE: Final = 28
_SLAVE_SIZE: Final = 24
BEACON_SIZE: Final = _STAMPS_SIZE + 8 * _MAX_BEACONS
GUARD_SIZE: Final = 2


class Capability(IntFlag):
    """The bits of version 1's mask."""

    WEIGHTS = 1
    BEACONS = 2  # incarnations in beacons
    GUARD = 4  # identities of PUTs are kept; a tag follows the configuration


class Kind(IntEnum):
    """What a message on the reserved portal is: the lowest byte of its match bits."""

    BEACON = 0  # a GET: whether somebody there knows bonding; the only one that strangers get
    HELLO = 1
    REGISTER = 2
    RESOLVE = 3
    ANSWER = 4


class Mode(IntEnum):
    """How a bonding NI uses its slaves."""

    STANDBY = 1
    LOADBALANCE = 2


class Policy(IntEnum):
    """How load is balanced; 0 in standby mode."""

    NONE = 0
    ROUND_ROBIN = 1
    WEIGHTS = 2
    DYNAMIC = 3
    CONGESTION = 4


class SlaveStatus(IntEnum):
    """What a bonding NI says of a slave."""

    UP = 1
    DOWN = 2
    OFF = 3  # switched off by command


def kind_of(header: Header) -> Kind | None:
    """Which bonding message a header begins; None: another one."""
    if header.portal != PING_PORTAL or header.match_bits & ~KIND_BITS != MATCH_BITS:
        return None
    kind = header.match_bits & KIND_BITS
    wanted = MsgType.GET if kind == Kind.BEACON else MsgType.PUT
    return Kind(kind) if kind <= Kind.ANSWER and header.type == wanted else None


@dataclass(frozen=True, slots=True)
class SlaveEntry:
    """One slave of a bonding NI."""

    nid: Nid
    weight: int = 1
    status: int = SlaveStatus.UP


@dataclass(frozen=True, slots=True)
class Configuration:
    """A bonding NI: its NID, mode, policy and slaves, the default one first; `active` is an index of them."""

    nid: Nid
    slaves: tuple[SlaveEntry, ...]
    mode: Mode = Mode.STANDBY
    policy: int = Policy.NONE  # numbers that are not known yet are taken
    failback: bool = True  # in standby: back to the default slave when that is up again
    active: int = 0

    def pack(self, byteorder: ByteOrder = "little") -> bytes:
        """The bytes that follow a message's own."""
        try:
            parts = [
                _HEAD[byteorder].pack(
                    self.nid, self.mode, self.policy, int(self.failback), self.active, len(self.slaves)
                )
            ]
            parts += [_SLAVE[byteorder].pack(one.nid, one.weight, one.status) for one in self.slaves]
        except struct.error as error:
            raise WireError(f"{self!r} does not fit on the wire: {error}") from None
        return b"".join(parts)

    @classmethod
    def unpack(cls, buf: Buffer, at: int, byteorder: ByteOrder) -> Configuration:
        """The configuration at `at`, checked by all rules of docs/wire-bond.md; more bytes may follow."""
        if len(buf) < at + _HEAD_SIZE:
            raise WireError(f"{len(buf) - at} bytes are too few for a bonding configuration")
        raw, mode, policy, flags, active, count = _HEAD[byteorder].unpack_from(buf, at)
        if mode not in (Mode.STANDBY, Mode.LOADBALANCE):
            raise WireError(f"bonding mode {mode} does not exist: 1 is standby, 2 load balancing")
        if not 1 <= count <= MAX_SLAVES:
            raise WireError(f"a bonding NI with {count} slaves; 1 to {MAX_SLAVES} are allowed")
        if active >= count:
            raise WireError(f"active slave {active} of {count}: they are numbered from 0")
        at += _HEAD_SIZE
        if len(buf) < at + count * _SLAVE_SIZE:
            raise WireError(f"a bonding configuration is cut off before its {count} slaves end")
        slaves = tuple(_slave(buf, at + index * _SLAVE_SIZE, byteorder) for index in range(count))
        nid = _bond_nid(raw)
        if slaves[0].nid.address != nid.address:
            raise WireError(f"{nid} has not the address of its first slave {slaves[0].nid}")
        if len({one.nid for one in slaves}) < count:
            raise WireError(f"{nid} names a slave twice")
        return cls(nid, slaves, Mode(mode), policy, bool(flags & 1), active)


@dataclass(frozen=True, slots=True)
class BondHello:
    """HELLO. `target` is the incarnation of the receiver as last known, 0 when it is not.

    `capabilities` has one mask for each version up to the sender's; its length is that version. `guard` is
    the tag that identities of PUTs to the sender hold (docs/design/duplicate-guard.md): there with its
    capability, else empty.
    """

    source: int
    target: int
    configuration: Configuration
    capabilities: tuple[int, ...] = (0,)
    byteorder: ByteOrder = field(default="little", compare=False)
    guard: bytes = b""

    def pack(self, byteorder: ByteOrder = "little") -> bytes:
        """The message."""
        if len(self.guard) != _guard_size(self.capabilities):
            raise WireError(f"a tag of {len(self.guard)} bytes in {self!r}: its capabilities tell otherwise")
        try:
            head = _STAMPS[byteorder].pack(MAGIC, self.source, self.target, len(self.capabilities))
            masks = b"".join(mask.to_bytes(8, byteorder) for mask in self.capabilities)
        except (struct.error, OverflowError) as error:
            raise WireError(f"{self!r} does not fit on the wire: {error}") from None
        return head + masks + self.configuration.pack(byteorder) + self.guard

    @classmethod
    def unpack(cls, buf: Buffer) -> BondHello:
        """The HELLO that buf is; WireError also for stamps and versions that may not be 0."""
        byteorder = _byteorder(buf)
        _, source, target, version = _fields(_STAMPS[byteorder], buf)
        if not source:
            raise WireError("a bonding HELLO without source incarnation")
        if not 1 <= version <= MAX_VERSION:
            raise WireError(f"a bonding HELLO of version {version}; 1 to {MAX_VERSION} can be read")
        end = _STAMPS_SIZE + 8 * version
        if len(buf) < end:
            raise WireError(f"a bonding HELLO is cut off before its {version} capability masks end")
        masks = tuple(int.from_bytes(buf[at : at + 8], byteorder) for at in range(_STAMPS_SIZE, end, 8))
        configuration = Configuration.unpack(buf, end, byteorder)
        end += _HEAD_SIZE + _SLAVE_SIZE * len(configuration.slaves)
        guard = bytes(buf[end : end + _guard_size(masks)])
        if len(guard) != _guard_size(masks):
            raise WireError("a bonding HELLO is cut off before the tag that its capabilities promise")
        return cls(source, target, configuration, masks, byteorder, guard)


@dataclass(frozen=True, slots=True)
class Register:
    """A bonding NI tells a bonding data server what it is; `request` comes back in the answer."""

    request: int
    incarnation: int
    configuration: Configuration

    def pack(self, byteorder: ByteOrder = "little") -> bytes:
        """The message."""
        try:
            head = _STAMPS[byteorder].pack(MAGIC, self.request, self.incarnation, 0)
        except struct.error as error:
            raise WireError(f"{self!r} does not fit on the wire: {error}") from None
        return head + self.configuration.pack(byteorder)

    @classmethod
    def unpack(cls, buf: Buffer) -> Register:
        """The message that buf is."""
        byteorder = _byteorder(buf)
        _, request, incarnation, _ = _fields(_STAMPS[byteorder], buf)
        if not incarnation:
            raise WireError("a bonding registration without incarnation")
        return cls(request, incarnation, Configuration.unpack(buf, _STAMPS_SIZE, byteorder))


@dataclass(frozen=True, slots=True)
class Resolve:
    """Which slaves has `nid`? Asked by `asker`, a NID of the same bonding net."""

    request: int
    nid: Nid
    asker: Nid

    def pack(self, byteorder: ByteOrder = "little") -> bytes:
        """The message."""
        try:
            return _RESOLVE[byteorder].pack(MAGIC, self.request, self.nid, self.asker)
        except struct.error as error:
            raise WireError(f"{self!r} does not fit on the wire: {error}") from None

    @classmethod
    def unpack(cls, buf: Buffer) -> Resolve:
        """The message that buf is."""
        _, request, nid, asker = _fields(_RESOLVE[_byteorder(buf)], buf)
        question = cls(request, _bond_nid(nid), _bond_nid(asker))
        if question.nid.net != question.asker.net:
            raise WireError(f"{question.asker} asks for {question.nid}, which is on another net")
        return question


@dataclass(frozen=True, slots=True)
class Answer:
    """To a Register or Resolve about `nid`: status 0 or an errno; what a Resolve found."""

    request: int
    nid: Nid
    status: int = 0
    incarnation: int = 0
    configuration: Configuration | None = None

    def pack(self, byteorder: ByteOrder = "little") -> bytes:
        """The message."""
        found = self.configuration
        try:
            head = _ANSWER[byteorder].pack(
                MAGIC, self.request, self.status, self.incarnation, self.nid, found is not None
            )
        except struct.error as error:
            raise WireError(f"{self!r} does not fit on the wire: {error}") from None
        return head + (found.pack(byteorder) if found is not None else b"")

    @classmethod
    def unpack(cls, buf: Buffer) -> Answer:
        """The message that buf is."""
        byteorder = _byteorder(buf)
        layout = _ANSWER[byteorder]
        _, request, status, incarnation, raw, found = _fields(layout, buf)
        nid = _bond_nid(raw)
        if not found:
            return cls(request, nid, status, incarnation)
        configuration = Configuration.unpack(buf, layout.size, byteorder)
        if configuration.nid != nid:
            raise WireError(f"an answer about {nid} that holds {configuration.nid}")
        return cls(request, nid, status, incarnation, configuration)


@dataclass(frozen=True, slots=True)
class Beacon:
    """What a GET of kind BEACON gets: the version, and the incarnation of each bonding NI, by net."""

    version: int
    incarnations: tuple[tuple[int, int], ...] = ()

    def pack(self, byteorder: ByteOrder = "little") -> bytes:
        """The message."""
        pairs = self.incarnations[:_MAX_BEACONS]
        try:
            head = _STAMPS[byteorder].pack(MAGIC, self.version, len(pairs), 0)
            return head + b"".join(_PAIR[byteorder].pack(net, stamp) for net, stamp in pairs)
        except struct.error as error:
            raise WireError(f"{self!r} does not fit on the wire: {error}") from None

    @classmethod
    def unpack(cls, buf: Buffer) -> Beacon:
        """The message that buf is."""
        byteorder = _byteorder(buf)
        _, version, count, _ = _fields(_STAMPS[byteorder], buf)
        if not version:
            raise WireError("a bonding beacon of version 0")
        if count > _MAX_BEACONS or len(buf) < _STAMPS_SIZE + 8 * count:
            raise WireError(f"a bonding beacon of {len(buf)} bytes cannot tell of {count} NIs")
        pairs = (_PAIR[byteorder].unpack_from(buf, _STAMPS_SIZE + 8 * index) for index in range(count))
        return cls(version, tuple((net, stamp) for net, stamp in pairs))


def _guard_size(capabilities: tuple[int, ...]) -> int:
    return GUARD_SIZE if capabilities and capabilities[0] & Capability.GUARD else 0


def _byteorder(buf: Buffer) -> ByteOrder:
    if len(buf) < 4:
        raise WireError(f"{len(buf)} bytes are too few for a bonding message")
    if int.from_bytes(buf[:4], "little") == MAGIC:
        return "little"
    if int.from_bytes(buf[:4], "big") == MAGIC:
        return "big"
    raise WireError(f"magic {bytes(buf[:4]).hex()} is not that of bonding")


def _fields(layout: struct.Struct, buf: Buffer) -> tuple[Any, ...]:
    if len(buf) < layout.size:
        raise WireError(f"{len(buf)} bytes are too few for this bonding message: it has {layout.size}")
    return layout.unpack_from(buf)


def _nid(raw: bytes) -> Nid:
    try:
        nid = Nid(raw)
    except NidError as error:
        raise WireError(f"a bonding message with a bad NID: {error}") from None
    if nid.is_malformed:
        raise WireError(f"a bonding message with a bad NID: {nid} has no IP address")
    return nid


def _bond_nid(raw: bytes) -> Nid:
    nid = _nid(raw)
    if nid.is_any or nid.net.type != NetType.BOND:
        raise WireError(f"{nid} is not on a bonding net")
    return nid


def _slave(buf: Buffer, at: int, byteorder: ByteOrder) -> SlaveEntry:
    raw, weight, status = _SLAVE[byteorder].unpack_from(buf, at)
    nid = _nid(raw)
    if nid.is_any or nid.net.type in (NetType.LO, NetType.BOND):
        raise WireError(f"{nid} cannot be a slave: no wildcard, no loopback, no bond")
    return SlaveEntry(nid, weight, status)
