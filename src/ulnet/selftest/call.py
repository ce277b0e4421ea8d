"""One request of selftest at its client: its reply, and the memory of its bulk."""

from __future__ import annotations

import asyncio
import errno
from typing import Final

from ulnet.core.event import Event, EventKind
from ulnet.core.md import INFINITE, MANAGE_REMOTE, OP_GET, OP_PUT, TRUNCATE, Buffer
from ulnet.core.memory import MatchEntry, Memory
from ulnet.core.status import LNetError
from ulnet.nid import ANY_NID, Nid
from ulnet.node.inbox import Message as Arrived
from ulnet.wire.errors import WireError
from ulnet.wire.selftest import BULK_PORTAL, Message, unpack_message
from ulnet.wire.selftest_bodies import REPLIES, Reply, Request

__all__ = ["Bulk", "Call"]

_MOVED: Final = (EventKind.PUT, EventKind.GET)


class Bulk:
    """Memory of a client: a peer gets from it, or puts into it, at those match bits.

    One that is `kept` serves one request after the other, until one of them fails: nobody may put into it.
    Whose owner does not wait for it to be used is `optional`.
    """

    __slots__ = ("_me", "_memory", "bits", "call", "kept", "memory", "optional", "size", "source")

    def __init__(
        self,
        bits: int,
        memory: Buffer | list[Buffer],
        size: int,
        source: bool,
        optional: bool = False,
        kept: bool = False,
    ) -> None:
        self.bits: int = bits
        self.memory: bytes | bytearray | memoryview | list[bytes | bytearray | memoryview] = memory
        self.size: int = size
        self.source: bool = source
        self.optional: bool = optional
        self.kept: bool = kept
        self.call: Call | None = None  # that it serves
        self._me: MatchEntry | None = None

    def open(self, memory: Memory, target: Nid) -> None:
        """Let the target use it. Raises LNetError."""
        if self._me is not None:
            return
        self._memory = memory
        options = OP_GET | TRUNCATE if self.source else OP_PUT
        if self.kept:
            options |= MANAGE_REMOTE  # all of it is there each time
        self._me = me = memory.me_attach(BULK_PORTAL, match_bits=self.bits, nid=target)
        memory.md_attach(
            me, self.memory, self._moved, options=options, threshold=INFINITE if self.kept else 1
        )

    def close(self) -> None:
        """Take it back."""
        me, self._me = self._me, None
        if me is not None and me.linked:
            self._memory.me_unlink(me)

    def _moved(self, event: Event) -> None:
        if self.call is not None:
            self.call.bulk_moved(event)


class Call:
    """A request under way. `done` gets the reply, once bulk was moved too where its status is 0."""

    __slots__ = (
        "_bulk",
        "_message",
        "_moved",
        "_request",
        "done",
        "due_at",
        "late",
        "rail",
        "status",
        "target",
    )

    def __init__(
        self, target: Nid, request: Request, bulk: Bulk | None, done: asyncio.Future[Message]
    ) -> None:
        self.target: Nid = target
        self._request = request
        self._bulk = bulk
        self._message: Message | None = None  # came ahead of the bulk
        self._moved: int | LNetError | None = None
        self.status: int = 0  # of the reply
        self.rail: Nid = ANY_NID  # ours, by which the answer came
        self.late: bool = False  # nobody answered in time
        self.due_at: float = 0.0
        self.done: asyncio.Future[Message] = done

    def fail(self, error: LNetError) -> None:
        """It ends with that error."""
        if not self.done.done():
            self.done.set_exception(error)

    def left(self, error: int, text: str) -> None:
        """What became of its request."""
        if error:
            self.fail(LNetError(error, f"{self.target}: {text}"))

    def expire(self) -> None:
        """It has not ended in time."""
        self.late = True
        self.fail(LNetError(errno.ETIMEDOUT, f"{self.target}: no answer to a selftest request in time"))

    # What comes ------------------------------------------------------------------------------------

    def is_of(self, arrival: Arrived) -> bool:
        """Whether a reply comes from who was asked, as far as its NIDs tell."""
        return self.target in (arrival.source, arrival.initiator)

    def replied(self, arrival: Arrived) -> None:
        """Its reply has come."""
        if self.done.done():
            return
        try:
            message = self._read_reply(arrival.data)
        except LNetError as bad:
            self.fail(bad)
            return
        body = message.body
        assert isinstance(body, Reply)
        self.status = body.status
        self.rail = arrival.target
        if self._bulk is None or body.status or self._bulk.optional:
            self.done.set_result(message)
            return
        self._message = message
        self._look()

    def _read_reply(self, data: Buffer) -> Message:
        target, request = self.target, self._request
        try:
            message = unpack_message(data)
        except WireError as bad:
            raise LNetError(errno.EPROTO, f"{target}: {bad}") from None
        if type(message.body) is not REPLIES[request.SERVICE]:
            name = type(message.body).__name__
            raise LNetError(errno.EPROTO, f"{target}: {name} is no answer to {type(request).__name__}")
        return message

    def bulk_moved(self, event: Event) -> None:
        """Somebody has used its bulk."""
        if self._moved is not None:
            return
        if event.status:
            self._moved = LNetError(-event.status, f"{self.target}: bulk failed: {event.reason}")
        elif event.kind in _MOVED:
            self._moved = event.mlength
        self._look()

    def _look(self) -> None:
        """It is over once the reply is there, and the bulk."""
        bulk, message, moved = self._bulk, self._message, self._moved
        if bulk is None or message is None or moved is None or self.done.done():
            return
        if isinstance(moved, LNetError):
            self.fail(moved)
        elif moved != bulk.size:
            text = f"{self.target}: {moved} bytes of bulk came in the place of {bulk.size}"
            self.fail(LNetError(errno.EIO, text))
        else:
            self.done.set_result(message)
