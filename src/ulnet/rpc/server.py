"""A service on a node: requests in, handlers, replies out."""

from __future__ import annotations

import asyncio
import errno
import secrets
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any, Final, Self, SupportsIndex

from ulnet.node import Message, Node
from ulnet.node.port import Port
from ulnet.node.shares import Shares
from ulnet.node.turns import Turns
from ulnet.node.watch import Watch
from ulnet.rpc import settings
from ulnet.rpc.admission import Admission
from ulnet.rpc.bulk import PieceLimits, Stalled
from ulnet.rpc.call import Call
from ulnet.rpc.checksum import known
from ulnet.rpc.context import DEADLINE, clock_of
from ulnet.rpc.counters import MethodCounters, ServerCounters
from ulnet.rpc.errors import RpcError
from ulnet.rpc.estimate import Estimate
from ulnet.rpc.failures import Failures, told
from ulnet.rpc.handlers import Closing
from ulnet.rpc.incoming import Incoming
from ulnet.rpc.introspection import METHODS, TYPES, TypesTold, methods_told
from ulnet.rpc.notices import Notices
from ulnet.rpc.replies import Replies, head_of, reply_of
from ulnet.rpc.runner import Runner
from ulnet.rpc.service import Method, NotOfType, Service, check_served, encoded
from ulnet.rpc.sessions import Session, Sessions, Verdict
from ulnet.rpc.under_way import UnderWay
from ulnet.wire.lnet import LNET_MTU
from ulnet.wire.rpc import (
    BODY,
    KNOWS_BATCH,
    REQUEST_PORTAL,
    STREAM,
    TRACEBACK,
    VERSION,
    XXH3,
    CallFrame,
    Connect,
    Connected,
    Frame,
    Kind,
    Note,
    OtherVersion,
    Refused,
    Reply,
)

__all__ = ["Server"]

_NEW: Final = Verdict.NEW
_KEEP: Final = 60.0  # seconds that a reply is kept, or until the deadline of its call
_REPLY_SIZE: Final = 64  # and more than what a reply has beside its data
_LONG_WAIT: Final = 2000  # milliseconds, twice what a client waits by itself
_CREDIT_AHEAD: Final = 1 << 20
_BODIES: Final = 4  # that begin to come in a turn of the loop: each begins a transfer


class Server:
    """Serves a service: `async with Server(service, node):`.

    `concurrency` handlers run at once, `queue` requests wait, `queue_bytes` of data at most; `streams` run
    beside them, and of these a client has as many as are left, at most. There are `sessions` clients with
    `slots` calls each; `reply_bytes` of replies are kept, and about as many are under way. `largest` is the
    size of frames that it takes, `window` how many pieces of bulk of a call are under way at once, `piece`
    how many bytes the first have; where they come fast, the next have more.
    `random(bits)` gives random numbers. Raises RpcError(EINVAL), and TypeError.
    """

    def __init__(
        self,
        service: Service,
        node: Node,
        *,
        concurrency: SupportsIndex = 64,
        queue: SupportsIndex = 1024,
        queue_bytes: SupportsIndex = 256 << 20,
        streams: SupportsIndex = 8192,
        sessions: SupportsIndex = 4096,
        slots: SupportsIndex = 64,
        reply_bytes: SupportsIndex = 64 << 20,
        largest: SupportsIndex = 16384,
        window: SupportsIndex = 16,
        piece: SupportsIndex = LNET_MTU,
        random: Callable[[int], int] = secrets.randbits,
    ) -> None:
        check_served(service)
        settings.must_be_node(node, "Server(service, node)")
        self.service = service
        self.node = node
        self.incarnation: int = random(64)
        self.counters: ServerCounters = ServerCounters()
        self.method_counters: dict[str, MethodCounters] = {}
        self._methods = {
            METHODS: Method(METHODS, partial(methods_told, self), "call", body=False),
            TYPES: Method(TYPES, TypesTold(service), "call", body=False),
        }
        places = settings.number("concurrency", concurrency, 1)
        self._queue_bytes = settings.number("queue_bytes", queue_bytes, 0)
        self._admission: Admission[Call] = Admission(
            places, settings.number("queue", queue, 0), self._queue_bytes
        )
        self._room = UnderWay(self._queue_bytes)
        self._streams = Shares(settings.number("streams", streams, 0))
        self._reply_bytes = settings.number("reply_bytes", reply_bytes, 0)
        most = settings.number("sessions", sessions, 1)
        self._sessions: Sessions[Call] = Sessions(most, self._reply_bytes)
        self._slots = settings.slots(slots)
        self._largest = settings.frame_size(largest)
        first = settings.number("piece", piece, 0)
        self._pieces = PieceLimits.of(settings.number("window", window, 0), first)
        self._random = random
        self._service_time = Estimate(0.01)
        self._purge: asyncio.TimerHandle | None = None
        self._closed = True

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def start(self) -> None:
        """Begin to serve. Raises LNetError."""
        self._loop = asyncio.get_running_loop()
        self._clock = clock_of(self._loop)
        context = copy_context()
        context.run(DEADLINE.set, None)
        self._context = context
        self._failures = Failures(self.service.name, self._clock)
        self._fetches: set[asyncio.Task[Any]] = set()
        self._turns = Turns(self._loop)
        self._bodies = Turns(self._loop, _BODIES)
        self._incoming = Incoming(self._loop, self.counters, self._serve)
        self._runner = Runner(self._loop, context, self._begin, self._ended, self._failed, self._others_wait)
        self._replies = Replies(Port(self.node.core), self._reply_bytes)
        self._notices = Notices(self._loop, self._replies, self._overdue, self._client_is_gone)
        self._watch: Watch[Call] = self._notices.watch
        self._inbox = self.node.inbox(
            REQUEST_PORTAL,
            self.service.match_bits,
            slots=256,
            size=self._largest,
            handler=self._incoming.arrived,
        )
        self._closed = False

    async def close(self) -> None:
        """Take nothing new, and cancel what runs: its clients are told."""
        if self._closed:
            return
        self._closed = self._replies.closed = self._incoming.closed = True
        self._inbox.close()
        for call in self._watch.items():
            if not call.over:
                self._cancel(call)
        await asyncio.gather(*self._fetches, return_exceptions=True)
        await self._runner.ended()
        self._watch.close()
        if self._purge is not None:
            self._purge.cancel()

    @property
    def running(self) -> int:
        """How many handlers run."""
        return self._admission.running + self._streams.taken

    @property
    def waiting(self) -> int:
        """How many requests wait, for their turn or for their body."""
        return self._admission.waiting

    def _others_wait(self) -> bool:
        return self._admission.queued > 0

    @property
    def sessions(self) -> int:
        """How many clients it knows."""
        return len(self._sessions)

    @property
    def kept_bytes(self) -> int:
        """The bytes of replies that are kept."""
        return self._sessions.kept

    def kept(self) -> dict[str, int]:
        """All that it has of calls: nothing, once all have ended and no reply can be asked for."""
        return {
            "handlers": self.running,
            "requests": self.waiting,
            "bytes of requests": self._admission.bytes,
            "bytes of frames": self._incoming.bytes,
            "bytes of bulk": self._room.total,
            "bytes of replies": self.kept_bytes,
            "bytes to clients": self._replies.total,
            "calls to be looked at": len(self._watch),
        }

    # Frames in -------------------------------------------------------------------------------------

    def _serve(self, frame: Frame, message: Message, alone: bool) -> None:
        if isinstance(frame, CallFrame):
            self._request(frame, message, self._clock())
        elif isinstance(frame, Note):
            self._note(frame, message)
        elif isinstance(frame, Connect) and alone:  # what leaves together is of one session
            self._connect(frame, message)
        elif isinstance(frame, OtherVersion):
            words = f"this server speaks version {VERSION}"
            self._refuse(frame, message, errno.EPROTONOSUPPORT, words)
        else:
            self.counters.malformed += 1

    def _connect(self, frame: Connect, message: Message) -> None:
        width = min(max(frame.slots, 1), self._slots)
        session = self._sessions.make(
            self._random(64), message.initiator, frame.answer_to, width, min(frame.largest, LNET_MTU)
        )
        if session is None:
            self.counters.busy += 1
            self._replies.say(frame, message, Note(*head_of(frame), Kind.BUSY, 1000).pack())
            return
        session.nids = frame.nids
        answer = Connected(session.id, 0, 0, frame.attempt, 0, width, self._largest, self.incarnation)
        answer.token = frame.token
        answer.knows = session.knows = frame.knows & (known() | KNOWS_BATCH)
        self._replies.say(frame, message, answer.pack())

    def _request(self, frame: CallFrame, message: Message, now: float) -> None:
        session = self._session_of(frame, message)
        if session is None:
            self._refuse(frame, message, errno.ESTALE, "the server does not know this session")
            return
        verdict = session.judge(frame.slot, frame.number)
        if verdict is _NEW:
            self._new(session, frame, message, now)
        elif verdict is Verdict.RUNNING:
            self._repeated(session, frame, message)
        elif verdict is Verdict.ANSWERED:
            self._answer_again(session, frame, message)
        elif verdict is Verdict.FORGOTTEN:
            text = b"the call was executed, and its reply is not kept any more"
            self._replies.say(frame, message, Reply(*head_of(frame), errno.ENODATA, data=text).pack())
        elif verdict is Verdict.OLD:
            self.counters.old += 1
        else:
            self._refuse(frame, message, errno.EPROTO, f"slot {frame.slot}: this session has no such slot")

    def _session_of(self, frame: Frame, message: Message) -> Session[Call] | None:
        """The session of a frame, if that comes from its client; others may have seen its number."""
        session = self._sessions.find(frame.session)
        if session is None or message.initiator == session.client or message.initiator in session.nids:
            return session
        peer = self.node.core.peers.find(message.initiator)
        if peer is None or not peer.owns(session.client):
            return None
        session.client = message.initiator  # it has another primary NID by now
        return session

    def _new(self, session: Session[Call], frame: CallFrame, message: Message, now: float) -> None:
        method = self.service.methods.get(frame.method) or self._methods.get(frame.method)
        if method is None:
            text = f"service {self.service.name} has no method {frame.method[:80]!r}"
            self._refuse(frame, message, errno.ENOSYS, text)
            return
        size = frame.data.nbytes if isinstance(frame.data, memoryview) else len(frame.data)
        if frame.flags & BODY and frame.source is not None:
            size += frame.source.length
        stream = method.kind == "stream"
        body = frame.flags & BODY != 0
        number, text = self._why_not(frame, method, size)
        if number:
            self._refuse(frame, message, number, text)
            return
        if not self._replies.under_way.may_have_more(session.owner):
            self._busy(frame, message)
            return
        lane = self._replies.lane(session, message)
        admission = None if stream else self._admission
        # fmt: off
        call = Call(self._loop, session, method, frame, lane, self._pieces, admission, self._room,
                    self._turns, now)
        # fmt: on
        call.size = size
        instead: list[Call] = []
        if stream:
            runs = taken = self._streams.take(session.owner)
        else:
            runs = taken = not body and self._admission.enter(session.owner, size, frame.lends)
            if not runs:
                taken, instead = self._admission.offer(
                    session.owner, call, size, now, body=body, bulk=frame.lends
                )
        if not taken:
            self._busy(frame, message)
            return
        before = self._sessions.begin(session, frame.slot, frame.number, call)
        if before is not None:
            self._give_up(before)
        for other in instead:
            self._send_away(other)
        self._notices.arm(call, now)
        if stream:
            call.news = asyncio.Event()
        if runs:
            self._start(call, now)
        elif body:
            self._fetch(call)
        else:
            self._start_next(now)

    def _why_not(self, frame: CallFrame, method: Method, size: int) -> tuple[int, str]:
        """The errno and the text of a request that is refused whatever else there is; 0: it is not."""
        if (frame.flags & STREAM != 0) != (method.kind == "stream"):
            is_stream = method.kind == "stream"
            text = "is a stream: use stream(), not call()" if is_stream else "is no stream: use call()"
            return errno.EINVAL, f"{method.name} {text}"
        if frame.flags & BODY and not method.body:
            what = "a stream" if method.kind == "stream" else method.name
            return errno.EMSGSIZE, f"data of {what} must be in its frame: send less, or lend them as bulk"
        if size > self._queue_bytes:
            text = f"data of {size} bytes: this server takes at most {self._queue_bytes}; use bulk"
            return errno.EMSGSIZE, text
        if method.most is not None and size > method.most:
            text = f"data of {size} bytes: at most {method.most} are decoded for {method.name}; have it take "
            return errno.EMSGSIZE, text + "bytes, or more (most=)"
        if frame.flags & XXH3 and not known():
            return errno.EPROTO, "this server has no XXH3 any more: call again"
        return 0, ""

    def _busy(self, frame: CallFrame, message: Message) -> None:
        self.counters.busy += 1
        wait = self._admission.retry_ms(self._service_time.expected)
        self._replies.say(frame, message, Note(*head_of(frame), Kind.BUSY, wait).pack())

    def _send_away(self, call: Call, at_least: int = 1) -> None:
        """One that has not begun makes room for one of another client: its own client sends it again."""
        self.counters.busy += 1
        call.over = True
        self._watch.discard(call)
        if call.task is not None:
            call.task.cancel()
        self._sessions.take_back(call.session, call.frame.slot, call.frame.number)
        wait = max(at_least, self._admission.retry_ms(self._service_time.expected))
        call.reply = Note(*head_of(call.frame), Kind.BUSY, wait).pack()
        call.lane.add(call.reply, call, call.method.name)

    def _repeated(self, session: Session[Call], frame: CallFrame, message: Message) -> None:
        call = session.slots[frame.slot].running
        assert call is not None
        self.count_of(call.method.name).resent += 1
        call.lane = self._replies.lane(session, message)
        call.frame.attempt = frame.attempt
        call.frame.patience = frame.patience
        call.heard_at = self._clock()
        self._credit(call, frame.credit)
        self._notices.still_working(call)

    def _answer_again(self, session: Session[Call], frame: CallFrame, message: Message) -> None:
        reply = session.slots[frame.slot].reply
        assert reply is not None
        if frame.method in self.method_counters:
            self.method_counters[frame.method].repeated += 1
        again = bytearray(reply)
        again[6:8] = frame.attempt.to_bytes(2, "little")
        self._replies.repeat(session, frame, message, bytes(again))

    def _note(self, frame: Note, message: Message) -> None:
        session = self._session_of(frame, message)
        if session is None:
            if frame.kind is Kind.CREDIT:  # else its stream would wait for good
                self._refuse(frame, message, errno.ESTALE, "the server does not know this session")
            return
        if frame.kind is Kind.CANCEL:
            call = self._sessions.give_up(session, frame.slot, frame.number)
            if call is not None:
                self._give_up(call)
        elif frame.kind is Kind.CLOSE:
            for call in self._sessions.end(session):
                self._give_up(call)
        elif frame.kind is Kind.CREDIT:
            held = session.slots.get(frame.slot)
            if held is not None and held.number == frame.number and held.running is not None:
                self._credit(held.running, frame.value)

    def _credit(self, call: Call, credit: int) -> None:
        """Chunks up to that number may be sent; never as many as would be too many, whoever says so."""
        if call.frame.credit < credit <= call.chunks + _CREDIT_AHEAD:
            call.frame.credit = credit
            if call.news is not None:
                self._turns.add(call.session.owner, call.news.set)

    # Bodies ----------------------------------------------------------------------------------------

    def _fetch(self, call: Call) -> None:
        """Have the body come, before the call has a place."""
        task = call.task = self._loop.create_task(self._body(call), context=self._context.copy())
        self._fetches.add(task)
        task.add_done_callback(partial(self._fetched, call))

    async def _body(self, call: Call) -> Any:
        await self._bodies.wait(call.session.owner)
        return await call.fetch_body()

    def _fetched(self, call: Call, task: asyncio.Task[Any]) -> None:
        """The body of a call is there, or does not come."""
        self._fetches.discard(task)
        call.task = None
        failed = None if task.cancelled() else task.exception()
        if call.over:
            return
        if task.cancelled() or self._closed:
            self._cancelled(call)
        elif isinstance(failed, Stalled):
            self._admission.remove(call.session.owner, call)
            self._send_away(call, _LONG_WAIT)  # those who wait ask again sooner
        elif failed is not None:
            self._failed(call, failed, begun=False)
        else:
            call.data = task.result()
            call.frame.source = None  # it was lent for this alone
            self._admission.came(call.session.owner, call)
            self._start_next(self._clock())

    # Handlers --------------------------------------------------------------------------------------

    def _start_next(self, now: float) -> None:
        while (found := self._admission.next()) is not None:
            call, size, bulk = found
            if call.deadline is not None and call.deadline <= now:
                self._admission.done(call.session.owner, size, bulk)
                self._overdue(call)
            elif not self._replies.under_way.may_have_more(call.session.owner):
                self._admission.done(call.session.owner, size, bulk)
                self._send_away(call)
            else:
                self._start(call, now)

    def _start(self, call: Call, now: float) -> None:
        call.started_at = now
        call.begun = True
        self._runner.add(call)

    def _begin(self, call: Call) -> Any:
        """What is to be awaited of the handler of a call, which begins now, in its own context."""
        if call.deadline is not None:
            DEADLINE.set(call.deadline)
        if call.method.kind == "stream":
            return self._stream(call)
        return call.method.start(call)

    def _ended(self, call: Call, result: object) -> None:
        """A handler has returned something. Raises RpcError for what cannot be sent."""
        self._finish(call, 0, encoded(result))

    async def _stream(self, call: Call) -> None:
        async with Closing(call.method.start(call)) as values:
            async for value in values:
                data = encoded(value)
                self._must_fit(call, data)
                index = await call.next_chunk(self._replies.under_way)
                self._notices.send_chunk(call, index, data)
        await call.all_arrived()

    @staticmethod
    def _must_fit(call: Call, data: Any) -> None:
        if len(data) + _REPLY_SIZE > call.session.largest:
            raise RpcError(
                errno.EMSGSIZE,
                f"{len(data)} bytes do not fit into the client's frames of {call.session.largest}: "
                "push them into memory that the client gives (into=), or let it take larger frames",
            )

    def _failed(self, call: Call, failed: BaseException, begun: bool = True) -> None:
        if isinstance(failed, asyncio.CancelledError | KeyboardInterrupt | SystemExit):
            self._cancelled(call)
            return
        begun = begun and not isinstance(failed, NotOfType)
        status, text = told(failed, traceback=begun and call.frame.flags & TRACEBACK != 0)
        self.count_of(call.method.name).errors += 1
        room = max(call.session.largest - _REPLY_SIZE, 0)
        self._finish(call, status, text.encode("utf-8", "replace")[:room], begun)
        if begun and not call.given_up:
            self._failures.log(call.method.name, call.client, failed)

    def _cancel(self, call: Call) -> None:
        if call.task is not None:
            call.task.cancel()
        elif self._runner.remove(call) or not call.begun:
            self._cancelled(call)

    def _cancelled(self, call: Call) -> None:
        self._finish(call, errno.ECANCELED, b"the server cancelled the call")

    def _finish(self, call: Call, status: int, data: Any, begun: bool = True) -> None:
        """A handler has ended, or was never `begun`: the reply goes out, unless nobody waits for it."""
        if call.over:
            return
        if not status:
            try:
                self._must_fit(call, data)
            except RpcError as too_long:
                self._failed(call, too_long)
                return
        now = self._clock()
        took = now - call.started_at
        if not call.given_up and not call.overdue:
            call.reply = reply_of(call, status, data, begun, took)
        call.over = True
        self._watch.discard(call)
        frame = call.frame
        counters = self.count_of(call.method.name)
        counters.calls += 1
        counters.took(took)
        if call.news is not None:
            self._streams.give(call.session.owner)
            self._turns.discard(call.session.owner, call.news.set)
        elif call.begun:
            self._service_time.observe(took)
            self._admission.done(call.session.owner, call.size, frame.lends)
        else:
            self._admission.remove(call.session.owner, call)
        if call.given_up:
            counters.given_up += 1
        elif call.overdue:
            self._sessions.end_request(call.session, frame.slot, frame.number, None, 0.0)
        else:
            until = now + _KEEP if call.deadline is None else min(call.deadline, now + _KEEP)
            if self._sessions.end_request(call.session, frame.slot, frame.number, call.reply, until):
                call.lane.add(call.reply, call, call.method.name)
            if self._purge is None:
                self._purge = self._loop.call_at(until, self._forget)
        if self._admission.queued and not self._closed:
            self._start_next(now)

    def _forget(self) -> None:
        """Replies that nobody can ask for any more are not kept."""
        self._purge = None
        following = self._sessions.expire(self._clock())
        if following is not None and not self._closed:
            self._purge = self._loop.call_at(following, self._forget)

    def _give_up(self, call: Call) -> None:
        """The client does not want it any more."""
        call.given_up = True
        self._end_early(call)

    def _client_is_gone(self, call: Call) -> None:
        if not call.over:
            self._sessions.give_up(call.session, call.frame.slot, call.frame.number)
            self._give_up(call)

    def _overdue(self, call: Call) -> None:
        """The client has given up by now."""
        call.overdue = True
        self.count_of(call.method.name).overdue += 1
        self._end_early(call)

    def _end_early(self, call: Call) -> None:
        self._watch.discard(call)
        if call.begun:
            self._turns.add(call.session.owner, partial(self._cancel, call))
            return
        self._admission.remove(call.session.owner, call)  # unless its turn has just come
        call.over = True
        if call.task is not None:
            call.task.cancel()
        if call.given_up:
            self.count_of(call.method.name).given_up += 1
        else:
            self._sessions.end_request(call.session, call.frame.slot, call.frame.number, None, 0.0)

    def _refuse(self, frame: Frame, message: Message, number: int, text: str) -> None:
        self.counters.refused += 1
        self._replies.say(frame, message, Refused(*head_of(frame), number, text).pack())

    # Counters --------------------------------------------------------------------------------------

    def count_of(self, method: str) -> MethodCounters:
        """What is counted of a method."""
        counters = self.method_counters.get(method)
        if counters is None:
            counters = self.method_counters[method] = MethodCounters()
        return counters
