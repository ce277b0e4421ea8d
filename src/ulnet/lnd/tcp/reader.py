"""The receiving half of a connection: frames, headers, and where payloads go (spec wire-socklnd.md §4, §5).

Hot path: flat. Headers and small payloads come through the one buffer that all connections share; large
payloads are read straight into their owner's memory, together with exactly the next header.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING, Final

from ulnet.core.status import HealthStatus, errno_text
from ulnet.lnd.tcp.secure_socket import SecureSocket
from ulnet.lnd.tcp.shared import Shared
from ulnet.lnd.tcp.turns import DIRECT, FIRST_TURN, SHORT, TURNS, next_turn
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import HEADER_SIZE, LARGE_HEADER_SIZE, unpack_header
from ulnet.wire.socklnd import FRAME_HEADER_SIZE, KEEPALIVE_COOKIE, FrameType, checksum, summed

if TYPE_CHECKING:
    from ulnet.core.msg import Incoming
    from ulnet.lnd.contract import Inbound
    from ulnet.lnd.tcp.errors import Failure
    from ulnet.lnd.tcp.owner import Owner
    from ulnet.lnd.tcp.peer import Peer
    from ulnet.wire.lnet import Header

__all__ = ["Reader"]

_REMOTE_ERROR: Final = HealthStatus.REMOTE_ERROR
_LNET: Final = FrameType.LNET.value
_NOOP: Final = FrameType.NOOP.value
_LITTLE: Final = struct.Struct("<IIQQ")
_BIG: Final = struct.Struct(">IIQQ")
_NO_FRAME: Final = (_LNET, 0, 0, 0)  # protocol 1 has bare LNet headers
_NO_BUFFERS: Final[list[memoryview]] = []  # of all connections between two payloads; nobody changes it
_RUN: Final = 8  # messages with one header
_TRICKLE: Final = 131072  # who gets less of a payload at a time waits for more: the network is slower than we
_WAKE_LEAST: Final = 16384  # what is left of a payload when each piece of it wakes us
_WAKE_MOST: Final = 524288  # what to wait for at most
_LARGE: Final = 32768  # payloads from here on are not copied: after one only the next header is read
_BAD_SUM: Final = "a checksum is wrong"
_STRAY_ACK: Final = "it acknowledged a zero-copy request that we did not make"

# What the next bytes are.
_FRAME: Final = 0
_PAYLOAD: Final = 1  # wanted
_SLOP: Final = 2  # of a payload, not wanted
_PARSING: Final = 3  # the core has the header and has not said yet
_PAUSED: Final = 4  # the core will say later (delayed match); nothing is read until then


class Reader:
    """Frames, headers and payloads from a peer: the `rx` that the core holds while a payload waits."""

    __slots__ = (
        "_owner",
        "_receiver",
        "buffers",
        "busy",
        "checked",
        "cookie",
        "csum",
        "deadline",
        "due",
        "expect_large",
        "frame",
        "hdr",
        "head_size",
        "incoming",
        "large",
        "last_raw",
        "left",
        "peer",
        "rename",
        "room",
        "saved",
        "secure",
        "shared",
        "slop",
        "sock",
        "spare",
        "state",
        "sum_head",
        "turn",
        "version",
        "wake",
    )

    def __init__(
        self,
        shared: Shared,
        sock: socket.socket,
        peer: Peer,
        owner: Owner,
        version: int,
        big_endian: bool,
        rename: bool,
    ) -> None:
        self._owner = owner
        self.shared: Shared = shared
        self.sock: socket.socket | None = sock
        self.secure: bool = isinstance(sock, SecureSocket)
        vouches = sock.certificate if isinstance(sock, SecureSocket) else None
        self.peer: Peer = peer
        self.version: int = version
        self.large: bool = version == 4
        header = LARGE_HEADER_SIZE if version == 4 else HEADER_SIZE
        self.head_size = header if version == 1 else FRAME_HEADER_SIZE + header
        self.frame = _BIG if big_endian else _LITTLE
        self.rename: bool = rename  # the peer's name is made from its socket, not taken from its headers
        self.state: int = _FRAME
        self.saved: bytes = b""  # received, not yet looked at
        self.expect_large: bool = False
        self.incoming: Incoming | None = None
        self.buffers: list[memoryview] = _NO_BUFFERS  # where the rest of the payload goes
        self.left: int = 0
        self.slop: int = 0
        self.cookie: int = 0
        self.csum: int = 0
        self.sum_head: bytes = b""  # the headers, as the checksum of protocol 2 covers them
        self.checked: list[memoryview] = _NO_BUFFERS  # the whole payload, to check
        self._receiver: Inbound = shared.core.receiver(peer.ni, peer.nid, vouches)
        self.last_raw: bytes = b""  # the headers of the last message, to know them again
        self.hdr: Header | None = None
        self.turn: int = FIRST_TURN  # which of `Shared.turns` is as much as it may read at a time …
        self.room: memoryview = shared.turns[FIRST_TURN]  # … and so much of it: whole messages like the last
        self.spare: int = 0  # what such a turn leaves
        self.due: bool = False  # `_next_turn` will be called
        self.busy: bool = False  # its last turn was no short one: the next one is timed
        self.deadline: float = 0.0  # 0: not in the middle of a message
        self.wake: int = 1  # bytes that must be there before the loop tells; never more than are to come

    @property
    def paused(self) -> bool:
        """Whether a payload waits for memory, so that nothing is read."""
        return self.state == _PAUSED

    @property
    def between(self) -> bool:
        """Whether nothing has begun that is not whole."""
        return self.state == _FRAME and not self.saved

    # Where the core wants a payload ---------------------------------------------------------------

    def take(self, incoming: Incoming | None, buffers: list[memoryview], mlen: int, rlen: int) -> None:
        """Where the payload goes: mlen bytes into buffers, the other rlen - mlen nowhere."""
        if self.sock is None:
            if incoming is not None:
                why = "the connection is closed"
                self.shared.loop.call_soon(self._receiver.end, incoming, _REMOTE_ERROR, errno.EIO, why)
            return
        paused = self.state == _PAUSED
        self.incoming = incoming
        self.buffers = list(buffers)
        self.checked = list(buffers) if self.csum and mlen == rlen else _NO_BUFFERS
        self.left = mlen
        self.slop = rlen - mlen
        self.state = _PAYLOAD
        if paused:
            self.shared.loop.call_soon(self._resume)

    def abandon(self, incoming: Incoming) -> bool:
        """Throw away what is still to come of a message, without a word; False if nothing is."""
        if self.incoming is not incoming or self.state != _PAYLOAD or not self.left:
            return False
        self.incoming = None
        self.checked = _NO_BUFFERS
        self.slop += self.left
        self.left = 0
        self.wake_at(1)
        self._delivered()
        return True

    def unanswered(self) -> None:
        """Who asked hears nothing."""

    # Headers ----------------------------------------------------------------------------------------

    def wake_at(self, count: int) -> None:
        """Have the loop tell when so much is there: a wake-up costs more than copying 64 KiB does."""
        if count != self.wake and self.sock is not None:
            self.wake = count
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def consume(self, pos: int, end: int) -> None:
        """Work through the shared buffer from pos to end; keep what is not complete."""
        while True:
            state = self.state
            if state == _FRAME:
                start = pos
                if self.hdr is not None:
                    pos = self._repeated(pos, end, self.hdr)
                    if pos < 0:
                        return
                    if pos == end:
                        break
                pos = self._header(pos, end)
                if pos < 0:
                    return
                if pos == start:
                    break
                self.shared.worked(1)
                if self.sock is None:
                    return
            elif state == _PAYLOAD:
                count = min(self.left, end - pos)
                if count:
                    self._scatter(pos, count)
                    pos += count
                    self.left -= count
                if self.left:
                    return
                self._delivered()
                if self.sock is None:
                    return
            elif state == _SLOP:
                count = min(self.slop, end - pos)
                pos += count
                self.slop -= count
                if self.slop:
                    return
                self.state = _FRAME
            else:
                self.state = _PAUSED
                assert self.sock is not None
                self.shared.selector.forget(self.sock.fileno())
                break
        self.saved = bytes(self.shared.view[pos:end]) if pos < end else b""

    def _repeated(self, pos: int, end: int, hdr: Header) -> int:
        """Take whole messages with the last one's header: the position behind them, -1 if closed."""
        length = hdr.payload_length
        size = self.head_size + length
        if length >= _LARGE:
            return pos
        shared = self.shared
        if end - pos >= _RUN * size and self._other_run_begins(shared.buf, pos, size):
            return pos
        while end - pos >= size and self.sock is not None:
            before = pos
            pos = self._receiver.deliver(hdr, self.last_raw, shared.buf, shared.view, pos, end)
            if pos == before:
                break
            shared.worked((pos - before) // size)
        return pos if self.sock is not None else -1

    def _other_run_begins(self, buf: bytearray, pos: int, size: int) -> bool:
        """Whether messages with one header begin, which differs from the last one by its handle only.

        One look at their header serves them all, where each would else be compared with the last one.
        """
        if buf.startswith(self.last_raw, pos):
            return False
        last = pos + (_RUN - 1) * size
        return buf[pos : pos + self.head_size] == buf[last : last + self.head_size]

    def _header(self, pos: int, end: int) -> int:
        """Take one frame's header: the position behind it, the same one if incomplete, -1 if closed."""
        shared = self.shared
        start = pos
        if self.version != 1:
            if end - pos < FRAME_HEADER_SIZE:
                return start
            kind, csum, cookie0, cookie1 = self.frame.unpack_from(shared.buf, pos)
            if kind != _LNET:
                pos += FRAME_HEADER_SIZE
                return pos if self._noop(kind, csum, cookie0, cookie1, pos, end) else -1
            pos += FRAME_HEADER_SIZE
        else:
            kind, csum, cookie0, cookie1 = _NO_FRAME
        stop = start + self.head_size
        if end < stop:
            return start
        hdr = self.hdr
        if hdr is None or not shared.buf.startswith(self.last_raw, start):
            try:
                hdr = unpack_header(shared.buf, pos, self.large)
            except WireError as error:
                return self._owner.violated(str(error), end > stop)
            if cookie1 and not self._acknowledged(0, cookie1, end > stop):
                return -1
            if self.rename:
                hdr.src_nid = self.peer.nid
                hdr.src_pid = self.peer.pid
        if csum or cookie0 or cookie1:
            self.hdr = None
        elif hdr is not self.hdr:
            self.hdr = hdr
            self.last_raw = bytes(shared.buf[start:stop])
            self._fit()
            behind = self._repeated(start, end, hdr)
            if behind != start:
                self.expect_large = False
                return behind
        self.cookie = cookie0
        self.csum = csum
        if csum and not self._sum_begins(hdr, start, stop):
            return self._owner.violated(_BAD_SUM, end > stop)
        return stop if self._parse(hdr, end > stop) else -1

    def _sum_begins(self, hdr: Header, start: int, stop: int) -> bool:
        """Keep the checksum's beginning; False if it is all, and wrong."""
        self.sum_head = summed(self.version, self.shared.view[start:stop])
        return bool(hdr.payload_length) or self.csum == checksum(self.sum_head)

    def _noop(self, kind: int, csum: int, cookie0: int, cookie1: int, pos: int, end: int) -> bool:
        """A frame that is no LNet message; False if it closed the connection."""
        error = ""
        if kind != _NOOP:
            error = f"it sent a frame of type {kind:#x}"
        elif csum and csum != checksum(summed(self.version, self.shared.view[pos - FRAME_HEADER_SIZE : pos])):
            error = _BAD_SUM
        elif cookie0 or cookie1 != KEEPALIVE_COOKIE or self.version < 3:
            return self._acknowledged(cookie0 if self.version > 2 else 0, cookie1, end > pos)
        if error:
            self._owner.violated(error, end > pos)
        return not error

    def _acknowledged(self, cookie0: int, cookie1: int, unread: bool) -> bool:
        """Zero-copy requests are acknowledged: one, two, or a range; False if everything is closed."""
        if cookie0 > cookie1:
            cookies: Iterable[int] = (cookie0, cookie1)
        elif cookie0:
            cookies = range(cookie0, cookie1 + 1)
        else:
            cookies = (cookie1,)
        for cookie in cookies:
            known = self._owner.acknowledged(cookie)
            if self.sock is None:  # a handler closed it
                return False
            if not known:
                self._owner.violated(_STRAY_ACK, unread)
                return False
        return True

    def _parse(self, hdr: Header, unread: bool) -> bool:
        """Give a header to the core; False if that closed the connection."""
        length = hdr.payload_length
        self.expect_large = length >= _LARGE
        if length:
            self.state = _PARSING
        result = self._receiver.begin(hdr, self)
        if self.sock is None:
            if length and not result and self.state == _PARSING:
                self.shared.core.forget_rx(self)
            return False
        if result:
            self.state = _FRAME
            self._owner.violated(f"its message was refused: {errno_text(result)}", unread)
            return False
        return bool(length) or not self.cookie or self._owner.acknowledge_to_peer(self.cookie)

    def _scatter(self, pos: int, count: int) -> None:
        """Copy from the shared buffer to where the payload goes."""
        view = self.shared.view
        bufs = self.buffers
        while count:
            buf = bufs[0]
            size = len(buf)
            if size <= count:
                buf[:] = view[pos : pos + size]
                del bufs[0]
            else:
                size = count
                buf[:size] = view[pos : pos + size]
                bufs[0] = buf[size:]
            pos += size
            count -= size

    def _delivered(self) -> None:
        """All of the payload that was wanted is there."""
        msg, self.incoming = self.incoming, None
        self.buffers = _NO_BUFFERS
        self.state = _SLOP if self.slop else _FRAME
        if self.csum and msg is not None and not self.slop:
            good = checksum(self.sum_head, *self.checked) == self.csum
            self.checked = _NO_BUFFERS
            if not good:
                reason = f"the checksum of a message from {self.peer.nid} is wrong"
                self._receiver.end(msg, _REMOTE_ERROR, errno.EIO, reason)
                self._owner.violated(_BAD_SUM, False)
                return
        if self.cookie:
            self._owner.acknowledge_to_peer(self.cookie)  # first: who hears of the message may close all
        if msg is not None:
            self._receiver.end(msg)

    # Reading from the socket --------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to receive."""
        sock = self.sock
        assert sock is not None
        self.shared.selector.watch(sock.fileno(), self.on_readable)
        if isinstance(sock, SecureSocket) and sock.pending():
            self._read_on()

    def _resume(self) -> None:
        """Go on reading, where that was stopped until the core knew what to do with a payload."""
        if self.sock is None:
            return
        if self.peer.heard is not self._owner:
            self._owner.heard()
        saved, self.saved = self.saved, b""
        self.shared.view[: len(saved)] = saved
        self.start()
        self.consume(0, len(saved))
        self._set_deadline()

    def on_readable(self) -> None:
        """The loop says that there is something to read."""
        self._read_once()
        shared = self.shared
        if shared.spin.seconds and not shared.corked and shared.spin.wanted() and self.sock is not None:
            shared.spin.go_on(self.sock.fileno(), self._read_once)  # the loop would sleep

    def _read_once(self) -> bool | None:
        """Read, and send what that makes due: whether there was anything; None: the connection is closed."""
        shared = self.shared
        shared.receiving = not shared.dirty  # else the loop flushes already
        found = False
        try:
            found = self.read()
        finally:
            shared.received()
        if found:
            self.was_read()
        return found if self.sock is not None else None

    def read(self) -> bool:
        """Receive what is there, as far as it is this connection's turn; whether there was anything.

        If so `was_read` is due, behind what is to leave at once.
        """
        shared = self.shared
        if self.peer.heard is not self._owner and self.sock is not None:
            self._owner.heard()
        any_read = False
        budget, direct, short = TURNS[self.turn], DIRECT[self.turn], SHORT[self.turn]
        more = False
        began = monotonic() if self.busy else 0.0
        self.busy = False
        while budget > 0:
            sock = self.sock
            if sock is None or self.state == _PAUSED:
                return any_read
            left = self.left
            try:
                if left:
                    if self.saved:  # `_resume` is due, and that comes first
                        return any_read
                    tail = shared.tails[self.head_size] if self.expect_large else self.room
                    asked = left + len(tail)
                    count = sock.recvmsg_into([*self.buffers, tail])[0]
                else:
                    view = self._room() if self.saved or self.expect_large else self.room
                    asked = len(view)
                    count = sock.recv_into(view)
            except (BlockingIOError, InterruptedError):
                if any_read:
                    break
                return False
            except OSError as error:
                self._owner.receive_failed(error.errno or errno.EIO)
                return False
            if not count:
                self._owner.ended()
                return False
            any_read = True
            if left:
                self._payload_read(count)
                budget -= (min(count, left) >> direct) + max(count - left, 0)
            else:
                end = len(self.saved) + count
                self.saved = b""
                self.consume(0, end)
                budget -= end + self.spare
            if count < asked:
                break
        else:
            more = True
        if budget <= short:
            self._turn_over(began, more)
        return True

    def _turn_over(self, began: float, more: bool) -> None:
        """It is the others' turn, and there may be more. How long one is depends on how long it takes."""
        if self.sock is None or self.state == _PAUSED:
            return
        self.busy = True
        if began:
            turn = next_turn(self.turn, monotonic() - began, more)
            if turn != self.turn:
                self.turn = turn
                self._fit()
        if more and not self.shared.selector.again(self.sock.fileno()) and self.secure:
            self._read_on()

    def _read_on(self) -> None:
        """Read again after all others' turns: what OpenSSL holds no kernel knows of."""
        if not self.due:  # a kernel that has more calls the reader as well
            self.due = True
            self.shared.loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self.due = False
        self.on_readable()

    def was_read(self) -> None:
        """Something came: when, and by when more has to."""
        shared = self.shared
        self.peer.last_alive = shared.now
        if self.state == _FRAME and not self.saved:
            self.deadline = 0.0
        else:
            self._set_deadline()
        if shared.params.eager_ack and self.sock is not None:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def _room(self) -> memoryview:
        """Where in the shared buffer to read to, behind what was saved."""
        shared = self.shared
        saved = self.saved
        kept = len(saved)
        if self.expect_large and self.state == _FRAME:
            if not kept:
                return shared.tails[self.head_size]
            shared.view[:kept] = saved
            return shared.view[kept : self.head_size]
        room = self.room
        if not kept:
            return room
        shared.view[:kept] = saved
        end = len(room)
        return shared.view[kept : end if kept < end else kept + end]

    def _fit(self) -> None:
        """Read as many messages like the last one as a turn holds, whole: what is cut costs more."""
        shared, hdr = self.shared, self.hdr
        room = shared.turns[self.turn]
        size = self.head_size + hdr.payload_length if hdr is not None else 1
        if size <= len(room):
            room = room[: len(room) - len(room) % size]
        self.room = room
        self.spare = TURNS[self.turn] - len(room)

    def _set_deadline(self) -> None:
        """A message that has begun must go on within the time-out."""
        state = self.state
        begun = state in (_PAYLOAD, _SLOP) or (state == _FRAME and self.saved)
        self.deadline = self.shared.now + self.peer.timeout if begun else 0.0

    def _payload_read(self, count: int) -> None:
        """`count` bytes came for the payload and, behind it, the next header."""
        left = self.left
        if count >= left:
            self.wake_at(1)
            self.buffers = _NO_BUFFERS
            self.left = 0
            self.consume(0, count - left)
            return
        left -= count
        self.left = left
        if count < _TRICKLE or self.wake != 1:
            self.wake_at(min(left, _WAKE_MOST) if left >= _WAKE_LEAST else 1)
        bufs = self.buffers
        done = 0
        while count >= len(bufs[done]):
            count -= len(bufs[done])
            done += 1
        if done:
            del bufs[:done]
        if count:
            bufs[0] = bufs[0][count:]

    # The end ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """The socket is about to be closed."""
        assert self.sock is not None
        self.shared.selector.forget(self.sock.fileno())
        self.sock = None

    def fail(self, failure: Failure) -> None:
        """After `close`: the message that was being received fails."""
        msg, self.incoming = self.incoming, None
        self.buffers = _NO_BUFFERS
        self.checked = _NO_BUFFERS
        self.saved = b""
        self._receiver.close()
        if self.state == _PAUSED:
            self.shared.core.forget_rx(self)
        if msg is not None:
            self._receiver.end(msg, HealthStatus.REMOTE_ERROR, errno.EIO, failure.reason)
