"""The receiving half of a connection: reading from the socket (spec wire-socklnd.md §4, §5).

Hot path: flat. Headers and small payloads come through the one buffer that all connections share;
large payloads are read straight into their owner's memory, together with exactly the next header.
"""

from __future__ import annotations

import errno
import socket
from time import monotonic
from typing import Final

from ulnet.lnd.tcp.frames import FRAME, PAUSED, PAYLOAD, SLOP, Frames

__all__ = ["Receiver"]

_READ_BYTES: Final = 4 << 20  # what one connection may receive before the others have their turn
_TRICKLE: Final = 131072  # who gets less of a payload at a time waits for more: the network is slower than we
_WAKE_LEAST: Final = 16384  # what is left of a payload when each piece of it wakes us
_WAKE_MOST: Final = 524288  # what to wait for at most


class Receiver(Frames):
    """Bytes from a peer."""

    __slots__ = ()

    def start(self) -> None:
        """Begin to receive."""
        assert self.sock is not None
        self.shared.selector.watch(self.sock.fileno(), self.on_readable)

    def ended(self) -> None:
        """The peer closed the connection."""
        raise NotImplementedError

    def receive_failed(self, number: int) -> None:
        """The socket failed."""
        raise NotImplementedError

    def resume(self) -> None:
        if self.sock is None:
            return
        if self.peer.heard is not self:
            self.peer.hears(self)
        saved, self.saved = self.saved, b""
        self.shared.view[: len(saved)] = saved
        self.start()
        self.consume(0, len(saved))
        self._set_deadline()

    def on_readable(self) -> None:
        """The loop says that there is something to read."""
        shared = self.shared
        shared.receiving = not shared.dirty  # else the loop flushes already
        found = False
        try:
            found = self.read()
        finally:
            shared.received()
        if found:
            self.was_read()
        if shared.spin.seconds and not shared.corked and shared.spin.wanted():
            self._spin()

    def _spin(self) -> None:
        """Look for more for a moment: the loop would sleep."""
        shared = self.shared
        spin = shared.spin
        if self.sock is None:
            return
        number = self.sock.fileno()
        found = False
        begin = now = monotonic()
        until = spin.end(begin, now)
        while now < until and self.sock is not None:
            more = False
            if spin.look(number):
                shared.receiving = not shared.dirty
                try:
                    more = self.read()
                finally:
                    shared.received()
                if more:
                    self.was_read()
            now = monotonic()
            if more:
                found = True
                until = spin.end(begin, now)
        spin.tried(found)

    def read(self) -> bool:
        """Receive what is there, as far as it is this connection's turn; whether there was anything.

        If so `was_read` is due, behind what is to leave at once.
        """
        shared = self.shared
        if self.peer.heard is not self and self.sock is not None:
            self.peer.hears(self)
        any_read = False
        budget = _READ_BYTES
        while True:
            sock = self.sock
            if sock is None or self.rx_state == PAUSED:
                return any_read
            try:
                if self.rx_left:
                    if self.saved:  # `resume` is due, and that comes first
                        return any_read
                    tail = shared.tails[self.head_size] if self.expect_large else shared.view
                    asked = self.rx_left + len(tail)
                    count = sock.recvmsg_into([*self.rx_bufs, tail])[0]
                else:
                    view = self._room()
                    asked = len(view)
                    count = sock.recv_into(view)
            except (BlockingIOError, InterruptedError):
                if any_read:
                    break
                return False
            except OSError as error:
                self.receive_failed(error.errno or errno.EIO)
                return False
            if not count:
                self.ended()
                return False
            any_read = True
            if self.rx_left:
                self._payload_read(count)
            else:
                end = len(self.saved) + count
                self.saved = b""
                self.consume(0, end)
            budget -= count
            if count < asked or budget <= 0:
                break
        return True

    def was_read(self) -> None:
        """Something came: when, and by when more has to."""
        shared = self.shared
        self.peer.last_alive = shared.now
        self._set_deadline()
        if shared.params.eager_ack and self.sock is not None:
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def _room(self) -> memoryview:
        """Where in the shared buffer to read to, behind what was saved."""
        shared = self.shared
        saved = self.saved
        kept = len(saved)
        if self.expect_large and self.rx_state == FRAME:
            if not kept:
                return shared.tails[self.head_size]
            shared.view[:kept] = saved
            return shared.view[kept : self.head_size]
        if not kept:
            return shared.view
        shared.view[:kept] = saved
        return shared.view[kept:]

    def _set_deadline(self) -> None:
        """A message that has begun must go on within the time-out."""
        state = self.rx_state
        if state in (PAYLOAD, SLOP) or (state == FRAME and self.saved):
            self.rx_deadline = self.shared.now + self.timeout
        else:
            self.rx_deadline = 0.0

    def _payload_read(self, count: int) -> None:
        """`count` bytes came for the payload and, behind it, the next header."""
        left = self.rx_left
        if count >= left:
            self.wake_at(1)
            self.rx_bufs = []
            self.rx_left = 0
            self.consume(0, count - left)
            return
        left -= count
        self.rx_left = left
        if count < _TRICKLE or self.rx_wake != 1:
            self.wake_at(min(left, _WAKE_MOST) if left >= _WAKE_LEAST else 1)
        bufs = self.rx_bufs
        done = 0
        while count >= len(bufs[done]):
            count -= len(bufs[done])
            done += 1
        if done:
            del bufs[:done]
        if count:
            bufs[0] = bufs[0][count:]
