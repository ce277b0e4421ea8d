"""The sending half of a connection: frames, gathered writes, acknowledgements (spec wire-socklnd.md §4).

Hot path: flat, no allocation that can be avoided. A batch of messages becomes one list of buffers for
`sendmsg`; payload goes out of its owner's memory. Only batches of small messages are joined into
one piece first, which costs less than a long list of buffers does.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from ulnet.core.status import HealthStatus, errno_text
from ulnet.lnd.base import Failures, is_bare
from ulnet.lnd.tcp.bare import ZERO_COPY, InDoubt, Requests
from ulnet.lnd.tcp.errors import Failure, send_status
from ulnet.lnd.tcp.progress import unacknowledged
from ulnet.lnd.tcp.secure_socket import SecureSocket
from ulnet.lnd.tcp.shared import Shared
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import HEADER_SIZE, LARGE_HEADER_SIZE, pack_header
from ulnet.wire.socklnd import (
    FRAME_HEADER_SIZE,
    KEEPALIVE_COOKIE,
    FrameType,
    checksum,
    pack_frame_header,
)

if TYPE_CHECKING:
    from ulnet.core.msg import Msg
    from ulnet.wire.lnet import Header

__all__ = ["Transmitter"]

_BATCH_BYTES: Final = 4 << 20
_BATCH_PIECES: Final = 500  # a message adds up to 257, the kernel takes 1024
_JOIN_BYTES: Final = 65536
_SHORT: Final = 4096  # a message that is cheaper to copy than to send in two pieces
_FLUSH_BYTES: Final = 8 << 20  # what one connection may send before the others have their turn
# Linux holds back what is short while something of the same connection is queued below TCP, where it stands
# behind all that other connections send (tcp_autocorking). What ends a record goes at once.
_EOR: Final[int] = socket.MSG_EOR
_NO_MEMORY: Final = frozenset({errno.ENOMEM, errno.ENOBUFS})
_LNET_FRAME: Final = pack_frame_header(FrameType.LNET)


class Transmitter:
    """Queue of messages and acknowledgements towards a peer.

    `woken` is called when something is queued where nothing was, `broken` when the socket fails. `cookie`
    gives a new one for a zero-copy request; 0 while the peer could not answer that.
    """

    __slots__ = (
        "_broken",
        "_cookie",
        "_woken",
        "acks",
        "batch",
        "batch_start",
        "before_wmd",
        "behind_wmd",
        "ends",
        "failures",
        "head_size",
        "idle",
        "in_doubt",
        "iov",
        "iov_bytes",
        "large",
        "packed_hdr",
        "prefix",
        "requests",
        "sent",
        "sent_total",
        "shared",
        "sock",
        "sums",
        "version",
        "waiting",
        "waiting_bytes",
        "wmd_at",
        "writing",
    )

    def __init__(
        self,
        shared: Shared,
        sock: socket.socket,
        version: int,
        failures: Failures,
        woken: Callable[[], None],
        broken: Callable[[Failure], None],
        cookie: Callable[[], int],
    ) -> None:
        prefix = b"" if version == 1 else _LNET_FRAME
        self.head_size: int = len(prefix) + (LARGE_HEADER_SIZE if version == 4 else HEADER_SIZE)
        self.waiting: list[Msg] = []
        self.waiting_bytes: int = 0  # of all that wait, headers included
        self.idle: bool = True  # nothing queued, and nobody will look: `kick` is due
        self.wmd_at: int = self.head_size - 40  # of the 16 bytes of a header that name one message
        self.shared: Shared = shared
        self.failures: Failures = failures
        self.sock: socket.socket | None = sock
        self.version: int = version
        self.large: bool = version == 4
        self.prefix: bytes = prefix
        self.packed_hdr: Header | None = None  # the last one, and what it is on the wire …
        self.before_wmd: bytes = b""  # … before the handle of a message and behind it
        self.behind_wmd: bytes = b""
        self.sums: bool = version == 2 and shared.params.enable_csum
        self._woken = woken
        self._broken = broken
        self._cookie = cookie
        self.requests: Requests | None = None  # while there are large bare PUTs
        self.in_doubt: InDoubt | None = None  # while there are small ones
        self.acks: list[int] = []  # cookies to acknowledge; KEEPALIVE_COOKIE: a keepalive
        self.iov: list[bytes | memoryview] = []  # the rest of the batch being sent
        self.iov_bytes: int = 0
        self.batch: list[Msg] = []
        self.ends: list[int] = []  # where each message of the batch ends
        self.batch_start: int = 0  # where the first of them begins
        self.sent: int = 0  # of the batch
        self.writing: bool = False  # the socket was full: the loop tells when it is not
        self.sent_total: int = 0  # bytes given to the kernel

    def queue(self, msgs: list[Msg], size: int) -> None:
        """Send messages, each of `size` bytes with its headers, after what is queued."""
        count = len(msgs)
        self.waiting += msgs
        self.waiting_bytes += size * count
        if is_bare(msgs[0]):
            if size - self.head_size >= ZERO_COPY:
                if self.requests is None and self.prefix:
                    self.requests = Requests()
            else:
                if self.in_doubt is None:
                    self.in_doubt = InDoubt()
                self.in_doubt.waiting += count
        if self.idle:
            self.kick()

    def acknowledge(self, cookie: int) -> None:
        """Send a NOOP for that cookie."""
        self.acks.append(cookie)
        if self.idle:
            self.kick()

    def kick(self) -> None:
        """Something is queued on an idle connection."""
        self.idle = False
        self._woken()
        self.shared.flush_soon(self)

    def on_writable(self) -> None:
        """The loop says that the socket takes more."""
        shared = self.shared
        shared.receiving = not shared.dirty  # what handlers send meanwhile leaves at once
        try:
            self.flush()
        finally:
            shared.received()

    def flush(self) -> None:
        """Send until nothing is left, the socket is full, or it is the others' turn."""
        budget = _FLUSH_BYTES
        while True:
            sock = self.sock
            if sock is None:
                return
            if not self.iov and not ((self.waiting or self.acks) and self._fill()):
                self.idle = True
                if not self.requests:
                    self.requests = None
                if self.writing:
                    self.writing = False
                    self.shared.selector.forget_room(sock.fileno())
                return
            try:
                iov = self.iov
                if len(iov) > 1:
                    count = sock.sendmsg(iov)
                else:
                    count = sock.send(iov[0], _EOR if self.iov_bytes <= _SHORT else 0)
            except (BlockingIOError, InterruptedError):
                count = 0
            except OSError as error:
                self._send_failed(error.errno or errno.EIO)
                return
            self.sent_total += count
            if count < self.iov_bytes:
                self._advance(count)
                if not self.writing and self.sock is not None:
                    self.writing = True
                    self.shared.selector.watch_room(sock.fileno(), self.on_writable)
                return
            self._batch_sent(count)
            budget -= count
            if budget <= 0:
                if not self.writing:
                    self.shared.flush_soon(self)
                return

    def _batch_sent(self, count: int) -> None:
        batch = self.batch
        self.iov = []
        self.batch = []
        self.ends = []
        self.waiting_bytes -= count
        in_doubt = self.in_doubt
        if in_doubt is not None and in_doubt.waiting and not self.waiting:
            in_doubt.sent(self.sent_total, self._acked)
        if batch and self.requests is not None:
            batch = self.requests.sent(batch)
        if batch:
            self.shared.core.completed(batch)

    def _acked(self) -> int:
        """Bytes that the peer's host has acknowledged."""
        return self.sent_total - unacknowledged(self.sock) if self.sock is not None else self.sent_total

    def _left(self, msgs: list[Msg]) -> None:
        """The kernel has taken these."""
        if self.requests is not None:
            msgs = self.requests.sent(msgs)
        if msgs:
            self.shared.core.completed(msgs)

    def _advance(self, count: int) -> None:
        """Take `count` sent bytes off the front of the batch and finish the messages they complete."""
        self.iov_bytes -= count
        self.waiting_bytes -= count
        self.sent += count
        iov = self.iov
        done = 0
        for piece in iov:
            if count < len(piece):
                break
            count -= len(piece)
            done += 1
        if done:
            del iov[:done]
        if count:
            iov[0] = memoryview(iov[0])[count:]
        ends = self._reckon_ends()
        done = 0
        while done < len(ends) and ends[done] <= self.sent:
            done += 1
        if done:
            finished = self.batch[:done]
            self.batch_start = ends[done - 1]
            del self.batch[:done], ends[:done]
            self._left(finished)

    def _reckon_ends(self) -> list[int]:
        """Where each message of the batch ends; only a batch that does not leave whole needs to know."""
        ends = self.ends
        if not ends:
            end = self.batch_start
            for msg in self.batch:
                end += self.head_size + msg.hdr.payload_length
                ends.append(end)
        return ends

    def _fill(self) -> bool:
        """Make the next batch; False when nothing is queued."""
        pieces: list[bytes | memoryview] = self.iov
        total = 0
        if self.acks:
            pieces.append(self._noops())
            total = len(pieces[0])
            self.waiting_bytes += total
        self.batch_start = total
        waiting = self.waiting
        head_size, sums = self.head_size, self.sums
        at, count = 0, len(waiting)
        while at < count:
            msg = waiting[at]
            hdr = msg.hdr
            if hdr is not self.packed_hdr and not self._pack(msg):
                at += 1
                continue
            size = head_size + hdr.payload_length
            if size <= _SHORT and at + 1 < count and not sums:
                taken = self._join(waiting[at : at + (_JOIN_BYTES - total % _JOIN_BYTES) // size + 1], pieces)
            else:
                head = self.before_wmd + msg.wmd + self.behind_wmd
                pieces.append(self._with_sum(head, msg.payload) if sums else head)
                pieces += msg.payload
                self.batch.append(msg)
                taken = 1
            at += taken
            total += taken * size
            if total >= _BATCH_BYTES or len(pieces) >= _BATCH_PIECES:
                break
        if at == count:
            waiting.clear()
        else:
            del waiting[:at]
        if not total:
            return False
        self.iov_bytes = total
        self.sent = 0
        if self.requests is not None:
            self.requests.ask(self.batch, pieces, self._cookie, self.head_size, self.sums)
        if total <= _SHORT or (total <= _JOIN_BYTES and len(pieces) > 2):
            self.iov = [b"".join(pieces)]
        return True

    def _pack(self, msg: Msg) -> bool:
        """Pack the header of that message and of those like it; it fails where that cannot be."""
        hdr = msg.hdr
        try:
            head = self.prefix + pack_header(hdr, self.large)
        except WireError as error:
            self.waiting_bytes -= self.head_size + hdr.payload_length
            self.failures.add(msg, HealthStatus.OK, errno.EINVAL, str(error))  # its own NIDs are to blame
            return False
        self.packed_hdr = hdr  # nobody changes it
        self.before_wmd = head[: self.wmd_at]
        self.behind_wmd = head[self.wmd_at + 16 :]
        return True

    def _join(self, msgs: list[Msg], pieces: list[bytes | memoryview]) -> int:
        """Add those of `msgs` that have the header of the first, as one piece: how many."""
        first = msgs[0]
        hdr, wmd, payload = first.hdr, first.wmd, first.payload
        before, behind = self.before_wmd, self.behind_wmd
        if not [
            msg for msg in msgs if msg.wmd is not wmd or msg.payload is not payload or msg.hdr is not hdr
        ]:
            pieces.append(b"".join((before, wmd, behind, *payload)) * len(msgs))
            self.batch += msgs
            return len(msgs)
        if [msg for msg in msgs if msg.hdr is not hdr]:
            msgs = list(takewhile(lambda msg: msg.hdr is hdr, msgs))
        if hdr.payload_length:
            messages = [b"".join((msg.wmd, behind, *msg.payload)) for msg in msgs]
            pieces.append(before + before.join(messages))
        else:
            pieces.append(before + (behind + before).join([msg.wmd for msg in msgs]) + behind)
        self.batch += msgs
        return len(msgs)

    def _with_sum(self, head: bytes, payload: list[memoryview]) -> bytes:
        return pack_frame_header(FrameType.LNET, checksum(head, *payload)) + head[FRAME_HEADER_SIZE:]

    def _noops(self) -> bytes:
        """NOOP frames for all queued cookies; from protocol 3 on, runs go as ranges."""
        acks, self.acks = self.acks, []
        frames = []
        first = last = acks[0]
        for cookie in [*acks[1:], 0]:
            if cookie == last + 1 and first != KEEPALIVE_COOKIE and self.version >= 3:
                last = cookie
                continue
            cookie0 = first if first != last else 0
            frame = pack_frame_header(FrameType.NOOP, 0, cookie0, last)
            if self.sums:
                frame = pack_frame_header(FrameType.NOOP, checksum(frame), cookie0, last)
            frames.append(frame)
            first = last = cookie
        return b"".join(frames)  # one piece, however many: the kernel takes 1024

    def _send_failed(self, number: int) -> None:
        if number in _NO_MEMORY:
            self.shared.starved.add(self)
            if self.writing and self.sock is not None:
                self.writing = False
                self.shared.selector.forget_room(self.sock.fileno())
            return
        text = f"sending failed: {errno_text(number)}"
        self._broken(Failure(number, send_status(number), text))

    def take_queue(self) -> list[Msg]:
        """Take back the messages of which nothing has left; one that has begun goes on, if it can."""
        begun = 0
        start = self.batch_start
        sent = self.sent + self._held()
        for end in self._reckon_ends():
            if start >= sent:
                break
            begun += 1
            start = end
        taken = self.batch[begun:]
        if taken:
            del self.batch[begun:], self.ends[begun:]
            self._cut(start - self.sent)
        taken += self.waiting
        self.waiting.clear()
        if self.requests is not None:
            self.requests.taken_back(taken)
        if self.in_doubt is not None:
            self.in_doubt.waiting -= sum(map(is_bare, taken))
        for msg in taken:
            self.waiting_bytes -= self.head_size + msg.hdr.payload_length
        return taken

    def _held(self) -> int:
        """Bytes that are OpenSSL's already: they will leave, or it takes nothing more."""
        return self.sock.held if isinstance(self.sock, SecureSocket) else 0

    def _cut(self, count: int) -> None:
        """Leave `count` bytes of the batch to be sent."""
        self.iov_bytes = count
        kept: list[bytes | memoryview] = []
        for piece in self.iov:
            if not count:
                break
            kept.append(piece if len(piece) <= count else memoryview(piece)[:count])
            count -= len(kept[-1])
        self.iov = kept

    def acknowledged(self, cookie: int) -> bool:
        """The peer has read what that zero-copy request was for; False if there is no such one."""
        if self.requests is None or cookie not in self.requests.asked:
            return False
        self.shared.core.completed(self.requests.asked.pop(cookie))
        return True

    def host_has_all(self) -> None:
        """Nothing is queued, and the peer's host has all that was sent: what could not ask is done."""
        self.in_doubt = None
        if self.requests is not None and self.requests.held:
            held, self.requests.held = self.requests.held, []
            self.shared.core.completed(held)

    @property
    def asks(self) -> bool:
        """Whether the peer still has to say that it has read something."""
        return self.requests is not None and bool(self.requests.asked)

    def say_last(self) -> None:
        """The socket is about to be closed: acknowledge what was read, if the kernel takes that at once."""
        if self.acks and not (self.iov and (self.sent or self._held())) and self.sock is not None:
            with suppress(OSError):
                self.sock.send(self._noops())

    def doubtful(self) -> int:
        """The connection breaks: how many PUTs were told to be sent that the peer's host may not have."""
        if self.in_doubt is None:
            return 0
        return self.in_doubt.lost(self._acked(), [*self.batch, *self.waiting])

    def close(self) -> tuple[list[Msg], list[Msg]]:
        """The socket is about to be closed: the messages that left, if only in part, and those not begun."""
        assert self.sock is not None
        if self.writing:
            self.shared.selector.forget_room(self.sock.fileno())
        sent = self.sent + self._held()
        self.sock = None
        self.shared.starved.discard(self)
        self.idle = False  # nothing may schedule a flush any more
        begun = self.requests.close() if self.requests is not None else []
        self.requests = None
        rest: list[Msg] = []
        start = self.batch_start
        for msg, end in zip(self.batch, self._reckon_ends(), strict=True):
            (begun if start < sent else rest).append(msg)
            start = end
        rest += self.waiting
        self.batch = []
        self.ends = []
        self.iov = []
        self.acks = []
        self.waiting.clear()
        self.waiting_bytes = 0
        return begun, rest
