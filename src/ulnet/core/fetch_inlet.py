"""GETs at their target, and small REPLYs that have come whole (docs/design/hot-path.md).

A GET like the last one finds the memory that matched still known, and its REPLY leaves by a lane. A REPLY is
copied into the memory that waits for it. What is out of the ordinary goes the general way.
"""

from __future__ import annotations

from typing import Final

from ulnet.core.event import Event, EventKind
from ulnet.core.inlet import NO_PORTAL
from ulnet.core.lane import Lane
from ulnet.core.lanes import Lanes
from ulnet.core.md import MANAGE_REMOTE, MAX_SIZE, OP_GET, Md
from ulnet.core.memory import Memory
from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi
from ulnet.core.portal import PORTALS
from ulnet.core.receive import MAX_ANSWERS, MAX_PEER_ANSWERS, Receive
from ulnet.core.replies import Replies
from ulnet.core.runs import RUN, RunInlet
from ulnet.core.singles import Singles
from ulnet.core.state import NodeState
from ulnet.nid import Nid
from ulnet.wire.lnet import LNET_MTU, Header, MsgType

__all__ = ["FetchInlet"]

_ACK: Final = int(MsgType.ACK)
_PUT: Final = int(MsgType.PUT)
_GET: Final = int(MsgType.GET)
_REPLY: Final = int(MsgType.REPLY)
_NOTHING: Final[list[memoryview]] = []


class FetchInlet(RunInlet):
    """An inlet that takes GETs and REPLYs too."""

    __slots__ = ("_asked", "_given", "_gives", "_replies")

    def __init__(
        self,
        state: NodeState,
        memory: Memory,
        lanes: Lanes,
        singles: Singles,
        receive: Receive,
        replies: Replies,
        ni: NI,
        nid: Nid,
    ) -> None:
        super().__init__(state, memory, lanes, singles, receive, ni, nid)
        self._replies = replies
        self._asked: Header | None = None  # the last GET that was looked at
        self._given = _NOTHING  # what it fetches
        self._gives: Lane | None = None  # the way of its REPLYs

    def take_run(self, hdr: Header, raw: bytes, buf: bytearray, view: memoryview, pos: int, end: int) -> int:
        if self._kind <= _PUT or hdr is not self._hdr:
            return super().take_run(hdr, raw, buf, view, pos, end)
        head_size = len(raw)
        size = head_size + hdr.payload_length
        stop = min(end, pos + RUN * size) - size
        while (
            pos <= stop
            and self._is_last(hdr)  # no longer so when md is unlinked, or the connection closed
            and buf.startswith(raw, pos)
            and self.take(hdr, view, pos + head_size)
        ):
            pos += size
        return pos

    def _is_last(self, hdr: Header) -> bool:
        # By a call: compared in `take_run` once more, compiled code takes it for what it was before.
        return hdr is self._hdr

    def _take_other(self, hdr: Header, view: memoryview, at: int, name: bytes) -> bool:
        kind = self._kind
        if kind == _ACK:
            return self._take_single(hdr, name) if name else self._take_ack()
        return (
            self._take_get(hdr, name or self._name) if kind == _GET else self._take_reply(hdr, view, at, name)
        )

    def _take_get(self, hdr: Header, name: bytes) -> bool:
        md, event, pni, state = self._md, self._event, self._pni, self._state
        assert md is not None
        assert event is not None
        assert pni is not None
        threshold = md.threshold
        if (
            threshold == 0  # the last one ends it
            or threshold == 1
            or pni.answers >= MAX_PEER_ANSWERS
            or state.answers >= MAX_ANSWERS
        ):
            return False
        lane = self._gives
        if lane is None or lane.epoch != self._epoch:
            lane = self._gives = self._lanes.answers_to(pni, hdr.src_pid, self._ni.nid)
            if lane is None:
                return False
        if threshold > 0:
            md.threshold = threshold - 1
        md.offset = event.offset + event.mlength
        self._count += 1
        self._replies.send(lane, hdr, self._given, event, name)
        return True

    def _take_reply(self, hdr: Header, view: memoryview, at: int, name: bytes) -> bool:
        name = name or self._name
        if name:
            return self._take_named(hdr, view, at, name)
        md = self._md
        assert md is not None
        if (
            md.handle != self._handle
            or not md.linked
            or md.aborted
            or not md.replies_due
            or md.threshold >= 0
        ):
            return False
        md.replies_due -= 1
        self._answered(md)
        length = self._length
        if length:
            md.fragments[0][:length] = view[at : at + length]
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

    def _take_named(self, hdr: Header, view: memoryview, at: int, name: bytes) -> bool:
        """The REPLY to one of many GETs that differ in their handle alone."""
        singles = self._singles
        md = singles.fetching(name)
        length = self._length
        if md is None or length > md.length or len(md.fragments) != 1:
            return False
        self._answered(md)
        if length:
            md.fragments[0][:length] = view[at : at + length]
        self._count += 1
        singles.fetched(md, hdr)
        return True

    # What a header leads to ----------------------------------------------------------------------

    def _look_other(self, hdr: Header, pni: PeerNi) -> bool:
        if hdr.type == _GET:
            return self._look_get(hdr, pni)
        return hdr.type == _REPLY and self._look_reply(hdr, pni)

    def _look_get(self, hdr: Header, pni: PeerNi) -> bool:
        if hdr.portal >= PORTALS or hdr.payload_length:
            return False
        portal = self._memory.portals[hdr.portal]
        md = None if portal is None else portal.first(hdr)
        if portal is None or md is None:
            return False
        options = md.options
        offset, length = hdr.offset, hdr.length
        if not options & OP_GET or not options & MANAGE_REMOTE or options & MAX_SIZE:
            return False
        if length > LNET_MTU or offset + length > md.length:
            return False
        lane = self._gives
        if lane is not None and (
            lane.pni is not pni or lane.pid != hdr.src_pid or lane.changes != pni.peer.paces.changes
        ):
            self._gives = None
        before, self._asked = self._asked, hdr
        self._md = md
        self._portal = portal
        self._changes = portal.changes
        self._length = 0
        self._name = hdr.wmd if before is not None and _differ_in_name(before, hdr) else b""
        self._given = md.slices(offset, length) if length else _NOTHING
        # fmt: off
        self._event = Event(EventKind.GET, md, hdr, pni.peer.primary_nid, self._nid, length, 0, offset)
        # fmt: on
        return True

    def _look_reply(self, hdr: Header, pni: PeerNi) -> bool:
        self._portal = NO_PORTAL
        self._changes = NO_PORTAL.changes
        length = self._length = hdr.payload_length
        if self._singles.fetching(hdr.wmd) is not None:
            self._name = hdr.wmd
            self._md = self._event = None
            return True
        md = self._memory.find_wmd(hdr.wmd)
        if md is None or md.on_end is not None or length > md.length or len(md.fragments) != 1:
            return False
        self._md = md
        self._name = b""
        self._handle = md.handle
        # fmt: off
        self._event = Event(EventKind.REPLY, md, hdr, pni.peer.primary_nid, self._nid, length, length)
        # fmt: on
        return True

    def forget(self, md: Md) -> None:
        super().forget(md)
        if self._md is None:
            self._given = _NOTHING


def _differ_in_name(one: Header, other: Header) -> bool:
    """Whether two GETs ask for the same, each into memory of its own."""
    return one.wmd != other.wmd and (
        (one.portal, one.match_bits, one.offset, one.length, one.src_pid)
        == (other.portal, other.match_bits, other.offset, other.length, other.src_pid)
    )
