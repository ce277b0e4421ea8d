"""One request of selftest at its client: the memory that waits for its reply and its bulk."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass
from typing import Final

from ulnet.core.event import Event, EventKind
from ulnet.core.md import OP_GET, OP_PUT, TRUNCATE, Buffer, EventHandler, Md
from ulnet.core.memory import MatchEntry
from ulnet.core.status import LNetError
from ulnet.nid import ANY_NID, LNET_PID, Nid
from ulnet.selftest.outbox import Outbox
from ulnet.wire.errors import WireError
from ulnet.wire.selftest import (
    BULK_PORTAL,
    FRAMEWORK_PORTAL,
    MESSAGE_SIZE,
    TEST_PORTAL,
    Message,
    is_framework,
    unpack_message,
)
from ulnet.wire.selftest_bodies import REPLIES, Reply, Request

__all__ = ["Bulk", "Call"]

_MOVED: Final = (EventKind.PUT, EventKind.GET)


@dataclass(slots=True)
class Bulk:
    """Memory of a client: a peer gets from it, or puts into it, at those match bits."""

    bits: int
    memory: Buffer | list[Buffer]
    size: int
    source: bool
    optional: bool = False  # its owner does not wait for it to be used


class Call:
    """A request under way. `done` gets the reply, once bulk was moved too where its status is 0.

    `end` takes the memory back; it has to be called whatever happened.
    """

    __slots__ = (
        "_bulk",
        "_entries",
        "_message",
        "_moved",
        "_outbox",
        "_put",
        "_request",
        "_target",
        "done",
        "late",
        "rail",
        "status",
    )

    def __init__(
        self, outbox: Outbox, target: Nid, request: Request, bulk: Bulk | None, done: asyncio.Future[Message]
    ) -> None:
        self._outbox = outbox
        self._target = target
        self._request = request
        self._bulk = bulk
        self._entries: list[MatchEntry] = []
        self._put: Md | None = None
        self._message: Message | None = None  # came ahead of the bulk
        self._moved: int | LNetError | None = None
        self.status = 0  # of the reply
        self.rail = ANY_NID  # ours, by which the answer came
        self.late = False  # nobody answered in time
        self.done = done

    def begin(self, data: bytes) -> None:
        """Open the memory, each for one message of the target, and send the request. Raises LNetError."""
        request, bulk = self._request, self._bulk
        self._open(request.rpyid, bytearray(MESSAGE_SIZE), OP_PUT, self._replied)
        if bulk is not None:
            options = OP_GET | TRUNCATE if bulk.source else OP_PUT
            self._open(bulk.bits, bulk.memory, options, self._bulk_moved)
        service = request.SERVICE
        portal = FRAMEWORK_PORTAL if is_framework(service) else TEST_PORTAL
        self._put = self._outbox.put(self._target, portal, service, data, self._left)

    def _left(self, size: int, failed: LNetError | None) -> None:
        if failed is not None:
            self.fail(failed)

    def _open(self, bits: int, memory: Buffer | list[Buffer], options: int, handler: EventHandler) -> None:
        memories = self._outbox.core.memory
        me = memories.me_attach(BULK_PORTAL, match_bits=bits, nid=self._target, pid=LNET_PID)
        self._entries.append(me)
        memories.md_attach(me, memory, handler, options=options, threshold=1)

    def end(self) -> None:
        """Nobody waits for it any more."""
        put = self._put
        if put is not None and put.linked:
            self._outbox.give_up(put)
        for me in self._entries:
            if me.linked:
                self._outbox.core.memory.me_unlink(me)
        self._entries.clear()

    def fail(self, error: LNetError) -> None:
        """It ends with that error."""
        if not self.done.done():
            self.done.set_exception(error)

    def expire(self, timeout: float) -> None:
        """It has not ended within so many seconds."""
        if not self.done.done():
            self.late = True
            text = f"{self._target}: no answer to a selftest request in {timeout:g} s"
            self.done.set_exception(LNetError(errno.ETIMEDOUT, text))

    # What comes ------------------------------------------------------------------------------------

    def _replied(self, event: Event) -> None:
        if event.kind is not EventKind.PUT or event.status or self.done.done():
            return
        try:
            message = self._read_reply(bytes(event.data))
        except LNetError as bad:
            self.fail(bad)
            return
        body = message.body
        assert isinstance(body, Reply)
        self.status = body.status
        self.rail = event.target
        if self._bulk is None or body.status or self._bulk.optional:
            self.done.set_result(message)
            return
        self._message = message
        self._look()

    def _read_reply(self, data: bytes) -> Message:
        target, request = self._target, self._request
        try:
            message = unpack_message(data)
        except WireError as bad:
            raise LNetError(errno.EPROTO, f"{target}: {bad}") from None
        if type(message.body) is not REPLIES[request.SERVICE]:
            name = type(message.body).__name__
            raise LNetError(errno.EPROTO, f"{target}: {name} is no answer to {type(request).__name__}")
        return message

    def _bulk_moved(self, event: Event) -> None:
        if self._moved is not None:
            return
        if event.status:
            self._moved = LNetError(-event.status, f"{self._target}: bulk failed: {event.reason}")
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
            text = f"{self._target}: {moved} bytes of bulk came in the place of {bulk.size}"
            self.fail(LNetError(errno.EIO, text))
        else:
            self.done.set_result(message)
