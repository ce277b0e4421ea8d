"""Requests and replies of selftest over a node, and their bulk (spec selftest.md §1)."""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from ulnet.core.status import LNetError
from ulnet.nid import Nid
from ulnet.node import Node
from ulnet.node.inbox import Inbox
from ulnet.node.inbox import Message as Arrived
from ulnet.node.port import Port
from ulnet.node.shares import Shares
from ulnet.node.turns import Turns
from ulnet.node.watch import Watch
from ulnet.selftest.call import Bulk, Call
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
from ulnet.wire.selftest_bodies import Reply, Request
from ulnet.wire.selftest_values import RpcCounters

__all__ = ["Bulk", "Exchange", "Incoming", "RailCounters"]

_ID_MASK: Final = (1 << 64) - 1
_COUNTED: Final = (1 << 32) - 1  # bits of an ID that count; replies come to all of them
_OF_BULK: Final = 1 << 32  # what tells match bits of bulk from those of replies
_SLOTS: Final = 4096  # requests that may come before the loop looks at them
_MOST_REQUESTS: Final = 4096  # about sessions and tests; more are dropped, shares as below
_AT_ONCE: Final = 4  # of those that are served in one turn: 0.1 ms each
_MOST_REPLIES: Final = 16384  # under way; one peer has half of what others leave


@dataclass(slots=True)
class Incoming:
    """A request: its message, its source, by which of our NIDs it came, and the primary NID of who asks."""

    message: Message
    source: Nid
    target: Nid
    peer: Nid

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
        self._base = (wall() // 10**9 << 48) & _ID_MASK
        self._last = 0
        self._last_ping = -1
        self._scratch: memoryview | None = None
        self._inboxes: list[Inbox] = []
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._handler: Handler | None = None
        self._requests: Shares = Shares(_MOST_REQUESTS)  # since the handler serves
        self._turns: Turns | None = None  # since then, too: peers by turns
        self._port: Port | None = None
        self._replies: Shares = Shares(_MOST_REPLIES)  # in the life of the node that the port is of
        self._answers: Inbox | None = None  # in the life of the node that the port is of
        self._calls: dict[int, Call] = {}  # under way, by the match bits of their replies
        self._watch: Watch[Call] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.errors: int = 0
        self.sent: int = 0
        self.received = 0
        self.dropped = 0
        self.expired: int = 0
        self.rails: dict[Nid, RailCounters] = {}

    def next_id(self) -> int:
        """Match bits for a reply that nobody else uses."""
        self._last = (self._last + 1) & _COUNTED
        return self._base | self._last

    def next_bulk_id(self) -> int:
        """Match bits for bulk that nobody else uses."""
        return self.next_id() ^ _OF_BULK

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
        """Whether a request is under way or being served, or something is being sent."""
        return bool(self._requests.taken or self._tasks or self._calls) or (
            self._port is not None and self._port.busy
        )

    def serve(self, handler: Handler) -> None:
        """Take requests; each goes to `handler`, whose work is a task. Raises LNetError."""
        self.stop()
        self._handler = handler
        self._loop = asyncio.get_running_loop()
        self._requests = Shares(_MOST_REQUESTS)
        self._turns = Turns(self._loop, _AT_ONCE)
        try:
            for portal in (TEST_PORTAL, FRAMEWORK_PORTAL):
                arrived = self._arrived_at(portal)
                inbox = self.node.inbox(
                    portal, 0, ignore_bits=_ID_MASK, slots=_SLOTS, size=MESSAGE_SIZE, handler=arrived
                )
                self._inboxes.append(inbox)
            self._open_port()  # while the loop runs: event handlers need it
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Take no more requests, and give up those under way."""
        inboxes, self._inboxes = self._inboxes, []
        answers, self._answers = self._answers, None
        for inbox in inboxes if answers is None else [*inboxes, answers]:
            inbox.close()
        if self._turns is not None:
            self._turns.waiting.clear()
        self._requests = Shares(_MOST_REQUESTS)
        for task in list(self._tasks):
            task.cancel()
        for call in list(self._calls.values()):
            call.fail(LNetError(errno.ECANCELED, f"{call.target}: selftest was stopped on this node"))
        port, self._port = self._port, None
        if port is not None:
            port.close()

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
        turns, peer = self._turns, arrival.initiator
        if turns is None or not self._replies.may_take(peer):
            return False
        incoming = Incoming(message, arrival.source, arrival.target, peer)
        if portal == TEST_PORTAL:
            self._begin(incoming, None)
            return True
        requests = self._requests
        if not requests.take(peer):
            return False
        turns.add(peer, partial(self._begin, incoming, requests))
        return True

    def _begin(self, incoming: Incoming, requests: Shares | None) -> None:
        """Serve a request, which has one of `requests` if it waited, unless the node was shut down by now."""
        peer, work = incoming.peer, None
        try:
            if self._handler is not None and self.serving:
                work = self._handler(incoming)
        finally:
            if work is None and requests is not None:
                requests.give(peer)
        if work is None:
            return
        assert self._loop is not None
        task = self._loop.create_task(work)
        self._tasks[task] = None

        def over(task: asyncio.Task[None]) -> None:
            del self._tasks[task]
            if requests is not None:
                requests.give(peer)

        task.add_done_callback(over)

    def reply(self, incoming: Incoming, reply: Reply, features: int) -> None:
        """Answer a request, from the NID that it came to; what cannot be sent is counted.

        A peer that does not take its replies gets no more: further requests of it are dropped.
        """
        data = pack_message(Message(reply, features))
        port, peer = self.port, incoming.peer
        replies = self._replies
        if not replies.take(peer):
            self.dropped += 1
            return
        self.rail(incoming.target).answered += 1

        def left(error: int, text: str) -> None:
            replies.give(peer)
            if error:
                self.errors += 1

        port.send(
            incoming.source, BULK_PORTAL, incoming.request.rpyid, data, ended=left, source=incoming.target
        )

    @property
    def port(self) -> Port:
        """What sends, in this life of the node. Raises LNetError(ENETDOWN)."""
        port = self._port
        return self._open_port() if port is None or port.core is not self.node.core else port

    def _open_port(self) -> Port:
        port = self._port = Port(self.node.core)
        self._replies = Shares(_MOST_REPLIES)
        self._calls.clear()
        self._watch = Watch(asyncio.get_running_loop(), Call.expire)
        self._answers = self.node.inbox(
            BULK_PORTAL,
            self._base,
            ignore_bits=_COUNTED,
            slots=_SLOTS,
            size=MESSAGE_SIZE,
            handler=self._answered,
        )
        return port

    # Asking ----------------------------------------------------------------------------------------

    async def call(
        self, target: Nid, request: Request, features: int, *, timeout: float, bulk: Bulk | None = None
    ) -> Message:
        """Ask, and give the reply, once bulk was moved too where its status is 0.

        Raises LNetError: ETIMEDOUT, EPROTO (an answer that is none), and what sending raises. Memory of bulk
        may be in use then.
        """
        port, loop = self.port, asyncio.get_running_loop()
        watch, bits = self._watch, request.rpyid
        assert watch is not None
        call = Call(target, request, bulk, loop.create_future())
        self._calls[bits] = call
        watch.add(call, loop.time() + timeout)
        ended_well = False
        try:
            if bulk is not None:
                bulk.call = call
                bulk.open(port.core.memory, target)
            self.sent += 1
            service = request.SERVICE
            portal = FRAMEWORK_PORTAL if is_framework(service) else TEST_PORTAL
            data = pack_message(Message(request, features))
            port.send(target, portal, service, data, ended=call.left)
            message = await call.done
            ended_well = True
        except LNetError:
            if call.late:
                self.expired += 1
            else:
                self.errors += 1
            raise
        finally:
            self._calls.pop(bits, None)
            watch.discard(call)
            if bulk is not None:
                bulk.call = None
                if not (bulk.kept and ended_well):
                    bulk.close()
        rail = self.rail(call.rail)
        rail.answered += 1
        if bulk is not None and not bulk.optional and not call.status:
            if bulk.source:
                rail.bulk_get += bulk.size
            else:
                rail.bulk_put += bulk.size
        return message

    def _answered(self, arrival: Arrived) -> None:
        """A reply: to a call that is under way, by who was asked."""
        call = self._calls.get(arrival.match_bits)
        if call is None:
            return
        if not call.is_of(arrival):
            peer = self.node.core.peers.find(arrival.initiator)
            if peer is None or not peer.owns(call.target):
                return
        call.replied(arrival)
