"""Requests and replies of selftest over a node, and their bulk (spec selftest.md §1)."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from ulnet.core.event import Event, EventKind
from ulnet.core.md import OP_GET, OP_PUT, TRUNCATE, Buffer
from ulnet.core.status import LNetError
from ulnet.nid import LNET_PID, Nid
from ulnet.node import Node
from ulnet.node.attachment import Attachment
from ulnet.node.inbox import Inbox
from ulnet.node.inbox import Message as Arrived
from ulnet.wire.errors import WireError
from ulnet.wire.selftest import (
    BULK_PORTAL,
    FRAMEWORK_PORTAL,
    MAX_BULK,
    MESSAGE_SIZE,
    TEST_PORTAL,
    Message,
    is_framework,
    pack_message,
    unpack_message,
)
from ulnet.wire.selftest_bodies import REPLIES, Reply, Request, RpcCounters

__all__ = ["Bulk", "Exchange", "Incoming"]

_ID_MASK: Final = (1 << 64) - 1
_SLOTS: Final = 4096  # requests that may come before the loop looks at them
_MOST_TASKS: Final = 16384  # requests under way; more are dropped


@dataclass(slots=True)
class Bulk:
    """Memory of a client: a peer gets from it, or puts into it, at those match bits."""

    bits: int
    memory: Buffer | list[Buffer]
    size: int
    source: bool
    optional: bool = False  # its owner does not wait for it to be used

    def attach(self, node: Node, peer: Nid, used: asyncio.Future[int]) -> Attachment:
        """Open the memory to peer, for one message; `used` gets how many bytes."""

        def handle(event: Event) -> None:
            if used.done():
                return
            if event.status:
                used.set_exception(LNetError(-event.status, f"{peer}: bulk failed: {event.reason}"))
            elif event.kind in (EventKind.PUT, EventKind.GET):
                used.set_result(event.mlength)

        options = OP_GET | TRUNCATE if self.source else OP_PUT
        return node.attach(
            BULK_PORTAL,
            self.bits,
            self.memory,
            nid=peer,
            pid=LNET_PID,
            options=options,
            threshold=1,
            handler=handle,
        )


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request: its message, where it came from, and by which of our NIDs."""

    message: Message
    source: Nid
    target: Nid

    @property
    def request(self) -> Request:
        """What is asked."""
        body = self.message.body
        assert isinstance(body, Request)
        return body


Handler = Callable[[Incoming], Coroutine[Any, Any, None]]


class Exchange:
    """What selftest sends and receives on one node. `wall` is the time of day in nanoseconds."""

    def __init__(self, node: Node, *, wall: Callable[[], int] = time.time_ns) -> None:
        self.node = node
        self.wall = wall
        self._last = (wall() // 10**9 << 48) & _ID_MASK
        self._last_ping = -1
        self._scratch: memoryview | None = None
        self._inboxes: list[Inbox] = []
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._handler: Handler | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.errors = 0
        self.sent = 0
        self.received = 0
        self.dropped = 0
        self.expired = 0
        self.bulk_get = 0
        self.bulk_put = 0

    def next_id(self) -> int:
        """Match bits that nobody else uses."""
        self._last = (self._last + 1) & _ID_MASK
        return self._last

    def scratch(self, length: int) -> memoryview:
        """Memory for data at which nobody looks; all who move such data share it."""
        if self._scratch is None:
            self._scratch = memoryview(bytearray(MAX_BULK))
        return self._scratch[:length]

    def next_ping(self) -> int:
        """The sequence number of a ping."""
        self._last_ping = (self._last_ping + 1) & 0xFFFFFFFF
        return self._last_ping

    def counters(self) -> RpcCounters:
        """As statistics tell them."""
        u32, u64 = 0xFFFFFFFF, _ID_MASK
        # fmt: off
        return RpcCounters(
            self.errors & u32, self.sent & u32, self.received & u32, self.dropped & u32, self.expired & u32,
            self.bulk_get & u64, self.bulk_put & u64,
        )
        # fmt: on

    # Serving ---------------------------------------------------------------------------------------

    @property
    def serving(self) -> bool:
        """Whether requests are taken, in this life of the node."""
        return bool(self._inboxes) and not self._inboxes[0].closed

    @property
    def busy(self) -> bool:
        """Whether a request is being served."""
        return bool(self._tasks)

    def serve(self, handler: Handler) -> None:
        """Take requests; each goes to `handler`, as a task. Raises LNetError."""
        self.stop()
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        try:
            for portal in (TEST_PORTAL, FRAMEWORK_PORTAL):
                arrived = self._arrived_at(portal)
                inbox = self.node.inbox(
                    portal, 0, ignore_bits=_ID_MASK, slots=_SLOTS, size=MESSAGE_SIZE, handler=arrived
                )
                self._inboxes.append(inbox)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Take no more requests, and give up those under way."""
        inboxes, self._inboxes = self._inboxes, []
        for inbox in inboxes:
            inbox.close()
        for task in list(self._tasks):
            task.cancel()

    async def stopped(self) -> None:
        """Wait until none is under way."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _arrived_at(self, portal: int) -> Callable[[Arrived], None]:
        def arrived(arrival: Arrived) -> None:
            self.received += 1
            if not self._take(arrival, portal):
                self.dropped += 1

        return arrived

    def _take(self, arrival: Arrived, portal: int) -> bool:
        """Whether it is a request that can be served here."""
        try:
            message = unpack_message(arrival.data)
        except WireError:
            return False
        service = message.service
        expected = FRAMEWORK_PORTAL if is_framework(service) else TEST_PORTAL
        if not isinstance(message.body, Request) or arrival.match_bits != service or portal != expected:
            return False
        if self._handler is None or self._loop is None or len(self._tasks) >= _MOST_TASKS:
            return False
        work = self._handler(Incoming(message, arrival.source, arrival.target))
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return True

    async def reply(self, incoming: Incoming, reply: Reply, features: int) -> None:
        """Answer a request, from the NID that it came to; what cannot be sent is counted."""
        data = pack_message(Message(reply, features))
        try:
            await self.node.put(
                incoming.source,
                BULK_PORTAL,
                incoming.request.rpyid,
                data,
                ack=False,
                source=incoming.target,
            )
        except LNetError:
            self.errors += 1

    # Asking ----------------------------------------------------------------------------------------

    async def call(
        self, target: Nid, request: Request, features: int, *, timeout: float, bulk: Bulk | None = None
    ) -> Message:
        """Ask, and give the reply, once bulk was moved too where its status is 0.

        Raises LNetError: ETIMEDOUT, EPROTO (an answer that is none), and what sending raises. Memory of bulk
        may be in use then.
        """
        loop = asyncio.get_running_loop()
        replied: asyncio.Future[bytes] = loop.create_future()
        moved: asyncio.Future[int] = loop.create_future()
        attachments: list[Attachment] = []
        try:
            async with asyncio.timeout(timeout):
                attachments.append(self._await_reply(target, request.rpyid, replied))
                if bulk is not None:
                    attachments.append(bulk.attach(self.node, target, moved))
                return await self._exchange(target, request, features, replied, moved, bulk)
        except TimeoutError:
            self.expired += 1
            raise LNetError(
                errno.ETIMEDOUT, f"{target}: no answer to a selftest request in {timeout:g} s"
            ) from None
        except LNetError:
            self.errors += 1
            raise
        finally:
            for attachment in attachments:
                attachment.close()
            for future in (replied, moved):
                future.cancel()
                if not future.cancelled():
                    future.exception()  # it was told already, or does not matter any more

    def _await_reply(self, target: Nid, bits: int, replied: asyncio.Future[bytes]) -> Attachment:
        def handle(event: Event) -> None:
            if event.kind is EventKind.PUT and not event.status and not replied.done():
                replied.set_result(bytes(event.data))

        return self.node.attach(
            BULK_PORTAL,
            bits,
            bytearray(MESSAGE_SIZE),
            nid=target,
            pid=LNET_PID,
            options=OP_PUT,
            threshold=1,
            handler=handle,
        )

    async def _exchange(
        self,
        target: Nid,
        request: Request,
        features: int,
        replied: asyncio.Future[bytes],
        moved: asyncio.Future[int],
        bulk: Bulk | None,
    ) -> Message:
        service = request.SERVICE
        portal = FRAMEWORK_PORTAL if is_framework(service) else TEST_PORTAL
        data = pack_message(Message(request, features))
        self.sent += 1
        await self.node.put(target, portal, service, data, ack=False)
        message = self._read_reply(target, request, await replied)
        assert isinstance(message.body, Reply)
        if bulk is not None and not message.body.status and not bulk.optional:
            size = await moved
            if size != bulk.size:
                raise LNetError(errno.EIO, f"{target}: {size} bytes of bulk came in the place of {bulk.size}")
            if bulk.source:
                self.bulk_get += size
            else:
                self.bulk_put += size
        return message

    @staticmethod
    def _read_reply(target: Nid, request: Request, data: bytes) -> Message:
        try:
            message = unpack_message(data)
        except WireError as bad:
            raise LNetError(errno.EPROTO, f"{target}: {bad}") from None
        if type(message.body) is not REPLIES[request.SERVICE]:
            name = type(message.body).__name__
            raise LNetError(errno.EPROTO, f"{target}: {name} is no answer to {type(request).__name__}")
        return message
