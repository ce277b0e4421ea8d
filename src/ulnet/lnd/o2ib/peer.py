"""A peer as one NI knows it: its connections, what waits for one, and calls that are refused (spec §2)."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from ulnet.core.status import HealthStatus, LNetError
from ulnet.lnd.o2ib.conn import Conn
from ulnet.lnd.o2ib.errors import CM_REASONS, REACTIONS, Failure, Reaction, connect_status, why_unconnected
from ulnet.lnd.o2ib.state import V1, V2, ConnState
from ulnet.lnd.o2ib.verbs import Shape
from ulnet.nid import Nid
from ulnet.wire.errors import WireError
from ulnet.wire.o2ib import MAX_MESSAGE, VERSIONS, ConnParams, O2ibMessage, O2ibType, Reject, has_magic

if TYPE_CHECKING:
    from ulnet.core.msg import Msg
    from ulnet.lnd.o2ib.ni import NiState
    from ulnet.lnd.o2ib.rx import GetRx
    from ulnet.lnd.o2ib.tx import Tx
    from ulnet.lnd.o2ib.verbs import Request

__all__ = ["Peer"]

_V1_DEPTH: Final = 8
_MOST_CALLS: Final = 32  # refusals in a row that are answered by another call
_RACE_PAUSE: Final = (
    0.2  # seconds until a call that lost a race is made again, where the peer's does not come
)
_STUCK: Final = 3.0  # seconds after which a call that nobody answers is no hope for what comes
_UNSURE: Final = (errno.EIO, errno.ETIMEDOUT)


class Peer:
    """There while it has connections, or something waits for one."""

    __slots__ = (
        "_again_at",
        "_calls",
        "_gets",
        "_turn",
        "accepting",
        "calling",
        "conns",
        "incarnation",
        "limits",
        "ni",
        "nid",
        "nid4",
        "queue",
        "races",
        "stuck_at",
        "verified",
        "version",
    )

    def __init__(self, ni: NiState, nid: Nid) -> None:
        self.ni: NiState = ni
        self.nid: Nid = nid
        self.nid4: int = nid.nid4
        self.conns: list[Conn] = []
        self.calling: Conn | None = None
        self.accepting: list[Conn] = []  # accepted, not established
        self.queue: list[Tx] = []
        self.version: int = V2
        self.incarnation = 0  # 0: not known
        self.limits: ConnParams = ConnParams(
            ni.depth, ni.fragments, MAX_MESSAGE
        )  # what the next call asks for
        self.races: int = 0  # that the peer lost in a row
        self.verified: bool = True  # nobody doubts that it is the same life
        self.stuck_at: float = float("inf")  # when the core hears that nothing gets through
        self._again_at = float("inf")  # when it is called again
        self._calls = 0
        self._turn = 0
        self._gets: dict[bytes, list[GetRx]] = {}  # GET_REQs without an answer, by their handle

    # Sending ----------------------------------------------------------------------------------------

    def launch(self, txs: list[Tx]) -> None:
        """Queue transmits on connections in turn, or for one."""
        conns = self.conns
        if not conns:
            self.queue += txs
            self.ni.core.awaits_connection([tx.msg for tx in txs if tx.msg is not None])
            if not self.accepting and self._again_at == float("inf"):
                self.call()
            return
        if len(conns) == 1:
            conns[0].queue(txs)
        else:
            for tx in txs:
                self._turn += 1
                conns[self._turn % len(conns)].queue([tx])
        if len(conns) < self.ni.conns_per_peer:
            self.call()

    def _shape(self, params: ConnParams, version: int) -> Shape:
        ni = self.ni
        receives = 2 * params.queue_depth + (2 if version != V1 else 0)
        writes = params.max_fragments + ni.device.pieces * 8
        tunables, known = ni.tunables, ni.params
        return Shape(
            ni.concurrent_sends, writes, receives, known.retry_count, known.rnr_retry_count, tunables.tos
        )

    # Calling ----------------------------------------------------------------------------------------

    def call(self) -> None:
        """Connect, unless a call is under way."""
        ni = self.ni
        if self.calling is not None or not ni.open or ni.down:
            return
        now = ni.now()
        version = self.version
        params = self.limits if version != V1 else self.limits._replace(queue_depth=_V1_DEPTH)
        conn = self.calling = Conn(self, ConnState.CONNECTING, version, now + ni.timeout / 4)
        conn.params = params
        if not self.conns:
            self.stuck_at = now + _STUCK
        ni.arm(min(conn.deadline, self.stuck_at))
        request = O2ibMessage(
            O2ibType.CONNREQ,
            version,
            0,
            0,
            ni.ni.nid,
            ni.incarnation,
            self.nid,
            self.incarnation,
            "little",
            params,
        )
        try:
            conn.pair = ni.device.connect(self.nid.ip, conn, request.pack(), self._shape(params, version))
        except LNetError as failed:
            ni.loop.call_soon(self._failed, conn, Failure(failed.errno, failed.text), True)

    def acknowledged(self, conn: Conn, private: bytes) -> None:
        """A call was accepted: the CONNACK is in the private data."""
        ni, asked = self.ni, conn.params
        try:
            ack = O2ibMessage.unpack(private)
        except WireError as broken:
            self._failed(conn, Failure(errno.EPROTO, f"{self.nid} accepts with {broken}"))
            return
        got = ack.params
        if ack.type != O2ibType.CONNACK or got is None or ack.version != conn.version:
            self._failed(conn, Failure(errno.EPROTO, f"{self.nid} accepts with a {ack.type.name}"))
        elif (
            (ack.src_nid, ack.dst_nid, ack.dst_incarnation) != (self.nid, ni.ni.nid, ni.incarnation)
            or self.incarnation not in (0, ack.src_incarnation)
        ):  # fmt: skip
            self._failed(
                conn, Failure(errno.ESTALE, f"another node than {self.nid} accepts, or in another life")
            )
        elif not (
            0 < got.queue_depth <= asked.queue_depth
            and 0 < got.max_fragments <= asked.max_fragments
            and got.max_message <= MAX_MESSAGE
        ):
            self._failed(
                conn, Failure(errno.EPROTO, f"{self.nid} accepts with more than was asked for: {got}")
            )
        else:
            conn.agree(got, ack.src_incarnation)
            self.joined(conn)

    def refused(self, conn: Conn, status: int, private: bytes) -> None:
        """A call was refused, by the peer's LNet or by the connection manager."""
        refusal: Reject | None = None
        if has_magic(private):
            try:
                refusal = Reject.unpack(private)
            except WireError:
                refusal = None
        if refusal is None:
            reaction, number = CM_REASONS.get(status, (Reaction.FAIL, errno.ECONNREFUSED))
            words = f"{self.nid} refuses connections, for the connection manager's reason {status}"
        else:
            reaction, number = _REACTIONS.get(refusal.reason, (Reaction.FAIL, errno.ECONNREFUSED))
            if refusal.reason == _FATAL and refusal.version == V1 != conn.version:
                reaction = Reaction.VERSION
            words = f"{self.nid} refuses connections: {refusal.reason_text}"
        self._calls += 1
        if (
            reaction is not Reaction.FAIL
            and self._calls <= _MOST_CALLS
            and self._follow(reaction, conn, refusal)
        ):
            self._hang_up(conn)
            self._again(_RACE_PAUSE if reaction is Reaction.WAIT else 0.0)
            return
        if number == errno.EHOSTUNREACH:
            words = why_unconnected(number, str(self.nid), self.ni.params.service)
        self._failed(conn, Failure(number, words))

    def _follow(self, reaction: Reaction, conn: Conn, refusal: Reject | None) -> bool:
        """Take over what the refusal tells; whether the next call is another one for it."""
        if reaction is Reaction.WAIT:
            return True
        if refusal is None:
            return reaction is Reaction.STAMP
        told, asked = refusal.params, conn.params
        if reaction is Reaction.VERSION:
            changed = refusal.version in VERSIONS and refusal.version != conn.version
            self.version = refusal.version if changed else self.version
        elif reaction is Reaction.STAMP:
            changed = refusal.incarnation != self.incarnation
            self.incarnation = refusal.incarnation
        elif reaction is Reaction.FRAGMENTS:
            changed = 0 < told.max_fragments < asked.max_fragments
            self.limits = self.limits._replace(max_fragments=told.max_fragments) if changed else self.limits
        else:
            changed = 0 < told.queue_depth < asked.queue_depth
            self.limits = self.limits._replace(queue_depth=told.queue_depth) if changed else self.limits
        return changed

    def _hang_up(self, conn: Conn) -> None:
        """That call is over."""
        conn.state = ConnState.CLOSED
        if conn.pair is not None:
            conn.pair.close()
        conn.receiver.close()
        if self.calling is conn:
            self.calling = None
            self._moves()

    def _again(self, pause: float) -> None:
        """Call again, if anything waits that no other connection will carry."""
        if self.queue and not self.conns:
            self._again_at = self.ni.now() + pause
            self.ni.arm(self._again_at)
        else:
            self.ni.forget_if_idle(self)

    def unconnected(self, conn: Conn, number: int) -> None:
        """A call came to nothing."""
        self._failed(conn, Failure(number, why_unconnected(number, str(self.nid), self.ni.params.service)))

    def _failed(self, conn: Conn, failure: Failure, of_device: bool = False) -> None:
        if self.calling is not conn:
            return
        self._hang_up(conn)
        self._calls = 0
        self.limits = ConnParams(self.ni.depth, self.ni.fragments, MAX_MESSAGE)
        self.version, self.incarnation = V2, 0
        core, ni = self.ni.core, self.ni
        core.unconnected(ni.ni, self.nid, failure.errno)
        self._distrust()
        if not (self.conns or self.accepting):
            self.fail_queue(connect_status(failure.errno, of_device), failure)
        ni.forget_if_idle(self)

    # Connections come and go ------------------------------------------------------------------------

    def accept(self, request: Request, asked: O2ibMessage) -> None:
        """Let the peer connect. Raises LNetError."""
        ni, params = self.ni, asked.params
        assert params is not None
        agreed = ConnParams(
            min(ni.depth, params.queue_depth), min(ni.fragments, params.max_fragments), MAX_MESSAGE
        )
        conn = Conn(self, ConnState.ACCEPTING, asked.version, ni.now() + ni.timeout / 4)
        conn.agree(agreed, asked.src_incarnation)
        ack = O2ibMessage(
            O2ibType.CONNACK, asked.version, 0, 0, ni.ni.nid, ni.incarnation, self.nid, asked.src_incarnation,
            "little", agreed,
        )  # fmt: skip
        try:
            conn.pair = request.accept(conn, ack.pack(), self._shape(agreed, asked.version))
        except LNetError:
            conn.receiver.close()
            raise
        self.accepting.append(conn)
        ni.arm(conn.deadline)

    def joined(self, conn: Conn) -> None:
        """A connection is up: what waits takes it, unless it was for a former life of the peer."""
        ni, core = self.ni, self.ni.core
        if conn is self.calling:
            self.calling = None
        if conn in self.accepting:
            self.accepting.remove(conn)
        self._calls, self._again_at = 0, float("inf")
        self.incarnation, self.version = conn.incarnation, conn.version
        self.conns.append(conn)
        self.verified = True
        self._moves()
        if ni.is_new_life(self.nid, conn.incarnation):
            core.peer_restarted(self.nid)
            self.withdraw()  # the core finds out first who is there now
        conn.establish()
        queue, self.queue = self.queue, []
        if queue and self.conns:
            core.has_connection([tx.msg for tx in queue if tx.msg is not None])
            ni.count(queue)
            self.launch(queue)
        elif queue:
            self.queue = queue + self.queue
            self.call()
        ni.arm(conn.next_deadline)

    def left(self, conn: Conn, failure: Failure) -> None:
        """A connection has ended: nothing is given to it any more."""
        for conns in (self.conns, self.accepting):
            if conn in conns:
                conns.remove(conn)
        if self.calling is conn:
            self.calling = None
            self._moves()
        for wmd in list(self._gets):
            self._gets[wmd] = [rx for rx in self._gets[wmd] if rx.conn is not conn]
            if not self._gets[wmd]:
                del self._gets[wmd]

    def closed(self, conn: Conn, failure: Failure) -> None:
        """… and all that was under way on it is told of."""
        ni = self.ni
        if self.conns or not ni.open:
            return
        if failure.errno in _UNSURE:
            self._distrust()
        if failure.errno != errno.ESTALE and not ni.down:
            ni.core.path_lost(ni.ni, self.nid)
        if self.queue and not self.accepting:
            self.call()
        ni.forget_if_idle(self)

    def close(self, failure: Failure) -> None:
        """End all connections."""
        for conn in (*self.conns, *self.accepting):
            conn.close(failure)

    def end_former_life(self) -> None:
        """Another life of the peer was seen."""
        self.close(Failure(errno.ESTALE, f"{self.nid} has been restarted"))

    # Doubts -----------------------------------------------------------------------------------------

    def verify(self) -> bool:
        """Find out whether the connections are with a former life; whether there are any."""
        if not self.conns:
            self.withdraw()
            return False
        self.verified = False
        for conn in list(self.conns):
            conn.probe()
        return bool(self.conns)

    def _distrust(self) -> None:
        """It gives no answer, when another NID of its node has begun a new life."""
        if not self.verified:
            self.verified = True
            self.ni.core.peer_restarted(self.nid, heard=False)

    def _moves(self) -> None:
        if self.stuck_at < 0:
            self.ni.core.path_moving(self.ni.ni, self.nid)
        self.stuck_at = float("inf")

    # GETs -------------------------------------------------------------------------------------------

    def asked(self, rx: GetRx) -> None:
        """A GET_REQ came: its REPLY is known by the handle."""
        self._gets.setdefault(rx.wmd, []).append(rx)

    def answered(self, rx: GetRx) -> bool:
        """It is answered now; False if it was."""
        waiting = self._gets.get(rx.wmd, [])
        if rx not in waiting:
            return False
        waiting.remove(rx)
        if not waiting:
            del self._gets[rx.wmd]
        return True

    def get_for(self, msg: Msg) -> GetRx | None:
        """The GET_REQ to which msg is the REPLY, if there is one."""
        waiting = self._gets.get(msg.wmd)
        if not waiting:
            return None
        rx = waiting[0]
        self.answered(rx)
        return rx

    # Time and devices -------------------------------------------------------------------------------

    @property
    def next_deadline(self) -> float:
        """When it has to be looked at."""
        found = [self._again_at]
        found += [conn.next_deadline for conn in (*self.conns, *self.accepting)]
        found += [tx.deadline for tx in self.queue]
        found += [rx.deadline for waiting in self._gets.values() for rx in waiting]
        if self.calling is not None:
            found.append(self.calling.deadline)
            if self.stuck_at > 0:
                found.append(self.stuck_at)
        return min(found)

    def look(self, now: float) -> None:
        """See what is late, or due."""
        for conn in (*self.conns, *self.accepting):
            if conn.expired(now):
                seconds = f"{self.ni.timeout:g} s"
                conn.close(Failure(errno.ETIMEDOUT, f"timed out after {seconds}: {self.nid} does not answer"))
            else:
                conn.pump()
        for rx in [rx for waiting in self._gets.values() for rx in waiting if rx.deadline <= now]:
            rx.unanswered()
        calling = self.calling
        if calling is not None and calling.deadline <= now:
            reason = f"timed out: {why_unconnected(errno.ENETDOWN, str(self.nid), self.ni.params.service)}"
            self._failed(calling, Failure(errno.ETIMEDOUT, reason))
        elif calling is not None and self.stuck_at <= now and self.stuck_at > 0 and not self.conns:
            self.stuck_at = -1.0
            self.ni.core.path_stalled(self.ni.ni, self.nid)
            self.withdraw()
        late = [tx for tx in self.queue if tx.deadline <= now]
        if late:
            reason = f"timed out without a connection to {self.nid}"
            self.queue = [tx for tx in self.queue if tx.deadline > now]
            self.ni.fail(late, HealthStatus.NETWORK_TIMEOUT, Failure(errno.ETIMEDOUT, reason))
        if self._again_at <= now:
            self._again_at = float("inf")
            if self.queue and not (self.conns or self.accepting):
                self.call()
        self.ni.forget_if_idle(self)

    def withdraw(self) -> None:
        """Give back all that has not begun to leave; connections stay."""
        back, self.queue = self.queue, []
        for conn in list(self.conns):
            back += conn.withdraw()
        self.ni.give_back(back)

    def fail_queue(self, status: HealthStatus, failure: Failure) -> None:
        """No connection came up."""
        queue, self.queue = self.queue, []
        self.ni.fail(queue, status, failure)

    def hurry(self, latest: float) -> None:
        """Nothing has longer than that."""
        for tx in self.queue:
            tx.deadline = min(tx.deadline, latest)
        for conn in self.conns:
            conn.hurry(latest)

    @property
    def idle(self) -> bool:
        """Whether nothing is left of it."""
        return not (self.conns or self.accepting or self.calling or self.queue or self._gets)


_FATAL: Final = 3
_REACTIONS: Final = {int(reason): reaction for reason, reaction in REACTIONS.items()}
