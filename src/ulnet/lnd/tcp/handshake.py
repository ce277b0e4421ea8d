"""Connection request and HELLO, both sides, without sockets (spec wire-socklnd.md §2, §3).

Feed a machine what was read, never more than `want` bytes at a time: like a kernel node it must leave
unread what it has no use for, because a close with unread bytes resets the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from ulnet.nid import Nid
from ulnet.wire import acceptor, socklnd
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.errors import WireError
from ulnet.wire.socklnd import ConnType, Hello

__all__ = ["ActiveHandshake", "Identity", "PassiveHandshake", "Verdict"]


class Verdict(Enum):
    """What a machine says after each piece."""

    MORE = auto()  # read on
    REQUEST = auto()  # passive: `request` is complete; take it with `accept_request`, or hang up
    HELLO = auto()  # the peer's HELLO is complete and in order
    RETRY = auto()  # active: refused for now (lost race or duplicate)
    OTHER_VERSION = auto()  # active: the peer wants the version of `hello`
    REFUSED = auto()  # over: send `reply`, then hang up; `error` tells why


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of one end of a connection."""

    nid: Nid
    pid: int
    incarnation: int
    ips: tuple[int, ...] = ()  # of an NI over several devices: their addresses

    @property
    def version(self) -> int:
        """The protocol version that this end starts with."""
        return 4 if self.nid.is_large else 3

    def hello(self, version: int, dst_nid: Nid, dst_pid: int, ctype: int) -> bytes:
        """Our HELLO's bytes."""
        ips = () if version == 4 else self.ips
        hello = Hello(
            version, self.nid, dst_nid, self.pid, dst_pid, self.incarnation, 0, ctype, len(ips), ips=ips
        )
        return hello.pack()


def _over(machine: object) -> Verdict:
    return Verdict.REFUSED


class _Machine:
    """Collects exactly `want` bytes, then runs the stage that waits for them: a method of its class.

    A bound one would make a cycle, and each attempt to connect something for Python's collector.
    """

    __slots__ = ("_data", "_stage", "error", "hello", "reply", "want")

    def __init__(self, stage: Callable[[Any], Verdict], want: int) -> None:
        self._stage = stage
        self._data = bytearray()
        self.want: int = want
        self.reply: bytes = b""
        self.error: str = ""
        self.hello: Hello | None = None

    def feed(self, piece: bytes) -> Verdict:
        """Take what was read, at most `want` bytes. No exception escapes, whatever they are."""
        if len(piece) > self.want:
            return self._refuse("more bytes were fed than the handshake had asked for")
        self._data += piece
        self.want -= len(piece)
        if self.want:
            return Verdict.MORE
        try:
            return self._stage(self)
        except acceptor.AcceptorError as error:
            return self._refuse(str(error), error.reply)
        except socklnd.UnknownVersionError as error:
            return self._refuse(str(error), self._answer_to_unknown_version())
        except WireError as error:
            return self._refuse(str(error))

    def _await(self, stage: Callable[[Any], Verdict], want: int, *, fresh: bool = False) -> Verdict:
        if fresh:
            self._data.clear()
        self._stage = stage
        self.want = want
        return Verdict.MORE

    def _refuse(self, error: str, reply: bytes = b"") -> Verdict:
        self.want = 0
        self.error = error
        self.reply = reply
        return self._done(Verdict.REFUSED)

    def _done(self, verdict: Verdict) -> Verdict:
        self._stage = _over
        return verdict

    def _answer_to_unknown_version(self) -> bytes:
        return b""

    # A HELLO: magic, version, the rest, obsolete addresses.

    def _hello_magic(self) -> Verdict:
        socklnd.hello_byteorder(self._data)
        return self._await(_Machine._hello_version, socklnd.VERSION_SIZE)

    def _hello_version(self) -> Verdict:
        version = socklnd.hello_version(self._data)
        return self._await(_Machine._hello_rest, socklnd.hello_rest_size(version))

    def _hello_rest(self) -> Verdict:
        self.hello = hello = Hello.unpack(self._data)
        if hello.ips_size:
            return self._await(_Machine._hello_ips, hello.ips_size, fresh=True)
        return self._hello_complete(hello)

    def _hello_ips(self) -> Verdict:
        assert self.hello is not None
        return self._hello_complete(self.hello.with_ips(self._data))

    def _hello_complete(self, hello: Hello) -> Verdict:
        raise NotImplementedError


class PassiveHandshake(_Machine):
    """The accepting side: request, then HELLO; the driver then sends `answer`."""

    __slots__ = ("_own", "request")

    def __init__(self) -> None:
        super().__init__(PassiveHandshake._request_magic, acceptor.MAGIC_SIZE)
        self.request: ConnRequest | None = None
        self._own: Identity | None = None

    def accept_request(self, own: Identity) -> None:
        """The request is for this NI of ours."""
        self._own = own
        self._await(_Machine._hello_magic, socklnd.MAGIC_SIZE, fresh=True)

    def answer(self, ctype: ConnType) -> bytes:
        """Our HELLO: `ctype` as we see the connection, NONE to refuse it."""
        assert self._own is not None and self.hello is not None
        # The peer's own dst_pid goes back to it, as kernel nodes do.
        return self._own.hello(self.hello.version, self.hello.src_nid, self.hello.dst_pid, ctype)

    @property
    def ctype(self) -> ConnType:
        """The connection's type as we see it."""
        assert self.hello is not None
        return socklnd.inverted_ctype(self.hello.ctype)

    def _request_magic(self) -> Verdict:
        acceptor.request_byteorder(self._data)
        return self._await(PassiveHandshake._request_version, acceptor.VERSION_SIZE)

    def _request_version(self) -> Verdict:
        order = acceptor.request_byteorder(self._data)
        version = acceptor.request_version(self._data[_MAGIC_END:], order)
        return self._await(PassiveHandshake._request_rest, acceptor.request_rest_size(version))

    def _request_rest(self) -> Verdict:
        self.request = ConnRequest.unpack(self._data)
        return self._done(Verdict.REQUEST)

    def _hello_complete(self, hello: Hello) -> Verdict:
        self.hello = hello
        own = self._own
        assert own is not None
        if socklnd.inverted_ctype(hello.ctype) is ConnType.NONE:
            raise WireError("HELLO that opens a connection with type NONE")
        if own.nid.is_large and hello.version != 4:
            raise WireError(f"HELLO version {hello.version} cannot name {own.nid}")
        if hello.src_nid.net != own.nid.net:
            raise WireError(f"HELLO from {hello.src_nid}, which is not on the net of {own.nid}")
        if hello.src_nid.is_malformed:
            raise WireError(f"HELLO from {hello.src_nid}, which has no IP address")
        return self._done(Verdict.HELLO)

    def _answer_to_unknown_version(self) -> bytes:
        if self._own is None:
            return b""
        return self._own.hello(self._own.version, self._own.nid, 0, ConnType.NONE)


_MAGIC_END: Final = acceptor.MAGIC_SIZE


class ActiveHandshake(_Machine):
    """The connecting side: `opening` goes out at once, then the peer's HELLO is judged."""

    __slots__ = ("_pid", "_version", "called", "ctype", "opening")

    def __init__(self, own: Identity, nid: Nid, pid: int, ctype: ConnType, version: int) -> None:
        super().__init__(ActiveHandshake._peer_magic, socklnd.MAGIC_SIZE)
        self.called: Nid = nid
        self._pid = pid
        self.ctype: ConnType = ctype
        self._version = version
        self.opening: bytes = ConnRequest.to(nid).pack() + own.hello(version, nid, 0, ctype)

    def _peer_magic(self) -> Verdict:
        if self._data in _REFUSALS:
            raise WireError("it refused our connection request: its acceptor speaks an older version")
        try:
            return self._hello_magic()
        except WireError:
            raise WireError(
                f"it answered {self._data.hex()} where a HELLO belongs: it is not an LNet node"
            ) from None

    def _hello_complete(self, hello: Hello) -> Verdict:
        self.hello = hello
        if hello.src_nid != self.called or hello.src_pid != self._pid:
            raise WireError(
                f"it says it is {hello.src_pid}-{hello.src_nid}, but {self._pid}-{self.called} was called"
            )
        if hello.ctype == ConnType.NONE and hello.version == self._version:
            return self._done(Verdict.RETRY)
        if hello.ctype == ConnType.NONE and hello.version != 1:
            return self._done(Verdict.OTHER_VERSION)
        if hello.version != self._version:
            raise WireError(f"it answered HELLO version {self._version} with version {hello.version}")
        if socklnd.inverted_ctype(hello.ctype) != self.ctype:
            raise WireError(f"it took our {self.ctype.name} connection for one of type {hello.ctype}")
        return self._done(Verdict.HELLO)


_REFUSALS: Final = (acceptor.refusal("little")[:_MAGIC_END], acceptor.refusal("big")[:_MAGIC_END])
