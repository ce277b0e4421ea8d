"""A transmit: one message of the driver's protocol that goes out, and what becomes of it (spec §5)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from ulnet.lnd.o2ib.errors import Phase
from ulnet.nid import LNET_PID
from ulnet.wire.lnet import Header, MsgType
from ulnet.wire.o2ib import HEAD_SIZE, O2ibType, RdmaTarget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ulnet.core.msg import Msg
    from ulnet.lnd.o2ib.memory import Mapped
    from ulnet.lnd.o2ib.rx import PutRx
    from ulnet.lnd.o2ib.verbs import Write
    from ulnet.wire.errors import Buffer

__all__ = ["CREDITED", "RESERVED", "Tx", "get_request", "put_ack", "put_request", "reply_to"]

CREDITED: Final = frozenset({O2ibType.IMMEDIATE, O2ibType.PUT_REQ, O2ibType.GET_REQ})  # take a credit
RESERVED: Final = frozenset({O2ibType.PUT_REQ, O2ibType.GET_REQ})  # … and are answered
_COOKIE: Final = struct.Struct("<Q")
_COOKIES: Final = struct.Struct("<QQ")
_COMPLETION: Final = struct.Struct("<Qi")
_NO_WRITES: Final[list[Write]] = []


class Tx:
    """One transmit; over when it is not queued, not posted, and waits for nothing.

    `msg` is LNet's message that it carries, if it does, `mapped` the memory of its payload where RDMA moves
    that. `writes` go ahead of it.
    """

    __slots__ = (
        "body",
        "cookie",
        "counted",
        "deadline",
        "failed",
        "kind",
        "mapped",
        "msg",
        "queued",
        "reason",
        "reply",
        "rx",
        "sending",
        "size",
        "waiting",
        "writes",
    )

    def __init__(
        self, kind: O2ibType, body: Sequence[Buffer], deadline: float, msg: Msg | None = None
    ) -> None:
        self.deadline: float = deadline
        self.msg: Msg | None = msg
        self.cookie: int = 0
        self.counted: bool = False  # as one of `ntx`
        self.mapped: Mapped | None = None
        self.rx: PutRx | None = None  # of a PUT_ACK
        self.sending: int = 0  # posts that are not completed
        self.waiting: bool = False  # for its answer
        self.failed: int = 0  # errno
        self.reason: str = ""
        self.reply: int = -1  # of a GET_REQ: how many bytes came
        self.become(kind, body, _NO_WRITES)

    def become(self, kind: O2ibType, body: Sequence[Buffer], writes: list[Write]) -> None:
        """The next message of its exchange, which is to be posted."""
        self.kind: O2ibType = kind
        self.body = body
        self.size: int = HEAD_SIZE + sum([len(part) for part in body])
        self.writes: list[Write] = writes
        self.queued: bool = True

    def complete(self, kind: O2ibType, cookie: int, status: int, writes: list[Write] = _NO_WRITES) -> None:
        """The message that ends an exchange."""
        self.become(kind, (_COMPLETION.pack(cookie, status),), writes)

    @property
    def over(self) -> bool:
        """Whether nothing more is to happen."""
        return not (self.sending or self.waiting or self.queued)

    @property
    def phase(self) -> Phase:
        """What it is doing."""
        if self.queued:
            return Phase.QUEUED
        return Phase.SENDING if self.sending else Phase.WAITING

    @property
    def begun(self) -> bool:
        """Whether anything of it may have left."""
        return self.sending > 0 or not self.queued or self.kind not in CREDITED

    def release(self) -> None:
        """Its memory is its owner's again."""
        if self.mapped is not None:
            self.mapped.release()
            self.mapped = None


def put_request(lnet: bytes, cookie: int) -> tuple[bytes, ...]:
    """The body of a PUT_REQ."""
    return lnet, _COOKIE.pack(cookie)


def get_request(lnet: bytes, cookie: int, sink: RdmaTarget) -> tuple[bytes, ...]:
    """The body of a GET_REQ."""
    return lnet, _COOKIE.pack(cookie), sink.pack("<")


def put_ack(cookie: int, own: int, sink: RdmaTarget) -> tuple[bytes, ...]:
    """The body of a PUT_ACK."""
    return _COOKIES.pack(cookie, own), sink.pack("<")


def reply_to(get: Msg, length: int) -> Header:
    """The header of the REPLY that the peer did not send, for it wrote the payload."""
    hdr = get.hdr
    # fmt: off
    return Header(MsgType.REPLY, hdr.src_nid, hdr.dest_nid, hdr.src_pid, LNET_PID, length, get.wmd)
    # fmt: on
