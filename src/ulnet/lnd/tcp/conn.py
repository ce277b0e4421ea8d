"""A connection as a whole: acknowledgements, and its end (spec wire-socklnd.md §4.1, §5)."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Final

from ulnet.core.status import HealthStatus, errno_text
from ulnet.lnd.tcp import sockets
from ulnet.lnd.tcp.devices import AddressPair, Device
from ulnet.lnd.tcp.errors import Failure, send_status
from ulnet.lnd.tcp.frames import BAD_SUM, FRAME, PAUSED, STRAY_ACK
from ulnet.lnd.tcp.progress import QUIET, is_stalled, unacknowledged
from ulnet.lnd.tcp.receive import Receiver
from ulnet.lnd.tcp.shared import Shared
from ulnet.wire.socklnd import FRAME_HEADER_SIZE, KEEPALIVE_COOKIE, ConnType, FrameType, checksum

if TYPE_CHECKING:
    from ulnet.core.msg import Msg
    from ulnet.lnd.tcp.peer import Peer

__all__ = ["Conn"]

_NOOP: Final = FrameType.NOOP.value
_MAX_ACKS: Final = 65536  # acknowledgements that a peer may leave unread


class Conn(Receiver):
    """An established connection: the `rx` that the core holds while a payload waits."""

    __slots__ = (
        "ctype",
        "device",
        "last_used",
        "local_ip",
        "pair",
        "remote_ip",
        "source_port",
        "stuck",
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
        local_ip: str = sock.getsockname()[0]
        remote_ip: str = sock.getpeername()[0]  # raises OSError where the peer has reset it already
        super().__init__(shared, sock, peer, version, big_endian, rename)
        self.ctype = ctype
        self.source_port = source_port  # ours, where we dialled
        self.local_ip = local_ip
        self.remote_ip = remote_ip
        self.pair: AddressPair = (sockets.packed(self.local_ip), sockets.packed(self.remote_ip))
        self.device: Device = peer.state.device_at(self.pair[0])
        self.last_used = 0
        self.stuck = False  # the network takes nothing from us now

    @property
    def paused(self) -> bool:
        """Whether a payload waits for memory, so that nothing is read."""
        return self.rx_state == PAUSED

    # NOOPs ----------------------------------------------------------------------------------------

    def noop(self, kind: int, csum: int, cookie0: int, cookie1: int, pos: int, end: int) -> bool:
        """A frame that is no LNet message; False if it closed the connection."""
        error = ""
        if kind != _NOOP:
            error = f"it sent a frame of type {kind:#x}"
        elif csum and csum != checksum(self.summed(pos - FRAME_HEADER_SIZE, pos)):
            error = BAD_SUM
        elif cookie0 or cookie1 != KEEPALIVE_COOKIE or self.version < 3:
            error = STRAY_ACK
        if error:
            self.violated(error, end > pos)
            return False
        return True

    def acknowledge_to_peer(self, cookie: int) -> bool:
        """Send a zero-copy acknowledgement; False if that is not to be, and everything is closed."""
        conn = self.peer.ack_conn()
        if conn is None:
            self.violated("it wants an acknowledgement but has no connection that may carry one", False)
            return False
        if len(conn.acks) >= _MAX_ACKS:
            self.violated("it does not read its zero-copy acknowledgements", False)
            return False
        conn.acknowledge(cookie)
        return True

    # Progress -------------------------------------------------------------------------------------

    def check_progress(self, now: float) -> bool:
        """Whether something is under way still, within its time: a path without progress is to be avoided."""
        sock = self.sock
        if sock is None:
            return False
        left = unacknowledged(sock)
        acked = self.sent_total - left
        if acked != self.acked:
            self.acked = acked
            self.progress_at = self.peer.last_alive = now
            if self.stuck:
                self.stuck = False
                self.peer.moves_on(self)
        if not left and self.tx_idle:
            return False
        if not self.progress_at:
            # This process may have slept between queueing and sending: that time is not the network's.
            self.progress_at = now
        quiet = now - self.progress_at
        if quiet >= self.timeout:
            self._timed_out("took" if not self.tx_idle else "acknowledged")
            return False
        if quiet >= QUIET and not self.stuck and is_stalled(sock, quiet):
            self.stuck = True
            self.peer.gets_stuck(self)
        return True

    def _timed_out(self, did: str) -> None:
        reason = f"timed out: {self.peer} {did} none of our data for {self.timeout:g} s"
        self.shared.report(reason)
        # Else the kernel sends on what is reported now, and to the peer a new connection is a duplicate.
        self._close_all(Failure(errno.ETIMEDOUT, HealthStatus.NETWORK_TIMEOUT, reason), reset=True)

    def check_receiving(self, past: float) -> bool:
        """Whether what the peer began to send goes on, as of a time that is past; if not, it is closed."""
        if self.paused and self.sock is not None and sockets.is_dead(self.sock):
            self.receive_failed(errno.ECONNRESET)  # nothing else would tell: it is not read now
            return False
        if self.rx_wake != 1 and self.rx_deadline <= past:
            self.on_readable()  # what came may have been too little to wake it, but it came
        if self.sock is None or not self.rx_deadline or self.rx_deadline > past:
            return True
        seconds = self.peer.state.timeout
        reason = f"timed out: {self.peer} sent no more of a message that it had begun for {seconds:g} s"
        self.shared.report(reason)
        self._close_all(Failure(errno.ETIMEDOUT, HealthStatus.NETWORK_TIMEOUT, reason))
        return False

    # The end: by the peer, which calls `shut`, then `fail_receive` ------------------------------------

    def _close_all(self, failure: Failure, reset: bool = False) -> None:
        """Close all connections with this address of the peer: they share what broke one of them."""
        self.peer.close_address(self.remote_ip, failure, self if reset else None)

    def violated(self, text: str, unread: bool) -> int:
        """A protocol error closes all connections of this peer from the same address."""
        reason = f"closed the connection to {self.peer.nid}: {text}"
        self.shared.report(reason)
        self._close_all(Failure(errno.EPROTO, HealthStatus.LOCAL_ERROR, reason), reset=unread)
        return -1

    def ended(self) -> None:
        if self.rx_state == FRAME and not self.saved:
            reason = f"{self.peer.nid} closed the connection"
            self.peer.close([self], Failure(errno.ECONNRESET, HealthStatus.LOCAL_ERROR, reason))
        else:
            self.violated("it ended in the middle of a message", False)

    def receive_failed(self, number: int) -> None:
        reason = f"the connection to {self.peer.nid} broke: {errno_text(number)}"
        self._close_all(Failure(number, send_status(number), reason))

    def broken(self, failure: Failure) -> None:
        """Sending failed."""
        self._close_all(failure)

    def shut(self, reset: bool = False) -> tuple[list[Msg], list[Msg]]:
        """Close the socket at once: the messages partly sent, and those not begun. For the peer only."""
        sock = self.sock
        assert sock is not None
        self.sock = None
        self.shared.selector.forget(sock.fileno())
        if self.writing:
            self.shared.selector.forget_room(sock.fileno())
        self.shared.starved.discard(self)
        self.shared.progress.forget(self)
        if reset:
            sockets.reset(sock)
        else:
            sock.close()
        self.tx_idle = False  # nothing may schedule a flush any more
        return self.take_unsent()

    def fail_receive(self, failure: Failure) -> None:
        """After `shut`: the message that was being received fails."""
        msg = self.rx_msg
        self.rx_msg = None
        self.rx_bufs = []
        self.rx_check = []
        self.saved = b""
        self.receiver.close()
        if self.rx_state == PAUSED:
            self.shared.core.forget_rx(self)
        if msg is not None:
            self.receiver.end(msg, HealthStatus.REMOTE_ERROR, errno.EIO, failure.reason)
