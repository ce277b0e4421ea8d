"""A service: a name, and the methods that its clients may call."""

from __future__ import annotations

import errno
import hashlib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_type_hints

import msgspec

from ulnet.core.status import LNetError
from ulnet.rpc.errors import Executed, RpcError
from ulnet.rpc.kinds import check_asynchronous, check_kind, check_parameters
from ulnet.rpc.schema import given
from ulnet.rpc.topic import Topic
from ulnet.wire.rpc import call_overhead

if TYPE_CHECKING:
    from ulnet.rpc.call import Call

__all__ = ["Method", "NotOfType", "Service", "bits_of", "check_served", "decoded", "encoded"]

Handler = Callable[..., Awaitable[Any]]
Streamer = Callable[..., AsyncIterator[Any]]
H = TypeVar("H", bound=Callable[..., Any])
Data = bytes | bytearray | memoryview
_PLAIN: Final = (bytes, bytearray, memoryview)
_MOST: Final = 1 << 16  # bytes of data that are decoded: as objects they may take a hundred times the memory


def bits_of(name: str) -> int:
    """The match bits of a service."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def encoded(value: object) -> Data:
    """What travels: bytes as they are, nothing for None, all else as msgpack. Raises RpcError(EBADMSG)."""
    if value is None:
        return b""
    try:
        if isinstance(value, memoryview):
            return value if value.c_contiguous and value.nbytes == len(value) else value.tobytes()
        if isinstance(value, _PLAIN):
            return value
        return msgspec.msgpack.encode(value)
    except (TypeError, ValueError, msgspec.MsgspecError, OverflowError, RecursionError) as bad:
        raise RpcError(errno.EBADMSG, f"{type(value).__name__} cannot be sent: {bad}", "no") from None


def decoded(
    data: Data, wanted: Any, decode: Callable[[Data], Any] | None = None, executed: Executed = "no"
) -> Any:
    """The value of that type; `decode` is that of its decoder, if one is kept. Raises RpcError(EBADMSG)."""
    if wanted is bytes:
        return bytes(data)
    if wanted is memoryview:
        return memoryview(data)
    try:
        return msgspec.msgpack.decode(data, type=wanted) if decode is None else decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as bad:
        name = getattr(wanted, "__name__", str(wanted))
        raise RpcError(errno.EBADMSG, f"the data are no {name}: {bad}", executed) from None


class NotOfType(RpcError):
    """The data of a request are not of the type that its method takes: the handler was not called."""


@dataclass(frozen=True, slots=True)
class Method:
    """One method. `takes` is the type of its second parameter, if it has one, `gives` that of its result.

    At most `most` bytes of data are decoded; None: they are not decoded. Without `body` all data are in the
    frame of the request.
    """

    name: str
    run: Callable[..., Any]
    kind: Literal["call", "stream"]
    takes: Any = None
    gives: Any = Any
    decode: Callable[[Data], Any] | None = None  # what it takes
    most: int | None = None
    body: bool = True

    def start(self, call: Call) -> Any:
        """Call the handler. Raises NotOfType."""
        if self.takes is None:
            return self.run(call)
        try:
            value = decoded(call.data, self.takes, self.decode)
        except RpcError as bad:
            raise NotOfType(bad.errno, bad.text, "no") from None
        return self.run(call, value)


class Service:
    """What a server serves: `@service.method("read")` for replies, `@service.stream("watch")` for streams.

    A handler gets the `Call`, and if it has a second parameter the data as the type that this is annotated
    with. It returns bytes, None, or anything that msgspec encodes; a stream yields them. Data that are to be
    decoded have at most `most` bytes. Without `body` a method takes data of the size of a frame only.
    Servers that run serve what is added later, too.
    Decorators raise TypeError for what can be no handler.
    """

    def __init__(self, name: str) -> None:
        if not name:
            raise LNetError(errno.EINVAL, "a service without a name: its clients find it by that")
        self.name = name
        self.match_bits: int = bits_of(name)
        self.methods: dict[str, Method] = {}
        self._followers: list[tuple[Service, Callable[[Method], Method]]] = []

    def followed_by(self, other: Service, made: Callable[[Method], Method]) -> None:
        """Let `other` have what `made` makes of each method, also of those that are added later."""
        self._followers.append((other, made))
        for method in list(self.methods.values()):
            other.methods[method.name] = made(method)

    def let_go(self, other: Service) -> None:
        """It gets no more of them; a second call changes nothing."""
        self._followers = [one for one in self._followers if one[0] is not other]

    def method(self, name: str, *, most: int = _MOST, body: bool = True) -> Callable[[H], H]:
        """Make a coroutine function a method."""
        return self._adder(name, "call", most, body)

    def stream(self, name: str, *, most: int = _MOST) -> Callable[[H], H]:
        """Make an async generator function a stream."""
        return self._adder(name, "stream", most, False)

    def topic(self, name: str, *, backlog: int = 256) -> Topic:
        """A stream of what is published there; so many may wait for each subscriber."""
        topic = Topic(name, backlog)
        self.stream(name)(topic.feed)
        return topic

    def _adder(self, name: str, kind: Literal["call", "stream"], most: int, body: bool) -> Callable[[H], H]:
        if most < 0:
            raise LNetError(errno.EINVAL, f"method {name}: most={most}: give a number of bytes, from 0 on")
        call_overhead(name)  # raises for a name that cannot be sent
        if name in self.methods:
            raise LNetError(
                errno.EEXIST, f"service {self.name} has a method {name} already: choose another name"
            )

        def add(handler: H) -> H:
            check_kind(name, handler, stream=kind == "stream")
            gives = given(handler, stream=kind == "stream")
            takes = _second_type(handler)
            check_parameters(name, handler, 1 if takes is None else 2)
            decode = None if takes is None else msgspec.msgpack.Decoder(takes).decode
            limit = None if takes is None or takes in _PLAIN else most
            self.methods[name] = method = Method(name, handler, kind, takes, gives, decode, limit, body)
            for other, made in self._followers:
                other.methods[name] = made(method)
            return handler

        return add


def check_served(service: object) -> None:
    """Raises TypeError for what is no service."""
    if not isinstance(service, Service):
        raise TypeError(f"{type(service).__name__} in place of the service: Server(service, node)")
    for method in service.methods.values():
        check_asynchronous(method.name, method.run)


def _second_type(handler: Callable[..., Any]) -> Any:
    """What the second parameter of a handler is annotated with; bytes if it is not."""
    parameters = list(inspect.signature(handler).parameters.values())
    if len(parameters) < 2:
        return None
    hints = get_type_hints(inspect.unwrap(handler))
    return hints.get(parameters[1].name, bytes)
