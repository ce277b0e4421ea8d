"""One connection: its state, credits, what is posted, and what comes (spec wire-o2iblnd.md §1.5, §3, §4)."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ulnet.core.status import HealthStatus, LNetError
from ulnet.lnd.o2ib.errors import CM_FAILURES, Failure, aborted
from ulnet.lnd.o2ib.memory import writes_to
from ulnet.lnd.o2ib.rx import FetchedRx, GetRx, ImmediateRx, PutRx, requested
from ulnet.lnd.o2ib.state import V1, ConnState
from ulnet.lnd.o2ib.tx import CREDITED, RESERVED, Tx, put_ack, reply_to
from ulnet.lnd.o2ib.verbs import CmEvent, Send
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import Header, MsgType, unpack_header
from ulnet.wire.o2ib import (
    HEAD_SIZE,
    IMMEDIATE_END,
    ConnParams,
    Head,
    O2ibType,
    checksum,
    pack_head,
    unpack_body,
    unpack_head,
)

if TYPE_CHECKING:
    from ulnet.core.msg import Msg
    from ulnet.lnd.o2ib.memory import Mapped
    from ulnet.lnd.o2ib.ni import NiState
    from ulnet.lnd.o2ib.peer import Peer
    from ulnet.lnd.o2ib.verbs import QueuePair, Slot, Work
    from ulnet.wire.errors import Buffer

__all__ = ["Conn"]

_V1_HIGHWATER: Final = 7
_MOST_NOOPS: Final = 2  # of version 2, which take no credit
_MOST_RETURNED: Final = 255  # credits by one message
_MOST_ASKED: Final = 8  # times the queue depth: requests of a peer, which may have that many answers due
_GET: Final = int(MsgType.GET)
_PAYLOAD_TYPES: Final = (int(MsgType.PUT), int(MsgType.REPLY))
_NO_BODY: Final[tuple[bytes, ...]] = ()


class Conn:
    """A connection with a peer; owns its queue pair. `credits` are those to send, `owed` those to return."""

    __slots__ = (
        "_active",
        "_early",
        "_ends",
        "_expected",
        "_hdr",
        "_held",
        "_highwater",
        "_limit",
        "_oob",
        "_posted",
        "_posts",
        "_probing",
        "_raw",
        "_ready",
        "_rxs",
        "_sinks",
        "credits",
        "deadline",
        "last_sent",
        "ni",
        "noops",
        "owed",
        "pair",
        "params",
        "peer",
        "receiver",
        "reserved",
        "state",
        "version",
    )

    def __init__(self, peer: Peer, state: ConnState, version: int, deadline: float) -> None:
        self.peer: Peer = peer
        self.ni: NiState = peer.ni
        self.state: ConnState = state
        self.version: int = version
        self.deadline: float = deadline  # of being established
        self.pair: QueuePair | None = None
        self.params: ConnParams = ConnParams(0, 0, 0)  # as agreed
        self.credits: int = 0
        self.owed: int = 0
        self.reserved: int = 0
        self.noops: int = 0
        self.last_sent = self.ni.now()
        self.receiver = self.ni.core.receiver(self.ni.ni, peer.nid)
        self._highwater = self._limit = 0
        self._posts = 0  # messages that are posted and not completed
        self._probing: bool = False
        self._ends = self._expected = (0, 0, 0, 0)
        self._oob: deque[Tx] = deque()  # take no credit
        self._ready: deque[Tx] = deque()  # take a credit
        self._held: deque[Tx] = deque()  # … and wait for one of the answers that may be due
        self._posted: dict[Tx, None] = {}
        self._active: dict[int, Tx] = {}  # wait for an answer, by their cookie
        self._sinks: dict[int, Tx] = {}  # PUT_ACKs that wait for their PUT_DONE
        self._rxs: dict[ImmediateRx | PutRx, None] = {}  # wait for memory
        self._early: list[Slot] = []  # came before it was established here
        self._raw = b""  # of the last header that came …
        self._hdr = Header(_GET)  # … and what it says

    # Being set up -----------------------------------------------------------------------------------

    def agree(self, params: ConnParams, incarnation: int) -> None:
        """Both sides have agreed on these; the peer has that incarnation."""
        ni = self.ni
        self.params = params
        depth = params.queue_depth
        self.credits = self.reserved = depth
        self._highwater = _V1_HIGHWATER
        if self.version != V1:
            self._highwater = max(depth * ni.highwater // ni.depth, 1)
        self._limit = ni.concurrent_sends
        self._ends = (ni.nid4, ni.incarnation, self.peer.nid4, incarnation)
        self._expected = (self.peer.nid4, incarnation, ni.nid4, ni.incarnation)

    @property
    def incarnation(self) -> int:
        """Of the peer, as it was when the connection was made."""
        return self._ends[3]

    def managed(self, event: CmEvent, status: int, private: bytes) -> None:
        """The connection manager tells of it."""
        if self.state is ConnState.CONNECTING:
            if event is CmEvent.ESTABLISHED:
                self.peer.acknowledged(self, private)
            elif event is CmEvent.REJECTED:
                self.peer.refused(self, status, private)
            else:
                self.peer.unconnected(self, CM_FAILURES[event])
        elif self.state is not ConnState.CLOSED:
            if event is not CmEvent.ESTABLISHED:
                self.close(Failure(errno.ECONNRESET, f"{self.peer.nid}: {event.value}"))
            elif self.state is ConnState.ACCEPTING:
                self.peer.joined(self)

    def establish(self) -> None:
        """Both sides know of it: what came early is looked at now."""
        self.state = ConnState.ESTABLISHED
        self.last_sent = self.ni.now()
        early, self._early = self._early, []
        for slot in early:
            self.received(slot)

    # Sending ----------------------------------------------------------------------------------------

    def queue(self, txs: Sequence[Tx]) -> None:
        """Post these when credits allow."""
        assert self.pair is not None
        for tx in txs:
            if tx.kind not in RESERVED:
                self._ready.append(tx)
            elif self.ni.map(tx, self.pair):
                self._held.append(tx)
                self.awaits(tx)
        self.pump()

    def _queue_oob(self, tx: Tx) -> None:
        self._oob.append(tx)
        self.ni.arm(tx.deadline)
        self.pump()

    def pump(self) -> None:
        """Post all that may be posted, by one call."""
        if self.state is not ConnState.ESTABLISHED:
            return
        while self._held and self.reserved:
            self.reserved -= 1
            self._ready.append(self._held.popleft())
        works: list[Work] = []
        while self._posts < self._limit:
            tx = self._next()
            if tx is None:
                break
            self._put(tx, works)
        if works:
            assert self.pair is not None
            self.pair.post(works)

    def _next(self) -> Tx | None:
        if self._oob:
            return self._oob.popleft()
        spare = self.credits - (self.version == V1)  # whose last credit is for a NOOP
        if self._ready and spare > 0:
            self.credits -= 1
            return self._ready.popleft()
        due = self._probing or self.owed >= self._highwater or self.silent_until <= self.ni.now()
        if not due or (self.credits < 1 if self.version == V1 else self.noops >= _MOST_NOOPS):
            return None
        self.credits -= self.version == V1
        self.noops += 1
        return Tx(O2ibType.NOOP, _NO_BODY, self.ni.now() + self.ni.timeout)

    def _put(self, tx: Tx, works: list[Work]) -> None:
        returned = min(self.owed, _MOST_RETURNED)
        self.owed -= returned
        tx.queued = False
        tx.sending += 1
        self._posts += 1
        self._posted[tx] = None
        self.last_sent, self._probing = self.ni.now(), False
        head = pack_head(tx.kind, self.version, returned, tx.size, self._ends)
        parts: list[Buffer] = [head, *tx.body]
        if self.ni.params.cksum:
            raw = b"".join(parts)
            parts = [raw[:12], checksum(raw).to_bytes(4, "little"), raw[16:]]
        works += tx.writes
        works.append(Send(parts, tx))

    def sent(self, tokens: list[object]) -> None:
        """Posted transmits are completed."""
        over = []
        if self.state is ConnState.CLOSED:
            return
        for tx in tokens:
            assert isinstance(tx, Tx)
            tx.sending -= 1
            self._posts -= 1
            if not tx.sending:
                self._posted.pop(tx, None)
            if tx.kind == O2ibType.NOOP:
                self.noops -= 1
            if tx.over:
                over.append(tx)
        self.pump()
        self._finish(over)

    def _finish(self, over: list[Tx]) -> None:
        """Tell the core of transmits that are over."""
        core = self.ni.core
        run: list[Msg] = []
        for tx in over:
            if tx.reply > 0 and tx.mapped is not None:
                tx.mapped.filled(tx.reply)
            tx.release()
            msg = tx.msg
            if msg is None:
                continue
            self.ni.let_go(tx)
            if tx.failed:
                msg.unsent = False
                core.completed([msg], HealthStatus.OK, tx.failed, tx.reason)
            elif tx.reply < 0:
                run.append(msg)
            else:
                reply = reply_to(msg, tx.reply)
                core.completed([msg])
                self.receiver.begin(reply, FetchedRx(self))
        if run:
            core.completed(run)

    # Credits and buffers ----------------------------------------------------------------------------

    def recycle(self, slot: Slot, credit: int) -> None:
        """A receive buffer is free again, which the peer took with a credit or without."""
        if self.state is not ConnState.CLOSED:
            assert self.pair is not None
            self.pair.recycle(slot)
            self.owed += credit

    def taken(self, rx: ImmediateRx | PutRx) -> None:
        """The core has said where that payload goes."""
        self._rxs.pop(rx, None)

    # Receiving --------------------------------------------------------------------------------------

    def received(self, slot: Slot) -> None:
        """A message came."""
        if self.state is ConnState.ACCEPTING:
            self._early.append(slot)
        elif self.state is ConnState.ESTABLISHED:
            try:
                self._receive(slot)
            except WireError as broken:
                self._break(str(broken))
            self.pump()

    def _receive(self, slot: Slot) -> None:
        data = slot.view[slot.start : slot.start + slot.size]
        head = unpack_head(data, slot.size)
        kind = head.type
        if head[5:9] != self._expected or head.version != self.version:
            raise WireError("a message that is not of this connection: other NIDs, stamps or version")
        self.credits += head.credits
        if self.credits > self.params.queue_depth:
            raise WireError(f"{head.credits} credits returned, which makes {self.credits}: too many")
        if kind == O2ibType.IMMEDIATE:
            self._immediate(head, data, slot)
            return
        handle = _HANDLERS.get(kind)
        if handle is None:
            raise WireError(f"{O2ibType(kind).name} on a connection that is up")
        whole = bytes(data)
        self.recycle(slot, kind in CREDITED or (kind == O2ibType.NOOP and self.version == V1))
        handle(self, head, whole)

    def _break(self, what: str) -> None:
        self.close(Failure(errno.EPROTO, f"{self.peer.nid} broke the protocol: {what}"))

    def _immediate(self, head: Head, data: memoryview, slot: Slot) -> None:
        raw = bytes(data[HEAD_SIZE:IMMEDIATE_END])
        if raw != self._raw:
            self._hdr, self._raw = unpack_header(raw), raw
        hdr, at = self._hdr, slot.start + HEAD_SIZE
        size = hdr.payload_length
        self.owed += not size  # which the answer may return
        if size > head.size - IMMEDIATE_END:
            raise WireError(f"IMMEDIATE with {head.size - IMMEDIATE_END} of {size} bytes")
        behind = self.receiver.deliver(
            hdr, self._raw, slot.buf, slot.view, at, slot.start + IMMEDIATE_END + size
        )
        if behind == at and self.state is ConnState.ESTABLISHED:
            rx = ImmediateRx(self, slot, slot.start + IMMEDIATE_END)
            if size:
                self._rxs[rx] = None
            if self.receiver.begin(hdr, rx):
                self._rxs.pop(rx, None)
                raise WireError("the message breaks LNet's rules")
            if size:
                return  # `take` recycles
        self.recycle(slot, size > 0)

    def _noop(self, head: Head, data: bytes) -> None:
        """Credits, or a sign of life."""

    def _put_request(self, head: Head, data: bytes) -> None:
        hdr, cookie = requested(head, data)
        if hdr.type not in _PAYLOAD_TYPES:
            raise WireError(f"PUT_REQ for a message of type {hdr.type}")
        self._check_asked(O2ibType.PUT_REQ)
        rx = PutRx(self, cookie)
        if hdr.payload_length:
            self._rxs[rx] = None
        if self.receiver.begin(hdr, rx):
            self._rxs.pop(rx, None)
            raise WireError("the message breaks LNet's rules")
        if not hdr.payload_length:
            self.put_nak(cookie, 0)

    def _check_asked(self, kind: O2ibType) -> None:
        """Who keeps to no credits, or takes no answers, has so many due at most. Raises WireError."""
        if len(self._sinks) + len(self._rxs) + len(self._oob) > _MOST_ASKED * self.params.queue_depth:
            raise WireError(f"{kind.name} beyond all that credits allow")

    def put_nak(self, cookie: int, status: int) -> None:
        """Tell the peer that its payload is not wanted (0), or why it cannot be taken."""
        tx = Tx(O2ibType.PUT_NAK, _NO_BODY, self.ni.now() + self.ni.timeout)
        tx.complete(O2ibType.PUT_NAK, cookie, status)
        self._queue_oob(tx)

    def put_ack(self, cookie: int, mapped: Mapped, rx: PutRx) -> None:
        """Tell the peer where its payload goes."""
        own = self.ni.cookie()
        tx = Tx(O2ibType.PUT_ACK, put_ack(cookie, own, mapped.target), self.ni.now() + self.ni.timeout)
        tx.cookie, tx.mapped, tx.rx, tx.waiting = own, mapped, rx, True
        self._sinks[own] = tx
        self._queue_oob(tx)

    def _put_done(self, head: Head, data: bytes) -> None:
        cookie, _, status, _ = unpack_body(head, data)[3:]
        tx = self._sinks.pop(cookie, None)
        if tx is None or tx.queued:
            raise WireError(f"PUT_DONE for {cookie:#x}, which no payload has that is awaited")
        rx, mapped = tx.rx, tx.mapped
        assert rx is not None and mapped is not None
        mapped.release()  # before anybody reads it, also where PUT_ACK is not completed
        tx.waiting = False
        if tx.over:
            self._finish([tx])
        rx.done(mapped, status)

    def _answer_to(self, cookie: int, kind: O2ibType, answer: O2ibType) -> Tx:
        tx = self._active.get(cookie)
        if tx is None or tx.kind is not kind or tx.queued:
            raise WireError(f"{answer.name} for {cookie:#x}, which no {kind.name} has that is awaited")
        del self._active[cookie]
        tx.waiting = False
        self.reserved += 1
        return tx

    def _put_acked(self, head: Head, data: bytes) -> None:
        cookie, sink, _, target = unpack_body(head, data)[3:]
        assert target is not None
        tx = self._answer_to(cookie, O2ibType.PUT_REQ, O2ibType.PUT_ACK)
        mapped = tx.mapped
        assert mapped is not None
        if target.length > mapped.length or len(target.fragments) > self.params.max_fragments:
            self.awaits(tx)
            raise WireError(f"PUT_ACK with room for {target.length} of {mapped.length} bytes")
        tx.deadline = self.ni.now() + self.ni.timeout / 2
        self.ni.arm(tx.deadline)
        pieces = self.ni.device.pieces
        tx.complete(O2ibType.PUT_DONE, sink, 0, writes_to(target, mapped.pieces, target.length, pieces))
        self._oob.append(tx)

    def _put_refused(self, head: Head, data: bytes) -> None:
        cookie, _, status, _ = unpack_body(head, data)[3:]
        tx = self._answer_to(cookie, O2ibType.PUT_REQ, O2ibType.PUT_NAK)
        if status < 0:
            tx.failed, tx.reason = -status, f"{self.peer.nid} could not take the payload"
        if tx.over:
            self._finish([tx])

    def _get_request(self, head: Head, data: bytes) -> None:
        hdr, cookie = requested(head, data)
        target = unpack_body(head, data)[6]
        assert target is not None
        if hdr.type != _GET or hdr.dest_nid != self.ni.ni.nid or hdr.src_nid != self.peer.nid:
            raise WireError("GET_REQ that is no GET, or was routed")
        if len(target.fragments) > self.params.max_fragments:
            raise WireError(f"GET_REQ with {len(target.fragments)} fragments")
        self._check_asked(O2ibType.GET_REQ)
        deadline = self.ni.now() + self.ni.timeout / 2
        rx = GetRx(self, cookie, hdr.wmd, target, deadline)
        self.peer.asked(rx)
        self.ni.arm(deadline)
        if self.receiver.begin(hdr, rx):
            self.peer.answered(rx)
            raise WireError("the message breaks LNet's rules")

    def get_nak(self, rx: GetRx, status: int) -> None:
        """There is nothing for that GET."""
        tx = Tx(O2ibType.GET_DONE, _NO_BODY, self.ni.now() + self.ni.timeout)
        tx.complete(O2ibType.GET_DONE, rx.cookie, status)
        self._queue_oob(tx)

    def get_reply(self, rx: GetRx, msg: Msg) -> None:
        """msg is the REPLY to that GET: write it to the memory of who asked."""
        length = msg.hdr.payload_length
        tx = Tx(O2ibType.GET_DONE, _NO_BODY, self.ni.now() + self.ni.timeout, msg)
        if length > rx.target.length:
            room = rx.target.length
            text = f"{self.peer.nid} asks for {length} bytes, and has room for {room}: see what runs there"
            self._no_reply(rx, msg, HealthStatus.REMOTE_ERROR, LNetError(errno.EMSGSIZE, text))
            return
        try:
            if length:
                tx.mapped = self.ni.map_payload(msg, self.pair)
        except LNetError as failed:
            self._no_reply(rx, msg, HealthStatus.LOCAL_ERROR, failed)
            return
        pieces = tx.mapped.pieces if tx.mapped is not None else ()
        writes = writes_to(rx.target, pieces, length, self.ni.device.pieces)
        tx.complete(O2ibType.GET_DONE, rx.cookie, length, writes)
        self.ni.take(tx)
        self._queue_oob(tx)

    def _no_reply(self, rx: GetRx, msg: Msg, status: HealthStatus, why: LNetError) -> None:
        """Answer that GET with an errno: msg, its REPLY, fails, and is not tried on another path."""
        self.get_nak(rx, -why.errno)
        self.ni.failures.add(msg, status, why.errno, why.text)

    def _get_done(self, head: Head, data: bytes) -> None:
        cookie, _, status, _ = unpack_body(head, data)[3:]
        tx = self._answer_to(cookie, O2ibType.GET_REQ, O2ibType.GET_DONE)
        assert tx.msg is not None
        if status > tx.msg.hdr.length:
            self.awaits(tx)
            raise WireError(f"GET_DONE with {status} bytes for {tx.msg.hdr.length}")
        assert tx.mapped is not None
        tx.mapped.release()
        tx.reply = status
        if status < 0:
            tx.failed, tx.reason = -status, f"{self.peer.nid} has no memory for that GET"
        if tx.over:
            self._finish([tx])

    def awaits(self, tx: Tx) -> None:
        """That request is to be answered."""
        tx.waiting = True
        self._active[tx.cookie] = tx

    # Time -------------------------------------------------------------------------------------------

    @property
    def silent_until(self) -> float:
        """When a NOOP shall ask whether the peer is there."""
        keepalive = self.ni.params.keepalive
        return self.last_sent + keepalive if keepalive else float("inf")

    @property
    def next_deadline(self) -> float:
        """When it has to be looked at."""
        if self.state is not ConnState.ESTABLISHED:
            return self.deadline
        return min([tx.deadline for tx in self.txs()], default=self.silent_until)

    def txs(self) -> list[Tx]:
        """All transmits, each once."""
        found = dict.fromkeys((*self._oob, *self._ready, *self._held), None)
        found |= self._posted
        for waiting in (self._active, self._sinks):
            found |= dict.fromkeys(waiting.values(), None)
        return list(found)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way or awaited."""
        return not (
            self._oob or self._ready or self._held or self._posted or self._active or self._sinks or self._rxs
        )

    def expired(self, now: float) -> bool:
        """Whether a transmit is late, or the peer never established it."""
        if self.state is not ConnState.ESTABLISHED:
            return self.deadline <= now
        return any(tx.deadline <= now for tx in self.txs())

    def hurry(self, latest: float) -> None:
        """Nothing has longer than that."""
        for tx in self.txs():
            tx.deadline = min(tx.deadline, latest)

    def probe(self) -> None:
        """Find out whether the peer is there: hardware tells, if anything is posted."""
        if self.state is ConnState.ESTABLISHED and not self._posted:
            self._probing = True
            self.pump()

    # The end ----------------------------------------------------------------------------------------

    def broken(self, status: str, here: bool = False) -> None:
        """A work request failed, perhaps by what this host's device does."""
        self.close(Failure(errno.EIO, f"the connection with {self.peer.nid} broke: {status}"), here)

    def withdraw(self) -> list[Tx]:
        """What has not begun to leave."""
        back = [*self._held, *self._ready]
        self.reserved += sum(tx.kind in RESERVED for tx in self._ready)
        self._held.clear()
        self._ready.clear()
        for tx in back:
            self._active.pop(tx.cookie, None)
            tx.waiting = False
        return back

    def close(self, failure: Failure, here: bool = False) -> None:
        """End the connection and all that is under way on it, which is charged `here` or by its phase."""
        if self.state is ConnState.CLOSED:
            return
        self.state = ConnState.CLOSED
        if self.pair is not None:
            self.pair.close()
        txs = self.txs()
        rxs = list(self._rxs)
        for table in (self._oob, self._ready, self._held, self._posted, self._active, self._sinks, self._rxs):
            table.clear()
        self._early.clear()
        self.peer.left(self, failure)
        for rx in rxs:
            self.ni.core.forget_rx(rx)
        for tx in txs:
            phase, begun = tx.phase, tx.begun
            status = HealthStatus.LOCAL_ERROR if here else aborted(phase, failure.errno)
            tx.release()
            tx.queued = tx.waiting = False
            if tx.rx is not None:
                tx.rx.fail(status, failure)
            if tx.msg is not None:
                self.ni.let_go(tx)
                tx.msg.unsent = not begun
                self.ni.core.completed([tx.msg], status, failure.errno, f"{failure.reason}: it {phase.value}")
        self.ni.registrations.end(self.pair)
        self.receiver.close()
        self.peer.closed(self, failure)


_HANDLERS: Final[dict[int, Callable[[Conn, Head, bytes], None]]] = {
    O2ibType.NOOP: Conn._noop,
    O2ibType.PUT_REQ: Conn._put_request,
    O2ibType.PUT_NAK: Conn._put_refused,
    O2ibType.PUT_ACK: Conn._put_acked,
    O2ibType.PUT_DONE: Conn._put_done,
    O2ibType.GET_REQ: Conn._get_request,
    O2ibType.GET_DONE: Conn._get_done,
}
