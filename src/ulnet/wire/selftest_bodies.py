"""What the messages of LNet selftest hold, service by service (spec selftest.md §2)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from ulnet.wire.errors import ByteOrder, WireError
from ulnet.wire.selftest_values import (
    ANY_SESSION,
    BULK_LEN,
    BulkBytes,
    BulkPages,
    FrameworkCounters,
    LnetCounters,
    PingParameters,
    RpcCounters,
    Service,
    SessionId,
)

__all__ = [
    "REPLIES",
    "REQUESTS",
    "BatchReply",
    "BatchRequest",
    "Body",
    "BrwReply",
    "BrwRequest",
    "DebugReply",
    "DebugRequest",
    "JoinReply",
    "JoinRequest",
    "MakeSessionReply",
    "MakeSessionRequest",
    "PingReply",
    "PingRequest",
    "RailsReply",
    "RailsRequest",
    "RemoveSessionReply",
    "RemoveSessionRequest",
    "Reply",
    "Request",
    "StatReply",
    "StatRequest",
    "TestReply",
    "TestRequest",
    "reply_type",
    "request_type",
]

_NAME_SIZE: Final = 32
_PARAMETERS_SIZE: Final = 12
_REQUEST_TYPES: Final = {
    Service.DEBUG: 10,
    Service.MAKE_SESSION: 0,
    Service.REMOVE_SESSION: 2,
    Service.BATCH: 4,
    Service.TEST: 8,
    Service.QUERY_STAT: 6,
    Service.JOIN: 16,
    Service.RAILS: 18,
    Service.BRW: 12,
    Service.PING: 14,
}


def request_type(service: Service) -> int:
    """The message type of a service's requests."""
    return _REQUEST_TYPES[service]


def reply_type(service: Service) -> int:
    """The message type of a service's replies."""
    return _REQUEST_TYPES[service] + 1


_NO_FRAMEWORK: Final = FrameworkCounters()
_NO_RPC: Final = RpcCounters()
_NO_LNET: Final = LnetCounters()
_ORDERS: Final[dict[ByteOrder, str]] = {"little": "<", "big": ">"}


class Body:
    """The part of a message behind its head; subclasses have the fields, flat in the order of the wire."""

    __slots__ = ()
    SERVICE: ClassVar[Service]
    LAYOUT: ClassVar[str]

    def pack(self, byteorder: ByteOrder) -> bytes:
        """The body as bytes. Raises struct.error or WireError for what has no room."""
        return struct.pack(_ORDERS[byteorder] + self.LAYOUT, *self._values())

    @classmethod
    def unpack(cls, view: memoryview, byteorder: ByteOrder, features: int) -> Self:
        """Read a body from the start of view; `features` decide what some fields mean."""
        return cls._of(struct.unpack_from(_ORDERS[byteorder] + cls.LAYOUT, view))

    def _values(self) -> tuple[Any, ...]:
        raise NotImplementedError

    @classmethod
    def _of(cls, values: tuple[Any, ...]) -> Self:
        raise NotImplementedError


class _Flat(Body):
    """A body whose fields are numbers, session IDs and names."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]]

    def _values(self) -> tuple[Any, ...]:
        flat: list[Any] = []
        for name in self.__match_args__:
            value = getattr(self, name)
            if isinstance(value, tuple):
                flat += value
            elif isinstance(value, str):
                flat.append(_packed_name(value))
            else:
                flat.append(value)
        return tuple(flat)

    @classmethod
    def _of(cls, values: tuple[Any, ...]) -> Self:
        at = 0
        fields: list[Any] = []
        for name in cls.__match_args__:
            nested = _NESTED.get(name)
            if nested is not None:
                size = len(nested._fields)
                fields.append(nested._make(values[at : at + size]))
                at += size
            else:
                value = values[at]
                fields.append(_read_name(value) if isinstance(value, bytes) else value)
                at += 1
        return cls(*fields)


_NESTED: Final[dict[str, Any]] = {
    "sid": SessionId,
    "framework": FrameworkCounters,
    "rpc": RpcCounters,
    "lnet": LnetCounters,
}


class _Numbers(Body):
    """A body that has numbers only: those of the tests themselves, which are many."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]]

    def _values(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self.__match_args__])

    @classmethod
    def _of(cls, values: tuple[Any, ...]) -> Self:
        return cls(*values)


class Request(_Flat):
    """A request; `rpyid` are the match bits of the buffer that waits for its reply."""

    __slots__ = ()
    rpyid: int


class Reply(_Flat):
    """A reply; `status` is 0 or an errno. That of a ping is its first field, too."""

    __slots__ = ()
    status: int


@dataclass(frozen=True, slots=True)
class MakeSessionRequest(Request):
    """Make a session, or hold the one that there is; with `force` in the place of another."""

    SERVICE: ClassVar[Service] = Service.MAKE_SESSION
    LAYOUT: ClassVar[str] = "QQqI32s"
    rpyid: int
    sid: SessionId
    force: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class MakeSessionReply(Reply):
    """The session that the node has now, and after how many silent seconds it ends it."""

    SERVICE: ClassVar[Service] = Service.MAKE_SESSION
    LAYOUT: ClassVar[str] = "IQqI32s72xQ"
    status: int
    sid: SessionId = ANY_SESSION
    timeout: int = 0
    name: str = ""
    mark: int = 0  # RAILS_KNOWN of a node that answers requests for rails


@dataclass(frozen=True, slots=True)
class RemoveSessionRequest(Request):
    """Let a session go."""

    SERVICE: ClassVar[Service] = Service.REMOVE_SESSION
    LAYOUT: ClassVar[str] = "QQq"
    rpyid: int
    sid: SessionId


@dataclass(frozen=True, slots=True)
class RemoveSessionReply(Reply):
    """The session that is left."""

    SERVICE: ClassVar[Service] = Service.REMOVE_SESSION
    LAYOUT: ClassVar[str] = "IQq"
    status: int
    sid: SessionId = ANY_SESSION


@dataclass(frozen=True, slots=True)
class JoinRequest(Request):
    """Join a group: no node has that service."""

    SERVICE: ClassVar[Service] = Service.JOIN
    LAYOUT: ClassVar[str] = "QQq32s"
    rpyid: int
    sid: SessionId
    group: str = ""


@dataclass(frozen=True, slots=True)
class JoinReply(Reply):
    """The session that was joined."""

    SERVICE: ClassVar[Service] = Service.JOIN
    LAYOUT: ClassVar[str] = "IQqI32s"
    status: int
    sid: SessionId = ANY_SESSION
    timeout: int = 0
    session: str = ""


@dataclass(frozen=True, slots=True)
class DebugRequest(Request):
    """What session has the node; consoles keep sessions alive by it."""

    SERVICE: ClassVar[Service] = Service.DEBUG
    LAYOUT: ClassVar[str] = "QQqI"
    rpyid: int
    sid: SessionId = ANY_SESSION
    flags: int = 0


@dataclass(frozen=True, slots=True)
class DebugReply(Reply):
    """The node's session."""

    SERVICE: ClassVar[Service] = Service.DEBUG
    LAYOUT: ClassVar[str] = "IQqII32s"
    status: int
    sid: SessionId = ANY_SESSION
    timeout: int = 0
    batches: int = 0
    name: str = ""


@dataclass(frozen=True, slots=True)
class BatchRequest(Request):
    """Run, stop or query a batch; `index` 0 is all of it, n its n-th test; `arg` 1 stops at once."""

    SERVICE: ClassVar[Service] = Service.BATCH
    LAYOUT: ClassVar[str] = "QQqQIII"
    rpyid: int
    sid: SessionId
    batch: int
    op: int
    index: int = 0
    arg: int = 0


@dataclass(frozen=True, slots=True)
class BatchReply(Reply):
    """How many tests, or units of one test, are active."""

    SERVICE: ClassVar[Service] = Service.BATCH
    LAYOUT: ClassVar[str] = "IQqII"
    status: int
    sid: SessionId = ANY_SESSION
    active: int = 0
    time: int = 0


@dataclass(frozen=True, slots=True)
class StatRequest(Request):
    """What has the node counted."""

    SERVICE: ClassVar[Service] = Service.QUERY_STAT
    LAYOUT: ClassVar[str] = "QQqI"
    rpyid: int
    sid: SessionId
    kind: int = 0


@dataclass(frozen=True, slots=True)
class StatReply(Reply):
    """The node's counters."""

    SERVICE: ClassVar[Service] = Service.QUERY_STAT
    LAYOUT: ClassVar[str] = "IQq5I5I2Q7I4Q"
    status: int
    sid: SessionId = ANY_SESSION
    framework: FrameworkCounters = _NO_FRAMEWORK
    rpc: RpcCounters = _NO_RPC
    lnet: LnetCounters = _NO_LNET


@dataclass(frozen=True, slots=True)
class RailsRequest(Request):
    """What has the node's rail of that number carried. Only nodes that have told RAILS_KNOWN are asked."""

    SERVICE: ClassVar[Service] = Service.RAILS
    LAYOUT: ClassVar[str] = "QQqI"
    rpyid: int
    sid: SessionId
    index: int = 0


@dataclass(frozen=True, slots=True)
class RailsReply(Reply):
    """One of `rails` rails: bulk in bytes, requests answered there, errors that LNet counted there."""

    SERVICE: ClassVar[Service] = Service.RAILS
    LAYOUT: ClassVar[str] = "IQqIQQQII"
    status: int
    sid: SessionId = ANY_SESSION
    rails: int = 0
    nid: int = 0
    bulk_get: int = 0
    bulk_put: int = 0
    answered: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class TestReply(Reply):
    """Whether a test was added."""

    SERVICE: ClassVar[Service] = Service.TEST
    LAYOUT: ClassVar[str] = "IQq"
    __test__ = False
    status: int
    sid: SessionId = ANY_SESSION


@dataclass(frozen=True, slots=True)
class PingRequest(_Numbers, Request):
    """One ping of the ping test, sent at that time."""

    SERVICE: ClassVar[Service] = Service.PING
    LAYOUT: ClassVar[str] = "QIIQQ"
    rpyid: int
    magic: int
    sequence: int
    seconds: int = 0
    nanoseconds: int = 0


@dataclass(frozen=True, slots=True)
class PingReply(_Numbers, Reply):
    """Its echo."""

    SERVICE: ClassVar[Service] = Service.PING
    LAYOUT: ClassVar[str] = "III"
    status: int
    magic: int = 0
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class BrwRequest(_Numbers, Request):
    """Move `length` bytes from or to the client's memory, which is at match bits `bulkid`."""

    SERVICE: ClassVar[Service] = Service.BRW
    LAYOUT: ClassVar[str] = "QQIII"
    rpyid: int
    bulkid: int
    direction: int
    length: int
    check: int


@dataclass(frozen=True, slots=True)
class BrwReply(_Numbers, Reply):
    """Whether the data came, and were what they should be."""

    SERVICE: ClassVar[Service] = Service.BRW
    LAYOUT: ClassVar[str] = "I"
    status: int


@dataclass(frozen=True, slots=True)
class TestRequest(Request):
    """Add a test to a batch, which is made by its first one. A client gets `ndest` targets from `bulkid`."""

    SERVICE: ClassVar[Service] = Service.TEST
    LAYOUT: ClassVar[str] = "QQQqQIIIBBI12s"
    __test__ = False
    rpyid: int
    bulkid: int
    sid: SessionId
    batch: int
    service: int
    loop: int
    concurrency: int
    is_client: int = 0
    stop_on_error: int = 0
    targets: int = 0
    parameters: PingParameters | BulkPages | BulkBytes | bytes = bytes(12)

    def pack(self, byteorder: ByteOrder) -> bytes:
        """The body as bytes."""
        order, parameters = _ORDERS[byteorder], self.parameters
        if not isinstance(parameters, bytes):
            parameters = struct.pack(order + _PARAMETERS[type(parameters)], *parameters)
        elif len(parameters) != _PARAMETERS_SIZE:
            raise WireError(f"selftest parameters of {len(parameters)} bytes: they have {_PARAMETERS_SIZE}")
        # fmt: off
        return struct.pack(
            order + self.LAYOUT, self.rpyid, self.bulkid, *self.sid, self.batch, self.service, self.loop,
            self.concurrency, self.is_client, self.stop_on_error, self.targets, parameters,
        )
        # fmt: on

    @classmethod
    def unpack(cls, view: memoryview, byteorder: ByteOrder, features: int) -> Self:
        """Read the body; what its parameters mean depends on service and features."""
        raw: Any
        rest: list[Any]
        rpyid, bulkid, nid, stamp, *rest, raw = struct.unpack_from(_ORDERS[byteorder] + cls.LAYOUT, view)
        kind: Any = None
        if rest[1] == Service.PING:
            kind = PingParameters
        elif rest[1] == Service.BRW:
            kind = BulkBytes if features & BULK_LEN else BulkPages
        if kind is not None:
            raw = kind._make(struct.unpack_from(_ORDERS[byteorder] + _PARAMETERS[kind], raw))
        rest.append(raw)
        return cls(rpyid, bulkid, SessionId(nid, stamp), *rest)


_PARAMETERS: Final[dict[Any, str]] = {PingParameters: "II4x", BulkPages: "III", BulkBytes: "HHII"}
_ALL_REQUESTS: Final[tuple[type[Request], ...]] = (
    DebugRequest,
    MakeSessionRequest,
    RemoveSessionRequest,
    BatchRequest,
    TestRequest,
    StatRequest,
    JoinRequest,
    RailsRequest,
    BrwRequest,
    PingRequest,
)
_ALL_REPLIES: Final[tuple[type[Reply], ...]] = (
    DebugReply,
    MakeSessionReply,
    RemoveSessionReply,
    BatchReply,
    TestReply,
    StatReply,
    JoinReply,
    RailsReply,
    BrwReply,
    PingReply,
)
REQUESTS: Final = {body.SERVICE: body for body in _ALL_REQUESTS}
REPLIES: Final = {body.SERVICE: body for body in _ALL_REPLIES}


def _packed_name(name: str) -> bytes:
    packed = name.encode("utf-8", "surrogateescape")
    if len(packed) > _NAME_SIZE or b"\0" in packed:
        raise WireError(f"selftest name {name[:40]!r}: it has at most {_NAME_SIZE} bytes, and no NUL")
    return packed


def _read_name(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode("utf-8", "surrogateescape")
