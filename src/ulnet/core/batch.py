"""Messages that have left, a batch at a time (docs/design/hot-path.md).

A driver tells of all that one call to the kernel took. Of those of one lane, credits and counters are settled
in sum; then each owner is told, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ulnet.core.lane import Lane
from ulnet.core.memory import Memory
from ulnet.core.msg import Msg
from ulnet.core.replies import Replies
from ulnet.core.selection import Selector
from ulnet.core.singles import Singles
from ulnet.core.state import NodeState
from ulnet.core.status import HealthStatus
from ulnet.core.transmit import Transmit
from ulnet.wire.lnet import HEADER_SIZE, MsgType

__all__ = ["Batch"]

_ACK: Final = int(MsgType.ACK)
_PUT: Final = int(MsgType.PUT)
_GET: Final = int(MsgType.GET)
_REPLY: Final = int(MsgType.REPLY)
_MOST_FREE = 256  # messages that a lane keeps for the next ones


class Batch:
    """The end of messages that left."""

    __slots__ = ("_finalize", "_memory", "_replies", "_selector", "_singles", "_state", "_transmit")

    def __init__(
        self,
        state: NodeState,
        memory: Memory,
        selector: Selector,
        transmit: Transmit,
        singles: Singles,
        replies: Replies,
        finalize: Callable[[Msg, HealthStatus], None],
    ) -> None:
        self._state = state
        self._memory = memory
        self._selector = selector
        self._transmit = transmit
        self._singles = singles
        self._replies = replies
        self._finalize = finalize

    def sent(self, batch: list[Msg]) -> None:
        """All of these have left, whole and in this order."""
        begin = 0
        end = len(batch)
        while begin < end:
            lane = batch[begin].lane
            if lane is None:
                self._finalize(batch[begin], HealthStatus.OK)
                begin += 1
                continue
            stop = begin + 1
            while stop < end and batch[stop].lane is lane:
                stop += 1
            run = batch if stop - begin == end else batch[begin:stop]
            kind = lane.kind
            if kind == _PUT:
                now = self._state.clock()
                self._settle_puts(lane, run, now)
                if len(run) == 1:
                    self._tell_owners(lane, run)
                else:
                    self._transmit.gather(lane, now)
                    try:
                        self._tell_owners(lane, run)
                    finally:
                        self._transmit.end_gathering()
            elif kind == _ACK:
                self._settle_answers(lane, run)
            else:
                self._settle_fetches(lane, run)
                if kind == _GET:
                    self._tell_owners(lane, run)
                else:
                    self._replies.left(lane, run)
            begin = stop

    def _settle_puts(self, lane: Lane, run: list[Msg], now: float) -> None:
        """Counters first, then credits, which may set free what waits."""
        count = len(run)
        ni, pni = lane.ni, lane.pni
        if lane.counted:
            self._transmit.land_many(run, now)
        else:
            self._selector.took_many(lane.choice, count)
            if lane.flew:
                self._land(run)
        stats = self._state.stats
        stats.msgs_alloc -= count
        stats.send_count += count
        ni.stats.sent[_PUT] += count
        pni.stats.sent[_PUT] += count
        first = run[0]
        if count == 1:
            length = first.hdr.payload_length
            nsec = int((now - first.queued_at) * 1e9)
            ni.latency_egress.add(nsec)
            pni.latency_egress.add(nsec)
        else:
            length = sum([msg.hdr.payload_length for msg in run])
            waited = count * now - sum([msg.queued_at for msg in run])
            least, most = now - run[-1].queued_at, now - first.queued_at  # they left in order
            ni.latency_egress.add_many(count, waited, least, most)
            pni.latency_egress.add_many(count, waited, least, most)
        stats.send_length += length
        self._end(lane, run, length)

    def _settle_answers(self, lane: Lane, run: list[Msg]) -> None:
        """The same for ACKs, of which nobody is told."""
        count = len(run)
        ni, pni = lane.ni, lane.pni
        self._selector.took_many(lane.choice, count)
        state = self._state
        stats = state.stats
        stats.msgs_alloc -= count
        stats.send_count += count
        ni.stats.sent[_ACK] += count
        pni.stats.sent[_ACK] += count
        pni.answers -= count
        state.answers -= count
        lane.free += run
        self._end(lane, run, 0)

    def _settle_fetches(self, lane: Lane, run: list[Msg]) -> None:
        """The same for GETs, or for REPLYs."""
        count = len(run)
        kind = lane.kind
        ni, pni = lane.ni, lane.pni
        self._selector.took_many(lane.choice, count)
        if lane.flew:
            self._land(run)
        state = self._state
        stats = state.stats
        length = 0
        if kind == _REPLY:
            length = sum([msg.hdr.payload_length for msg in run])
            pni.answers -= count
            state.answers -= count
        stats.msgs_alloc -= count
        stats.send_count += count
        stats.send_length += length
        ni.stats.sent[kind] += count
        pni.stats.sent[kind] += count
        self._end(lane, run, length)

    def _end(self, lane: Lane, run: list[Msg], length: int) -> None:
        """Give back what messages of that many bytes in all held."""
        del lane.free[_MOST_FREE:]
        ni, pni = lane.ni, lane.pni
        if ni.watched or pni.watched:
            self._transmit.health.sent(ni, pni)
        self._transmit.return_credits_of(run, lane, length + len(run) * HEADER_SIZE)

    def _land(self, run: list[Msg]) -> None:
        for msg in run:
            if msg.flight is not None:
                self._transmit.land(msg, failed=False)

    def _tell_owners(self, lane: Lane, run: list[Msg]) -> None:
        free = lane.free
        for msg in run:
            md = msg.md
            event = msg.kept_event
            assert md is not None
            if md.on_end is not None:
                self._singles.left(msg, md)
                continue
            assert event is not None
            if md.aborted or (md.refs == 1 and md.exhausted):  # the lane must hold nothing of it
                self._memory.complete(md, event.copy())
                continue
            free.append(msg)  # from here on it may be another one
            md.refs -= 1
            handler = md.handler
            if handler is None:
                continue
            try:
                handler(event)
            except BaseException as exc:
                self._memory.handler_failed(event, exc)
        if lane.closed:
            free.clear()
