"""One call under way, at its client: when it is sent again, and what it ends with."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from typing import TYPE_CHECKING, Final

from ulnet.core.md import MAX_TIMEOUT
from ulnet.node.port import nobody_asks
from ulnet.rpc.errors import Executed, RpcError, errno_of
from ulnet.rpc.lane import Lane
from ulnet.rpc.slots import Slots
from ulnet.wire.rpc import IDEMPOTENT, NO_DEADLINE, CallFrame, Chunk, Frame, Kind, Note, Refused, Reply

if TYPE_CHECKING:
    from ulnet.rpc.client import Client

__all__ = ["AGAIN", "Connection", "Pending"]

_MOST_PATIENCE: Final = 8.0
_LONGEST_WORK: Final = 10.0  # seconds until it is told again that a call is at work: servers say no more
_LONGEST_BUSY: Final = 2.0  # and that a server is busy
_FIRST_PAUSE: Final = 0.001  # seconds after the server was busy, doubled each time up to
_LONG_PAUSE: Final = 1.0
_MOST_ATTEMPTS: Final = 0xFFFF
_MOST_NOTES: Final = 4  # of room for chunks that are under way: more than one, as a path may be slow
_EARLY: Final = 0.001  # seconds that a timer may come too early
_SLOW: Final = 1e-7  # seconds for a byte: as slow a network may be before one has seen how slow it is
AGAIN: Final = Reply()  # the outcome of a call that is to be made in another session


class Connection:
    """A client's session: its slots, and the calls in them. `stale`: the server does not know it any more."""

    __slots__ = ("calls", "id", "knows", "lane", "largest", "slots", "stale", "waiters")

    def __init__(self, number: int, slots: int, largest: int, knows: int, lane: Lane) -> None:
        self.id: int = number
        self.knows: int = knows  # bits of what both know
        self.lane: Lane = lane  # of requests that are sent for the first time
        self.slots: Slots = Slots(slots)
        self.largest: int = largest
        self.calls: dict[int, Pending] = {}
        self.waiters: deque[asyncio.Future[None]] = deque()  # for a slot
        self.stale: bool = False

    def give(self, slot: int) -> None:
        """A call has ended: who waits for a slot may have it."""
        del self.calls[slot]
        self.slots.give(slot)
        self.wake_one()

    async def wait(self) -> None:
        """Until a slot may be free, or the session is stale."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.wake_one()  # it was this one's turn
            raise

    def wake_one(self) -> None:
        """Somebody who waits for a slot looks for one."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break

    def end(self) -> None:
        """It serves no further call."""
        self.stale = True
        waiters, self.waiters = self.waiters, deque()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


class Pending:
    """A call in a slot of a session. `done` gets the Reply, AGAIN or an RpcError."""

    __slots__ = (
        "_client",
        "_last",
        "_notes",
        "_pause",
        "_sent",
        "_told",
        "answered",
        "chunks",
        "connection",
        "deadline",
        "done",
        "due_at",
        "frame",
        "heard_at",
        "news",
        "patience",
        "read",
        "sent_at",
        "size",
        "taken",
        "untouched",
    )

    def __init__(
        self,
        client: Client,
        connection: Connection,
        frame: CallFrame,
        deadline: float | None,
        patience: float,
        news: asyncio.Event | None = None,
    ) -> None:
        self._client = client
        self.connection: Connection = connection
        self.frame: CallFrame = frame
        self.deadline: float | None = deadline
        self.patience: float = patience
        self.done: asyncio.Future[Reply] = asyncio.Future(loop=client.loop)
        self.heard_at: float = 0.0  # set by `send`
        self.sent_at: float = 0.0  # when the first attempt was
        self.size: int = 0  # bytes of its frame, once that was sent
        self.news: asyncio.Event | None = news  # of chunks, for a stream
        self.chunks: dict[int, bytes] = {}  # that were not read
        self.read: int = 0  # chunks that were
        self._told = 0  # the credit of the last notice of it
        self._notes = 0  # such notices under way
        self._sent = 0  # attempts of which something may have left
        self._last = ""  # why the last attempt failed
        self._pause = _FIRST_PAUSE
        self.due_at: float = 0.0  # when the client looks at it again; 0: it does not
        self.answered: bool = False
        self.taken: bool = False  # the server has said that it works on it
        self.untouched: bool = False  # the server has not begun it, for sure

    # Out -------------------------------------------------------------------------------------------

    def send(self) -> None:
        """Another attempt; the next one follows if nothing is heard within the patience."""
        client, frame = self._client, self.frame
        now = client.clock()
        left = None if self.deadline is None else min(max(self.deadline - now, 0.0), MAX_TIMEOUT)
        frame.attempt = min(frame.attempt + 1, _MOST_ATTEMPTS)
        frame.left = NO_DEADLINE if left is None else min(max(int(1000 * left), 1), NO_DEADLINE - 1)
        frame.patience = int(1000 * self.patience)
        packed = frame.pack()
        if not self._sent:
            self.heard_at = self.sent_at = now
            self.size = len(packed)
            client.unanswered += self.size
        self._sent += 1
        self._arm(now + self.patience + client.unanswered * _SLOW, client.silence)
        self.patience = min(2 * self.patience, _MOST_PATIENCE)
        if frame.attempt == 1:
            self.connection.lane.add(packed, self, frame.method, left)
            return
        client.counters.repeated += 1
        client.look_for_server(frame.attempt)
        client.send(packed, self.left, ack=True, timeout=left, method=frame.method)

    def send_credit(self) -> None:
        """Tell up to which chunk there is room: now, or once fewer such notices are under way."""
        if self._notes == _MOST_NOTES:
            return
        self._notes += 1
        frame = self.frame
        self._told = frame.credit
        head = (frame.session, frame.slot, frame.number, 0, frame.answer_to)
        self._client.send(Note(*head, Kind.CREDIT, frame.credit).pack(), self._note_left, method=frame.method)

    def _note_left(self, error: int, text: str) -> None:
        """One that was lost does no harm: the server says that it is at work, and is told again."""
        self._notes -= 1
        if self._told < self.frame.credit and not self.done.done():
            self.send_credit()

    def left(self, error: int, text: str) -> None:
        """What became of an attempt's frame."""
        if not error or self.done.done():
            return
        self._last = text
        if self._client.node_is_closed:
            self.fail(errno.ESHUTDOWN, "this node was shut down")
        elif error == errno.ENOENT and not self.frame.flags & IDEMPOTENT:
            self.fail(error, f"nothing serves {self._client.service} there any more")
        elif error == errno.EINVAL:  # no peer says that
            self.fail(error, f"this node refuses the request: {text}", "no" if self._sent == 1 else "unknown")
        elif error == errno.EMSGSIZE:
            self.fail(error, f"the request does not fit the server's inbox: {text}", "no")

    def _arm(self, when: float, silence: float) -> None:
        """The next look is at that time; or at the deadline, or, without one, after so much silence."""
        last = self.heard_at + silence if self.deadline is None else self.deadline
        self._client.watch.add(self, min(when, last))

    def due(self) -> None:
        """It is to be looked at: time is over, or nothing was heard in time."""
        now = self._client.clock() + _EARLY
        if self.done.done():
            return
        if self.deadline is not None and now >= self.deadline:
            self._client.counters.timeouts += 1
            why = f" ({self._last})" if self._last else ""
            self.fail(errno.ETIMEDOUT, f"no reply in time{why}")
        elif self.deadline is None and now - self.heard_at >= self._client.silence:
            self._client.counters.timeouts += 1
            why = f" ({self._last})" if self._last else ""
            self.fail(errno.ETIMEDOUT, f"nothing was heard of the server for {self._client.silence:g} s{why}")
        elif self.connection.stale:
            self._not_known_there(False)
        else:
            self.send()

    # In --------------------------------------------------------------------------------------------

    def heard(self, frame: Frame, now: float) -> None:
        """The server says something about this call."""
        if self.done.done():
            return
        client = self._client
        self.heard_at = now
        client.unanswered -= self.size  # it has arrived: others wait behind it no more
        self.size = 0
        silence = client.silence / 2  # the other half is for what it is asked then
        if isinstance(frame, Reply):
            if frame.attempt == 1:  # also of one that was sent again meanwhile: the network is slow
                client.learn(self.frame.method, now - self.sent_at, frame.service_us / 1e6)
            if not isinstance(frame.data, bytes):
                frame.data = bytes(frame.data)
            self._end(frame)
        elif isinstance(frame, Note):
            seconds = frame.value / 1000
            if frame.kind is Kind.WORKING:
                self.taken = True
                self.patience = client.patience_of(self.frame.method)
                self._arm(now + min(seconds, _LONGEST_WORK) + client.network.expected, silence)
                if self.news is not None:
                    self.send_credit()  # the last notice may be lost, and the server wait for it
            elif frame.kind is Kind.BUSY:
                client.counters.busy += 1
                self.patience = client.patience_of(self.frame.method)
                seconds = max(min(seconds, _LONGEST_BUSY), self._pause)  # what it expects may be wrong
                self._pause = min(2 * self._pause, _LONG_PAUSE)
                self._arm(now + seconds * (1 + client.random(16) / 65536), silence)
                self._last = "the server was busy"
        elif isinstance(frame, Chunk):
            self._chunk(frame, now, silence)
        elif isinstance(frame, Refused):
            self._refused(frame)

    def _chunk(self, frame: Chunk, now: float, silence: float) -> None:
        if self.news is None or not self.read <= frame.index < self.frame.credit:
            return
        self.chunks.setdefault(frame.index, bytes(frame.data))
        self._arm(now + _MOST_PATIENCE, silence)
        self.news.set()

    def _refused(self, frame: Refused) -> None:
        if frame.errno == errno.ESTALE:
            self.connection.end()
            self._client.session_is_stale(self.connection)
            # What is refused of a stream may be a notice of room: the call itself was taken before.
            only = frame.attempt == 1 and self._sent == 1 and not self.taken
            self._not_known_there(only and self.news is None)
        else:
            self.fail(errno_of(frame.errno), frame.text, "no" if self._sent == 1 else "unknown")

    def _not_known_there(self, sure: bool) -> None:
        """The session is no more; `sure`: this call was not executed in it."""
        self.untouched = sure
        if (sure or self.frame.flags & IDEMPOTENT) and self.news is None:
            self._end(AGAIN)
        else:
            self.fail(
                errno.ECONNRESET,
                "the server was restarted, or has forgotten the session, before it answered: "
                "calls marked idempotent are made again",
                "no" if sure else "unknown",
            )

    def fail(self, number: int, text: str, executed: Executed = "unknown") -> None:
        """It ends with that error."""
        if self.done.done():
            return
        client = self._client
        text = f"{client.target}: {self.frame.method}: {text}"
        self.done.set_exception(RpcError(number, text, executed))
        self.done.exception()  # whoever waits sees it; a call that was cancelled has nobody
        self._stop()

    def _end(self, reply: Reply) -> None:
        self.answered = True
        self.done.set_result(reply)
        self._stop()

    def _stop(self) -> None:
        self._client.watch.discard(self)
        if self.news is not None:
            self.news.set()

    # The end ---------------------------------------------------------------------------------------

    def release(self) -> None:
        """Nobody waits for it any more: its slot is free. A server that may still work on it is told."""
        if not self.done.done():
            self.done.cancel()
            self._stop()
        slot = self.frame.slot
        if self.connection.calls.get(slot) is not self:
            return
        self._client.unanswered -= self.size
        if not self.answered and not self.connection.stale and not self._client.closed:
            frame = self.frame
            note = Note(frame.session, slot, frame.number, 0, frame.answer_to, Kind.CANCEL)
            self._client.send(note.pack(), nobody_asks, method=frame.method)
        self.connection.give(slot)
