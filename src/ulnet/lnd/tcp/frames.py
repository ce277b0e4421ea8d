"""Frames from a peer: headers, what the core makes of them, and where payloads go (spec wire-socklnd.md §4).

Hot path: flat. Works on the buffer that all connections share; `Receiver` reads from the socket.
"""

from __future__ import annotations

import errno
import socket
import struct
from typing import TYPE_CHECKING, Final

from ulnet.core.status import HealthStatus, errno_text
from ulnet.lnd.tcp.shared import Shared
from ulnet.lnd.tcp.transmit import Transmitter
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import unpack_header
from ulnet.wire.socklnd import FRAME_HEADER_SIZE, FrameType, checksum

if TYPE_CHECKING:
    from ulnet.core.msg import Incoming
    from ulnet.lnd.contract import Inbound
    from ulnet.lnd.tcp.peer import Peer
    from ulnet.wire.lnet import Header

__all__ = ["BAD_SUM", "FRAME", "PAUSED", "PAYLOAD", "SLOP", "STRAY_ACK", "Frames"]

_REMOTE_ERROR: Final = HealthStatus.REMOTE_ERROR
_LNET: Final = FrameType.LNET.value
_LITTLE: Final = struct.Struct("<IIQQ")
_BIG: Final = struct.Struct(">IIQQ")
_NO_FRAME: Final = (_LNET, 0, 0, 0)  # protocol 1 has bare LNet headers
_LARGE: Final = 32768  # payloads from here on are not copied: after one only the next header is read
BAD_SUM: Final = "a checksum is wrong"
STRAY_ACK: Final = "it acknowledged a zero-copy request, which we never make"

# What the next bytes are.
FRAME: Final = 0
PAYLOAD: Final = 1  # wanted
SLOP: Final = 2  # of a payload, not wanted
_PARSING: Final = 3  # the core has the header and has not said yet
PAUSED: Final = 4  # the core will say later (delayed match); nothing is read until then


class Frames(Transmitter):
    """Frames, headers and payloads from a peer."""

    __slots__ = (
        "expect_large",
        "frame",
        "peer",
        "receiver",
        "rename",
        "rx_bufs",
        "rx_check",
        "rx_cookie",
        "rx_crc",
        "rx_csum",
        "rx_deadline",
        "rx_hdr",
        "rx_left",
        "rx_msg",
        "rx_raw",
        "rx_slop",
        "rx_state",
        "rx_wake",
        "saved",
    )

    def __init__(
        self, shared: Shared, sock: socket.socket, peer: Peer, version: int, big_endian: bool, rename: bool
    ) -> None:
        super().__init__(shared, sock, version, peer.timeout, peer.state.failures)
        self.peer = peer
        self.frame = _BIG if big_endian else _LITTLE
        self.rename = rename  # the peer's name is made from its socket, not taken from its headers
        self.rx_state = FRAME
        self.saved = b""  # received, not yet looked at
        self.expect_large = False
        self.rx_msg: Incoming | None = None
        self.rx_bufs: list[memoryview] = []  # where the rest of the payload goes
        self.rx_left = 0
        self.rx_slop = 0
        self.rx_cookie = 0
        self.rx_csum = 0
        self.rx_crc = b""  # the headers, as the checksum of protocol 2 covers them
        self.rx_check: list[memoryview] = []  # the whole payload, to check
        self.receiver: Inbound = shared.core.receiver(peer.ni, peer.nid)
        self.rx_raw = b""  # the headers of the last message, to know them again
        self.rx_hdr: Header | None = None
        self.rx_deadline = 0.0  # 0: not in the middle of a message
        self.rx_wake = 1  # bytes that must be there before the loop tells; never more than are to come

    # What `Conn` does about it.

    def noop(self, kind: int, csum: int, cookie0: int, cookie1: int, pos: int, end: int) -> bool:
        """A frame that is no LNet message; False if it closed the connection."""
        raise NotImplementedError

    def acknowledge_to_peer(self, cookie: int) -> bool:
        """Send a zero-copy acknowledgement; False if that is not to be, and everything is closed."""
        raise NotImplementedError

    def violated(self, text: str, unread: bool) -> int:
        """The peer broke the protocol; -1, as a position that says closed."""
        raise NotImplementedError

    def resume(self) -> None:
        """Go on reading, where that was stopped until the core knew what to do with a payload."""
        raise NotImplementedError

    # Where the core wants a payload ---------------------------------------------------------------

    def take(self, incoming: Incoming | None, buffers: list[memoryview], mlen: int, rlen: int) -> None:
        """Where the payload goes: mlen bytes into buffers, the other rlen - mlen nowhere."""
        if self.sock is None:
            if incoming is not None:
                why = "the connection is closed"
                self.shared.loop.call_soon(self.receiver.end, incoming, _REMOTE_ERROR, errno.EIO, why)
            return
        paused = self.rx_state == PAUSED
        self.rx_msg = incoming
        self.rx_bufs = list(buffers)
        self.rx_check = list(buffers) if self.rx_csum and mlen == rlen else []
        self.rx_left = mlen
        self.rx_slop = rlen - mlen
        self.rx_state = PAYLOAD
        if paused:
            self.shared.loop.call_soon(self.resume)

    def abandon(self, incoming: Incoming) -> bool:
        """Throw away what is still to come of a message, without a word; False if nothing is."""
        if self.rx_msg is not incoming or self.rx_state != PAYLOAD or not self.rx_left:
            return False
        self.rx_msg = None
        self.rx_check = []
        self.rx_slop += self.rx_left
        self.rx_left = 0
        self.wake_at(1)
        self._delivered()
        return True

    # Headers ----------------------------------------------------------------------------------------

    def wake_at(self, count: int) -> None:
        """Have the loop tell when so much is there: a wake-up costs more than copying 64 KiB does."""
        if count != self.rx_wake and self.sock is not None:
            self.rx_wake = count
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def consume(self, pos: int, end: int) -> None:
        """Work through the shared buffer from pos to end; keep what is not complete."""
        while True:
            state = self.rx_state
            if state == FRAME:
                start = pos
                if self.rx_hdr is not None:
                    pos = self._repeated(pos, end, self.rx_hdr)
                    if self.sock is None:
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
            elif state == PAYLOAD:
                count = min(self.rx_left, end - pos)
                if count:
                    self._scatter(pos, count)
                    pos += count
                    self.rx_left -= count
                if self.rx_left:
                    return
                self._delivered()
                if self.sock is None:
                    return
            elif state == SLOP:
                count = min(self.rx_slop, end - pos)
                pos += count
                self.rx_slop -= count
                if self.rx_slop:
                    return
                self.rx_state = FRAME
            else:
                self.rx_state = PAUSED
                assert self.sock is not None
                self.shared.selector.forget(self.sock.fileno())
                break
        self.saved = bytes(self.shared.view[pos:end]) if pos < end else b""

    def _repeated(self, pos: int, end: int, hdr: Header) -> int:
        """Take whole messages whose headers are those of the last one: the position behind them."""
        length = hdr.payload_length
        size = self.head_size + length
        if length >= _LARGE:
            return pos
        shared = self.shared
        while end - pos >= size and self.sock is not None:
            before = pos
            pos = self.receiver.deliver(hdr, self.rx_raw, shared.buf, shared.view, pos, end)
            if pos == before:
                break
            shared.worked((pos - before) // size)
        return pos

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
                return pos if self.noop(kind, csum, cookie0, cookie1, pos, end) else -1
            pos += FRAME_HEADER_SIZE
        else:
            kind, csum, cookie0, cookie1 = _NO_FRAME
        stop = start + self.head_size
        if end < stop:
            return start
        hdr = self.rx_hdr
        if hdr is None or not shared.buf.startswith(self.rx_raw, start):
            try:
                hdr = unpack_header(shared.buf, pos, self.large)
            except WireError as error:
                return self.violated(str(error), end > stop)
            if cookie1:
                return self.violated(STRAY_ACK, end > stop)
            if self.rename:
                hdr.src_nid = self.peer.nid
                hdr.src_pid = self.peer.pid
        if csum or cookie0:
            self.rx_hdr = None
        elif hdr is not self.rx_hdr:
            self.rx_hdr = hdr
            self.rx_raw = bytes(shared.buf[start:stop])
            behind = self._repeated(start, end, hdr)
            if self.sock is None:
                return -1
            if behind > start:
                self.expect_large = False
                return behind
        self.rx_cookie = cookie0
        self.rx_csum = csum
        if csum:
            self.rx_crc = self.summed(start, stop)
            if not hdr.payload_length and csum != checksum(self.rx_crc):
                return self.violated(BAD_SUM, end > stop)
        return stop if self._parse(hdr, end > stop) else -1

    def _parse(self, hdr: Header, unread: bool) -> bool:
        """Give a header to the core; False if that closed the connection."""
        length = hdr.payload_length
        self.expect_large = length >= _LARGE
        if length:
            self.rx_state = _PARSING
        result = self.receiver.begin(hdr, self)
        if self.sock is None:
            if length and not result and self.rx_state == _PARSING:
                self.shared.core.forget_rx(self)
            return False
        if result:
            self.rx_state = FRAME
            self.violated(f"its message was refused: {errno_text(result)}", unread)
            return False
        return bool(length) or not self.rx_cookie or self.acknowledge_to_peer(self.rx_cookie)

    def summed(self, start: int, stop: int) -> bytes:
        """The headers that a checksum covers: all of them in protocol 2, none later."""
        if self.version != 2:
            return b""
        raw = bytearray(self.shared.view[start:stop])
        raw[4:8] = bytes(4)
        return bytes(raw)

    def _scatter(self, pos: int, count: int) -> None:
        """Copy from the shared buffer to where the payload goes."""
        view = self.shared.view
        bufs = self.rx_bufs
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
        msg = self.rx_msg
        self.rx_msg = None
        self.rx_bufs = []
        self.rx_state = SLOP if self.rx_slop else FRAME
        if self.rx_csum and msg is not None and not self.rx_slop:
            good = checksum(self.rx_crc, *self.rx_check) == self.rx_csum
            self.rx_check = []
            if not good:
                reason = f"the checksum of a message from {self.peer.nid} is wrong"
                self.receiver.end(msg, _REMOTE_ERROR, errno.EIO, reason)
                self.violated(BAD_SUM, False)
                return
        if msg is not None:
            self.receiver.end(msg)
        if self.rx_cookie and self.sock is not None:
            self.acknowledge_to_peer(self.rx_cookie)
