"""The state of one NI: device, peers, calls that come in, deadlines (spec wire-o2iblnd.md §2, §5, §6)."""

from __future__ import annotations

import errno
import sys
from typing import TYPE_CHECKING, Final

from ulnet.core.lines import Line
from ulnet.core.msg import ANSWERS
from ulnet.core.notices import Notices
from ulnet.core.status import HealthStatus, LNetError
from ulnet.core.tunables import LndTunables
from ulnet.lnd.base import Failures
from ulnet.lnd.contract import NiEvent
from ulnet.lnd.o2ib.errors import DEVICE_EVENTS, Failure
from ulnet.lnd.o2ib.memory import Mapped, Registrations
from ulnet.lnd.o2ib.peer import Peer
from ulnet.lnd.o2ib.state import V1
from ulnet.lnd.o2ib.tx import Tx, get_request, put_request
from ulnet.lnd.o2ib.verbs import Device, DeviceEvent, QueuePair, Request, Verbs
from ulnet.nid import Nid
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import Header, MsgType, pack_header
from ulnet.wire.o2ib import (
    IMMEDIATE_END,
    MAX_FRAGMENTS,
    MAX_MESSAGE,
    VERSIONS,
    ConnParams,
    O2ibMessage,
    O2ibType,
    Reason,
    Reject,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from ulnet.core.msg import Msg
    from ulnet.core.ni import NI
    from ulnet.lnd.contract import Upcalls
    from ulnet.lnd.o2ib.params import O2ibParams

__all__ = ["NiState", "race_key"]

_ROOM: Final = MAX_MESSAGE - IMMEDIATE_END  # payload of an IMMEDIATE
_LEAST_DEPTH: Final = 8  # of a queue, whatever peer_credits are (spec wire-o2iblnd.md §7)
_MOST_DEPTH: Final = 254
_MOST_RACES: Final = 20
_MOST_REFUSED: Final = 16  # lines a second about calls that are refused
_MOST_CONNS: Final = 128  # of one peer
_REMEMBERED: Final = 65536  # peers decide how many there are
_REOPEN: Final = 1.0  # seconds between two looks for a device that is gone
_LEAST_PAUSE: Final = 0.05  # seconds between two looks at what is late
_WMD_AT: Final = 32  # of the handle in an LNet header
_WMD_SIZE: Final = 16
_GET: Final = int(MsgType.GET)
_REPLY: Final = int(MsgType.REPLY)


class NiState:
    """The driver's side of an NI; kept in `ni.lnd_data`. `in_hand` are its transmits that carry messages."""

    def __init__(
        self,
        core: Upcalls,
        loop: asyncio.AbstractEventLoop,
        verbs: Verbs,
        params: O2ibParams,
        ni: NI,
        incarnation: int,
        report: Callable[[str], None],
    ) -> None:
        self.core = core
        self.loop = loop
        self.now: Callable[[], float] = loop.time
        self.params = params
        self.ni = ni
        self.tunables: LndTunables = ni.lnd_tunables or LndTunables()
        self.nid4: int = ni.nid.nid4
        self.incarnation = incarnation
        self.depth: int = min(max(ni.tunables.peer_credits, _LEAST_DEPTH), _MOST_DEPTH)
        self.fragments = MAX_FRAGMENTS
        self.set_tunables(float(ni.timeout))
        self.peers: dict[Nid, Peer] = {}
        self.in_hand: dict[Tx, None] = {}
        self.requests: int = (
            0  # those in hand that have a connection and are no answers, which the core bounds
        )
        self.open: bool = True
        self.down: str = ""  # why nothing can be carried now
        self.failures: Failures = Failures(core, self._drain_soon)
        self._verbs = verbs
        self._report = report
        self._refused = Notices(self.now, report, _MOST_REFUSED).say
        self._lives: dict[Nid, int] = {}
        self._cookies = 0
        self._packed: tuple[Header | None, bytes] = (None, b"")  # the last header, and its bytes
        self._timer: asyncio.TimerHandle | None = None
        self._due = float("inf")
        self._gone = False  # the device is: another one is looked for
        self.device: Device = verbs.open(ni, params.service, self)
        self.registrations: Registrations = Registrations()

    def _drain_soon(self) -> None:
        self.loop.call_soon(self.failures.drain)

    def set_tunables(self, timeout: float) -> None:
        """Take over what can be changed while the NI runs."""
        tunables, credits = self.tunables, self.depth
        self.timeout = timeout
        self.conns_per_peer: int = max(tunables.conns_per_peer, 1)
        wanted = tunables.concurrent_sends or credits
        self.concurrent_sends = tunables.concurrent_sends = min(max(wanted, credits // 2), 2 * credits)
        self.highwater = tunables.peercredits_hiw = min(
            max(tunables.peercredits_hiw, credits // 2), credits - 1
        )

    def retune(self, timeout: float) -> None:
        """The tunables changed."""
        self.set_tunables(timeout)
        for peer in self.peers.values():
            peer.hurry(self.now() + timeout)
            self.arm(peer.next_deadline)

    def cookie(self) -> int:
        """A cookie that no other transmit of this NI had."""
        self._cookies += 1
        return self._cookies

    # Sending ----------------------------------------------------------------------------------------

    def send(self, msgs: list[Msg]) -> None:
        """Queue messages of one path."""
        first = msgs[0]
        nid = first.next_nid
        assert nid is not None
        peer = self.peers.get(nid)
        if (
            not self.open
            or self.down
            or nid.is_large
            or (peer is None and self.core.why_denied(self.ni, nid))
        ):
            self._refuse(msgs, nid)
            return
        if peer is None:
            peer = self.peers[nid] = Peer(self, nid)
        txs: list[Tx] = []
        for msg in msgs:
            rx = peer.get_for(msg) if msg.hdr.type == _REPLY else None
            if rx is not None:
                rx.conn.get_reply(rx, msg)
                continue
            try:
                txs.append(self._transmit(msg, bool(peer.conns)))
            except LNetError as failed:
                self.fail_unsent(msg, HealthStatus.LOCAL_ERROR, failed.errno, failed.text)
            except WireError as unfit:  # the message's own header: nobody is charged
                self.fail_unsent(msg, HealthStatus.OK, errno.EINVAL, str(unfit))
        if txs:
            self.arm(txs[0].deadline)
            peer.launch(txs)

    def _refuse(self, msgs: list[Msg], nid: Nid) -> None:
        for msg in msgs:
            if not self.open:
                text = f"the local interface {self.ni.nid} has been shut down"
                self.fail_unsent(msg, HealthStatus.LOCAL_ERROR, errno.ESHUTDOWN, text)
            elif self.down:
                self.fail_unsent(msg, HealthStatus.LOCAL_DROPPED, errno.ENETDOWN, self.down)
            elif not nid.is_large:
                denied = self.core.why_denied(self.ni, nid)
                self.fail_unsent(msg, HealthStatus.REMOTE_ERROR, errno.EACCES, denied)
            else:
                text = f"{nid}: o2ib carries NIDs of four bytes only"
                self.fail_unsent(msg, HealthStatus.REMOTE_ERROR, errno.EAFNOSUPPORT, text)

    def _transmit(self, msg: Msg, connected: bool) -> Tx:
        """The transmit for a message (spec §4). Raises LNetError, WireError.

        What waits for a connection is not counted: it holds nothing but its place in the queue of the peer.
        """
        hdr = msg.hdr
        if connected and hdr.type not in ANSWERS and self.requests >= self.tunables.ntx:
            raise LNetError(
                errno.ENOMEM, f"{self.ni.nid}: all of ntx={self.tunables.ntx} transmits are in use"
            )
        now = self.now()
        last, raw = self._packed
        if last is not hdr:
            raw = pack_header(hdr, False)
            self._packed = hdr, raw
        lnet = raw[:_WMD_AT] + msg.wmd + raw[_WMD_AT + _WMD_SIZE :]
        if hdr.type == _GET and hdr.length > _ROOM and hdr.dest_nid == msg.next_nid and msg.md is not None:
            tx = Tx(O2ibType.GET_REQ, (lnet,), now + self.timeout, msg)
            tx.cookie = self.cookie()
        elif hdr.payload_length > _ROOM:
            tx = Tx(O2ibType.PUT_REQ, (lnet,), now + self.timeout / 2, msg)
            tx.cookie = self.cookie()
        else:
            tx = Tx(O2ibType.IMMEDIATE, (lnet, *msg.payload), now + self.timeout, msg)
        self.take(tx)
        if connected:
            self.count([tx])
        return tx

    def count(self, txs: Iterable[Tx]) -> None:
        """These have a connection."""
        for tx in txs:
            assert tx.msg is not None
            if not tx.counted and tx.msg.hdr.type not in ANSWERS:
                tx.counted = True
                self.requests += 1

    def map(self, tx: Tx, pair: QueuePair) -> bool:
        """Register the payload of a request for the connection that carries it; else the message fails."""
        msg, lnet = tx.msg, tx.body[0]
        assert msg is not None
        assert isinstance(lnet, bytes)
        try:
            if tx.kind is O2ibType.GET_REQ:
                assert msg.md is not None
                tx.mapped = self.registrations.map_sink(pair, msg.md.slices(0, msg.hdr.length))
                tx.become(tx.kind, get_request(lnet, tx.cookie, tx.mapped.target), [])
            else:
                tx.mapped = self.map_payload(msg, pair)
                tx.become(tx.kind, put_request(lnet, tx.cookie), [])
        except LNetError as failed:
            self.let_go(tx)
            self.fail_unsent(msg, HealthStatus.LOCAL_ERROR, failed.errno, failed.text)
            return False
        return True

    def map_payload(self, msg: Msg, pair: QueuePair | None) -> Mapped:
        """Register the payload of a message for that connection. Raises LNetError."""
        assert pair is not None
        offset = msg.event.offset if msg.event is not None else 0
        return self.registrations.map_source(pair, msg.payload, msg.md, offset)

    def take(self, tx: Tx) -> None:
        """A transmit gets its message."""
        assert tx.msg is not None
        self.in_hand[tx] = None

    def let_go(self, tx: Tx) -> None:
        """Its message is over, or goes another way."""
        if tx in self.in_hand:
            del self.in_hand[tx]
            self.requests -= tx.counted

    def fail_unsent(self, msg: Msg, status: HealthStatus, number: int, reason: str) -> None:
        """End a message of which nothing has left, soon."""
        msg.unsent = True
        self.failures.add(msg, status, number, reason)

    def fail(self, txs: Iterable[Tx], status: HealthStatus, failure: Failure) -> None:
        """End transmits of which nothing has left, now."""
        for tx in txs:
            tx.release()
            self.let_go(tx)
            assert tx.msg is not None
            tx.msg.unsent = True
            self.core.completed([tx.msg], status, *failure)

    def give_back(self, txs: Iterable[Tx]) -> None:
        """Transmits of which nothing has left may go another way."""
        for tx in txs:
            tx.release()
            self.let_go(tx)
            assert tx.msg is not None
            self.core.take_back(tx.msg)

    # Calls ------------------------------------------------------------------------------------------

    def requested(self, request: Request) -> None:
        """A peer wants to connect."""
        try:
            asked = O2ibMessage.unpack(request.private)
        except WireError as broken:
            self._refused(request.source, f"{self.ni.nid}: refused a call: {broken}")
            self._reject(request, _version_of(request.private), _reason_for(request.private))
            return
        peer, reason = self._judge(asked, request.source)
        if reason is None and peer is not None:
            try:
                peer.accept(request, asked)
                return
            except LNetError as failed:
                text = f"{self.ni.nid}: cannot accept a call of {asked.src_nid}: {failed.text}"
                self._refused(request.source, text)
                reason = Reason.NO_RESOURCES
        assert reason is not None
        self._reject(request, asked.version, reason)
        if peer is not None:
            self.forget_if_idle(peer)

    def _reject(self, request: Request, version: int, reason: Reason) -> None:
        params = ConnParams(self.depth, self.fragments, MAX_MESSAGE)
        request.reject(Reject(version, reason, self.incarnation, params).pack())

    def _judge(self, asked: O2ibMessage, source: str) -> tuple[Peer | None, Reason | None]:
        """Who calls, and why the call is refused, if it is. The order is the specification's."""
        why = self._why_not(asked, source)
        if why is not None:
            return None, why
        peer = self.peers.get(asked.src_nid)
        if peer is None:
            peer = self.peers[asked.src_nid] = Peer(self, asked.src_nid)
        now = (asked.src_incarnation, asked.version)
        for conn in (*peer.conns, *peer.accepting):
            if (conn.incarnation, conn.version) != now:
                conn.close(Failure(errno.ESTALE, f"{peer.nid} has been restarted"))
        if self.peers.get(peer.nid) is not peer:  # nothing was left of it
            self.peers[peer.nid] = peer
        if len(peer.conns) + len(peer.accepting) >= _MOST_CONNS:
            return peer, Reason.NO_RESOURCES
        loses = race_key(peer.nid) < race_key(self.ni.nid)
        if peer.calling is not None and loses and peer.races < _MOST_RACES:
            peer.races += 1
            return peer, Reason.CONN_RACE
        peer.races = 0
        return peer, None

    def _why_not(self, asked: O2ibMessage, source: str) -> Reason | None:
        """Why a call is refused, whoever makes it."""
        params, caller = asked.params, asked.src_nid
        if asked.dst_nid != self.ni.nid or caller.net != self.ni.nid.net or caller.ip != source:
            return Reason.FATAL
        denied = self.core.why_denied(self.ni, caller)
        if denied:
            line = Line("connection.refused", f"refused {source}: {denied}", source=source, why="denied")
            self._refused(source, line)
            return Reason.FATAL
        if not self.open or self.down or not self.ni.active:
            return Reason.EARLY
        if asked.type != O2ibType.CONNREQ or params is None:
            return Reason.FATAL
        if asked.dst_incarnation not in (0, self.incarnation):
            return Reason.CONN_STALE
        if asked.version != V1 and params.queue_depth > self.depth:
            return Reason.MSG_QUEUE_SIZE
        if params.max_fragments > MAX_FRAGMENTS:
            return Reason.RDMA_FRAGS
        if params.max_message > MAX_MESSAGE or not params.queue_depth or not params.max_fragments:
            return Reason.FATAL
        return None

    def is_new_life(self, nid: Nid, incarnation: int) -> bool:
        """Whether another life was behind nid when it was last connected."""
        before = self._lives.pop(nid, incarnation)
        self._lives[nid] = incarnation
        if len(self._lives) > _REMEMBERED:
            del self._lives[next(iter(self._lives))]
        return before != incarnation

    def verify(self, nid: Nid) -> bool:
        """The node behind nid may have begun a new life."""
        peer = self.peers.get(nid)
        return peer is not None and peer.verify()

    def forget_if_idle(self, peer: Peer) -> None:
        """Drop a peer of which nothing is left."""
        if peer.idle and self.peers.get(peer.nid) is peer:
            del self.peers[peer.nid]

    # Time -------------------------------------------------------------------------------------------

    def arm(self, when: float) -> None:
        """Look at what is late or due then."""
        if when < self._due and self.open:
            self._due = when
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_at(when, self._tick)

    def _tick(self) -> None:
        self._timer, self._due = None, float("inf")
        now = self.now()
        if self._gone:
            self._reopen()
        for peer in list(self.peers.values()):
            peer.look(now)
        following = min([peer.next_deadline for peer in self.peers.values()], default=float("inf"))
        self.arm(max(following, now + _LEAST_PAUSE))

    # The device -------------------------------------------------------------------------------------

    def device_event(self, event: DeviceEvent, words: str) -> None:
        """What becomes of the device."""
        told = f"{self.ni.nid}: {self.device.name}: {event.value}{': ' * bool(words)}{words}"
        self._report(told)
        news = DEVICE_EVENTS.get(event)
        if news is NiEvent.FATAL and not self.down:
            self.down = told
            self.core.ni_event(self.ni, NiEvent.FATAL)
            for peer in list(self.peers.values()):
                peer.withdraw()
        elif news is NiEvent.RECOVERED and self.down and not self._gone:
            self.down = ""
            self.core.ni_event(self.ni, NiEvent.RECOVERED)
        if event in (DeviceEvent.DEVICE_FATAL, DeviceEvent.DEVICE_REMOVAL) and self.open:
            self._leave_device(told)

    def _leave_device(self, reason: str) -> None:
        """Nothing of the device works any more."""
        if self._gone:
            return
        self._gone = True
        self._end(Failure(errno.ENETDOWN, reason))
        self.device.close()
        self.arm(self.now() + _REOPEN)

    def _reopen(self) -> None:
        try:
            self.device = self._verbs.open(self.ni, self.params.service, self)
        except LNetError:
            self.arm(self.now() + _REOPEN)
            return
        self._gone, self.down = False, ""
        self._report(f"{self.ni.nid}: {self.device.name} is there again")
        self.core.ni_event(self.ni, NiEvent.RECOVERED)

    # The end ----------------------------------------------------------------------------------------

    def end_denied(self) -> None:
        """End all that there is with peers that are denied. Nothing more is queued for them meanwhile."""
        for peer in list(self.peers.values()):
            denied = self.core.why_denied(self.ni, peer.nid)
            if denied and self.peers.pop(peer.nid, None) is peer:
                peer.fail_queue(HealthStatus.REMOTE_ERROR, Failure(errno.EACCES, denied))
                self._end_peer(peer, Failure(errno.EACCES, denied))

    def _end_peer(self, peer: Peer, failure: Failure) -> None:
        if peer.calling is not None:
            peer.calling.close(failure)
        peer.close(failure)

    def _end(self, failure: Failure) -> None:
        for peer in list(self.peers.values()):
            self._end_peer(peer, failure)
            peer.fail_queue(HealthStatus.LOCAL_ERROR, failure)
            self.forget_if_idle(peer)

    def forked(self) -> None:
        """In a child of the process: nothing is done here."""
        self.open = False
        if self._timer is not None:
            self._timer.cancel()

    def shut(self) -> None:
        """End everything at once."""
        self.open = False
        if self._timer is not None:
            self._timer.cancel()
        self._end(Failure(errno.ESHUTDOWN, f"the local interface {self.ni.nid} has been shut down"))
        self.peers.clear()
        if not self._gone:
            self.device.close()
        self.failures.drain()


def race_key(nid: Nid) -> int:
    """What decides between two that call each other: the lower one gives way (spec §2)."""
    address = nid.address
    key = int(nid.net)
    for at in range(0, len(address), 4):
        key ^= int.from_bytes(address[at : at + 4], sys.byteorder)
    return key


def _version_of(private: bytes) -> int:
    """The version in which to refuse what cannot be read."""
    for order in ("little", "big"):
        version = int.from_bytes(private[4:6], order)
        if version in VERSIONS:
            return version
    return VERSIONS[-1]


def _reason_for(private: bytes) -> Reason:
    """Why what cannot be read is refused: a version that nobody knows, or worse."""
    versions = (int.from_bytes(private[4:6], "little"), int.from_bytes(private[4:6], "big"))
    known = any(version in VERSIONS for version in versions)
    return Reason.FATAL if known or len(private) < 6 else Reason.CONN_UNCOMPAT
