"""Requests and replies of selftest over a node, and their bulk (spec selftest.md §1)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from ulnet.control.instance import LNet
from ulnet.core.status import LNetError
from ulnet.nid import Nid
from ulnet.node import Node
from ulnet.node.inbox import Inbox
from ulnet.node.inbox import Message as Arrived
from ulnet.selftest.call import Bulk, Call
from ulnet.selftest.outbox import Outbox
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
from ulnet.wire.selftest_bodies import Reply, Request, RpcCounters

__all__ = ["Bulk", "Exchange", "Incoming", "RailCounters"]

_ID_MASK: Final = (1 << 64) - 1
_SLOTS: Final = 4096  # requests that may come before the loop looks at them
_MOST_TASKS: Final = 16384  # requests under way; more are dropped


@dataclass(slots=True)
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


@dataclass(slots=True)
class RailCounters:
    """What one of this node's NIDs has carried: bulk in bytes, and requests that were answered there.

    `errors` are those that LNet has counted there, in what `Exchange.all_rails` gives.
    """

    bulk_get: int = 0
    bulk_put: int = 0
    answered: int = 0
    errors: int = 0


# Answers a request, or gives back the work that leads to its answer.
Handler = Callable[[Incoming], Coroutine[Any, Any, None] | None]


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
        self._sending: Outbox | None = None
        self._corked = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.errors = 0
        self.sent = 0
        self.received = 0
        self.dropped = 0
        self.expired = 0
        self.rails: dict[Nid, RailCounters] = {}

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

    def rail(self, nid: Nid) -> RailCounters:
        """Those of one of our NIDs."""
        found = self.rails.get(nid)
        if found is None:
            found = self.rails[nid] = RailCounters()
        return found

    def all_rails(self) -> dict[Nid, RailCounters]:
        """Those of all NIDs that this node has."""
        found = {}
        for ni in self.node.core.nis.values():
            if not ni.nid.is_lo:
                rail = self.rail(ni.nid)
                rail.errors = sum(ni.health_stats.by_status[1:])
                found[ni.nid] = rail
        return found

    def counters(self) -> RpcCounters:
        """As statistics tell them."""
        u32, u64 = 0xFFFFFFFF, _ID_MASK
        got = sum([rail.bulk_get for rail in self.rails.values()])
        put = sum([rail.bulk_put for rail in self.rails.values()])
        # fmt: off
        return RpcCounters(
            self.errors & u32, self.sent & u32, self.received & u32, self.dropped & u32, self.expired & u32,
            got & u64, put & u64,
        )
        # fmt: on

    # Serving ---------------------------------------------------------------------------------------

    @property
    def serving(self) -> bool:
        """Whether requests are taken, in this life of the node."""
        return bool(self._inboxes) and not self._inboxes[0].closed

    @property
    def busy(self) -> bool:
        """Whether a request is being served, or something is being sent."""
        return bool(self._tasks) or (self._sending is not None and self._sending.busy)

    def serve(self, handler: Handler) -> None:
        """Take requests; each goes to `handler`, whose work is a task. Raises LNetError."""
        self.stop()
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._sending = Outbox(self.node.core)
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
        if self._sending is not None:
            self._sending.close()

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
        if work is None:
            return True
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return True

    def reply(self, incoming: Incoming, reply: Reply, features: int) -> None:
        """Answer a request, from the NID that it came to; what cannot be sent is counted."""
        data = pack_message(Message(reply, features))
        bits = incoming.request.rpyid
        self.rail(incoming.target).answered += 1
        try:
            self.outbox.put(
                incoming.source, BULK_PORTAL, bits, data, self._reply_left, source=incoming.target
            )
        except LNetError:
            self.errors += 1

    def _reply_left(self, size: int, failed: LNetError | None) -> None:
        if failed is not None:
            self.errors += 1

    @property
    def outbox(self) -> Outbox:
        """What sends, in this life of the node. Raises LNetError(ENETDOWN)."""
        outbox, core = self._sending, self.node.core
        if outbox is None or outbox.core is not core:
            outbox = self._sending = Outbox(core)
        return outbox

    # Asking ----------------------------------------------------------------------------------------

    async def call(
        self, target: Nid, request: Request, features: int, *, timeout: float, bulk: Bulk | None = None
    ) -> Message:
        """Ask, and give the reply, once bulk was moved too where its status is 0.

        Raises LNetError: ETIMEDOUT, EPROTO (an answer that is none), and what sending raises. Memory of bulk
        may be in use then.
        """
        loop = asyncio.get_running_loop()
        call = Call(self.outbox, target, request, bulk, loop.create_future())
        timer = loop.call_later(timeout, call.expire, timeout)
        self._cork(loop)
        try:
            self.sent += 1
            call.begin(pack_message(Message(request, features)))
            message = await call.done
        except LNetError:
            if call.late:
                self.expired += 1
            else:
                self.errors += 1
            raise
        finally:
            timer.cancel()
            call.end()
        rail = self.rail(call.rail)
        rail.answered += 1
        if bulk is not None and not bulk.optional and not call.status:
            if bulk.source:
                rail.bulk_get += bulk.size
            else:
                rail.bulk_put += bulk.size
        return message

    def _cork(self, loop: asyncio.AbstractEventLoop) -> None:
        """What is asked in this turn of the loop leaves together behind it."""
        if not self._corked:
            self._corked = True
            self.node.core.cork()
            loop.call_soon(self._uncork, self.node.core)

    def _uncork(self, core: LNet) -> None:
        self._corked = False
        core.uncork()
