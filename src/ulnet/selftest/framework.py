"""The framework services of a node: one session, its batches and tests, counters (spec selftest.md §3)."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from ulnet.core.md import MAX_FRAGMENTS
from ulnet.core.notices import Notices
from ulnet.core.status import LNetError
from ulnet.nid import Nid, NidError
from ulnet.node.turns import Turns
from ulnet.selftest.exchange import Exchange, Incoming
from ulnet.selftest.places import Places
from ulnet.selftest.services import BrwClient, PingClient, TestClient, brw_parameters
from ulnet.selftest.sessions import ASK_AT_ONCE, Batch, Needs, Session, Test
from ulnet.selftest.targets import PER_PAGE, read_targets, targets_size
from ulnet.wire.selftest import BULK_PORTAL
from ulnet.wire.selftest_bodies import (
    BatchReply,
    BatchRequest,
    DebugReply,
    DebugRequest,
    MakeSessionReply,
    MakeSessionRequest,
    RailsReply,
    RailsRequest,
    RemoveSessionReply,
    RemoveSessionRequest,
    Reply,
    StatReply,
    StatRequest,
    TestReply,
    TestRequest,
)
from ulnet.wire.selftest_values import (
    ANY_SESSION,
    FEATURES,
    RAILS_KNOWN,
    BatchOp,
    BulkBytes,
    BulkPages,
    Check,
    Direction,
    FrameworkCounters,
    LnetCounters,
    PingParameters,
    Service,
    SessionId,
)

__all__ = ["Framework"]

_MOST_CONCURRENT: Final = 1024
_MOST_TARGETS: Final = MAX_FRAGMENTS * PER_PAGE
_MOST_BATCHES: Final = 1024
_MOST_TESTS: Final = 1024  # of a batch
_LISTS_AT_ONCE: Final = 16  # lists of targets that are fetched at the same time
_MOST_WAITING: Final = 64  # orders that wait for that; one peer may have half of it
_MOST_LINES: Final = 16  # a second, about requests of tests that failed
_U32: Final = 0xFFFFFFFF
_U64: Final = (1 << 64) - 1

_log = logging.getLogger("ulnet.selftest")
R = TypeVar("R", bound=Reply)


class Framework:
    """The session that a node has now, and those whose last requests are still under way.

    A session of which nobody asks anything for `session_timeout` seconds ends (0: never).
    """

    def __init__(self, exchange: Exchange, *, session_timeout: float, rpc_timeout: float) -> None:
        self._exchange = exchange
        self.session_timeout = session_timeout
        self.rpc_timeout = rpc_timeout
        self.session: Session | None = None
        self.zombies: set[Session] = set()
        self._places: Places[asyncio.Future[None]] = Places(_LISTS_AT_ONCE, _MOST_WAITING, _begin)
        self._ending: dict[asyncio.Task[None], None] = {}
        self._timer: asyncio.TimerHandle | None = None
        # Both serve all sessions: anybody may put an end to one, and begin another.
        self._turns: Turns | None = None  # of units that ask
        self._notices = Notices(_now, _log.warning, _MOST_LINES)

    @property
    def sid(self) -> SessionId:
        """The ID of the session, or of none."""
        return self.session.id if self.session is not None else ANY_SESSION

    @property
    def features(self) -> int:
        """What replies say."""
        return self.session.features if self.session is not None else FEATURES

    def data_corrupted(self, source: Nid) -> None:
        """A server of this node got data that are not what a source sends."""
        if self.session is not None:
            text = f"{source}: data of brw came corrupted from there"
            self.session.failed(Service.BRW, LNetError(errno.EBADMSG, text))

    async def answer(self, incoming: Incoming) -> Reply | None:
        """Do what a request asks; None is for what gets no answer."""
        self._stop_timer()
        try:
            request = incoming.request
            session = self.session
            foreign = session is not None and incoming.message.features != session.features
            match request:
                case MakeSessionRequest():
                    return self._make_session(request, incoming.message.features)
                case DebugRequest():
                    return self._debug()
                case RemoveSessionRequest():
                    return RemoveSessionReply(errno.EPROTO, self.sid) if foreign else self._remove(request)
                case BatchRequest():
                    return BatchReply(errno.EPROTO, self.sid) if foreign else self._batch(request)
                case StatRequest():
                    return StatReply(errno.EPROTO, self.sid) if foreign else self._stat(request)
                case RailsRequest():
                    return RailsReply(errno.EPROTO, self.sid) if foreign else self._rails(request)
                case TestRequest():
                    status = errno.EPROTO if foreign else await self._add_test(request, incoming)
                    return TestReply(status, self.sid)
            return None
        finally:
            self._start_timer()

    # Sessions --------------------------------------------------------------------------------------

    def _make_session(self, request: MakeSessionRequest, features: int) -> MakeSessionReply:
        session = self.session
        status = 0
        if request.sid.nid == ANY_SESSION.nid:
            return MakeSessionReply(errno.EINVAL, self.sid)
        if session is not None and session.id == request.sid:
            session.refs += 1
        elif session is not None and not request.force:
            return MakeSessionReply(errno.EBUSY, session.id, self._timeout, session.name)
        elif features & ~FEATURES:
            status = errno.EPROTO
        else:
            self.end_session()
            self.session = Session(request.sid, request.name, features, _now(), self._notices)
        return MakeSessionReply(status, self.sid, self._timeout, mark=RAILS_KNOWN)

    @property
    def _timeout(self) -> int:
        return int(self.session_timeout) & _U32

    def _remove(self, request: RemoveSessionRequest) -> RemoveSessionReply:
        session = self.session
        if session is None:
            return RemoveSessionReply(errno.ESRCH)
        if session.id != request.sid:
            return RemoveSessionReply(errno.EBUSY, session.id)
        session.refs -= 1
        if not session.refs:
            self.end_session()
        return RemoveSessionReply(0, self.sid)

    def end_session(self) -> None:
        """Give up the tests of the session, if there is one, and forget it."""
        session, self.session = self.session, None
        self._stop_timer()
        if session is None:
            return
        session.abort()
        if session.active:
            self.zombies.add(session)
            task = asyncio.get_running_loop().create_task(self._bury(session))
            self._ending[task] = None
            task.add_done_callback(self._ending.pop)

    async def _bury(self, session: Session) -> None:
        for batch in session.batches.values():
            for test in batch.tests:
                while test.units:  # to wait for tens of thousands together takes half a second
                    await asyncio.wait([next(reversed(test.units))])
        self.zombies.discard(session)

    async def ended(self) -> None:
        """Wait for the last requests of sessions that have ended."""
        while self._ending:
            await asyncio.wait(self._ending)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start_timer(self) -> None:
        self._stop_timer()
        if self.session is not None and self.session_timeout:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self.session_timeout, self.end_session)

    def _debug(self) -> DebugReply:
        session = self.session
        if session is None:
            return DebugReply(errno.ESRCH)
        return DebugReply(0, session.id, self._timeout, len(session.batches), session.name)

    # Statistics ------------------------------------------------------------------------------------

    def _stat(self, request: StatRequest) -> StatReply:
        session = self.session
        if request.sid.nid == ANY_SESSION.nid:
            return StatReply(errno.EINVAL, self.sid)
        if session is None or session.id != request.sid:
            return StatReply(errno.ESRCH, self.sid)
        running = _now() - session.began
        # fmt: off
        framework = FrameworkCounters(
            int(running * 1000) & _U32, session.active, len(self.zombies), session.brw_errors & _U32,
            session.ping_errors & _U32,
        )
        # fmt: on
        return StatReply(0, session.id, framework, self._exchange.counters(), self._lnet_counters())

    def _lnet_counters(self) -> LnetCounters:
        core = self._exchange.node.core
        core.settle()
        stats = core.stats
        # fmt: off
        counts = (
            stats.msgs_alloc, stats.msgs_max, stats.errors, stats.send_count, stats.recv_count,
            stats.route_count, stats.drop_count,
        )
        # fmt: on
        lengths = (stats.send_length, stats.recv_length, stats.route_length, stats.drop_length)
        return LnetCounters._make((*(count & _U32 for count in counts), *lengths))

    def _rails(self, request: RailsRequest) -> RailsReply:
        session = self.session
        if session is None or session.id != request.sid:
            return RailsReply(errno.ESRCH, self.sid)
        rails = [(nid, one) for nid, one in self._exchange.all_rails().items() if not nid.is_large]
        if request.index >= len(rails):
            return RailsReply(errno.ENOENT, session.id, len(rails))
        nid, rail = rails[request.index]
        # fmt: off
        return RailsReply(
            0, session.id, len(rails), nid.nid4, rail.bulk_get & _U64, rail.bulk_put & _U64,
            rail.answered & _U32, rail.errors & _U32,
        )
        # fmt: on

    # Tests and batches -----------------------------------------------------------------------------

    async def _add_test(self, request: TestRequest, incoming: Incoming) -> int:
        """The errno, or 0."""
        if not _can_be(request):
            return errno.EINVAL
        session = self.session
        if session is None or session.id != request.sid:
            return errno.ENOENT
        needs = _needs(request)
        refused = _takes_no_test(session, request.batch, needs)
        if refused:
            return refused
        clients: Callable[[], Iterable[TestClient]] | None = None
        if request.is_client:
            try:
                targets = await self._targets_in_turn(session, request, incoming)
            except LNetError as failed:
                return failed.errno
            if self.session is not session:
                return errno.ENOENT
            refused = _takes_no_test(session, request.batch, needs)
            if refused:
                return refused
            clients = self._clients_of(request, session, targets)
        batch = session.batches.get(request.batch)
        if batch is None:
            batch = session.batches[request.batch] = Batch(session.room)
        service = Service(request.service)
        stops = bool(request.stop_on_error)
        if self._turns is None:
            self._turns = Turns(asyncio.get_running_loop(), ASK_AT_ONCE)
        batch.add(
            Test(service, request.loop, stops, clients, session.failed, self._turns, batch.changed, needs)
        )
        return 0

    async def _targets_in_turn(self, session: Session, request: TestRequest, incoming: Incoming) -> list[Nid]:
        """The nodes that a client is to ask, once few others are being told theirs. Raises LNetError."""
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._places.offer(incoming.peer, begun):
            raise LNetError(
                errno.ENOMEM,
                f"{incoming.peer}: too many of its orders wait for their lists: order fewer at a time",
            )
        try:
            await begun
            if self.session is not session:
                raise LNetError(errno.ENOENT, f"{incoming.peer}: the session has ended")
            return await self._fetch_targets(request, incoming)
        finally:
            self._places.give_up(incoming.peer, begun)

    async def _fetch_targets(self, request: TestRequest, incoming: Incoming) -> list[Nid]:
        buffer = bytearray(targets_size(request.targets, incoming.message.features))
        got = await self._exchange.node.get(
            incoming.source, BULK_PORTAL, request.bulkid, buffer, source=incoming.target
        )
        self._exchange.rail(incoming.target).bulk_get += got
        try:
            return read_targets(memoryview(buffer)[:got], request.targets, incoming.message.byteorder)
        except (ValueError, NidError) as bad:
            raise LNetError(errno.EPROTO, f"{incoming.source}: a list of nodes that is none: {bad}") from None

    def _clients_of(
        self, request: TestRequest, session: Session, targets: list[Nid]
    ) -> Callable[[], Iterable[TestClient]]:
        exchange, timeout, features = self._exchange, self.rpc_timeout, session.features
        each = range(request.concurrency)
        if request.service == Service.PING:
            return lambda: (
                PingClient(exchange, target, features, timeout) for target in targets for _ in each
            )
        assert isinstance(request.parameters, BulkBytes | BulkPages)
        bulk = brw_parameters(request.parameters)
        assert bulk is not None
        return lambda: (
            BrwClient(exchange, target, features, timeout, bulk) for target in targets for _ in each
        )

    def _batch(self, request: BatchRequest) -> BatchReply | None:
        session = self.session
        if session is None or session.id != request.sid:
            return BatchReply(errno.ESRCH, self.sid)
        batch = session.batches.get(request.batch)
        if batch is None:
            return BatchReply(errno.ENOENT, session.id)
        if request.op == BatchOp.RUN:
            if not session.may_run(batch):
                return BatchReply(errno.ENOMEM, session.id)
            batch.run()
        elif request.op == BatchOp.STOP:
            batch.stop(at_once=bool(request.arg))
        elif request.op != BatchOp.QUERY:
            return None
        elif request.index > len(batch.tests):
            return BatchReply(errno.ENOENT, session.id)
        elif request.index:
            return BatchReply(0, session.id, batch.tests[request.index - 1].busy)
        return BatchReply(0, session.id, batch.active)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _begin(turn: asyncio.Future[None]) -> None:
    if not turn.done():  # else it was given up in this turn of the loop
        turn.set_result(None)


def _takes_no_test(session: Session, number: int, needs: Needs) -> int:
    """The errno where a batch runs, or has all that it may have; else 0."""
    batch = session.batches.get(number)
    if batch is None:
        if len(session.batches) >= _MOST_BATCHES:
            return errno.ENOMEM
        batch = Batch(session.room)
    if batch.active:
        return errno.EBUSY
    full = len(batch.tests) >= _MOST_TESTS or not session.takes(needs, batch)
    return errno.ENOMEM if full else 0


def _can_be(request: TestRequest) -> bool:
    if request.sid.nid == ANY_SESSION.nid or not request.loop:
        return False
    if not 0 < request.concurrency <= _MOST_CONCURRENT or request.targets > _MOST_TARGETS:
        return False
    if request.service not in (Service.BRW, Service.PING) or (request.is_client and not request.targets):
        return False
    parameters = request.parameters
    if isinstance(parameters, BulkBytes | BulkPages):
        return brw_parameters(parameters) is not None
    return isinstance(parameters, PingParameters)


def _needs(request: TestRequest) -> Needs:
    """What a client's units take of this node."""
    if not request.is_client:
        return Needs()
    units = request.targets * request.concurrency
    parameters = request.parameters
    sinks = 0
    if isinstance(parameters, BulkBytes | BulkPages):
        bulk = brw_parameters(parameters)
        assert bulk is not None
        checked = bulk.check in (Check.SIMPLE, Check.FULL) and bulk.direction == Direction.READ
        sinks = bulk.length if checked else 0
    return Needs(request.targets, units, units * sinks)
