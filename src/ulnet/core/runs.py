"""Runs of small messages that are alike: what is the same for all is looked at once.

Their headers are compared with the last one's bytes, a whole run of ACKs at once. What a handler may have
changed is looked at before each next message, and the answers to a run are posted together behind it.
See docs/design/hot-path.md.
"""

from __future__ import annotations

from typing import Final

from ulnet.core.event import Event, EventKind
from ulnet.core.flow import take_answered
from ulnet.core.inlet import Inlet
from ulnet.core.receive import MAX_ANSWERS, MAX_PEER_ANSWERS
from ulnet.wire.lnet import Header, MsgType

__all__ = ["RUN", "RunInlet"]

RUN: Final = 64  # messages at most: their answers are due together
_ACK: Final = int(MsgType.ACK)


class RunInlet(Inlet):
    """An inlet that takes several messages at a time."""

    __slots__ = ()

    def take_run(self, hdr: Header, raw: bytes, buf: bytearray, view: memoryview, pos: int, end: int) -> int:
        """Take messages like the last one, whose headers are `raw`, from `pos` on: the position behind them.

        At most RUN, that are whole before `end`; none if the next one wants a closer look (`take`).
        """
        if hdr is not self._hdr:
            return pos
        if self._pni is not None:
            self._lanes.gather(self._pni)
        try:
            if self._kind == _ACK:
                return pos + len(raw) * self._take_acks(hdr, raw, buf, pos, end)
            return self._take_puts(hdr, raw, buf, view, pos, end)
        finally:
            self._lanes.end_gathering()
            self._state.land()

    def _take_puts(
        self, hdr: Header, raw: bytes, buf: bytearray, view: memoryview, pos: int, end: int
    ) -> int:
        md, event = self._md, self._event
        most = self._most_answers()
        if md is None or event is None:
            return pos
        state = self._state
        epoch = self._epoch
        paces, peer_changes = self._paces, self._peer_changes
        portal, changes = self._portal, self._changes
        memory = md.fragments[0]
        moving = self._moving
        length = self._length
        offset = self._offset
        stop = offset + length
        head_size = len(raw)
        size = head_size + length
        count = 0
        while (
            count < most
            and end - pos >= size
            and buf.startswith(raw, pos)
            and hdr is self._hdr  # no longer so when md is unlinked, or the connection closed
            and epoch == state.epoch
            and paces.changes == peer_changes
            and portal.changes == changes
        ):
            threshold = md.threshold
            if threshold == 0 or threshold == 1:
                break  # the last one ends it
            if moving:
                offset = md.offset
                stop = offset + length
                if stop > md.length:
                    break
                # fmt: off
                event = Event(EventKind.PUT, md, hdr, event.initiator, self._nid, length, length, offset)
                # fmt: on
            if threshold > 0:
                md.threshold = threshold - 1
            begin = pos + head_size
            pos += size
            if length:
                memory[offset:stop] = view[begin:pos]
            md.offset = stop
            count += 1
            handler = md.handler
            if handler is not None:
                try:
                    handler(event)
                except BaseException as exc:
                    self._memory.handler_failed(event, exc)
        self._count += count
        if self._wants_ack and count:
            self._answer(hdr, length, count)
        return pos

    def _most_answers(self) -> int:
        """How many messages may be taken before their answers are posted."""
        if not self._wants_ack:
            return RUN
        pni, answers = self._pni, self._answers
        if pni is None or answers is None or answers.epoch != self._epoch:
            return 0
        return min(RUN, MAX_PEER_ANSWERS - pni.answers, MAX_ANSWERS - self._state.answers)

    def _answer(self, hdr: Header, length: int, count: int) -> None:
        """Acknowledge the messages of a run."""
        state = self._state
        answers = self._answers
        if not state.running:
            return
        if answers is not None and answers.epoch == state.epoch:
            self._lanes.acknowledge_many(answers, hdr, length, count)
            return
        for _ in range(count):  # a handler changed what the lane depends on
            self._receive.acknowledge(hdr, length, self._nid)

    def _take_acks(self, hdr: Header, raw: bytes, buf: bytearray, pos: int, end: int) -> int:
        """Take ACKs: how many."""
        md, event = self._md, self._event
        if md is None or event is None or md.threshold >= 0:
            return 0
        flights = md.flights
        pair = None if self._pni is None else self._pni.flows.get(self._ni)
        most = min((end - pos) // len(raw), RUN)
        while most and not buf.startswith(raw * most, pos):
            most >>= 1
        state = self._state
        epoch = self._epoch
        paces, peer_changes = self._paces, self._peer_changes
        stats = state.stats
        now = wait = 0.0
        sent_at = -1.0  # of the message that `wait` is for
        waited = 0
        count = 0
        while count < most:
            due = md.acks_due
            if (
                not due
                or hdr is not self._hdr  # so also when md is unlinked, or has another handle
                or epoch != state.epoch
                or paces.changes != peer_changes
            ):
                break
            md.acks_due = due - 1
            if flights:
                flight = flights[0]  # most often of this run, which spares a call
                if flight.pair is pair:
                    del flights[0]
                else:
                    flight = take_answered(flights, pair)
                if flight is not state.landing:
                    state.land()
                    state.landing = flight
                flight.landed += 1
            tracked = md.deadline_slot >= 0
            if tracked:
                if sent_at != md.sent_at:
                    self._waits += [wait] * waited
                    waited = 0
                    sent_at = md.sent_at
                    if now < sent_at:  # the first, or a handler has sent since
                        now = state.clock()
                    wait = now - sent_at
                waited += 1
                if due == 1:
                    md.deadline_slot = -1  # what `settle_response` does
                    stats.rst_alloc -= 1
                    tracked = False
            count += 1
            handler = md.handler
            if handler is not None:
                try:
                    handler(event)
                except BaseException as exc:
                    self._memory.handler_failed(event, exc)
            if tracked and md.acks_due < due and md.deadline_slot >= 0:  # the handler has not sent anew
                md.deadline_slot = -1
                stats.rst_alloc -= 1
        self._waits += [wait] * waited
        self._count += count
        return count
