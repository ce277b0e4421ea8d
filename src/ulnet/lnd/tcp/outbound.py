"""An attempt to connect: the socket around an `ActiveHandshake` (spec wire-socklnd.md §3.6)."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Final

from ulnet.lnd.tcp.errors import why_connect_failed, why_handshake_broke
from ulnet.lnd.tcp.handshake import ActiveHandshake, Verdict
from ulnet.lnd.tcp.secure import Credentials
from ulnet.lnd.tcp.secure_socket import SecureSocket

if TYPE_CHECKING:
    from ulnet.lnd.tcp.dialer import Dialer
    from ulnet.lnd.tcp.shared import Shared
    from ulnet.wire.socklnd import ConnType

__all__ = ["Outbound"]

_HUNG_UP: Final = (errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE)


class Outbound:
    """Waits for the TCP connection, sends request and HELLO, reads the answer, tells the dialer, once."""

    __slots__ = (
        "_credentials",
        "_dialer",
        "_loop",
        "_machine",
        "_seconds",
        "_selector",
        "_shakes",
        "_silent",
        "_sock",
        "_timer",
        "_where",
    )

    def __init__(
        self,
        dialer: Dialer,
        shared: Shared,
        sock: socket.socket,
        machine: ActiveHandshake,
        where: str,
        seconds: float,
        credentials: Credentials | None,
    ) -> None:
        self._dialer = dialer
        self._credentials = credentials  # where the connection is to be secured
        self._loop = shared.loop
        self._selector = shared.selector
        self._shakes = shared.shakes
        self._silent = False  # we have asked for TLS, and the peer says nothing
        self._sock: socket.socket | None = sock
        self._machine = machine
        self._where = where
        self._seconds = seconds
        self._timer = shared.loop.call_later(seconds, self._timed_out)
        self._selector.watch_room(sock.fileno(), self._on_connected)

    def set_timeout(self, began: float, seconds: float) -> None:
        """Give up that many seconds after it began."""
        self._seconds = seconds
        self._timer.cancel()
        self._timer = self._loop.call_at(began + seconds, self._timed_out)

    def cancel(self) -> None:
        """Give up without telling the dialer."""
        sock = self._release()
        if sock is not None:
            sock.close()

    def _release(self) -> socket.socket | None:
        """The socket, no longer watched."""
        sock, self._sock = self._sock, None
        if sock is not None:
            self._timer.cancel()
            self._selector.forget_room(sock.fileno())
            self._selector.forget(sock.fileno())
            self._shakes.forget(self._where, self._go_on)
        return sock

    def _on_connected(self) -> None:
        sock = self._sock
        if sock is None:
            return
        self._selector.forget_room(sock.fileno())
        number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number == 0:
            try:
                if sock.getsockname() == sock.getpeername():
                    number = errno.ECONNREFUSED  # it met itself: nobody listens there
            except OSError:
                number = errno.ECONNRESET
        if number == errno.ECONNRESET:  # accepted and reset before we looked
            self._broke(number)
            return
        if number:
            source = str(sock.getsockname()[0])
            self._fail(number, why_connect_failed(number, self._where, source, self._seconds))
            return
        if self._credentials is None:
            self._open(sock)
            return
        try:
            self._sock = self._credentials.secure(sock)
        except OSError as error:
            self._broke(error.errno or errno.EIO)
            return
        self._on_shake()

    def _on_shake(self) -> None:
        """The handshake of TLS can go on: it waits for its turn."""
        self._silent = False
        sock = self._sock
        if sock is not None:
            self._selector.forget_room(sock.fileno())
            self._selector.forget(sock.fileno())
            self._shakes.later(self._where, self._go_on)

    def _go_on(self) -> SecureSocket | None:
        """Go on with the handshake of TLS; the socket, if it has a long step to take."""
        sock = self._sock
        if not isinstance(sock, SecureSocket):
            return None
        try:
            waits = sock.shake()
        except OSError as error:
            self._no_tls(error)
            return None
        if waits == "work":
            return sock
        number = sock.fileno()
        if waits:
            self._silent = not sock.heard
            if self._silent:
                self._dialer.asked()
            (self._selector.watch if waits == "read" else self._selector.watch_room)(number, self._on_shake)
        elif sock.certificate.covers(self._machine.called):
            self._open(sock)
        else:
            one, called = sock.certificate, self._machine.called
            text = f"{self._where} has the certificate of {one.name!r}, which is not for {called}{one.hint}"
            self._fail(errno.EACCES, text)
        return None

    def _no_tls(self, error: OSError) -> None:
        number = error.errno or errno.EPROTO
        if number in _HUNG_UP and self._dialer.fall_back():
            self.cancel()
            self._dialer.call_plain()
            return
        why = error.strerror or "it hung up"
        hint = "; it may know no secured connections" if number in _HUNG_UP else ""
        self._fail(number, f"no secured connection with {self._where}: {why}{hint}")

    def _open(self, sock: socket.socket) -> None:
        """Begin with LNet's own handshake."""
        try:
            sent = sock.send(self._machine.opening)
        except OSError as error:
            self._broke(error.errno or errno.EIO)
            return
        if sent != len(self._machine.opening):
            self._broke(errno.ENOBUFS)
            return
        self._selector.watch(sock.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        sock = self._sock
        if sock is None:
            return
        machine = self._machine
        verdict = Verdict.MORE
        while verdict is Verdict.MORE:
            try:
                piece = sock.recv(machine.want)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._broke(error.errno or errno.EIO, error.strerror or "")
                return
            if not piece:
                self._broke(errno.ECONNABORTED)
                return
            verdict = machine.feed(piece)
        self._judge(verdict)

    def _judge(self, verdict: Verdict) -> None:
        hello = self._machine.hello
        if verdict is Verdict.HELLO and hello is not None:
            sock = self._release()
            assert sock is not None
            self._dialer.established(sock, hello, self._machine.ctype)
            return
        if verdict is Verdict.REFUSED:
            self._fail(errno.EPROTO, f"{self._where} is not what we called: {self._machine.error}")
            return
        self.cancel()
        if verdict is Verdict.OTHER_VERSION and hello is not None:
            self._dialer.other_version(hello.version)
        else:
            self._dialer.postponed(hello)

    def _timed_out(self) -> None:
        self._fail(errno.ETIMEDOUT, self.why_timed_out(self._seconds))

    def why_timed_out(self, seconds: float) -> str:
        """What is missing after so many seconds."""
        if self._machine.want and self.connected:
            return (
                f"timed out after {seconds:g} s: {self._where} took our connection but sent no HELLO; "
                "it hangs, or is not an LNet node"
            )
        source = self._sock.getsockname()[0] if self._sock is not None else ""
        return why_connect_failed(errno.ETIMEDOUT, self._where, source, seconds)

    @property
    def ctype(self) -> ConnType:
        """The type of the connection that it is to be."""
        return self._machine.ctype

    @property
    def tls_goes_on(self) -> bool:
        """Whether the peer has begun with TLS, or this node is at work: that is lost if the attempt ends."""
        return isinstance(self._sock, SecureSocket) and not self._silent

    @property
    def connected(self) -> bool:
        """Whether the peer's host has answered, so that its HELLO is waited for."""
        if self._sock is None:
            return False
        try:
            self._sock.getpeername()
        except OSError:
            return False
        return True

    def _broke(self, number: int, words: str = "") -> None:
        """The peer hung up during the handshake; an end of file counts as a reset. `words`: those of TLS."""
        assert self._sock is not None
        if number == errno.EPROTO and words:
            self._fail(number, f"no secured connection with {self._where}: {words}")
            return
        port, secured = self._sock.getsockname()[1], isinstance(self._sock, SecureSocket)
        reason = why_handshake_broke(number, self._where, self._machine.called, port, secured)
        self._fail(errno.ECONNRESET if number == errno.ECONNABORTED else number, reason)

    def _fail(self, number: int, reason: str) -> None:
        self.cancel()
        self._dialer.failed(number, reason)
