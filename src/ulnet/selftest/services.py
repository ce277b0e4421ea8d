"""The test services, brw and ping: what answers them on a node, and what a test's units do."""

from __future__ import annotations

import asyncio
import errno
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Final

from ulnet.core.status import LNetError
from ulnet.nid import Nid
from ulnet.node.turns import Turns
from ulnet.selftest.exchange import Bulk, Exchange, Incoming
from ulnet.selftest.pattern import blank, is_intact, source_data
from ulnet.selftest.places import Places
from ulnet.wire.selftest import BULK_PORTAL, MAX_BULK, PAGE
from ulnet.wire.selftest_bodies import BrwReply, BrwRequest, PingReply, PingRequest
from ulnet.wire.selftest_values import BULK_LEN, FEATURES, BulkBytes, BulkPages, Check, Direction

__all__ = ["PING_MAGIC", "BrwClient", "PingClient", "TestClient", "TestServices", "brw_parameters"]

PING_MAGIC: Final = 0xBABEFACE
_BULK_AT_ONCE: Final = 128  # bulk that a server moves at the same time
_MOST_WAITING: Final = 32768  # requests that wait for that; one peer may have half of it
_AT_ONCE: Final = 8  # bulks that begin in one turn of the loop: 0.1 ms each
_MOST_SPARE: Final = 32
_CHECKED: Final = (Check.SIMPLE, Check.FULL)


class TestServices:
    """Answers to brw and ping. `failed` hears of data that came corrupted, `tell` of the answers of brw."""

    __test__ = False

    def __init__(
        self,
        exchange: Exchange,
        failed: Callable[[Nid], None],
        tell: Callable[[Incoming, BrwReply], None],
        *,
        timeout: float,
    ) -> None:
        self._exchange = exchange
        self._failed = failed
        self._tell = tell
        self._timeout = timeout
        self._places: Places[Incoming] = Places(_BULK_AT_ONCE, _MOST_WAITING, self._in_turn)
        self._turns: Turns | None = None  # of what has a place, in the life of the node
        self._spare: list[bytearray] = []

    def ping(self, incoming: Incoming, features: int | None) -> PingReply | None:
        """The echo; None for what is no ping. `features` are those of the session, if there is one."""
        request = incoming.request
        assert isinstance(request, PingRequest)
        if request.magic != PING_MAGIC:
            return None
        status = errno.EPROTO if _foreign(incoming, features) else 0
        return PingReply(status, request.magic, request.sequence)

    def brw(self, incoming: Incoming, features: int | None) -> None:
        """Move the bulk, check it, and tell."""
        request = incoming.request
        assert isinstance(request, BrwRequest)
        if _foreign(incoming, features):
            self._tell(incoming, BrwReply(errno.EPROTO))
        elif not _can_be(request, incoming.message.features):
            self._tell(incoming, BrwReply(errno.EINVAL))
        elif not self._places.offer(incoming.peer, incoming):
            self._tell(incoming, BrwReply(errno.ENOMEM))

    def start(self) -> None:
        """Serve anew."""
        self.forget()
        self._turns = Turns(asyncio.get_running_loop(), _AT_ONCE)

    def forget(self) -> None:
        """Nothing is served any more: what was under way was given up."""
        self._places.clear()
        if self._turns is not None:
            self._turns.waiting.clear()

    def _in_turn(self, incoming: Incoming) -> None:
        """Begin, in one of the next turns: what cannot begin leaves its place to the next one at once."""
        assert self._turns is not None
        self._turns.add(incoming.peer, partial(self._begin, incoming))

    def _begin(self, incoming: Incoming) -> None:
        if not self._exchange.serving:  # the node was shut down while it waited
            return
        request = incoming.request
        assert isinstance(request, BrwRequest)
        port = self._exchange.port
        source, bits = incoming.source, request.bulkid
        if request.direction == Direction.READ:
            data = source_data(request.length, request.check == Check.SIMPLE)
            sent = partial(self._sent, incoming, request)
            # fmt: off
            port.send(source, BULK_PORTAL, bits, data, ended=sent, source=incoming.target,
                      timeout=self._timeout)
            # fmt: on
            return
        buffer = None
        if request.check in _CHECKED:
            buffer = self._memory(request.length)
            blank(buffer)
        memory = self._exchange.scratch(request.length) if buffer is None else memoryview(buffer)
        came = partial(self._came, incoming, request, buffer)
        # fmt: off
        port.fetch(source, BULK_PORTAL, bits, memory, ended=came, source=incoming.target,
                   timeout=self._timeout)
        # fmt: on

    def _sent(self, incoming: Incoming, request: BrwRequest, error: int, text: str) -> None:
        if not error:
            self._exchange.rail(incoming.target).bulk_put += request.length
        self._end(incoming, error)

    def _came(
        self, incoming: Incoming, request: BrwRequest, buffer: bytearray | None, error: int, text: str
    ) -> None:
        if error == errno.EPROTO:  # less than there should be
            self._corrupted(incoming)
            return
        if error:
            self._end(incoming, error)
            return
        self._exchange.rail(incoming.target).bulk_get += request.length
        if buffer is not None:
            intact = is_intact(buffer, request.check, incoming.message.byteorder)
            if len(self._spare) < _MOST_SPARE:  # after an error it may be in use still
                self._spare.append(buffer)
            if not intact:
                self._corrupted(incoming)
                return
        self._end(incoming, 0)

    def _corrupted(self, incoming: Incoming) -> None:
        self._failed(incoming.source)
        self._end(incoming, 0, errno.EBADMSG)

    def _end(self, incoming: Incoming, error: int, status: int = 0) -> None:
        """Tell, and let the next one begin."""
        if error:
            self._exchange.errors += 1
        self._tell(incoming, BrwReply(error or status))
        self._places.end(incoming.peer)

    def _memory(self, length: int) -> bytearray:
        if self._spare:
            spare = self._spare.pop()
            if len(spare) == length:
                return spare
        return bytearray(length)


def _foreign(incoming: Incoming, features: int | None) -> bool:
    """Whether a test's request has features that the node, or its session, has not."""
    own = incoming.message.features
    return bool(own & ~FEATURES) or (features is not None and own != features)


def _can_be(request: BrwRequest, features: int) -> bool:
    return (
        request.direction in (Direction.READ, Direction.WRITE)
        and Check.NONE <= request.check <= Check.DISCARD
        and 0 < request.length <= MAX_BULK
        and (bool(features & BULK_LEN) or request.length % PAGE == 0)
    )


# Units of tests ----------------------------------------------------------------------------------------


class TestClient(ABC):
    """What one unit of a test sends to one node, again and again."""

    __test__ = False

    def __init__(self, exchange: Exchange, target: Nid, features: int, timeout: float) -> None:
        self.exchange = exchange
        self.target = target
        self.features = features
        self.timeout = timeout
        self._kept: Bulk | None = None  # memory that serves all its requests, while they end well

    @abstractmethod
    async def once(self) -> None:
        """One request. Raises LNetError for whatever goes wrong."""

    def close(self) -> None:
        """It asks no more."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()


class PingClient(TestClient):
    """Pings; their sequence numbers are those of the whole node."""

    async def once(self) -> None:
        """One ping, which has to be echoed."""
        sequence, bits, now = self.exchange.next_ping(), self.exchange.next_id(), self.exchange.wall()
        ping = PingRequest(bits, PING_MAGIC, sequence, now // 10**9, now % 10**9)
        message = await self.exchange.call(self.target, ping, self.features, timeout=self.timeout)
        reply = message.body
        assert isinstance(reply, PingReply)
        if reply.status:
            raise LNetError(reply.status, f"{self.target}: the ping was refused")
        if (reply.magic, reply.sequence) != (PING_MAGIC, sequence):
            raise LNetError(errno.EBADMSG, f"{self.target}: the echo of the ping is another one's")


def brw_parameters(parameters: BulkBytes | BulkPages) -> BulkBytes | None:
    """What a brw test is to do, in bytes; None where that cannot be."""
    if isinstance(parameters, BulkPages):
        length = parameters.pages * PAGE
        parameters = BulkBytes(parameters.direction, parameters.check, length, 0)
    request = BrwRequest(0, 0, parameters.direction, parameters.length, parameters.check)
    fits = parameters.offset % 8 == 0 and parameters.offset < PAGE
    return parameters if fits and _can_be(request, BULK_LEN) else None


class BrwClient(TestClient):
    """Bulk in one direction, in memory of its own where it is checked here."""

    def __init__(
        self, exchange: Exchange, target: Nid, features: int, timeout: float, parameters: BulkBytes
    ) -> None:
        super().__init__(exchange, target, features, timeout)
        self._parameters = parameters
        self._sink = bytearray()

    async def once(self) -> None:
        """One request, with its bulk, whose data have to be intact."""
        exchange = self.exchange
        direction, check, length, offset = self._parameters
        reads = direction == Direction.READ
        sink: bytearray | None = None
        if not reads:
            bulk = self._source_bulk(length, check)
        elif check in _CHECKED:
            sink = self._memory()
            bulk = Bulk(exchange.next_bulk_id(), sink, length, source=False)
        else:
            bulk = Bulk(exchange.next_bulk_id(), exchange.scratch(length), length, source=False)
        request = BrwRequest(exchange.next_id(), bulk.bits, direction, length, check)
        try:
            message = await exchange.call(
                self.target, request, self.features, timeout=self.timeout, bulk=bulk
            )
        except BaseException:
            self._kept = None
            raise
        assert isinstance(message.body, BrwReply)
        if message.body.status:
            raise LNetError(message.body.status, f"{self.target}: brw failed there")
        if sink is not None:
            self._sink = sink  # it is not in use any more
            if not is_intact(sink, check, message.byteorder, offset):
                raise LNetError(errno.EBADMSG, f"{self.target}: data of brw came corrupted")

    def _source_bulk(self, length: int, check: int) -> Bulk:
        bulk = self._kept
        if bulk is None:
            memory = source_data(length, check == Check.SIMPLE)
            bulk = Bulk(self.exchange.next_bulk_id(), memory, length, source=True, kept=True)
            self._kept = bulk
        return bulk

    def _memory(self) -> bytearray:
        memory, self._sink = self._sink, bytearray()
        if not memory:
            memory = bytearray(self._parameters.length)
        blank(memory)
        return memory
