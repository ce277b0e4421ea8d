"""A peer as the driver knows it: connections, and which one a message takes (spec wire-socklnd.md §3.9).

Connections may be between several pairs of addresses. Those whose device is down, or which make no progress,
stay and are given nothing while there are others: what the kernel holds for them arrives later.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ulnet.core.msg import ANSWERS
from ulnet.core.status import HealthStatus
from ulnet.lnd.tcp.conn import Conn
from ulnet.lnd.tcp.devices import AddressPair, Device
from ulnet.lnd.tcp.dialer import Dialer
from ulnet.lnd.tcp.errors import Failure, send_status
from ulnet.lnd.tcp.progress import unacknowledged
from ulnet.nid import Nid, ProcessId
from ulnet.wire.lnet import HEADER_SIZE, LARGE_HEADER_SIZE, MsgType
from ulnet.wire.socklnd import FRAME_HEADER_SIZE, KEEPALIVE_COOKIE, ConnType

if TYPE_CHECKING:
    from ulnet.core.msg import Msg
    from ulnet.core.ni import NI
    from ulnet.lnd.tcp.nistate import NiState

__all__ = ["Peer"]

_log = logging.getLogger("ulnet.tcp")
# Bytes before the payload, by protocol version; before any connection exists the version is 0.
_OVERHEAD: Final = (
    FRAME_HEADER_SIZE + HEADER_SIZE,
    HEADER_SIZE,
    FRAME_HEADER_SIZE + HEADER_SIZE,
    FRAME_HEADER_SIZE + HEADER_SIZE,
    FRAME_HEADER_SIZE + LARGE_HEADER_SIZE,
)


_LAST_COOKIE: Final = (1 << 64) - 1
_SURE: Final = 1.0  # seconds after a HELLO in which its sender has no other life
_ACK: Final = int(MsgType.ACK)
_REPLY: Final = int(MsgType.REPLY)


def _load(conn: Conn) -> int:
    """Bytes that wait on a connection, here or in the kernel."""
    assert conn.sock is not None
    return conn.tx.waiting_bytes + unacknowledged(conn.sock)


class Peer:
    """A (NID, pid) as seen from one NI: there while it has connections, a queue, or a reason to wait."""

    __slots__ = (
        "_ack",
        "_aside",
        "_blocked",
        "_carrying",
        "_cookie",
        "_large",
        "_listening",
        "_overhead",
        "_scattered",
        "_small",
        "addresses",
        "bucket",
        "confirmed_at",
        "conns",
        "dialer",
        "heard",
        "incarnation",
        "last_alive",
        "next_keepalive",
        "ni",
        "nid",
        "pid",
        "queue",
        "state",
        "stuck",
        "timeout",
        "trusting",
        "version",
    )

    def __init__(self, state: NiState, nid: Nid, pid: int, bucket: int) -> None:
        self.state: NiState = state
        self.bucket: int = bucket  # which sweep looks at it
        self.ni: NI = state.ni
        self.nid: Nid = nid
        self.pid: int = pid
        self.timeout: float = state.timeout
        self.conns: list[Conn] = []
        self.queue: list[tuple[float, Msg]] = []  # until there is a connection: (deadline, message)
        self.dialer: Dialer | None = None
        self.version: int = 0  # agreed protocol, while any connection is open
        self.incarnation: int = 0
        self.confirmed_at: float = 0.0  # when a HELLO last told of that
        self.last_alive: float = state.shared.now
        self.next_keepalive: float = 0.0
        self.stuck: dict[Conn | Dialer, None] = {}  # what makes no progress
        self.addresses: tuple[Nid, ...] = state.addresses.get(nid, (nid,))
        # Whether it believes our name from any address; if not, only the one that is in our NID will do.
        self.trusting: bool = state.shared.params.reserved_ports
        self.heard: Conn | None = None  # by which something came last
        self._blocked = False  # the core was told that nothing gets through
        self._carrying: set[AddressPair] = set()  # the addresses between which something got through so far
        self._scattered = False  # connections are between several pairs of addresses
        self._listening = False  # `hear_out` is at work
        self._aside = False  # what was heard last is between other addresses than what is small goes
        self._cookie = KEEPALIVE_COOKIE  # of the last zero-copy request
        self._overhead = _OVERHEAD[0]
        self._small: list[Conn] = []
        self._large: list[Conn] = []
        self._ack: list[Conn] = []

    def __str__(self) -> str:
        return str(ProcessId(self.nid, self.pid))

    def devices(self) -> list[Device]:
        """Our devices from which the peer can be called."""
        devices = self.state.devices
        return devices if self.trusting else devices[:1]

    def learn(self, addresses: tuple[Nid, ...], trusting: bool) -> None:
        """The HELLO of the peer says so."""
        if (addresses, trusting) != (self.addresses, self.trusting):
            self.addresses = addresses
            self.trusting = trusting
            if self.dialer is not None:
                self.dialer.meet()

    def full(self, ctype: ConnType, local_ip: str, remote_ip: str) -> bool:
        """Whether one more connection of that type between these addresses would be a duplicate."""
        if local_ip == remote_ip:
            return False
        if ctype is ConnType.CONTROL:
            limit = 1
        else:
            limit = self.dialer.limit if self.dialer is not None else self.state.conns_per_peer
        wanted = (ctype, local_ip, remote_ip)
        return [(c.ctype, c.local_ip, c.remote_ip) for c in self.conns].count(wanted) >= limit

    def count(self, ctype: ConnType) -> int:
        """How many connections of that type there are."""
        return sum(conn.ctype is ctype for conn in self.conns)

    def set_timeout(self, seconds: float) -> None:
        """The time-out of all that is under way, and of what comes."""
        self.timeout = seconds
        latest = self.state.shared.loop.time() + seconds
        self.queue = [(min(deadline, latest), msg) for deadline, msg in self.queue]
        if self.dialer is not None:
            self.dialer.set_timeout(seconds)

    # Sending --------------------------------------------------------------------------------------

    def launch(self, msgs: list[Msg]) -> None:
        """Put messages of one header on a connection or in the queue for one; fail them if none can be."""
        hdr = msgs[0].hdr
        size = self._overhead + hdr.payload_length
        if self._aside and hdr.type in (_ACK, _REPLY):
            self._back(size).tx.queue(msgs, size)
            return
        conns = self._large if size >= self.state.min_bulk else self._small
        if conns:
            if len(conns) == 1:
                conns[0].tx.queue(msgs, size)
            else:
                for msg in msgs:
                    self._pick(conns).tx.queue([msg], size)
            dialer = self.dialer
            if dialer is not None and dialer.incomplete and not dialer.rests():
                dialer.poke()
            return
        md = msgs[0].md
        failure = self._dial((md.timeout or 0.0) if md is not None else 0.0)
        if failure is None:
            deadline = self.state.shared.loop.time() + self.timeout
            self.queue += [(deadline, msg) for msg in msgs]
            self.state.shared.core.awaits_connection(msgs)
            if self.dialer is not None and hdr.type not in ANSWERS:
                self.state.shared.budget.hurry(self.dialer)
            return
        for msg in msgs:
            self.state.fail_unsent(msg, failure)

    def _dial(self, patience: float = 0.0) -> Failure | None:
        """See to it that a connection is being made; a Failure if that is not to be. See `Dialer.call`."""
        if self.dialer is None:
            # A peer that came to us is called back only where all of its connections are at a standstill.
            if self.conns and (self.usable() or self.pid != self.state.identity.pid):
                return self.unsuited()
            self.dialer = Dialer(self)
        return self.dialer.call(patience)

    def unsuited(self) -> Failure:
        """None of the connections may carry a message."""
        kinds = ", ".join(sorted({conn.ctype.name for conn in self.conns}))
        reason = f"{self} is connected by {kinds} only, which carries no messages in protocol {self.version}"
        return Failure(errno.EHOSTUNREACH, HealthStatus.REMOTE_ERROR, reason)

    def _pick(self, conns: list[Conn]) -> Conn:
        """The least loaded of these connections; of equals the one not used for longest."""
        if len(conns) == 1:
            return conns[0]
        shared = self.state.shared
        best = conns[0]
        least = _load(best)
        for conn in conns[1:]:
            load = _load(conn)
            if load < least or (load == least and conn.last_used < best.last_used):
                best = conn
                least = load
        if shared.params.round_robin:
            shared.tick += 1
            best.last_used = shared.tick
        return best

    def _back(self, size: int) -> Conn:
        """The connection for an answer: between the addresses that something came by last.

        The peer may have left the others, and we not know yet that nothing sent there arrives.
        """
        heard = self.heard
        assert heard is not None
        if size < self.state.min_bulk:
            return heard
        large = [conn for conn in self._large if conn.pair == heard.pair]
        return self._pick(large) if large else heard

    def hears(self, conn: Conn) -> None:
        """Something comes by another connection than before."""
        self.heard = conn
        if self._scattered:
            self._look_aside()

    def _look_aside(self) -> None:
        """See whether answers go another way than what is small, which mostly has one connection."""
        heard = self.heard
        self._aside = (
            self._scattered
            and heard is not None
            and not (self._small and all(conn.pair == heard.pair for conn in self._small))
            and heard in self.usable()
        )

    def new_cookie(self) -> int:
        """The cookie of another zero-copy request, from 2 on (spec wire-socklnd.md §4.1).

        0 where the peer would have no connection for the answer, and close all: it answers by its BULK_IN.
        """
        if self.version >= 3 and not any(conn.ctype is ConnType.BULK_OUT for conn in self.conns):
            return 0
        self._cookie = self._cookie + 1 if self._cookie < _LAST_COOKIE else KEEPALIVE_COOKIE + 1
        return self._cookie

    def ack_conn(self) -> Conn | None:
        """The connection that carries zero-copy acknowledgements and keepalives."""
        return self._pick(self._ack) if self._ack else None

    # Connections come and go ----------------------------------------------------------------------

    def attach(self, conn: Conn, incarnation: int) -> None:
        """A connection is established: use it, also for what waits."""
        self.version = conn.version
        self.incarnation = incarnation
        self.confirmed_at = self.state.shared.loop.time()
        self.last_alive = self.state.shared.now
        self.conns.append(conn)
        self._choices_changed()
        conn.rx.start()
        queue, self.queue = self.queue, []
        for deadline, msg in queue:
            size = self._overhead + msg.hdr.payload_length
            conns = self._large if size >= self.state.min_bulk else self._small
            if conns:
                self.state.shared.core.has_connection([msg])
                self._pick(conns).tx.queue([msg], size)
            else:
                self.queue.append((deadline, msg))
        self._tell()

    def verify(self) -> bool:
        """See whether the connections are with a former life; where there are none, no pause lasts.

        Whether there are any. Those of a device that is down cannot be asked, nor be of use. What waits for
        one was for the former life: the core finds out first who is there now.
        """
        state = self.state
        if not self.conns:
            self.withdraw()
            if self.dialer is not None and state.open and not state.down:
                self.dialer.try_again()
        elif state.down or state.shared.lives.get((self.nid, self.pid), self.incarnation) != self.incarnation:
            self.end_former_life()
        elif state.shared.loop.time() - self.confirmed_at >= _SURE:
            if self.dialer is None:
                self.dialer = Dialer(self)
            self.dialer.verify()
        return bool(self.conns)

    def gives_no_answer(self, since: float) -> None:
        """Another NID of its node has begun a new life; since that was heard this one cannot be called."""
        if self.conns and self.last_alive < since:
            self.end_former_life()
            self.state.shared.core.peer_restarted(self.nid, heard=False)

    def end_former_life(self) -> None:
        """Close all connections: there is another life behind the NID."""
        failure = Failure(errno.ESTALE, send_status(errno.ESTALE), f"{self} has been restarted")
        self.close(list(self.conns), failure)

    def confirm(self, incarnation: int) -> None:
        """The peer tells its incarnation, though it wants no further connection."""
        self.confirmed_at = self.state.shared.loop.time()
        if self.conns and self.incarnation != incarnation:
            self.end_former_life()

    def usable(self) -> list[Conn]:
        """The connections that carry: their device is up, and nothing between their addresses is stuck."""
        stuck = {one.pair for one in self.stuck}
        return [conn for conn in self.conns if not conn.device.down and conn.pair not in stuck]

    def _eligible(self) -> list[Conn]:
        """The connections that are given messages: where none carries, those that may again by themselves."""
        usable = self.usable()
        if usable:
            return usable
        return self.conns if self.state.down else [conn for conn in self.conns if not conn.device.down]

    def _choices_changed(self) -> None:
        self._overhead = _OVERHEAD[self.version]
        typed = self.version >= 3
        conns = self._eligible()
        self._scattered = len({conn.pair for conn in self.conns}) > 1
        control = [c for c in conns if c.ctype is ConnType.CONTROL]
        bulk_in = [c for c in conns if c.ctype is ConnType.BULK_IN]
        bulk_out = [c for c in conns if c.ctype is ConnType.BULK_OUT]
        untyped = [c for c in conns if c.ctype is ConnType.ANY]
        if typed:
            self._small = control or bulk_out
            self._large = bulk_out or control
            self._ack = bulk_in if self.state.nonblk_zcack else control or bulk_out or bulk_in
        else:
            self._small = (untyped + control) or (bulk_out + bulk_in)
            self._large = (untyped + bulk_out) or (control + bulk_in)
            self._ack = self._small
        self._look_aside()

    def hear_out(self, ended: Conn) -> None:
        """Read what came by other connections before that one ended: it may acknowledge what left by it."""
        if self._listening:
            return
        self._listening = True
        for conn in list(self.conns):
            if conn is not ended and conn.sock is not None and conn.rx.read():
                conn.rx.was_read()
        self._listening = False

    def close_address(self, remote_ip: str, failure: Failure, reset: Conn | None = None) -> None:
        """Close all connections to one address of the peer."""
        self.close([conn for conn in self.conns if conn.remote_ip == remote_ip], failure, reset)

    def close(self, doomed: list[Conn], failure: Failure, reset: Conn | None = None) -> None:
        """Close connections. Messages not begun go to another connection if there is one; the rest fails."""
        if _log.isEnabledFor(logging.DEBUG):
            kinds = ", ".join([conn.ctype.name.lower() for conn in doomed])
            _log.debug("%s: closed with %s (%s): %s", self.state.identity.nid, self, kinds, failure.reason)
        begun: list[Msg] = []
        unsent: list[Msg] = []
        doubtful = self._take_leave(doomed, reset)
        for conn in doomed:
            self.conns.remove(conn)
            partly, rest = conn.shut(reset=conn is reset)
            begun += partly
            unsent += rest
        if self.heard in doomed:
            self.heard = None
        lost: list[Msg] = []
        if not self.conns:
            self.version = 0
            self.incarnation = 0
        self._choices_changed()
        if self.dialer is not None:
            self.dialer.conns_lost()
        if self.stuck and not self.conns and failure.errno == errno.ETIMEDOUT:
            self._call_anew()
        for msg in unsent:
            size = self._overhead + msg.hdr.payload_length
            conns = self._large if size >= self.state.min_bulk else self._small
            if conns and self.state.open:
                self._pick(conns).tx.queue([msg], size)
            else:
                lost.append(msg)
        self.state.forget_if_idle(self)
        for conn in doomed:
            conn.rx.fail(failure)
        self._end(begun, failure, unsent=False)
        self._end(lost, failure, unsent=True)
        for conn in doomed:
            self.stuck.pop(conn, None)
        if doubtful:
            self.state.shared.core.in_doubt(self.ni, self.nid, doubtful)
        self.look()
        if doomed and not self.conns and failure.errno != errno.ESTALE:
            self._lost()

    def end(self, failure: Failure) -> None:
        """Close all connections, make none, and fail what waits."""
        if self.dialer is not None:
            self.dialer.cancel()
        self.fail_queue(failure)
        self.close(list(self.conns), failure)

    def _take_leave(self, doomed: list[Conn], reset: Conn | None) -> int:
        """Acknowledge what was read by these; how many PUTs are perhaps lost with them."""
        for conn in doomed:
            if conn is not reset:
                conn.tx.say_last()
        # Where the NI is shut down, the kernel delivers what it has.
        return sum([conn.tx.doubtful() for conn in doomed]) if self.state.open else 0

    def _call_anew(self) -> None:
        """The path was silent to the end: find out whether it still is; messages keep away until then."""
        state = self.state
        if self.pid != state.identity.pid or not state.open or state.down:
            return
        if self._dial() is None and self.dialer is not None:
            self.gets_stuck(self.dialer)

    def _lost(self) -> None:
        """The last connection broke, and not because of us; others may be on their way.

        What is sent goes to LNet's own pid there: that of another program is no path.
        """
        state = self.state
        node = state.peers.get((self.nid, state.identity.pid))
        if state.open and not state.down and (node is None or node is self or not node.conns):
            state.shared.core.path_lost(self.ni, self.nid)

    def _end(self, msgs: Iterable[Msg], failure: Failure, *, unsent: bool) -> None:
        completed = self.state.shared.core.completed
        for msg in msgs:
            msg.unsent = unsent
            completed([msg], failure.status, failure.errno, failure.reason)

    def withdraw(self) -> None:
        """Give back what has not begun to leave, here and on all connections; connections stay."""
        waiting = [msg for _, msg in self.queue]
        self.queue.clear()
        for conn in self.conns:
            waiting += conn.tx.take_queue()
        for msg in waiting:
            self.state.shared.core.take_back(msg)

    @property
    def only_answers(self) -> bool:
        """Whether answers alone wait for a connection."""
        return bool(self.queue) and all(msg.hdr.type in ANSWERS for _, msg in self.queue)

    @property
    def maker(self) -> Nid | None:
        """The hop whose message is the first that waits for a connection; None if that is this node's."""
        transit = self.queue[0][1].transit if self.queue else None
        return None if transit is None else transit.sender.nid

    @property
    def given_up(self) -> bool:
        """Whether all that waits for a connection was given up by who sent it."""
        return bool(self.queue) and all(msg.md is not None and msg.md.aborted for _, msg in self.queue)

    def fail_queue(self, failure: Failure) -> None:
        """No connection came up: what waits for one fails."""
        queue, self.queue = self.queue, []
        self._end([msg for _, msg in queue], failure, unsent=True)

    # Progress -------------------------------------------------------------------------------------

    def gets_stuck(self, what: Conn | Dialer) -> None:
        """A connection, or the making of one, makes no progress: messages prefer other ways then."""
        self.stuck[what] = None
        self.look()

    def moves_on(self, what: Conn | Dialer) -> None:
        """What was stuck makes progress again, or is gone."""
        if what in self.stuck:
            del self.stuck[what]
            self.look()

    def look(self) -> None:
        """See what carries now: something got stuck or moves again, or a device failed or is back."""
        self._choices_changed()
        self._tell()

    def _tell(self) -> None:
        """Move what waits to where it gets through, and tell the core whether anything does.

        Where some connections carry nothing any more and others do, what has left may be lost in part: the
        core hears of a standstill, and sends again what it can.
        """
        core = self.state.shared.core
        before = self._carrying
        usable = self.usable()
        self._carrying = {conn.pair for conn in usable}
        blocked = not usable and bool(self.stuck or (self.conns and not self.state.down))
        if blocked and not self._blocked:
            self._blocked = True
            core.path_stalled(self.ni, self.nid)
            self.withdraw()
            if self.conns and self.state.open:
                self._seek()
        elif self._blocked and not blocked:
            self._blocked = False
            core.path_moving(self.ni, self.nid)
        elif usable and not before <= self._carrying:
            core.path_stalled(self.ni, self.nid)
            core.path_moving(self.ni, self.nid)
        if self._carrying and len(usable) < len(self.conns):
            self._move_queues()

    def _move_queues(self) -> None:
        """What waits on connections that carry nothing goes over the others."""
        waiting: list[Msg] = []
        usable = self.usable()
        for conn in self.conns:
            if conn not in usable:
                waiting += conn.tx.take_queue()
        for msg in waiting:
            self.launch([msg])

    def _seek(self) -> None:
        """Nothing gets through: look for other addresses between which something may."""
        if len(self.devices()) * len(self.addresses) == 1 or self.pid != self.state.identity.pid:
            return
        if self.dialer is None:
            self.dialer = Dialer(self)
        self.dialer.poke()
