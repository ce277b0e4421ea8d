"""Messages of one connection: what the last header led to is known when the next one is like it.

A driver shows messages that have come whole by `deliver`, many at a time, and others by `begin` and `end`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ulnet.core.event import Event, EventKind
from ulnet.core.generation import CHANGES
from ulnet.core.guard.identity import MARKS
from ulnet.core.match import Match, Verdict
from ulnet.core.md import Md
from ulnet.core.msg import NO_PAYLOAD, Incoming
from ulnet.core.ni import NI
from ulnet.core.path_load import PathLoad
from ulnet.core.peer import PeerNi
from ulnet.core.status import HealthStatus
from ulnet.nid import Nid
from ulnet.wire.lnet import NO_WMD, Header, MsgType

if TYPE_CHECKING:
    from ulnet.core.lnd import Payload
    from ulnet.core.reception import Reception

__all__ = ["RUN", "Receiver", "answers_left"]

RUN: Final = 128  # messages that are taken together, at most: their answers are due together
MAX_PEER_ANSWERS: Final = 65536  # ACKs and REPLYs that may wait for credits of one peer NI …
MAX_ANSWERS: Final = 262144  # … and of all, but for those that any may have: who asks for more is not heard
MIN_ANSWERS: Final = 32
_ACK: Final = int(MsgType.ACK)
_PUT: Final = int(MsgType.PUT)
_GET: Final = int(MsgType.GET)
_REPLY: Final = int(MsgType.REPLY)
_TAKE: Final = Verdict.TAKE
_PUT_EVENT: Final = EventKind.PUT
_ACK_EVENT: Final = EventKind.ACK
_REPLY_EVENT: Final = EventKind.REPLY
_NONE: Final = Md([], None)  # in place of a descriptor that is not there
_WMD_FROM_END: Final = 40  # bytes from the handle to the end of a header, of whatever size
_WMD_SIZE: Final = 16
_MOST_FORMS: Final = 1024
# By the bytes of a header before its handle, and those of a whole message.
_FORMS: Final[dict[tuple[int, int], struct.Struct]] = {}
_NO_MATCH: Final = Match(Header(_ACK), Verdict.REFUSE)  # of no header that comes


def answers_left(sender: PeerNi | None, hop: PeerNi | None, waiting: int) -> int:
    """How many answers more may wait for a sender and where it sends from, while `waiting` do so in all.

    Who does not read may take half of what others leave: so there is always some left for the next one.
    """
    due = (hop.answers if hop else 0) + (sender.answers if sender and sender is not hop else 0)
    return max(min((MAX_ANSWERS - waiting) >> 1, MAX_PEER_ANSWERS), MIN_ANSWERS) - due


class Receiver:
    """What comes from the next hop `nid` to `ni` by one connection."""

    __slots__ = (
        "_answers",
        "_clock",
        "_faults",
        "_generation",
        "_match",
        "_memory",
        "_reception",
        "_sender",
        "_state",
        "_stats",
        "ni",
        "nid",
        "vouches",
    )

    def __init__(
        self, reception: Reception, ni: NI, nid: Nid, vouches: Callable[[Nid], bool] | None = None
    ) -> None:
        self._reception = reception
        self._state = reception.state
        self._clock = reception.state.clock
        self._stats = reception.state.stats
        self._generation = reception.state.generation
        self._faults = reception.faults
        self._memory = reception.memory
        self._sender = reception.sender
        self._answers = reception.answers
        self.ni: NI = ni
        self.nid: Nid = nid
        self.vouches: Callable[[Nid], bool] | None = vouches  # which sources its certificate is for
        self._match = _NO_MATCH

    def _find(self, hdr: Header) -> Match:
        """What messages with that header lead to. Headers that are one object are equal, and never change."""
        match = self._match
        if match.hdr is hdr:
            changes = CHANGES.number
            if match.changes == changes:
                return match
            if match.stamp == (
                self._generation.number
                + match.peer_generation.number
                + match.hop_generation.number
                + match.portal_generation.number
            ):
                match.changes = changes
                return match
        match = self._reception.judge(self, hdr)
        self._keep(match if match.verdict is _TAKE else _NO_MATCH)
        return match

    def _keep(self, match: Match) -> None:
        before, after = self._match.md, match.md
        self._match = match
        if before is not after:
            if before is not None:
                before.let_go(self.forget)
            if after is not None:
                after.keep(self.forget)

    def forget(self, md: Md) -> None:
        """md is gone, or has another handle: match nothing with it."""
        if self._match.md is md:
            self._match = _NO_MATCH

    def close(self) -> None:
        """The connection is gone."""
        self._keep(_NO_MATCH)

    # Not whole yet ---------------------------------------------------------------------------------

    def begin(self, hdr: Header, rx: Payload) -> int:
        """See `ulnet.lnd.contract`."""
        return self._reception.begin(self, self._find(hdr), hdr, rx)

    def end(
        self, incoming: Incoming, status: HealthStatus = HealthStatus.OK, err: int = 0, reason: str = ""
    ) -> None:
        """See `ulnet.lnd.contract`."""
        self._reception.end(incoming, status, err, reason)

    # Whole -----------------------------------------------------------------------------------------

    def deliver(self, hdr: Header, raw: bytes, buf: bytearray, view: memoryview, pos: int, end: int) -> int:
        """See `ulnet.lnd.contract`."""
        match = self._match
        if match.hdr is not hdr or match.changes != CHANGES.number:
            match = self._find(hdr)
        size = len(raw) + hdr.payload_length
        if match.verdict is not _TAKE or end - pos < size or self._faults.active:
            return pos
        self._heard(match)
        if match is not self._match:
            return pos
        many = end - pos >= 2 * size
        if many:
            self._sender.cork()
        try:
            kind = hdr.type
            if kind == _PUT:
                return self._take_puts(match, raw, buf, view, pos, end)
            if kind == _ACK:
                return self._take_acks(match, raw, buf, view, pos, end)
            if kind == _REPLY:
                return self._take_replies(match, raw, buf, view, pos, end)
            return self._take_gets(match, raw, buf, view, pos, end)
        finally:
            if many:
                self._sender.uncork_all()

    def _heard(self, match: Match) -> None:
        """A message came over the connection."""
        hop = match.hop
        assert hop is not None
        hop.heard_at = self._clock()
        if self.ni.unhealthy or hop.unhealthy:
            self._reception.heard(self.ni, hop)
        if match.master is not None:
            match.master.heard(self.ni, match.hdr, self.nid)

    def _most(self, match: Match) -> int:
        """Messages that may be answered together."""
        return min(RUN, answers_left(match.sender, match.hop, self._state.answers))

    def _take_puts(
        self, match: Match, raw: bytes, buf: bytearray, view: memoryview, pos: int, end: int
    ) -> int:
        hdr = match.hdr
        md, event, sender = match.md, match.event, match.sender
        if md is None or event is None or sender is None:
            return pos
        memory, moving, offset = md.fragments[0], match.moving, match.offset
        length = hdr.payload_length
        head = len(raw)
        size = head + length
        changes = CHANGES.number
        mds = self._memory
        most = self._most(match) if match.wants_ack else RUN
        wmds = _handles(raw, buf, view, pos, size, min(most, (end - pos) // size))
        if hdr.wmd != NO_WMD:
            wmds = self._reception.guard.leading(wmds)
        start = pos
        for _ in wmds:
            if changes != CHANGES.number or match is not self._match:
                break
            threshold = md.threshold
            if moving:
                offset = md.offset
            stop = offset + length
            if 0 <= threshold <= 1 or stop > md.length:  # the last one that the memory takes ends it
                break
            if threshold > 0:
                md.threshold = threshold - 1
            begin = pos + head
            pos += size
            memory[offset:stop] = view[begin:pos]
            md.offset = stop
            if moving:
                # fmt: off
                event = Event(_PUT_EVENT, md, hdr, event.initiator, self.nid, length, length, offset)
                # fmt: on
            mds.tell(md, event)
        count = (pos - start) // size
        if count < len(wmds):
            del wmds[count:]
        if count:
            if hdr.wmd[15] in MARKS:
                self._reception.guard.notes.note(wmds, self.nid)
            self._count(match, sender, _PUT, count, count * length)
            if match.wants_ack and self._state.running:
                assert match.answers is not None
                self._answers.acknowledge(match.answers, wmds, hdr.match_bits, length)
        return pos

    def _count(self, match: Match, sender: PeerNi, kind: int, count: int, length: int) -> None:
        stats = self._stats
        stats.recv_count += count
        stats.recv_length += length
        of_ni, of_peer = self.ni.stats, sender.stats
        of_ni.received[kind] += count
        of_peer.received[kind] += count
        if length:
            of_ni.received_bytes += length
            of_peer.received_bytes += length
        if match.master is not None:
            match.master.received(kind, count, length)

    def _take_acks(
        self, match: Match, raw: bytes, buf: bytearray, view: memoryview, pos: int, end: int
    ) -> int:
        hdr, sender = match.hdr, match.sender
        assert sender is not None
        size = len(raw)
        changes = CHANGES.number
        before = hdr.wmd
        md, event = match.md, match.event
        handle = match.handle
        load = self._load(match)
        loads, mds = self._sender.loads, self._memory
        waits = self._reception.waits
        now = self._state.clock()
        count = 0
        for wmd in _handles(raw, buf, view, pos, size, min(RUN, (end - pos) // size)):
            if changes != CHANGES.number or match is not self._match:
                break
            if wmd is not before and wmd != before:
                before, md = wmd, None
            if md is None or md.handle != handle:
                md = mds.find_wmd(wmd) or _NONE
                handle = md.handle
                event = None
            due = md.acks_due
            if not due or not md.sends or not (md.asked is sender or md.has_asked(sender)):
                break
            pos += size
            count += 1
            md.acks_due = due - 1
            if md.deadline_slot >= 0:
                if now < md.sent_at:
                    now = self._state.clock()
                waits.append(now - md.sent_at)
                md.deadline_slot = -1
            if md.in_flight:
                loads.answer(md.in_flight, load)
            if event is None:
                event = self._acked(match, md, wmd)
                continue
            mds.tell(md, event)
        loads.settle()
        self._count(match, sender, _ACK, count, 0)
        self._settle_waits(sender, _ACK)
        return pos

    def _load(self, match: Match) -> PathLoad | None:
        """Of the pair that such messages come by."""
        hop = match.hop
        return None if hop is None else hop.path_loads.get(self.ni)

    def _acked(self, match: Match, md: Md, wmd: bytes) -> Event | None:
        """An ACK for md that is not like the one before; the event that serves for the next ones, if any."""
        sender, hdr = match.sender, match.hdr
        assert sender is not None
        put = md.put
        if put is not None and wmd[15]:  # it will not be sent again
            md.put = None
            if put.path is not None and not put.committed:
                put.path.recycle(put)
        event = Event(_ACK_EVENT, md, hdr, sender.peer.primary_nid, self.nid, hdr.length)
        threshold = md.threshold
        if threshold > 0:
            md.threshold = threshold - 1
        self._memory.complete(md, event)
        return event if threshold < 0 and not event.unlinked else None

    def _settle_waits(self, sender: PeerNi, kind: int) -> None:
        waits = self._reception.waits
        if not waits:
            return
        self._reception.waits = []
        of_ni, of_peer = self.ni.latency_ack, sender.latency_ack
        if kind == _REPLY:
            of_ni, of_peer = self.ni.latency_get, sender.latency_get
        if len(waits) == 1:
            nsec = int(waits[0] * 1e9)
            of_ni.add(nsec)
            of_peer.add(nsec)
            return
        total, least, most = sum(waits), min(waits), max(waits)
        of_ni.add_many(len(waits), total, least, most)
        of_peer.add_many(len(waits), total, least, most)

    def _take_replies(
        self, match: Match, raw: bytes, buf: bytearray, view: memoryview, pos: int, end: int
    ) -> int:
        hdr, sender = match.hdr, match.sender
        assert sender is not None
        length = hdr.payload_length
        head = len(raw)
        size = head + length
        changes = CHANGES.number
        count = 0
        for wmd in _handles(raw, buf, view, pos, size, min(RUN, (end - pos) // size)):
            if changes != CHANGES.number or match is not self._match:
                break
            md = self._memory.find_wmd(wmd)
            if md is None or not md.replies_due or length > md.length or len(md.fragments) != 1:
                break
            if not (md.asked is sender or md.has_asked(sender)):
                break
            begin = pos + head
            pos += size
            count += 1
            md.replies_due -= 1
            if length:
                md.fragments[0][:length] = view[begin:pos]
            self._replied(match, md, sender)
        if count:
            self._count(match, sender, _REPLY, count, count * length)
            self._settle_waits(sender, _REPLY)
        return pos

    def _replied(self, match: Match, md: Md, sender: PeerNi) -> None:
        """The REPLY that md waits for is in its memory."""
        hdr = match.hdr
        if md.in_flight:
            self._reception.load_answered(md, match.hop, self.ni)
        if md.deadline_slot >= 0:
            self._reception.waits.append(self._state.clock() - md.sent_at)
            self._memory.settle_response(md)
        event = match.event if md is match.md else None
        if event is None:
            length = hdr.payload_length
            event = Event(_REPLY_EVENT, md, hdr, sender.peer.primary_nid, self.nid, length, length)
        if md.threshold > 0:
            md.threshold -= 1
            event = event.copy() if event is match.event else event
        self._memory.complete(md, event)

    def _take_gets(
        self, match: Match, raw: bytes, buf: bytearray, view: memoryview, pos: int, end: int
    ) -> int:
        answers = match.answers
        md, event, sender = match.md, match.event, match.sender
        if md is None or event is None or sender is None or answers is None:
            return pos
        size = len(raw)
        payload = md.slices(event.offset, event.mlength) if event.mlength else NO_PAYLOAD
        wmds: list[bytes] = []
        most = min(self._most(match), (end - pos) // size)
        for wmd in _handles(raw, buf, view, pos, size, most):
            threshold = md.threshold
            if not threshold:
                break
            pos += size
            if threshold > 0:
                md.threshold = threshold - 1
            wmds.append(wmd)
        count = len(wmds)
        if count:
            md.offset = event.offset + event.mlength
            md.refs += count
            self._answers.reply(answers, wmds, md, payload, event)
            self._count(match, sender, _GET, count, 0)
        return pos


def _handles(raw: bytes, buf: bytearray, view: memoryview, pos: int, size: int, most: int) -> list[bytes]:
    """The handles of the next messages, up to `most`, whose headers are `raw` but for that.

    There are so many of `size` bytes, if they are such. What has no handle is like itself only.
    """
    at = len(raw) - _WMD_FROM_END
    wmd = raw[at : at + _WMD_SIZE]
    alike = 0
    if size == len(raw):  # no payload stands between them
        alike = most
        while not buf.startswith(raw * alike, pos):
            alike >>= 1
    else:
        place = pos
        while alike < most and buf.startswith(raw, place):
            place += size
            alike += 1
    if alike == most or alike > 1 or wmd == NO_WMD:
        return [wmd] * alike
    form = _FORMS.get((at, size)) or _form(at, size)
    head, tail = raw[:at], raw[at + _WMD_SIZE :]
    handles: list[bytes] = []
    many = 1
    while most > 0:  # few at first: the next ones may be of another kind
        many = min(4 * many, most)
        most -= many
        part = view[pos : pos + many * size]
        pos += many * size
        found = [one for before, one, after in form.iter_unpack(part) if before == head and after == tail]
        if len(found) == many and NO_WMD not in found:
            handles += found
            continue
        for before, one, after in form.iter_unpack(part):
            if before != head or after != tail or one == NO_WMD:
                break
            handles.append(one)
        break
    return handles


def _form(at: int, size: int) -> struct.Struct:
    """Messages of that size in parts: their headers before the handle, that, and the rest of the header."""
    if len(_FORMS) >= _MOST_FORMS:
        _FORMS.clear()
    behind = _WMD_FROM_END - _WMD_SIZE
    form = struct.Struct(f"{at}s{_WMD_SIZE}s{behind}s{size - at - _WMD_FROM_END}x")
    _FORMS[at, size] = form
    return form
