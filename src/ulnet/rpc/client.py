"""A client of one service at one node: calls with replies, bulk and streams."""

from __future__ import annotations

import asyncio
import errno
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Self, SupportsIndex

from ulnet.core.md import Buffer
from ulnet.core.peer import Peer
from ulnet.core.status import LNetError
from ulnet.nid import Nid
from ulnet.node import Message, Node
from ulnet.node.port import Port
from ulnet.node.watch import Watch
from ulnet.rpc import settings
from ulnet.rpc.answer import Answer
from ulnet.rpc.asking import Asking
from ulnet.rpc.bulk import Loan, Meter, Progress, flat
from ulnet.rpc.checksum import Checksum, known
from ulnet.rpc.context import DEADLINE, clock_of
from ulnet.rpc.counters import ClientCounters
from ulnet.rpc.errors import RpcError, raised
from ulnet.rpc.estimate import Estimate
from ulnet.rpc.lane import Lane, Lanes
from ulnet.rpc.pending import AGAIN, Connection, Pending
from ulnet.rpc.service import bits_of, encoded
from ulnet.rpc.stream import Stream
from ulnet.wire.errors import WireError
from ulnet.wire.rpc import (
    BODY,
    CHECK,
    IDEMPOTENT,
    KNOWS_BATCH,
    KNOWS_XXH3,
    REPLY_PORTAL,
    REQUEST_PORTAL,
    STREAM,
    TRACEBACK,
    XXH3,
    Bulk,
    CallFrame,
    Connect,
    Connected,
    Kind,
    Note,
    Reply,
    call_overhead,
    frames_in,
    unpack,
)

__all__ = ["Client"]

_LEAST_PATIENCE: Final = 0.1
_FIRST_NETWORK: Final = 0.5  # seconds, before anything was observed
_FIRST_SERVICE: Final = 0.5
_LONGEST_FAREWELL: Final = 1.0
_MOST_FAREWELLS: Final = 4  # under way, to sessions and calls that nobody wants
_PAUSE: Final = 0.05  # before a third session for one call, doubled up to
_LONG_PAUSE: Final = 2.0
_MOST_METHODS: Final = 1024
_BULK_BITS: Final = 48
_MOST_CREDIT: Final = 1 << 20  # chunks: servers send no more ahead


class Client:
    """Calls a service at a node: `async with Client(node, "10.0.0.2@tcp", "files") as client:`.

    It connects with its first call. `slots` calls are under way at once, others wait. A call without time-out
    fails when nothing was heard of the server for `silence` seconds. `largest` is the size of frames that
    it takes, `credit` how many chunks of a stream may wait to be read. With `tracebacks` errors tell where
    handlers raised them. `random(bits)` gives random numbers. Raises RpcError(EINVAL), and TypeError.
    """

    def __init__(
        self,
        node: Node,
        target: Nid | str,
        service: str,
        *,
        slots: SupportsIndex = 64,
        silence: float = 60.0,
        largest: SupportsIndex = 16384,
        credit: SupportsIndex = 64,
        tracebacks: bool = False,
        random: Callable[[int], int] = secrets.randbits,
    ) -> None:
        example = 'Client(node, "10.0.0.2@tcp", "files")'
        settings.must_be_node(node, example)
        settings.must_be_target(target, service, example)
        self.node = node
        self.target: Nid = target if isinstance(target, Nid) else Nid.parse(target)
        self.service = service
        self.silence: float = settings.seconds("silence", silence)
        self.random = random
        self.counters: ClientCounters = ClientCounters()
        self.network: Estimate = Estimate(_FIRST_NETWORK)
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.clock: Callable[[], float] = clock_of(self.loop)
        self.closed: bool = False
        self.unanswered: int = 0  # bytes of the requests of which nothing was heard yet
        self._bits = bits_of(service)
        self._slots = settings.slots(slots)
        self._largest = settings.frame_size(largest)
        self._credit = settings.number("credit", credit, 1, _MOST_CREDIT)
        self._flags = TRACEBACK if tracebacks else 0
        self._services: dict[str, Estimate] = {}  # service times, by method
        self._inbox_bits = random(64)
        self._port = Port(node.core)
        self._lanes = Lanes(self._port)
        self.watch: Watch[Pending] = Watch(self.loop, Pending.due)
        self._inbox = node.inbox(
            REPLY_PORTAL,
            self._inbox_bits,
            slots=max(64, self._slots),
            size=self._largest,
            handler=self._arrived,
        )
        self._connection: Connection | None = None
        self._connections: dict[int, Connection] = {}  # those with calls, too
        self._connecting: asyncio.Task[Connection] | None = None
        self._farewells = 0
        self._asking = Asking(self.loop, self._port, str(self.target), service)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End it: calls under way fail with ESHUTDOWN, and the server forgets the session.

        Its node may be closed afterwards: the server has been told by then, or could not be for a second.
        """
        if self.closed:
            return
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        told: list[asyncio.Future[None]] = []
        for connection in list(self._connections.values()):
            for call in list(connection.calls.values()):
                call.fail(errno.ESHUTDOWN, "the client was closed")
            told.append(known := asyncio.get_running_loop().create_future())
            self._send_close(connection.id, partial(_set, known))
            connection.end()
        self._connection = None
        self.closed = True
        self.watch.close()
        try:
            if told:
                await asyncio.wait(told)
        finally:
            self._inbox.close()  # not sooner: what the server sent before it knew finds memory

    def _send_close(self, session: int, ended: Callable[[int, str], None]) -> None:
        frame = Note(session, 0, 0, 0, self._inbox_bits, Kind.CLOSE).pack()
        self.send(frame, ended, ack=True, timeout=_LONGEST_FAREWELL)

    def _end_unwanted(self, session: int) -> None:
        """One of an attempt that was given up; else the server forgets it when others want its place."""
        if self._farewells < _MOST_FAREWELLS:
            self._farewells += 1
            self._send_close(session, self._unwanted_ended)

    def _cancel_again(self, frame: Note) -> None:
        """The server works on a call that was given up: the CANCEL was lost, or is under way."""
        if self._farewells < _MOST_FAREWELLS:  # the others are told at their next notices
            self._farewells += 1
            note = Note(frame.session, frame.slot, frame.number, 0, self._inbox_bits, Kind.CANCEL)
            self.send(note.pack(), self._unwanted_ended)

    def _unwanted_ended(self, error: int, text: str) -> None:
        self._farewells -= 1

    @property
    def under_way(self) -> int:
        """How many calls are under way."""
        return sum(len(connection.calls) for connection in self._connections.values())

    def frames_under_way(self) -> list[bytes]:
        """The requests of the calls under way, as they were last sent."""
        calls = (call for connection in self._connections.values() for call in connection.calls.values())
        return [call.frame.pack() for call in calls]

    @property
    def node_is_closed(self) -> bool:
        """Whether its node was shut down."""
        return self._port.closed

    # Calls -----------------------------------------------------------------------------------------

    async def call(
        self,
        method: str,
        data: Any = None,
        *,
        into: bytearray | memoryview | None = None,
        bulk: Buffer | None = None,
        timeout: float | None = None,
        idempotent: bool = False,
        check: bool = False,
        progress: Progress | None = None,
    ) -> Answer:
        """Call a method, and wait for its reply.

        `data` are bytes, None or what msgspec encodes, of any size; `into` is memory that the handler may
        push to, `bulk` memory that it may pull from; they must be left alone meanwhile. `idempotent` calls
        may be executed more than once. `check` has bulk compared by a checksum. `progress(moved, total)`
        is called for each piece of `into` and `bulk` that was moved; what it raises ends the call, and is
        raised here. Raises RpcError.
        """
        plain = encoded(data)
        deadline = self._deadline(timeout)
        loans: list[Loan] = []
        meter = None if progress is None else Meter(progress)
        try:
            connection = self._connection or await self._session(method, deadline)
            frame = self._request(connection, method, plain, into, bulk, loans, meter)
            if idempotent:
                frame.flags |= IDEMPOTENT
            if check:
                frame.flags |= CHECK
                await self._sum(frame, deadline, loans)
            self.counters.calls += 1
            pending = self._begin_now(frame, deadline, None) or await self._begin(frame, deadline, None)
            try:
                reply = await pending.done
            finally:
                pending.release()
            if reply is AGAIN:
                reply = await self._again(frame, deadline, loans, pending.untouched)
            answer = self._answer(frame, reply)
            if check and into is not None:
                await self._compare(frame, reply, flat(into))
            return answer
        except asyncio.CancelledError:
            if meter is None or meter.failed is None:
                raise
            _uncancel()
            raise meter.failed from None
        finally:
            for loan in loans:
                loan.end()
            if meter is not None:
                meter.end()

    async def _again(
        self, frame: CallFrame, deadline: float | None, loans: list[Loan], untouched: bool
    ) -> Reply:
        """The reply to a call that is made again, in other sessions. Raises RpcError."""
        begun = not untouched  # it may have been executed in an earlier session
        pause = 0.0
        while True:
            await asyncio.sleep(pause)  # the server may forget each session at once
            pause = min(2 * pause or _PAUSE, _LONG_PAUSE)
            try:
                if frame.flags & CHECK:
                    await self._sum(frame, deadline, loans)
                pending = await self._begin(frame, deadline, None)
                try:
                    reply = await pending.done
                finally:
                    pending.release()
            except RpcError as failed:
                if begun and failed.executed == "no":
                    failed.executed = "unknown"
                raise
            if reply is not AGAIN:
                return reply
            begun = begun or not pending.untouched

    def stream(self, method: str, data: Any = None, *, timeout: float | None = None) -> Stream:
        """Call a stream: `async for chunk in client.stream("watch"):`. It is cancelled when it is closed."""
        return Stream(self, method, encoded(data), self._deadline(timeout), self._credit)

    async def begin_stream(self, method: str, data: Buffer, deadline: float | None, credit: int) -> Pending:
        """For `Stream`."""
        connection = self._connection or await self._session(method, deadline)
        loans: list[Loan] = []
        frame = self._request(connection, method, data, None, None, loans, None)
        if loans:
            size = loans[0].bulk.length
            loans[0].end()
            words = f"{size} bytes do not fit a frame of {connection.largest}: call a method"
            raise RpcError(errno.EMSGSIZE, f"{self.target}: {method}: data of a stream: {words}", "no")
        frame.flags |= STREAM
        frame.credit = credit
        return await self._begin(frame, deadline, asyncio.Event())

    def _deadline(self, timeout: float | None) -> float | None:
        """That of the call, and never later than that of the call that is being served here."""
        outer = DEADLINE.get()
        seconds = settings.timeout(timeout)
        if seconds is None:
            return outer
        mine = self.clock() + seconds
        return mine if outer is None else min(mine, outer)

    def _request(
        self,
        connection: Connection,
        method: str,
        data: Buffer,
        into: bytearray | memoryview | None,
        bulk: Buffer | None,
        loans: list[Loan],
        meter: Meter | None,
    ) -> CallFrame:
        """The frame of a call, and the memory that it lends. Raises RpcError."""
        largest = connection.largest
        try:
            overhead = call_overhead(method, sink=into is not None, source=bulk is not None)
        except WireError as bad:
            raise RpcError(errno.EINVAL, str(bad), "no") from None
        frame = CallFrame(0, 0, 0, 0, self._inbox_bits, method, data)
        frame.flags = self._flags
        if into is not None:
            frame.sink = self._lend(settings.memory("into", into), loans, writable=True, meter=meter).bulk
        source = None if bulk is None else settings.memory("bulk", bulk)
        size = data.nbytes if isinstance(data, memoryview) else len(data)
        if size + overhead > largest:
            if source is not None:
                raise RpcError(
                    errno.EMSGSIZE,
                    f"data of {size} bytes beside bulk: they share a frame of {largest} bytes; "
                    "put them into the bulk",
                    "no",
                )
            source, meter = flat(data), None
            frame.data = b""
            frame.flags |= BODY
        if source is not None:
            frame.source = self._lend(source, loans, writable=False, meter=meter).bulk
        return frame

    async def _sum(self, frame: CallFrame, deadline: float | None, loans: list[Loan]) -> None:
        """The checksum of what a call lends to be read, of the kind that the session has. Raises RpcError."""
        connection = self._connection or await self._session(frame.method, deadline)
        frame.flags = frame.flags | XXH3 if connection.knows & KNOWS_XXH3 else frame.flags & ~XXH3
        if frame.source is not None:
            checksum = Checksum(frame.flags & XXH3 != 0)
            await checksum.add(loans[-1].view)
            frame.source = Bulk(frame.source.bits, frame.source.length, checksum.value)

    def _lend(
        self,
        view: memoryview,
        loans: list[Loan],
        *,
        writable: bool,
        meter: Meter | None = None,
    ) -> Loan:
        if meter is not None:
            meter.total += view.nbytes
        bits = self.random(_BULK_BITS) << 16
        try:
            loan = Loan(self.node.core, view, bits, writable=writable, meter=meter)
        except RpcError:
            raise
        except LNetError as refused:
            raise RpcError(refused.errno, str(refused), "no") from None
        loans.append(loan)
        return loan

    async def _begin(self, frame: CallFrame, deadline: float | None, news: asyncio.Event | None) -> Pending:
        """The call in a slot of a session, sent. Raises RpcError."""
        while True:
            begun = self._begin_now(frame, deadline, news)
            if begun is not None:
                return begun
            await self._room(frame.method, deadline)

    def _begin_now(
        self, frame: CallFrame, deadline: float | None, news: asyncio.Event | None
    ) -> Pending | None:
        """The same, if there is a free slot."""
        connection = self._connection
        taken = connection.slots.take() if connection is not None else None
        if connection is None or taken is None:
            return None
        frame.session = connection.id
        frame.slot, frame.number = taken
        frame.attempt = 0
        pending = Pending(self, connection, frame, deadline, self.patience_of(frame.method), news)
        connection.calls[frame.slot] = pending
        try:
            pending.send()
        except BaseException:
            pending.release()
            raise
        return pending

    async def _session(self, method: str, deadline: float | None) -> Connection:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._connected()
        except TimeoutError:
            text = f"{self.target}: {method}: no session with {self.service!r} in time: {self._asking.why}"
            raise RpcError(errno.ETIMEDOUT, text, "no") from None

    async def _room(self, method: str, deadline: float | None) -> None:
        """Until there may be a session with a free slot. Raises RpcError."""
        try:
            async with asyncio.timeout_at(deadline):
                connection = await self._connected()
                if connection.slots.used_up:
                    self.session_is_stale(connection)
                elif connection.slots.full:
                    await connection.wait()
        except TimeoutError:
            why = "" if self._connection is not None else f": {self._asking.why}"
            text = f"{self.target}: {method}: no session, or no slot in it, in time{why}"
            raise RpcError(errno.ETIMEDOUT, text, "no") from None

    def _answer(self, frame: CallFrame, reply: Reply) -> Answer:
        """What a reply says. Raises RpcError."""
        if reply.status:
            raise raised(f"{self.target}: {frame.method}", reply)
        if reply.pushed:
            lent = frame.sink.length if frame.sink is not None else 0
            if reply.pushed > lent:
                words = f"{reply.pushed} bytes were pushed, which is more than the call lends: {lent}"
                raise RpcError(errno.EPROTO, f"{self.target}: {frame.method}: {words}", "yes")
        assert isinstance(reply.data, bytes)  # as `Pending.heard` has made them
        return Answer(reply.data, reply.pushed)

    async def _compare(self, frame: CallFrame, reply: Reply, into: memoryview) -> None:
        """The checksum of what was pushed with the reply's. Raises RpcError."""
        checksum = Checksum(frame.flags & XXH3 != 0)
        await checksum.add(into[: reply.pushed])
        if checksum.value != reply.checksum:
            words = f"bulk arrived with the checksum {checksum.value:#010x}: it is {reply.checksum:#010x}"
            raise RpcError(errno.EILSEQ, f"{self.target}: {frame.method}: {words}", "yes")

    # Times -----------------------------------------------------------------------------------------

    def patience_of(self, method: str) -> float:
        """How long a reply to that method is expected to take at most."""
        service = self._services.get(method)
        expected = _FIRST_SERVICE if service is None else service.expected
        return max(_LEAST_PATIENCE, self.network.expected + expected)

    def learn(self, method: str, total: float, service: float) -> None:
        """A call took that long, and its handler that much of it."""
        self.network.observe(total - service)
        known = self._services.get(method)
        if known is None:
            if len(self._services) >= _MOST_METHODS:
                return
            known = self._services[method] = Estimate(_FIRST_SERVICE)
        known.observe(service)

    # The session -----------------------------------------------------------------------------------

    async def _connected(self) -> Connection:
        """A session that the server knew when it was last heard. Raises RpcError."""
        connection = self._connection
        if connection is not None:
            return connection
        if self.closed:
            raise RpcError(errno.ESHUTDOWN, f"{self.target}: the client is closed", "no")
        task = self._connecting
        if task is None:
            task = self._connecting = self.loop.create_task(self._connect())
            task.add_done_callback(self._connected_or_not)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise RpcError(errno.ESHUTDOWN, f"{self.target}: the client was closed", "no") from None
            raise

    def _connected_or_not(self, task: asyncio.Task[Connection]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # each that waits gets it

    async def _connect(self) -> Connection:
        """Ask for a session until there is one, the service is not there, or nothing is heard."""
        give_up = self.clock() + self.silence
        patience = max(_LEAST_PATIENCE, self.network.expected)
        attempt = 0
        self._asking.begin()
        while self.clock() < give_up:
            attempt += 1
            frame = Connect(0, 0, 0, min(attempt, 0xFFFF), self._inbox_bits)
            frame.slots, frame.largest, frame.token = self._slots, self._largest, self.random(64)
            frame.knows = known() | KNOWS_BATCH
            nids = tuple(nid for nid in self.node.core.nis if not nid.is_lo)
            frame.nids = nids if len(nids) > 1 else ()
            self.send(frame.pack(), self._asking.ask(frame.token), ack=True)
            if attempt > 1:
                self.look_for_server(attempt)
            got = await self._asking.answer(patience)
            if got is None:
                patience = min(2 * patience, 8.0)
                continue
            room = got.largest if got.knows & KNOWS_BATCH else 0
            # fmt: off
            lane = Lane(self._lanes, got.session, self.target, REQUEST_PORTAL, self._bits, None, room,
                        _request_failed)
            # fmt: on
            connection = Connection(got.session, got.slots, got.largest, got.knows, lane)
            self._connection = self._connections[got.session] = connection
            self.counters.sessions += 1
            return connection
        text = f"{self.target}: no session with {self.service!r}: {self._asking.why}"
        raise RpcError(errno.ETIMEDOUT, text, "no")

    def session_is_stale(self, connection: Connection) -> None:
        """The server does not know it any more: the next call makes another."""
        connection.end()
        if self._connection is connection:
            self._connection = None
            self.look_for_server(2)
        self._connections = {
            number: other for number, other in self._connections.items() if other.calls or not other.stale
        }

    def look_for_server(self, attempt: int) -> None:
        """It does not answer, or began anew: ask it for its NIDs (with each power of two of attempts)."""
        if attempt & (attempt - 1) or not self.node.running:
            return
        try:
            self.node.core.discover(self.target, done=_found)
        except LNetError:
            pass  # the next attempt says so

    # Frames ----------------------------------------------------------------------------------------

    def send(
        self,
        frame: bytes,
        ended: Callable[[int, str], None],
        *,
        ack: bool = False,
        timeout: float | None = None,
        method: str | None = None,
    ) -> None:
        """A frame to the server."""
        # fmt: off
        self._port.send(self.target, REQUEST_PORTAL, self._bits, frame, ended=ended, ack=ack,
                        timeout=timeout, method=method)
        # fmt: on

    def _arrived(self, message: Message) -> None:
        now = self.clock()
        try:
            frames = frames_in(message.data)
        except WireError:
            self.counters.malformed += 1
            return
        for raw in frames:
            try:
                frame = unpack(raw)
            except WireError:
                self.counters.malformed += 1
                continue
            connection = self._connections.get(frame.session)
            call = connection.calls.get(frame.slot) if connection is not None else None
            if isinstance(frame, Connected):
                if not self._asking.connected(frame) and frame.session not in self._connections:
                    self._end_unwanted(frame.session)
            elif call is not None and call.frame.number == frame.number:
                call.heard(frame, now)
            elif connection is not None and isinstance(frame, Note) and frame.kind is Kind.WORKING:
                self._cancel_again(frame)
            elif frame.session or not self._asking.refused(frame):
                self.counters.malformed += 1


def _set(known: asyncio.Future[None], error: int, text: str) -> None:
    if not known.done():
        known.set_result(None)


def _request_failed(call: Pending, error: int, text: str) -> None:
    call.left(error, text)


def _uncancel() -> None:
    """What has cancelled this task is raised by it instead."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()


def _found(error: LNetError | None, peer: Peer | None) -> None:
    """Messages use what was found."""
