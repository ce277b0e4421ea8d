"""A connection as a whole: acknowledgements, and its end (spec wire-socklnd.md §4.1, §5)."""

from __future__ import annotations

import errno
import socket
import sys
from typing import TYPE_CHECKING, Final

from ulnet.core.lines import Line
from ulnet.core.status import HealthStatus, errno_text
from ulnet.lnd.tcp import sockets
from ulnet.lnd.tcp.devices import AddressPair, Device
from ulnet.lnd.tcp.errors import Failure, send_status
from ulnet.lnd.tcp.progress import QUIET, is_stalled, unacknowledged
from ulnet.lnd.tcp.reader import Reader
from ulnet.lnd.tcp.shared import Shared
from ulnet.lnd.tcp.transmit import Transmitter

if TYPE_CHECKING:
    from ulnet.core.msg import Msg
    from ulnet.lnd.tcp.peer import Peer
    from ulnet.wire.socklnd import ConnType

__all__ = ["Conn"]

_MAX_ACKS: Final = 65536  # acknowledgements that a peer may leave unread


class Conn:
    """An established connection: `tx` sends, `rx` receives; progress, and what ends both, is seen here."""

    __slots__ = (
        "_acked",
        "_progress_at",
        "ctype",
        "device",
        "last_used",
        "local_ip",
        "pair",
        "peer",
        "remote_ip",
        "rx",
        "shared",
        "sock",
        "source_port",
        "stuck",
        "tx",
        "version",
        "watched",
    )

    def __init__(
        self,
        shared: Shared,
        sock: socket.socket,
        peer: Peer,
        ctype: ConnType,
        version: int,
        *,
        big_endian: bool = False,
        rename: bool = False,
        source_port: int = 0,
    ) -> None:
        local_ip = sys.intern(sock.getsockname()[0])  # all connections of a peer have the same two
        remote_ip = sys.intern(sock.getpeername()[0])  # raises OSError where the peer has reset it already
        self.shared: Shared = shared
        self.sock: socket.socket | None = sock
        self.peer: Peer = peer
        self.version: int = version
        self.tx: Transmitter = Transmitter(
            shared, sock, version, peer.state.failures, self._woken, self._close_all, peer.new_cookie
        )
        self.rx: Reader = Reader(shared, sock, peer, self, version, big_endian, rename)
        self.ctype: ConnType = ctype
        self.source_port: int = source_port  # ours, where we dialled
        self.local_ip: str = local_ip
        self.remote_ip: str = remote_ip
        self.pair: AddressPair = (sockets.packed(self.local_ip), sockets.packed(self.remote_ip))
        self.device: Device = peer.state.device_at(self.pair[0])
        self.last_used: int = 0
        self.stuck: bool = False  # the network takes nothing from us now

        self.watched: bool = (
            False  # by the progress timer: something is to be sent, or to be acknowledged by TCP
        )
        self._acked = 0  # bytes that the peer's host has acknowledged, as last seen
        self._progress_at = 0.0  # when that last grew, or something was first seen under way; 0: not yet seen

    # Acknowledgements -----------------------------------------------------------------------------

    def heard(self) -> None:
        """Something comes by this connection, as nothing did since something came by another one."""
        self.peer.hears(self)

    def acknowledge_to_peer(self, cookie: int) -> bool:
        """Send a zero-copy acknowledgement; False if that is not to be, and everything is closed."""
        conn = self.peer.ack_conn()
        if conn is None:
            self.violated("it wants an acknowledgement but has no connection that may carry one", False)
            return False
        if len(conn.tx.acks) >= _MAX_ACKS:
            self.violated("it does not read its zero-copy acknowledgements", False)
            return False
        conn.tx.acknowledge(cookie)
        return True

    def acknowledged(self, cookie: int) -> bool:
        """The peer has read what we asked it to acknowledge by that cookie; False if it is none of ours."""
        for conn in self.peer.conns:
            if conn.tx.acknowledged(cookie):
                conn.progresses()
                return True
        return False

    def progresses(self) -> None:
        """The peer has read something."""
        self._progress_at = self.shared.now

    # Progress -------------------------------------------------------------------------------------

    def _woken(self) -> None:
        """Something is to be sent, as nothing was."""
        if not self.watched:
            self._acked = self.tx.sent_total
            self._progress_at = 0.0
            self.shared.progress.watch(self)

    def excuse(self, seconds: float) -> None:
        """Nothing is blamed for the time in which this process did not run."""
        if self._progress_at:
            self._progress_at += seconds

    def check_progress(self, now: float) -> bool:
        """Whether something is under way still, within its time: a path without progress is to be avoided."""
        sock = self.sock
        if sock is None:
            return False
        left = unacknowledged(sock)
        acked = self.tx.sent_total - left
        if acked != self._acked:
            self._acked = acked
            self._progress_at = self.peer.last_alive = now
            if self.stuck:
                self.stuck = False
                self.peer.moves_on(self)
        if not left and self.tx.idle:
            self.tx.host_has_all()
            if not self.tx.asks:
                return False
        if not self._progress_at:
            # This process may have slept between queueing and sending: that time is not the network's.
            self._progress_at = now
        quiet = now - self._progress_at
        if quiet >= self.peer.timeout:
            self._timed_out("took" if not self.tx.idle else "acknowledged" if left else "read")
            return False
        if quiet >= QUIET and not self.stuck and is_stalled(sock, quiet):
            self.stuck = True
            self.peer.gets_stuck(self)
        return True

    def _timed_out(self, did: str) -> None:
        reason = f"timed out: {self.peer} {did} none of our data for {self.peer.timeout:g} s"
        self.shared.report(Line("connection.timed_out", reason, peer=self.peer.nid))
        # Else the kernel sends on what is reported now, and to the peer a new connection is a duplicate.
        self._close_all(Failure(errno.ETIMEDOUT, HealthStatus.NETWORK_TIMEOUT, reason), reset=True)

    def check_receiving(self, past: float) -> bool:
        """Whether what the peer began to send goes on, as of a time that is past; if not, it is closed."""
        if self.rx.paused and self.sock is not None and sockets.is_dead(self.sock):
            self.receive_failed(errno.ECONNRESET)  # nothing else would tell: it is not read now
            return False
        if self.rx.wake != 1 and self.rx.deadline <= past:
            self.rx.on_readable()  # what came may have been too little to wake it, but it came
        if self.sock is None or not self.rx.deadline or self.rx.deadline > past:
            return True
        seconds = self.peer.state.timeout
        reason = f"timed out: {self.peer} sent no more of a message that it had begun for {seconds:g} s"
        self.shared.report(Line("connection.timed_out", reason, peer=self.peer.nid))
        self._close_all(Failure(errno.ETIMEDOUT, HealthStatus.NETWORK_TIMEOUT, reason))
        return False

    # Where descriptors are few, and others call ----------------------------------------------------

    def _siblings(self) -> list[Conn]:
        """It, and the others of its peer with the same address: they go together."""
        return [conn for conn in self.peer.conns if conn.remote_ip == self.remote_ip]

    def is_idle(self) -> bool:
        """Whether no message is under way."""
        return all(not conn.watched and conn.rx.between for conn in self._siblings())

    def used_at(self) -> float:
        """When something last came from the peer, or was acknowledged by its host."""
        return self.peer.last_alive

    def give_way(self) -> None:
        """Close what the peer has from this address."""
        why = "its address has more connections, and others call"
        text = f"{why}, of which this process can have no more: raise `ulimit -n`"
        reason = f"closed the connection to {self.peer}: {text}"
        self.shared.report(Line("connection.refused", reason, source=self.remote_ip, why=why))
        self._close_all(Failure(errno.EMFILE, HealthStatus.REMOTE_DROPPED, reason))

    # The end: by the peer, which calls `shut`, then `rx.fail` ----------------------------------------

    def _close_all(self, failure: Failure, reset: bool = False) -> None:
        """Close all connections with this address of the peer: they share what broke one of them."""
        self.peer.close_address(self.remote_ip, failure, self if reset else None)

    def violated(self, text: str, unread: bool) -> int:
        """A protocol error closes all connections of this peer from the same address."""
        reason = f"closed the connection to {self.peer.nid}: {text}"
        self.shared.report(Line("connection.violated", reason, peer=self.peer.nid))
        self._close_all(Failure(errno.EPROTO, send_status(errno.EPROTO), reason), reset=unread)
        return -1

    def _hear_out(self) -> bool:
        """The peer ended the connection: see what it said by others; False if that closed this one."""
        if self.tx.asks:
            self.peer.hear_out(self)
        return self.sock is not None

    def ended(self) -> None:
        if not self._hear_out():
            return
        if self.rx.between:
            reason = f"{self.peer.nid} closed the connection"
            self.peer.close([self], Failure(errno.ECONNRESET, send_status(errno.ECONNRESET), reason))
        else:
            self.violated("it ended in the middle of a message", False)

    def receive_failed(self, number: int) -> None:
        if not self._hear_out():
            return
        reason = f"the connection to {self.peer.nid} broke: {errno_text(number)}"
        self._close_all(Failure(number, send_status(number), reason))

    def shut(self, reset: bool = False) -> tuple[list[Msg], list[Msg]]:
        """Close the socket at once: the messages partly sent, and those not begun. For the peer only."""
        sock = self.sock
        assert sock is not None
        self.sock = None
        self.rx.close()
        unsent = self.tx.close()
        self.shared.progress.forget(self)
        self.shared.callers.left(self, self.remote_ip)
        if reset:
            sockets.reset(sock)
        else:
            sock.close()
        return unsent
