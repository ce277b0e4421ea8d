"""Large messages like the one before: their payload is read where it belongs (docs/design/hot-path.md).

What a header led to is kept, as for small ones. A message under way has a `Msg`, so whatever happens to it,
or to its memory, before all of it is there ends it the general way.
"""

from __future__ import annotations

from typing import Final

from ulnet.core.event import Event, EventKind
from ulnet.core.fetch_inlet import FetchInlet
from ulnet.core.flow import take_answered
from ulnet.core.lanes import Lanes
from ulnet.core.md import Md
from ulnet.core.memory import Memory
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.receive import MAX_ANSWERS, MAX_PEER_ANSWERS, Receive
from ulnet.core.replies import Replies
from ulnet.core.singles import Singles
from ulnet.core.state import NodeState
from ulnet.nid import Nid
from ulnet.wire.lnet import Header, MsgType

__all__ = ["BulkInlet"]

_PUT: Final = int(MsgType.PUT)
_REPLY: Final = int(MsgType.REPLY)
_NOTHING: Final[list[memoryview]] = []


class BulkInlet(FetchInlet):
    """An inlet that also takes messages whose payload is still to come, one at a time."""

    __slots__ = ("_msg",)

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
        super().__init__(state, memory, lanes, singles, receive, replies, ni, nid)
        self._msg: Msg | None = None  # what is under way, or the last that was

    def begin(self, hdr: Header) -> Msg | None:
        """A message begins whose payload goes to the `payload` of what this returns; then `end` is due.

        None, and nothing is done, if it is not for us. Headers that are one object are equal.
        """
        state = self._state
        if (
            hdr is not self._hdr
            or self._epoch != state.epoch
            or self._paces.changes != self._peer_changes
            or self._portal.changes != self._changes
        ) and not self._look(hdr):
            return None
        md, pni, kind = self._md, self._pni, self._kind
        if md is None or pni is None or self._name:
            return None
        now = state.clock()
        offset = 0
        if kind == _PUT:
            offset = md.offset if self._moving else self._offset
            if not self._begin_put(md, hdr, offset):
                return None
        elif kind != _REPLY or not self._begin_reply(md, now):
            return None
        pni.heard_at = now
        stats = state.stats
        stats.msgs_alloc += 1
        if stats.msgs_alloc > stats.msgs_max:
            stats.msgs_max = stats.msgs_alloc
        ni = self._ni
        ni.refs += 1
        pni.refs += 1
        md.refs += 1
        msg = self._msg
        if msg is None:
            msg = self._msg = Msg(hdr, sending=False)
            msg.ni = ni
            msg.next_nid = self._nid
        msg.hdr = hdr
        msg.peer_ni = pni
        msg.md = md
        msg.mlength = self._length
        msg.offset = offset
        msg.final = False
        msg.payload = md.slices(offset, self._length)
        return msg

    def _begin_put(self, md: Md, hdr: Header, offset: int) -> bool:
        threshold = md.threshold
        end = offset + self._length
        if threshold == 0 or threshold == 1 or end > md.length:  # the last one ends it
            return False
        answers = self._answers
        if (
            self._wants_ack
            and (
                answers is None
                or answers.epoch != self._epoch
                or answers.pni.answers >= MAX_PEER_ANSWERS
                or self._state.answers >= MAX_ANSWERS
            )
            and self._find_answers(hdr) is None
        ):
            return False
        if threshold > 0:
            md.threshold = threshold - 1
        md.offset = end
        return True

    def _begin_reply(self, md: Md, now: float) -> bool:
        if (
            md.handle != self._handle
            or not md.linked
            or md.aborted
            or not md.replies_due
            or md.threshold >= 0
        ):
            return False
        md.replies_due -= 1
        if md.deadline_slot >= 0:
            nsec = int((now - md.sent_at) * 1e9)
            self._ni.latency_get.add(nsec)
            pni = self._pni
            assert pni is not None
            pni.latency_get.add(nsec)
            self._memory.settle_response(md)
        return True

    def end(self, msg: Msg) -> bool:
        """All of its payload is there; False, and nothing is done, if it ends as no other does."""
        state = self._state
        md, pni, event = self._md, self._pni, self._event
        hdr = msg.hdr
        if msg is not self._msg:
            return False
        if (
            md is None
            or pni is None
            or event is None
            or hdr is not self._hdr  # no longer so when md is unlinked
            or self._epoch != state.epoch
            or md.aborted
            or (md.refs == 1 and md.exhausted)
        ):
            self._msg = None  # else that memory would be held until the next message begins
            return False
        state.stats.msgs_alloc -= 1
        self._ni.refs -= 1
        pni.refs -= 1
        length = msg.mlength
        fetched = self._kind == _REPLY
        if fetched:
            if md.flights:
                take_answered(md.flights, pni.flows.get(self._ni)).land(state.clock())
        elif self._moving:
            # fmt: off
            event = Event(EventKind.PUT, md, hdr, event.initiator, self._nid, length, length, msg.offset)
            # fmt: on
        msg.md = None
        msg.payload = _NOTHING
        md.refs -= 1
        self._count += 1
        answers = self._answers
        handler = md.handler
        if handler is not None:
            try:
                handler(event)
            except BaseException as exc:
                self._memory.handler_failed(event, exc)
        if self._wants_ack and not fetched and state.running:
            if answers is not None and answers.epoch == state.epoch:
                self._lanes.acknowledge(answers, hdr, length)
            else:
                self._acknowledge_generally(hdr, length, b"")
        return True

    def close(self) -> None:
        super().close()
        self._msg = None
