"""Small messages that have come whole: from the driver's buffer into their memory at once.

An inlet belongs to one connection. It keeps what the last header led to: whose it is, which memory it
matched, which event that makes. As long as nothing of that has changed a message like it costs a copy and
a call of the handler. It says no to whatever is out of the ordinary, which then goes the general way.
"""

from __future__ import annotations

from typing import Final

from ulnet.core.event import Event, EventKind
from ulnet.core.flow import Paces, take_answered
from ulnet.core.guard.identity import MARKS
from ulnet.core.lane import Lane
from ulnet.core.lanes import Lanes
from ulnet.core.md import ACK_DISABLE, MANAGE_REMOTE, MAX_SIZE, OP_PUT, Keeper, Md
from ulnet.core.memory import Memory
from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi
from ulnet.core.portal import PORTALS, Portal
from ulnet.core.receive import MAX_ANSWERS, MAX_PEER_ANSWERS, Receive
from ulnet.core.singles import Singles
from ulnet.core.state import NodeState
from ulnet.nid import Nid
from ulnet.wire.lnet import NO_WMD, Header, MsgType

__all__ = ["NO_PORTAL", "Inlet"]

_ACK: Final = int(MsgType.ACK)
_PUT: Final = int(MsgType.PUT)
NO_PORTAL: Final = Portal(0)  # stands for that of an answer, which needs none
_NO_PACES: Final = Paces()


class Inlet(Keeper):
    """What comes on one connection, from the next hop `nid` to `ni`."""

    __slots__ = (
        "_answers",
        "_changes",
        "_count",
        "_epoch",
        "_event",
        "_handle",
        "_hdr",
        "_kind",
        "_lanes",
        "_length",
        "_md",
        "_memory",
        "_moving",
        "_name",
        "_ni",
        "_nid",
        "_now",
        "_offset",
        "_paces",
        "_peer_changes",
        "_pni",
        "_portal",
        "_receive",
        "_singles",
        "_state",
        "_waits",
        "_wants_ack",
    )

    def __init__(
        self,
        state: NodeState,
        memory: Memory,
        lanes: Lanes,
        singles: Singles,
        receive: Receive,
        ni: NI,
        nid: Nid,
    ) -> None:
        self._state = state
        self._memory = memory
        self._lanes = lanes
        self._singles = singles
        self._receive = receive
        self._ni = ni
        self._nid = nid
        self._epoch = -1
        self._hdr: Header | None = None
        self._kind = 0
        self._pni: PeerNi | None = None
        self._md: Md | None = None
        self._handle = 0
        self._paces = _NO_PACES
        self._peer_changes = -1
        self._portal = NO_PORTAL
        self._changes = 0  # of the portal
        self._moving = False  # each PUT lands behind the one before
        self._offset = 0
        self._length = 0
        self._event: Event | None = None
        self._wants_ack = False
        self._name = b""  # the last one's handle, if `take` is to be told it of each that is else like that
        self._answers: Lane | None = None
        self._now = 0.0  # when the last of `_waits` came, as far as is known
        self._waits: list[float] = []  # seconds from PUT to ACK, not in the statistics yet
        self._count = 0  # taken, and not in the statistics yet

    @property
    def named(self) -> bool:
        """Whether it also takes messages whose header is the last one's but for the handle."""
        return self._name != b""

    def take(self, hdr: Header, view: memoryview, at: int, name: bytes = b"") -> bool:
        """Take a message whose payload is in `view` at `at`; False, and nothing is done, if it is not for us.

        Headers that are one object are equal, and never change; with `name`, that is the message's handle.
        """
        if (
            hdr is not self._hdr
            or self._epoch != self._state.epoch
            or self._paces.changes != self._peer_changes
            or self._portal.changes != self._changes
        ) and not self._look(hdr):
            return False
        name = name or self._name
        if self._kind != _PUT:
            return self._take_other(hdr, view, at, name)
        md = self._md
        assert md is not None
        threshold = md.threshold
        if (
            threshold == 0  # the last one ends it
            or threshold == 1
            or (name and not (self._wants_ack and self._receive.is_first(name)))
        ):
            return False  # a resend is looked at more closely, and a name where `hdr` asked for no ACK
        length = self._length
        event = self._event
        if self._moving:
            offset = md.offset
            end = offset + length
            if end > md.length:
                return False
            pni = self._pni
            assert pni is not None
            # fmt: off
            event = Event(EventKind.PUT, md, hdr, pni.peer.primary_nid, self._nid, length, length, offset)
            # fmt: on
        else:
            offset = self._offset
            end = offset + length
        answers = self._answers
        if self._wants_ack and (
            answers is None
            or answers.epoch != self._epoch
            or answers.pni.answers >= MAX_PEER_ANSWERS
            or self._state.answers >= MAX_ANSWERS
        ):
            answers = self._find_answers(hdr)
            if answers is None:
                return False
        if threshold > 0:
            md.threshold = threshold - 1
        if length:
            md.fragments[0][offset:end] = view[at : at + length]
        md.offset = end
        if name:
            self._receive.note(name)
        self._count += 1
        handler = md.handler
        if handler is not None:
            assert event is not None
            try:
                handler(event)
            except BaseException as exc:
                self._memory.handler_failed(event, exc)
        if self._wants_ack and self._state.running:
            assert answers is not None
            if answers.epoch == self._state.epoch:
                self._lanes.acknowledge(answers, hdr, length, name)
            else:
                self._acknowledge_generally(hdr, length, name)
        return True

    def _acknowledge_generally(self, hdr: Header, length: int, name: bytes) -> None:
        """The handler changed what the lane depends on."""
        if name:
            hdr = hdr.copy()
            hdr.wmd = name
        self._receive.acknowledge(hdr, length, self._nid)

    def _find_answers(self, hdr: Header) -> Lane | None:
        """The lane for the answer, unless too many of them wait."""
        pni = self._pni
        assert pni is not None
        lane = None
        if pni.answers < MAX_PEER_ANSWERS and self._state.answers < MAX_ANSWERS:
            lane = self._lanes.answers_to(pni, hdr.src_pid, self._ni.nid)
        self._answers = lane
        return lane

    def _take_single(self, hdr: Header, name: bytes) -> bool:
        """The ACK for one of many PUTs that differ in their handle alone."""
        singles = self._singles
        md = singles.waiting(name)
        if md is None:
            return False
        self._answered(md)
        self._count += 1
        singles.acknowledged(md, hdr.length)
        return True

    def _take_ack(self) -> bool:
        md = self._md
        assert md is not None
        if md.handle != self._handle or not md.linked or md.aborted or not md.acks_due or md.threshold >= 0:
            return False
        md.acks_due -= 1
        self._answered(md)
        self._count += 1
        handler = md.handler
        if handler is not None:
            event = self._event
            assert event is not None
            try:
                handler(event)
            except BaseException as exc:
                self._memory.handler_failed(event, exc)
        return True

    def _answered(self, md: Md) -> None:
        """Its way, and the time that it took."""
        if md.flights:
            pni = self._pni
            assert pni is not None
            take_answered(md.flights, pni.flows.get(self._ni)).land(self._state.clock())
        if md.deadline_slot >= 0:
            if not self._waits or self._now < md.sent_at:  # the first, or a handler has sent since
                self._now = self._state.clock()
            self._waits.append(self._now - md.sent_at)
            self._memory.settle_response(md)

    def _take_other(self, hdr: Header, view: memoryview, at: int, name: bytes) -> bool:
        """One that is no PUT."""
        raise NotImplementedError

    # What a header leads to ----------------------------------------------------------------------

    def _look(self, hdr: Header) -> bool:
        """Find out what messages with that header lead to; False if they go the general way."""
        self.settle()
        self._hdr = None
        kind = hdr.type
        ni = self._ni
        state = self._state
        src = hdr.src_nid
        if hdr.dest_nid != ni.nid or src != self._nid or not ni.active or not state.running:
            return False
        pni = state.peers.by_nid.get(src)
        if pni is None or pni.watched or ni.watched or state.faults is not None or pni.nid in state.nis:
            return False
        if pni.preferred is None and not pni.peer.multi_rail:
            return False
        answers = self._answers
        if (
            pni is not self._pni
            or self._peer_changes != pni.peer.paces.changes
            or (answers is not None and answers.pid != hdr.src_pid)
        ):
            self._pni = pni
            self._answers = None
        self._kind = kind
        before = self._md
        if kind == _PUT:
            found = self._look_put(hdr, pni)
        else:
            found = self._look_ack(hdr, pni) if kind == _ACK else self._look_other(hdr, pni)
        if not found:
            return False
        if self._md is not before:
            if before is not None:
                before.let_go(self)
            if self._md is not None:
                self._md.keep(self)
        self._epoch = state.epoch
        self._paces = pni.peer.paces
        self._peer_changes = self._paces.changes
        self._hdr = hdr
        return True

    def _look_put(self, hdr: Header, pni: PeerNi) -> bool:
        if hdr.portal >= PORTALS:
            return False
        portal = self._memory.portals[hdr.portal]
        md = None if portal is None else portal.first(hdr)
        if portal is None or md is None or not md.options & OP_PUT or md.options & MAX_SIZE:
            return False
        length = hdr.payload_length
        remote = md.options & MANAGE_REMOTE != 0
        offset = hdr.offset if remote else md.offset
        if len(md.fragments) != 1 or offset + length > md.length:
            return False
        named = hdr.wmd[15] in MARKS
        wants_ack = hdr.wmd != NO_WMD and not md.options & ACK_DISABLE
        if named and not wants_ack:  # what becomes of its resend is noted with more care
            return False
        self._md = md
        self._portal = portal
        self._changes = portal.changes
        self._moving = not remote
        self._offset = offset
        self._length = length
        self._wants_ack = wants_ack
        self._name = hdr.wmd if named else b""
        # fmt: off
        self._event = Event(EventKind.PUT, md, hdr, pni.peer.primary_nid, self._nid, length, length, offset)
        # fmt: on
        return True

    def _look_ack(self, hdr: Header, pni: PeerNi) -> bool:
        if hdr.payload_length:
            return False
        md = None
        if self._singles.waiting(hdr.wmd) is not None:
            self._name = hdr.wmd
        else:
            self._name = b""
            md = self._memory.find_wmd(hdr.wmd)
            if md is None or md.on_end is not None or hdr.wmd[15]:
                return False
        self._md = md
        self._portal = NO_PORTAL
        self._changes = NO_PORTAL.changes
        self._length = 0
        self._event = None
        if md is not None:
            self._handle = md.handle
            self._event = Event(EventKind.ACK, md, hdr, pni.peer.primary_nid, self._nid, hdr.length)
        return True

    def _look_other(self, hdr: Header, pni: PeerNi) -> bool:
        raise NotImplementedError

    def forget(self, md: Md) -> None:
        if self._md is md:
            self.settle()
            self._md = self._event = self._hdr = None

    def close(self) -> None:
        """The connection is gone."""
        if self._md is not None:
            self._md.let_go(self)
            self.forget(self._md)

    def settle(self) -> None:
        """Put what was taken into the statistics."""
        count = self._count
        pni = self._pni
        if not count or pni is None:
            return
        self._count = 0
        state = self._state
        pni.heard_at = state.clock()
        stats = state.stats
        stats.recv_count += count
        stats.recv_length += count * self._length
        self._ni.stats.received[self._kind] += count
        pni.stats.received[self._kind] += count
        if self._waits:
            self._settle_waits(pni)

    def _settle_waits(self, pni: PeerNi) -> None:
        waits, self._waits = self._waits, []
        of_ni, of_peer = self._ni.latency_ack, pni.latency_ack
        if self._kind != _ACK:
            of_ni, of_peer = self._ni.latency_get, pni.latency_get
        if len(waits) == 1:
            nsec = int(waits[0] * 1e9)
            of_ni.add(nsec)
            of_peer.add(nsec)
            return
        total, least, most = sum(waits), min(waits), max(waits)
        of_ni.add_many(len(waits), total, least, most)
        of_peer.add_many(len(waits), total, least, most)
