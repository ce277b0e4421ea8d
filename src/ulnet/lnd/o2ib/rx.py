"""Payload that arrives: in the message itself, or fetched by PUT_ACK; and GETs that writes answer."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from ulnet.core.status import HealthStatus, LNetError
from ulnet.wire.o2ib import unpack_body

if TYPE_CHECKING:
    from ulnet.core.msg import Incoming
    from ulnet.lnd.o2ib.conn import Conn
    from ulnet.lnd.o2ib.errors import Failure
    from ulnet.lnd.o2ib.memory import Mapped
    from ulnet.lnd.o2ib.verbs import Slot
    from ulnet.wire.lnet import Header
    from ulnet.wire.o2ib import Head, RdmaTarget

__all__ = ["FetchedRx", "GetRx", "ImmediateRx", "PutRx", "requested"]


def requested(head: Head, data: bytes) -> tuple[Header, int]:
    """The header and the cookie of a request."""
    body = unpack_body(head, data)
    assert body[1] is not None
    return body[1], body[3]


class ImmediateRx:
    """Payload in a receive buffer, which stays out of use until the core has said where it goes."""

    __slots__ = ("_at", "_conn", "_slot")

    def __init__(self, conn: Conn, slot: Slot, at: int) -> None:
        self._conn = conn
        self._slot = slot
        self._at = at  # in the buffer

    def take(self, incoming: Incoming | None, buffers: list[memoryview], mlen: int, rlen: int) -> None:
        """Copy, and post the buffer again."""
        at, view = self._at, self._slot.view
        for room in buffers:
            room[:] = view[at : at + room.nbytes]
            at += room.nbytes
        conn = self._conn
        conn.taken(self)
        conn.recycle(self._slot, 1)
        if incoming is not None:
            conn.receiver.end(incoming)
        conn.pump()

    def abandon(self, incoming: Incoming) -> bool:
        """Nothing is ever half way."""
        return False

    def unanswered(self) -> None:
        """The peer waits for nothing."""


class PutRx:
    """The payload of a PUT_REQ: the peer writes it once it knows where, and says so."""

    __slots__ = ("_conn", "_cookie", "_incoming")

    def __init__(self, conn: Conn, cookie: int) -> None:
        self._conn = conn
        self._cookie = cookie  # of the peer's transmit
        self._incoming: Incoming | None = None

    def take(self, incoming: Incoming | None, buffers: list[memoryview], mlen: int, rlen: int) -> None:
        """Tell the peer where the payload goes, or that nobody wants it."""
        conn = self._conn
        conn.taken(self)
        if not mlen:
            conn.put_nak(self._cookie, 0)
            if incoming is not None:
                conn.receiver.end(incoming)
            return
        assert incoming is not None
        assert conn.pair is not None
        try:
            mapped = conn.ni.registrations.map_sink(conn.pair, buffers)
        except LNetError as failed:
            conn.put_nak(self._cookie, -failed.errno)
            conn.receiver.end(incoming, HealthStatus.LOCAL_ERROR, failed.errno, failed.text)
            return
        self._incoming = incoming
        conn.put_ack(self._cookie, mapped, self)

    def done(self, mapped: Mapped, status: int) -> None:
        """The peer has written it, or tells why not (-errno)."""
        incoming, self._incoming = self._incoming, None
        assert incoming is not None
        if status < 0:
            reason = "the peer could not send the payload"
            self._conn.receiver.end(incoming, HealthStatus.REMOTE_ERROR, -status, reason)
            return
        mapped.filled(mapped.length)
        self._conn.receiver.end(incoming)

    def fail(self, status: HealthStatus, failure: Failure) -> None:
        """It will never come."""
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            self._conn.receiver.end(incoming, status, *failure)

    def abandon(self, incoming: Incoming) -> bool:
        """The peer may be writing to that memory."""
        return False

    def unanswered(self) -> None:
        """What a PUT is answered is another message."""


class FetchedRx:
    """The payload of a REPLY that nobody sent: a GET_DONE tells that it is in memory already."""

    __slots__ = ("_conn",)

    def __init__(self, conn: Conn) -> None:
        self._conn = conn

    def take(self, incoming: Incoming | None, buffers: list[memoryview], mlen: int, rlen: int) -> None:
        """It is there."""
        if incoming is not None:
            self._conn.receiver.end(incoming)

    def abandon(self, incoming: Incoming) -> bool:
        """It has come."""
        return False

    def unanswered(self) -> None:
        """It is an answer."""


class GetRx:
    """A GET_REQ: its REPLY is written to the peer's memory, and a GET_DONE tells of that."""

    __slots__ = ("conn", "cookie", "deadline", "target", "wmd")

    def __init__(self, conn: Conn, cookie: int, wmd: bytes, target: RdmaTarget, deadline: float) -> None:
        self.conn: Conn = conn
        self.cookie: int = cookie
        self.wmd: bytes = wmd
        self.target: RdmaTarget = target
        self.deadline: float = deadline  # nobody waits for it after that

    def take(self, incoming: Incoming | None, buffers: list[memoryview], mlen: int, rlen: int) -> None:
        """A GET has no payload."""
        raise AssertionError("a GET has no payload")

    def abandon(self, incoming: Incoming) -> bool:
        """A GET has no payload."""
        return False

    def unanswered(self) -> None:
        """There is no REPLY: the peer need not wait for one."""
        if self.conn.peer.answered(self):
            self.conn.get_nak(self, -errno.ENODATA)
