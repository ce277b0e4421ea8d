"""The control socket from the daemon's side: bounded clients, bounded requests, every byte distrusted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from ulnet.dlc.caller import NO_GROUPS, Caller, Groups, Role
from ulnet.dlc.endpoint import Endpoint
from ulnet.dlc.errors import DlcError, ErrorItem
from ulnet.dlc.hangup import has_gone
from ulnet.dlc.model import Request
from ulnet.dlc.protocol import (
    HEADER_SIZE,
    MAX_REQUEST,
    Answer,
    FrameBuffer,
    ProtocolError,
    decode_request,
    encode_reply,
    reply_header,
    reply_in_pieces,
)

__all__ = ["ControlServer", "Handler"]

Handler = Callable[[Request, Caller], Awaitable[Answer]]

_log = logging.getLogger("ulnet.control")
_PAUSE = 0.2  # seconds until the next try, when there is no descriptor for a client
_SPARE = 4  # descriptors that are kept for clients where the process has no others
_AT_ONCE = {Role.LOOK: 1, Role.CHANGE: 4}  # requests that begin in one turn of the loop
_MOST_UNREAD = 32 << 20  # bytes of answers that clients leave unread: then the slowest of them go


class ControlServer:
    """Answers requests with `handler`, one after the other on each connection."""

    def __init__(
        self,
        endpoint: Endpoint,
        handler: Handler,
        *,
        max_clients: int = 64,
        max_request: int = MAX_REQUEST,
        idle: float = 60,
        groups: Groups = NO_GROUPS,
    ) -> None:
        """`idle`: seconds that a client may be silent, or leave an answer unread, before it is dropped.

        `groups` are those whose members may ask, beside root and the owner of the daemon. Those who may only
        look have half of the places at most.
        """
        self.groups = groups
        self._spare: list[int] = []
        self.endpoint = endpoint
        self.handler = handler
        self.max_clients = max_clients
        self.max_request = max_request
        self.idle = idle
        self.sessions: dict[_Session, None] = {}  # the oldest first
        self._turns = {role: asyncio.Semaphore(count) for role, count in _AT_ONCE.items()}
        self._arriving: set[asyncio.Task[object]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Accept clients."""
        self._loop = asyncio.get_running_loop()
        self.keep_spare()
        self._watch(self._loop)

    def keep_spare(self) -> None:
        """Hold descriptors that nobody else gets, as many as there are to be had."""
        with contextlib.suppress(OSError):
            while self._loop is not None and len(self._spare) < _SPARE:
                self._spare.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))

    def _give_spare(self) -> bool:
        """Let clients have them; whether there were any."""
        spare, self._spare = self._spare, []
        for number in spare:
            os.close(number)
        return bool(spare)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._pause = None
        loop.add_reader(self.endpoint.socket, self._accept, loop)

    def _accept(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            connection, _ = self.endpoint.socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # no descriptor is free; asyncio's own server would fill the log
            if self._give_spare():
                self._accept(loop)  # at once, before anybody else has them
                return
            _log.warning("a client of the control socket has to wait: %s", error.strerror)
            loop.remove_reader(self.endpoint.socket)
            self._pause = loop.call_later(_PAUSE, self._watch, loop)
            return
        connection.setblocking(False)
        task: asyncio.Task[object] = loop.create_task(
            loop.connect_accepted_socket(lambda: _Session(self, loop), connection)
        )
        self._arriving.add(task)
        task.add_done_callback(self._arriving.discard)

    async def close(self, grace: float = 5.0) -> None:
        """Accept nobody more; requests under way get `grace` seconds; then remove the socket."""
        if self._loop is not None:
            self._loop.remove_reader(self.endpoint.socket)
            self._loop = None
            if self._pause is not None:
                self._pause.cancel()
            self._give_spare()
            self.endpoint.socket.close()  # who comes now is refused
            await asyncio.gather(*self._arriving, return_exceptions=True)
        tasks = []
        for session in list(self.sessions):
            task = session.finish()
            if task is not None:
                tasks.append(task)
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for session in list(self.sessions):
            session.hang_up()
        await asyncio.sleep(0)  # the transports close their sockets now
        self.endpoint.close()

    def make_room(self, role: Role) -> None:
        """One client more: who says nothing, or does not read, gives way. Raises ProtocolError(EBUSY)."""
        served = [one for one in self.sessions if one.role is not None]
        most, kind = self.max_clients, "clients"
        if role == Role.LOOK:
            lookers = [one for one in served if one.role == role]
            if len(lookers) >= (most + 1) // 2:
                served, most, kind = lookers, (most + 1) // 2, "clients that may only look"
        if len(served) >= most:
            idle = next((one for one in served if one.idle), None)
            if idle is None:
                text = f"lnetd serves {most} {kind} already, no more are let in: try again"
                raise ProtocolError(errno.EBUSY, text)
            idle.hang_up()
            del self.sessions[idle]

    def check_unread(self) -> None:
        """Answers wait to be read: where they are too many, those that wait for longest are dropped."""
        waiting = [(one, one.unread) for one in self.sessions if one.unread]
        total = sum(unread for _, unread in waiting)
        for session, unread in waiting[:-1]:
            if total <= _MOST_UNREAD:
                return
            _log.warning("a client of the control socket does not read its answer: it is dropped")
            session.hang_up()
            total -= unread

    async def answer(self, payload: bytes, caller: Caller) -> list[bytes]:
        """The frame that answers one payload, in pieces; an error whatever goes wrong."""
        turn = self._turns[caller.role]  # who may only look keeps no administrator waiting
        await turn.acquire()
        asyncio.get_running_loop().call_soon(turn.release)
        try:
            request = decode_request(payload)
        except ProtocolError as bad:
            return [_refusal(bad)]
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("request %s", msgspec.json.encode(request).decode())
        try:
            return await _frame(await self.handler(request, caller))
        except DlcError as refused:
            _log.debug("request refused: %s", refused)
            return [encode_reply(Answer(errors=[refused.item]))]
        except ProtocolError as bad:
            return [_refusal(bad, request.verb, request.entity)]
        except Exception:
            _log.exception("request %s failed", type(request).__name__, extra={"event": "control.failed"})
            text = "lnetd met a fault of its own in this request: its log tells more; please report it"
            return [_refusal(ProtocolError(errno.EIO, text), request.verb, request.entity)]


class _Session(asyncio.Protocol):
    """One client."""

    def __init__(self, server: ControlServer, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._frames = FrameBuffer(server.max_request)
        self._task: asyncio.Task[None] | None = None
        self._unwritten = 0  # bytes of an answer that the transport is still to get
        self.role: Role | None = None  # None: it was refused
        self._last = False  # answer what is under way, then hang up
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=0)  # hear when all of an answer has left
        try:
            self._caller = self._server.groups.caller(transport.get_extra_info("socket"))
            self._server.make_room(self._caller.role)
        except ProtocolError as refused:
            if refused.errno != errno.EBUSY:
                _log.warning("refused a client: %s", refused.text, extra={"event": "control.refused"})
            self._refuse(refused)
        else:
            self.role = self._caller.role
            self._await_more()
        self._server.sessions[self] = None

    @property
    def idle(self) -> bool:
        """Whether nothing is done for it."""
        return self._task is None or self._unwritten > 0

    @property
    def unread(self) -> int:
        """Bytes of its answer that it has not read."""
        return self._unwritten + self._transport.get_write_buffer_size()

    def _refuse(self, why: ProtocolError) -> None:
        self._transport.write(_refusal(why))
        self._hang_up_soon()

    def _hang_up_soon(self) -> None:
        """Close when what was written is read, or the client has had time for it."""
        self._last = True
        self._transport.pause_reading()
        self._transport.close()
        self._arm()

    def _await_more(self) -> None:
        self._arm()
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._server.idle, self.hang_up)

    def data_received(self, data: bytes) -> None:
        self._frames.feed(data)
        if len(self._frames) > self._server.max_request + HEADER_SIZE:
            self._transport.pause_reading()
        self._next()

    def eof_received(self) -> bool:
        self._last = True
        # Keep the transport for the answer under way, unless the client has gone for good.
        return self._task is not None and not has_gone(self._transport.get_extra_info("socket"))

    def _next(self) -> None:
        """Serve the next request that is complete, one at a time."""
        if self._task is not None or self._transport.is_closing():
            return
        try:
            payload = self._frames.next()
        except ProtocolError as bad:
            self._refuse(bad)
            return
        if payload is not None:
            if self._timer is not None:
                self._timer.cancel()
            self._task = self._loop.create_task(self._serve(payload))
        elif self._last:
            self._hang_up_soon()
        else:
            self._await_more()

    async def _serve(self, payload: bytes) -> None:
        pieces = deque(await self._server.answer(payload, self._caller))
        self._unwritten = sum(map(len, pieces))
        if len(pieces) > 1:
            self._server.check_unread()
        while pieces:
            piece = pieces.popleft()
            self._unwritten -= len(piece)
            self._transport.write(piece)
            if pieces:
                await asyncio.sleep(0)  # others have their turn
        self._task = None
        if self.unread:
            self._server.check_unread()
        if self._transport.get_write_buffer_size() == 0:
            self._next()
        else:
            self._arm()  # until the client has read it

    def pause_writing(self) -> None:
        """Called by the transport when an answer is too long to leave at once."""

    def resume_writing(self) -> None:
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.sessions.pop(self, None)
        self._server.keep_spare()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def finish(self) -> asyncio.Task[None] | None:
        """Hang up, after the answer that is under way: its task."""
        self._last = True
        if self._task is None:
            self._hang_up_soon()
        return self._task

    def hang_up(self) -> None:
        """Drop the client."""
        self._transport.abort()


async def _frame(answer: Answer) -> list[bytes]:
    """The frame of an answer; others have their turn between its pieces. Raises ProtocolError."""
    pieces: list[bytes] = []
    size = 0
    for piece in reply_in_pieces(answer):
        if pieces:
            await asyncio.sleep(0)
        pieces.append(piece)
        size += len(piece)
        header = reply_header(size)
    pieces[0] = header + pieces[0]
    return pieces


def _refusal(bad: ProtocolError, verb: str = "manage", entity: str = "request") -> bytes:
    return encode_reply(Answer(errors=[ErrorItem(verb, entity, -bad.errno, bad.text)]))
