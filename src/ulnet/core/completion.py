"""What becomes of messages that their driver is done with: credits, counters, health, their owners' events.

A driver tells of all that one call to the kernel took. Of those of one path, credits and counters are settled
in sum; then each owner is told, in order.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from ulnet.core.event import Event, EventKind
from ulnet.core.md import MAX_SIZE, Md
from ulnet.core.memory import Memory
from ulnet.core.msg import Attempts, Msg
from ulnet.core.path import Path
from ulnet.core.sender import Sender
from ulnet.core.state import NodeState
from ulnet.core.status import HealthStatus
from ulnet.wire.lnet import HEADER_SIZE, NO_WMD, MsgType

if TYPE_CHECKING:
    from ulnet.core.parts import Parts

__all__ = ["Completion"]

_SEND: Final = EventKind.SEND
_ACK: Final = int(MsgType.ACK)
_PUT: Final = int(MsgType.PUT)
_GET: Final = int(MsgType.GET)
_REPLY: Final = int(MsgType.REPLY)


class Completion:
    """The end of outgoing messages of one node."""

    __slots__ = ("_clock", "_credits", "_loads", "_memory", "_parts", "_sender", "_state", "_stats")

    def __init__(self, state: NodeState, memory: Memory, sender: Sender, parts: Parts) -> None:
        self._state = state
        self._memory = memory
        self._sender = sender
        self._clock = state.clock
        self._stats = state.stats
        self._credits = sender.credits
        self._loads = sender.loads
        self._parts = parts

    def completed(
        self, msgs: list[Msg], status: HealthStatus = HealthStatus.OK, err: int = 0, reason: str = ""
    ) -> None:
        """A driver is done with these messages: all have left in this order, or all failed.

        OK with an errno is a failure as well: the peer itself tells it, and no path is to blame.
        """
        self._sender.uncork()
        if status or err or not msgs:
            for msg in msgs:
                self._failed(msg, status, err, reason)
            return
        path = msgs[0].path
        if len(msgs) == 1 or not [msg for msg in msgs if msg.path is not path]:
            self._left(path, msgs)
            return
        run: list[Msg] = []
        for msg in msgs:
            if run and msg.path is not path:
                self._left(path, run)
                run = []
            path = msg.path
            run.append(msg)
        self._left(path, run)

    def _is_over(self, msg: Msg) -> None:
        self._state.report(f"driver finalized a message twice: {msg.hdr!r}")
        self._state.stats.drops["finalized twice"] += 1

    # All went well ---------------------------------------------------------------------------------

    def _left(self, path: Path | None, run: list[Msg]) -> None:
        """Messages of one path have left: counters first, then credits, which may set free what waits."""
        first = run[0]
        if path is None or not first.committed:
            for msg in run:
                self._is_over(msg)
            return
        if path.hop:
            for msg in run:
                self._left_hop(path, msg)
            return
        now = self._clock()
        count = len(run)
        kind = path.kind
        ni, pni = path.ni, path.peer_ni
        path.left += 1
        stats = self._stats
        stats.msgs_alloc -= count
        stats.send_count += count
        of_ni, of_peer = ni.stats, pni.stats
        of_ni.sent[kind] += count
        of_peer.sent[kind] += count
        length = first.hdr.payload_length if count == 1 else sum([msg.hdr.payload_length for msg in run])
        if length:
            stats.send_length += length
            of_ni.sent_bytes += length
            of_peer.sent_bytes += length
        if kind == _PUT and first.attempts is None:
            self._note_latency(path, run, count, now)
        if path.loaded:
            self._loads.left(run, now)
        self._credits.give_back(path, count, length + count * HEADER_SIZE)
        if ni.unhealthy or pni.unhealthy:
            self._parts.sent(ni, pni)
        if kind == _ACK:
            path.recycle_all(run)
        elif count == 1:
            self._tell(path, run)
        else:
            self._sender.cork()
            try:
                self._tell(path, run)
            finally:
                self._sender.uncork_all()

    @staticmethod
    def _note_latency(path: Path, run: list[Msg], count: int, now: float) -> None:
        ni, pni = path.ni, path.peer_ni
        first = run[0]
        if count == 1:
            nsec = int((now - first.queued_at) * 1e9)
            ni.latency_egress.add(nsec)
            pni.latency_egress.add(nsec)
            return
        least, most = now - run[-1].queued_at, now - first.queued_at  # they left in order
        waited = count * most if least == most else count * now - sum([msg.queued_at for msg in run])
        ni.latency_egress.add_many(count, waited, least, most)
        pni.latency_egress.add_many(count, waited, least, most)

    def _left_hop(self, path: Path, msg: Msg) -> None:
        """A message whose header is another's has left."""
        state = self._state
        state.stats.msgs_alloc -= 1
        self._credits.give_back_of(msg)
        ni, pni = path.ni, path.peer_ni
        if ni.unhealthy or pni.unhealthy:
            self._parts.sent(ni, pni)
        if msg.transit is not None:
            self._parts.passed_on(msg, HealthStatus.OK)
            return
        kind = path.kind
        stats = state.stats
        stats.send_count += 1
        ni.stats.sent[kind] += 1
        pni.stats.sent[kind] += 1
        if kind in (_PUT, _REPLY):
            stats.send_length += msg.hdr.payload_length
            ni.stats.sent_bytes += msg.hdr.payload_length
            pni.stats.sent_bytes += msg.hdr.payload_length
        now = state.clock()
        if kind == _PUT and msg.attempts is None:
            self._note_latency(path, [msg], 1, now)
        self._loads.left([msg], now)
        if msg.md is not None:
            self._tell(path, [msg])

    def _tell(self, path: Path, run: list[Msg]) -> None:
        """Tell the owners of their memory, in order."""
        if path.kind == _REPLY or path.hop:
            for msg in run:
                self._tell_one(path, msg)
            return
        free, mds = path.free, self._memory
        for msg in run:
            md = msg.md
            event = path.event
            if md is None or msg.attempts is not None or msg.copy_of is not None:
                self._tell_one(path, msg)
                continue
            if md.quiet and md.threshold and not md.aborted:  # its owner waits for the answer
                msg.committed = False
                md.refs -= 1
                if md.put is not msg:  # else it may have to be sent again
                    path.recycle(msg)
                continue
            if event is None or md is not path.event_md or msg.hdr is not path.hdr or md.put is msg:
                self._tell_one(path, msg)
                continue
            msg.committed = False
            msg.md = None
            free.append(msg)  # from here on it may be another one
            md.refs -= 1
            if md.handler is not None:
                mds.tell(md, event)

    def _tell_one(self, path: Path, msg: Msg) -> None:
        """Tell the owner of the memory of a message that is not like the one before."""
        md = msg.md
        assert md is not None
        msg.committed = False
        if msg.copy_of is not None:
            self._sender.guard.copy_ended(msg, md, HealthStatus.OK)
            return
        if msg.attempts is not None:
            self._state.stats.successful_resends += 1
        event = msg.event
        if event is None and msg.wmd is NO_WMD:
            self._memory.left_for_good(md)
        md.refs -= 1
        ends = not md.refs and (md.aborted or not md.threshold or md.options & MAX_SIZE)
        wanted = ends or md.aborted or not md.quiet
        shared = event is not None
        if event is None and wanted:
            event = self._send_event(path, msg, md)
            shared = event is path.event
        if md.put is not msg and not msg.copied:  # else it may have to be sent again
            path.recycle(msg)
        if wanted:
            assert event is not None
            self._memory.complete(md, event.copy() if shared and (ends or md.aborted) else event)

    @staticmethod
    def _send_event(path: Path, msg: Msg, md: Md) -> Event:
        """The SEND event of msg: one for all that are alike, while their descriptor goes on."""
        hdr = msg.hdr
        event_hdr = path.event_hdr if hdr is path.hdr else None
        if event_hdr is None:
            event_hdr = hdr
            if msg.target is not None and msg.target != hdr.dest_nid:  # it tells what was asked for
                event_hdr = hdr.copy()
                event_hdr.dest_nid = msg.target
        length = hdr.length if hdr.type == _GET else hdr.payload_length
        event = Event(_SEND, md, event_hdr, mlength=length, rlength=length, offset=hdr.offset)
        if hdr is path.hdr and md.threshold < 0 and not md.aborted and md.timeout is None:
            path.share_event(event, md)
        return event

    # It failed -------------------------------------------------------------------------------------

    def _failed(self, msg: Msg, status: HealthStatus, err: int, reason: str) -> None:
        if not msg.committed:
            self._is_over(msg)
            return
        again = bool(status or msg.unsent) and self._parts.failed(msg, status, err, reason)
        self._credits.give_back_of(msg)
        self._loads.end(msg)
        msg.path = msg.ni = msg.peer_ni = None
        if again:
            self._parts.resend(msg)
        elif msg.copied:
            self.end(msg, HealthStatus.OK, 0, "")
        else:
            self.end(msg, status or HealthStatus.REMOTE_ERROR, err, reason)

    def end(self, msg: Msg, status: HealthStatus, err: int, reason: str) -> None:
        """msg failed for good, or a copy of it goes on."""
        if msg.committed:
            self._credits.give_back_of(msg)
        self._loads.end(msg)
        self._state.stats.msgs_alloc -= 1
        md = msg.md
        if md is None:
            if msg.transit is not None:
                self._parts.passed_on(msg, status)
            return
        if msg.copy_of is not None:
            self._sender.guard.copy_ended(msg, md, status, err, reason + _told_of(msg.attempts))
            return
        event = self._failed_event(msg, md) if msg.event is None else msg.event.copy()
        if status:
            event.status = -(err or errno.EIO)
            event.health = status
            event.reason = reason + _told_of(msg.attempts)
            if md.put is msg:
                md.put = None
        if status or (msg.wmd is NO_WMD and not md.acks_due):
            self._memory.forget_response(md)
        self._memory.complete_one(md, event)

    @staticmethod
    def _failed_event(msg: Msg, md: Md) -> Event:
        hdr = msg.hdr
        if msg.target is not None and msg.target != hdr.dest_nid:
            hdr = hdr.copy()
            hdr.dest_nid = msg.target
        length = hdr.length if hdr.type == _GET else hdr.payload_length
        return Event(_SEND, md, hdr, mlength=length, rlength=length, offset=hdr.offset)


def _told_of(attempts: Attempts | None) -> str:
    if attempts is None or not attempts.count:
        return ""
    paths = len(attempts.tried)
    return f" (sent {attempts.count + 1} times, over {paths} path{'s' * (paths != 1)})"
