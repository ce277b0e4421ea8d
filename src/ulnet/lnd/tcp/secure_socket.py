"""A TLS connection with the manners of a plain socket that does not block.

OpenSSL sees no socket: what came is given to it record by record, and what it has encrypted is sent here. So
a peer decides neither how long one of its calls takes nor how much it holds.
"""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from typing import Any, Final

from ulnet.lnd.tcp.alerts import words_of
from ulnet.lnd.tcp.certificate import Certificate, KnownCertificates

__all__ = ["MOST_PIECE", "SecureSocket"]

_RECORD: Final = 16384  # bytes of payload in a record at most
_LOT: Final = 65536  # bytes that are encrypted before they are sent
_LARGE: Final = 8192  # bytes of a record, from which on several are given to OpenSSL at once
_HEADER: Final = 5  # bytes of a record before what is encrypted; the last two are the length of that
_LEAST_PIECE: Final = 16384  # bytes that are received at a time, until the payload is much of them
MOST_PIECE: Final = 65536
_SMALL: Final = 1024  # bytes of payload in a record: of those that have less, few are read in one call
_SHAKEN: Final = 32768  # bytes of a handshake: certificates with 1,024 NIDs have nearly as many
_LEAST_STEP: Final = 256  # of those bytes each step counts for at least
# Of a handshake: a step is to be taken, takes more bytes, or was the last one.
_DUE: Final = 0
_MORE: Final = 1
_THROUGH: Final = 2
_PAYS: Final = 8  # bytes that may come for each one of payload
_BEYOND: Final = 32768  # bytes beyond those: more than one record that is not whole
# A record of TLS itself, such as a key update, takes longer than 16 KiB of payload. Honest peers send one in
# gigabytes, or none: each of its bytes is paid for by so many of payload, and so many bytes may come beyond,
# for session tickets.
_DEAR: Final = 4096
_CONTROL: Final = 4096
_MOST_DEAR: Final = 1024  # of those bytes count in a record: padding, and long tickets, take no longer
_LONGEST: Final = 16645  # bytes of a record with its header (RFC 8446, 5.2)
_TYPES: Final = range(20, 24)  # of records
_UNREAD: Final = 98304  # bytes of TLS itself that the other side has not read
_TOO_LONG: Final = (
    f"its part of the TLS handshake is longer than {_SHAKEN} bytes, or comes in tiny pieces: "
    "give it a shorter chain of certificates, with fewer NIDs"
)
_NO_PAYLOAD: Final = (
    "most of what it sends are records of TLS that are no payload, or are tiny: see what runs there"
)
_NOT_READ: Final = "it does not read the answers of TLS that it asks for: see what runs there"
_receive, _transmit = socket.socket.recv_into, socket.socket.send
_NOTHING: Final = memoryview(b"")
_HUNG_UP: Final = "it hung up during the TLS handshake"


class SecureSocket(socket.socket):
    """A connected socket with TLS on it, in place of the plain one, which is detached.

    What is read fills all buffers as far as there is anything; "not now" is a BlockingIOError. `held` bytes
    of what was to be sent are encrypted already, though not sent: the next call must begin with them.
    `scratch` is memory that sockets of one thread may share.
    """

    held: int = 0

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        *,
        listening: bool,
        scratch: memoryview,
        known: KnownCertificates,
    ) -> None:
        timeout = sock.gettimeout()
        super().__init__(sock.family, sock.type, sock.proto, fileno=sock.detach())
        self.settimeout(timeout)
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject = context.wrap_bio(self._in, self._out, server_side=listening)
        self._scratch = scratch
        self._known = known
        self._rest = _NOTHING  # encrypted, and still to be sent
        self._piece = _LEAST_PIECE
        # How the last step of the handshake ended: who is called has none to take before it hears something.
        self._shaken: int | OSError = _MORE if listening else _DUE
        self._to_shake = _SHAKEN  # bytes that may still come before the handshake is through
        self._left: memoryview = _NOTHING  # came, and is not given to OpenSSL: records, part of a header
        self._record = 0  # bytes of the last record that was begun …
        self._lacks = 0  # … and of those, how many are still to come
        self._beyond = 0  # bytes that came beyond what the payload pays for
        self._unpaid = 0  # bytes of payload that would pay for the records that had none
        self._failed: OSError | None = None  # behind what was read

    # In --------------------------------------------------------------------------------------------

    def pending(self) -> int:
        """Bytes that came, and of which the kernel knows no longer."""
        return self._tls.pending() + self._in.pending + len(self._left)

    def setsockopt(self, level: int, optname: int, *args: Any) -> None:
        """See socket.setsockopt; a record of those bytes for which SO_RCVLOWAT waits may be here in part."""
        if (level, optname) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT):
            args = (max(args[0] - _RECORD, 1),)
        super().setsockopt(level, optname, *args)

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """See socket.recv."""
        buffer = bytearray(buflen)
        return bytes(buffer[: self.recv_into(buffer)])

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        """See socket.recv_into."""
        return self._fill(memoryview(buffer), 0)

    def recvmsg_into(
        self, buffers: Iterable[Any], ancbufsize: int = 0, flags: int = 0
    ) -> tuple[int, list[Any], int, Any]:
        """See socket.recvmsg_into."""
        total = 0
        for buffer in buffers:
            view = memoryview(buffer)
            count = self._fill(view, total)
            total += count
            if count < len(view):
                break
        return total, [], 0, None

    def _fill(self, view: memoryview, before: int) -> int:
        """Read until the view is full, or there is nothing more, or what comes are tiny records."""
        size, count = len(view), 0
        give = self._in.write
        read: Any = self._tls.read  # how many bytes
        data, at, lacks = self._left, 0, self._lacks
        end = len(data)
        came = begun = reads = 0
        try:
            # Records that OpenSSL has and that are not read; at first the one of which a part had no room.
            given = 1 if self._tls.pending() else 0
            while count < size:
                if given:
                    try:
                        got = read(size - count, view[count:])
                    except ssl.SSLWantReadError:
                        self._had_none(given)
                        given = 0
                        continue
                    if not got:
                        break
                    count += got
                    reads += 1
                    given -= 1
                    continue
                if not lacks and end - at >= _HEADER:
                    lacks = self._begin(data, at)
                stop = at + lacks
                if at < stop <= end:
                    stop, given = self._together(data, stop, min(stop - self._record + size - count, end))
                    give(data[at:stop])
                    at, lacks = stop, 0
                    continue
                if lacks:
                    give(data[at:end])
                    lacks -= end - at
                    at = end
                if came:
                    full = self._pay(came, count - begun, reads)
                    begun, reads = count, 0
                    if count and not full:
                        break
                self._keep(data, at, end, lacks)
                came = self._feed()
                if not came:
                    break
                data, at, end = self._scratch, 0, came
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            pass  # the end, which the next call finds again
        except ssl.SSLError as error:
            self._say_last()
            raise OSError(errno.EPROTO, words_of(error)) from None
        except OSError as error:
            self._fail_behind(count + before, error)
        self._keep(data, at, end, lacks)
        self._paid_by(count - begun)
        if self._out.pending:
            self._answer()
        return count

    def _begin(self, data: memoryview, at: int) -> int:
        """The bytes of the record that begins there; of what is none its header, which OpenSSL refuses."""
        self._record = size = _HEADER + (data[at + 3] << 8 | data[at + 4])
        return size if size <= _LONGEST and data[at] in _TYPES else _HEADER

    def _together(self, data: memoryview, stop: int, most: int) -> tuple[int, int]:
        """End and number of the records that are given at once.

        They are the one that ends at `stop` and, if it is long, the long ones behind it that end by `most`:
        what is whole, and has room.
        """
        records = 1
        if self._record >= _LARGE:
            while stop + _HEADER <= most:
                end = stop + _HEADER + (data[stop + 3] << 8 | data[stop + 4])
                if not _LARGE <= end - stop <= _LONGEST or end > most:
                    break
                stop = end
                records += 1
        return stop, records

    def _keep(self, data: memoryview, at: int, end: int, lacks: int) -> None:
        """What is left there is for the next call, and the record that was begun lacks so many bytes."""
        self._lacks = lacks
        if at == end or self._failed is not None:  # nothing behind a failure is read
            self._left = _NOTHING
        elif data is self._scratch or end - at < _HEADER:
            self._left = memoryview(bytes(data[at:end]))
        else:  # a copy already
            self._left = data[at:end]

    def _fail_behind(self, count: int, error: OSError) -> None:
        """Raise the error: at the next call, if so many bytes were read before."""
        if not count:
            raise error
        if not isinstance(error, BlockingIOError):
            self._failed = error

    def _pay(self, came: int, payload: int, reads: int) -> bool:
        """The last piece had so much payload in so many records: whether there may be more to read now.

        Pieces get longer and shorter by that. Raises OSError(EPROTO) where too much is no payload.
        """
        self._paid_by(payload)
        if self._beyond > _BEYOND:
            raise OSError(errno.EPROTO, _NO_PAYLOAD)
        if came < self._piece:
            return False
        if payload < _SMALL * reads:
            self._piece = _LEAST_PIECE
            return False
        if reads and self._piece < MOST_PIECE:
            self._piece *= 2
        return True

    def _paid_by(self, payload: int) -> None:
        """So much payload was read."""
        beyond = self._beyond - _PAYS * payload
        self._beyond = beyond if beyond > 0 else 0
        if self._unpaid:
            self._unpaid = max(self._unpaid - payload, 0)

    def _had_none(self, records: int) -> None:
        """So many records had no payload. Raises OSError(EPROTO): there are too many of those."""
        self._unpaid += records * _DEAR * min(self._record, _MOST_DEAR)
        if self._unpaid > _DEAR * _CONTROL:
            raise OSError(errno.EPROTO, _NO_PAYLOAD) from None

    def _feed(self) -> int:
        """Receive a piece behind what is left: bytes in all; 0: that was the end. Raises OSError."""
        if self._failed is not None:
            raise self._failed
        left, scratch = self._left, self._scratch
        kept = len(left)
        count = _receive(self, scratch[kept:] if kept else scratch, self._piece - kept)
        if not count:
            return 0
        if kept:
            scratch[:kept] = left
        self._beyond += count
        return kept + count

    # Out -------------------------------------------------------------------------------------------

    def send(self, data: Any, flags: int = 0) -> int:
        """See socket.send."""
        return self.sendmsg((data,), flags=flags)

    def sendmsg(self, buffers: Iterable[Any], ancdata: Any = (), flags: int = 0, address: Any = None) -> int:
        """See socket.sendmsg."""
        if self._rest and not self._push():
            raise BlockingIOError
        count = skip = self.held
        self.held = 0
        write, lot = self._tls.write, 0
        try:
            for buffer in buffers:
                view = memoryview(buffer)
                if skip >= len(view):
                    skip -= len(view)
                    continue
                at, skip = skip, 0
                while at < len(view):
                    piece = view[at : at + _LOT - lot]
                    write(piece)
                    at += len(piece)
                    lot += len(piece)
                    if lot == _LOT:
                        self._leave(lot)
                        count += lot
                        lot = 0
            if lot:
                self._leave(lot, flags)
        except ssl.SSLError as error:
            raise OSError(errno.EPROTO, words_of(error)) from None
        except OSError:
            if not count:
                raise
            return count
        return count + lot

    def _leave(self, lot: int, flags: int = 0) -> None:
        """Send so many bytes, which are encrypted; they are held where that fails. Raises OSError."""
        self.held = lot
        if not self._push(flags):
            raise BlockingIOError
        self.held = 0

    def _push(self, flags: int = 0) -> bool:
        """Send what is encrypted; whether all has left. Raises OSError."""
        while True:
            rest = self._rest or self._out.read()
            if not rest:
                return True
            self._rest = memoryview(rest)
            try:
                sent = _transmit(self, rest, flags)
            except BlockingIOError:
                return False
            self._rest = self._rest[sent:] if sent < len(rest) else _NOTHING

    def _answer(self) -> None:
        """Send what TLS itself has to say; what does not leave does so later. Raises OSError(EPROTO)."""
        if not self._push() and len(self._rest) + self._out.pending > _LOT + _UNREAD:
            raise OSError(errno.EPROTO, _NOT_READ)

    def _say_last(self) -> None:
        """The connection is of no use any more, and the other side is told why if that goes at once."""
        with suppress(OSError):
            self._push()

    # The handshake ---------------------------------------------------------------------------------

    @property
    def heard(self) -> bool:
        """Whether any byte of the other side's handshake was read."""
        return self._to_shake < _SHAKEN

    def shake(self) -> str:
        """Go on with the handshake, and say what it waits for: "read", "write", or `work`; "": it is through.

        Raises OSError.
        """
        shaken = self._shaken
        if shaken == _DUE:
            return "work"
        try:
            if isinstance(shaken, OSError):
                raise self._refusal(shaken)
            if not self._push():
                return "write"
            if shaken == _MORE:
                if self._to_shake <= 0:
                    raise OSError(errno.EPROTO, _TOO_LONG)
                count = self._feed()
                if not count:
                    raise ConnectionResetError
                self._in.write(self._scratch[:count])
                self._to_shake -= max(count, _LEAST_STEP)
                self._shaken = _DUE
                return "work"
        except BlockingIOError:
            return "read"
        except ConnectionError:
            raise ConnectionResetError(errno.ECONNRESET, _HUNG_UP) from None
        self._beyond = 0
        self._left = memoryview(self._in.read())
        try:
            _ = self.certificate
        except ValueError:
            text = "its certificate has names that are no text: make it anew with `ulnet pki`"
            raise OSError(errno.EACCES, text) from None
        return ""

    def work(self) -> None:
        """Take the step that is due, which the other side can make take seconds: `shake` goes on then.

        Any thread may do that, while the others at most close this.
        """
        if self.fileno() < 0:
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._shaken = _MORE
        except OSError as error:
            self._shaken = error.with_traceback(None)  # whose frame holds this
        else:
            self._shaken = _THROUGH

    def _refusal(self, error: OSError) -> OSError:
        """What to say of an error of that step; the other side is told."""
        if isinstance(error, (ssl.SSLZeroReturnError, ssl.SSLEOFError)):
            return ConnectionResetError()
        if not isinstance(error, ssl.SSLError):
            return error
        self._say_last()
        if isinstance(error, ssl.SSLCertVerificationError):
            return OSError(errno.EACCES, f"its certificate is not good: {error.verify_message}")
        return OSError(errno.EPROTO, words_of(error))

    @cached_property
    def certificate(self) -> Certificate:
        """The other end's, after the handshake."""
        return self._known.of(self._tls)
