"""The sending half: choose a path, take credits, hand to the driver, finish (spec selection.md §8)."""

from __future__ import annotations

import errno
from collections.abc import Callable

from ulnet.core.event import Event, EventKind
from ulnet.core.faults import Fate
from ulnet.core.flow import Flight, Flow
from ulnet.core.md import Md
from ulnet.core.memory import Memory
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.peer import Peer, PeerNi, may_be_peer
from ulnet.core.selection import Selector
from ulnet.core.state import NodeState
from ulnet.core.status import HealthStatus, LNetError
from ulnet.nid import LO_NID
from ulnet.wire.lnet import HEADER_SIZE, NO_WMD, PING_PORTAL, MsgType

__all__ = ["Transmit"]

_PUT = int(MsgType.PUT)
_REPLY = int(MsgType.REPLY)
_ACK = int(MsgType.ACK)
_GET = int(MsgType.GET)
_ANSWERS = (_ACK, _REPLY)


class Transmit:
    """Outgoing messages of one node.

    A message takes one credit of its peer NI, then one of its NI; without a credit it waits in that
    object's queue, first in, first out. Both come back when the message is finalized.
    """

    __slots__ = ("_memory", "_selector", "_state", "hold")

    def __init__(self, state: NodeState, memory: Memory, selector: Selector) -> None:
        self._state = state
        self._selector = selector
        self._memory = memory
        # Set by discovery: whether it keeps a message back until the peer is known (it launches it then).
        self.hold: Callable[[Msg, Peer], bool] = lambda msg, peer: False

    def send(self, msg: Msg) -> None:
        """Send msg to its header's destination; failures arrive as its completion, later."""
        stats = self._state.stats
        stats.msgs_alloc += 1
        if stats.msgs_alloc > stats.msgs_max:
            stats.msgs_max = stats.msgs_alloc
        self.launch(msg)

    def launch(self, msg: Msg) -> None:
        """Choose a path for msg, now or when its peer is discovered, and post it there.

        A message that holds no credits may be launched again: it then sets out as if for the first time.
        """
        state = self._state
        hdr = msg.hdr
        dst = msg.target or hdr.dest_nid
        if dst == LO_NID:
            self._send_loopback(msg)
            return
        dest = state.peers.learn(dst)
        if dest is None:
            if may_be_peer(dst):
                self.fail(msg, errno.ENOMEM, f"too many unknown peers: cannot remember {dst}")
            else:
                self.fail(msg, errno.EINVAL, f"{dst} cannot be a destination: give the NID of one interface")
            return
        if not dest.peer.settled and self.hold(msg, dest.peer):
            return
        try:
            ni, pni = self._choose(msg, dest)
        except LNetError as refusal:
            self.fail(msg, refusal.errno, refusal.text)
            return
        hdr.src_nid = ni.nid
        hdr.dest_nid = pni.nid
        msg.ni = ni
        msg.peer_ni = pni
        msg.next_nid = pni.nid
        msg.next_pid = hdr.dest_pid
        msg.queued_at = now = state.clock()
        if pni.peer.multi_rail:
            self._take_off(msg, ni, pni, now)
        self._post(msg, ni, pni)

    def _choose(self, msg: Msg, dest: PeerNi) -> tuple[NI, PeerNi]:
        """The path of msg; the choice counts as a turn of all that it uses."""
        hdr = msg.hdr
        response = hdr.type in _ANSWERS or msg.exact
        ping = hdr.portal == PING_PORTAL
        source = msg.src_spec
        choice = self._selector.choose(
            dest, source=source, response=response, ping=ping, size=_load_of(msg), cpt=msg.cpt
        )
        ni, pni, _, _ = choice
        if not response and not pni.peer.multi_rail and pni.preferred is None and (source or not ping):
            pni.preferred = ni.nid
        self._selector.took(choice, msg)
        return ni, pni

    @staticmethod
    def _take_off(msg: Msg, ni: NI, pni: PeerNi, now: float) -> None:
        """Count msg on its path until its delivery is known: by the answer, where there is one."""
        pair = pni.flows.get(ni)
        if pair is None:
            pair = pni.flows[ni] = Flow(pni.peer.paces)
        peer = pni.peer.flows.get(ni)
        if peer is None:
            peer = pni.peer.flows[ni] = Flow(pni.peer.paces)
        flight = msg.flight = Flight(pair, peer, _load_of(msg), now)
        if msg.md is not None and _awaits_answer(msg):
            msg.md.flights.append(flight)

    def _land(self, msg: Msg, flight: Flight, failed: bool) -> None:
        msg.flight = None
        if msg.md is not None and _awaits_answer(msg):
            if failed and flight in msg.md.flights:
                msg.md.flights.remove(flight)
                flight.abandon()
        elif failed:
            flight.abandon()
        else:
            flight.land(self._state.clock())

    def _send_loopback(self, msg: Msg) -> None:
        ni = self._state.nis.get(LO_NID)
        if ni is None:
            self.fail(msg, errno.ESHUTDOWN, "the node is shutting down")
            return
        msg.hdr.src_nid = LO_NID
        msg.ni = ni
        msg.next_nid = LO_NID
        msg.queued_at = self._state.clock()
        ni.refs += 1
        ni.lnd.send(ni, msg)

    def fail(self, msg: Msg, err: int, reason: str) -> None:
        """End msg with that errno, soon: never in its caller's stack."""
        status = HealthStatus.REMOTE_ERROR if err == errno.EHOSTUNREACH else HealthStatus.LOCAL_ERROR
        self._state.defer(self.finalize, msg, status, err, reason)

    # Credits ---------------------------------------------------------------------------------------

    def _post(self, msg: Msg, ni: NI, pni: PeerNi) -> None:
        msg.committed = True
        ni.refs += 1
        pni.refs += 1
        pni.tx_queued_bytes += msg.hdr.payload_length + HEADER_SIZE
        if msg.hdr.type in _ANSWERS:
            pni.answers += 1
            self._state.answers += 1
        credits = pni.tx_credits - 1
        pni.tx_credits = credits
        if credits < pni.min_tx_credits:
            pni.min_tx_credits = credits
        if credits < 0:
            pni.tx_queue.append(msg)
            return
        self._post_on_ni(msg, ni)

    def _post_on_ni(self, msg: Msg, ni: NI) -> None:
        credits = ni.tx_credits - 1
        ni.tx_credits = credits
        if credits < ni.min_tx_credits:
            ni.min_tx_credits = credits
        queues = ni.tx_queues
        queue = msg.tx_queue = queues[0] if len(queues) == 1 else ni.queue_for(msg)
        queue.credits = credits = queue.credits - 1
        if credits < 0:
            queue.waiting.append(msg)
            return
        self._hand_over(msg, ni)

    def change_cpts(self, ni: NI, cpts: tuple[int, ...]) -> None:
        """Give an NI other CPTs; what waits on it waits in the new queues, in the same order."""
        for msg in ni.replace_cpts(cpts):
            self._post_on_ni(msg, ni)

    def _hand_over(self, msg: Msg, ni: NI) -> None:
        if not ni.active:
            self.fail(msg, errno.ENETDOWN, f"the local interface {ni.nid} was removed")
        elif msg.md is not None and msg.md.aborted:
            self.fail(msg, errno.ECANCELED, "the memory descriptor was unlinked before the message left")
        elif self._state.faults is None or not self._struck(msg, ni):
            ni.lnd.send(ni, msg)

    def _struck(self, msg: Msg, ni: NI) -> bool:
        """Whether a fault rule fails the message or keeps it for a while."""
        faults = self._state.faults
        assert faults is not None
        fate = faults.send(msg, ni, lambda: self._hand_over(msg, ni))
        if isinstance(fate, HealthStatus):
            self._state.defer(self.finalize, msg, fate, errno.EIO, "a fault rule dropped the message")
        return fate is not Fate.PASSES

    def _return_credits(self, msg: Msg, ni: NI, pni: PeerNi) -> None:
        msg.committed = False
        ni.refs -= 1
        pni.refs -= 1
        pni.tx_queued_bytes -= msg.hdr.payload_length + HEADER_SIZE
        if msg.hdr.type in _ANSWERS:
            pni.answers -= 1
            self._state.answers -= 1
        ni.tx_credits += 1
        queue = msg.tx_queue
        queue.credits = credits = queue.credits + 1
        if credits <= 0:
            self._hand_over(queue.waiting.popleft(), ni)
        pni.tx_credits += 1
        if pni.tx_credits <= 0:
            waiting = pni.tx_queue.popleft()
            assert waiting.ni is not None
            self._post_on_ni(waiting, waiting.ni)

    # Completion ------------------------------------------------------------------------------------

    def finalize(self, msg: Msg, status: HealthStatus, err: int = 0, reason: str = "") -> None:
        """An outgoing message is done: return its credits, count it, tell the owner of its MD."""
        state = self._state
        stats = state.stats
        stats.msgs_alloc -= 1
        ni = msg.ni
        pni = msg.peer_ni
        if msg.committed and ni is not None and pni is not None:
            self._return_credits(msg, ni, pni)
        elif ni is not None:
            ni.refs -= 1
        if msg.flight is not None:
            self._land(msg, msg.flight, bool(status))
        if status:
            self._count_failure(ni, pni, status)
        elif ni is not None:
            self._count_sent(msg, ni, pni)
        md = msg.md
        if md is not None:
            self._tell_owner(msg, md, status, err, reason)

    def _count_sent(self, msg: Msg, ni: NI, pni: PeerNi | None) -> None:
        stats = self._state.stats
        kind = msg.hdr.type
        stats.send_count += 1
        if kind in (_PUT, _REPLY):
            stats.send_length += msg.hdr.payload_length
        ni.stats.sent[kind] += 1
        if pni is not None:
            pni.stats.sent[kind] += 1
        if kind == _PUT:
            nsec = int((self._state.clock() - msg.queued_at) * 1e9)
            ni.latency_egress.add(nsec)
            if pni is not None:
                pni.latency_egress.add(nsec)

    def _count_failure(self, ni: NI | None, pni: PeerNi | None, status: HealthStatus) -> None:
        self._state.stats.by_status[status] += 1
        if ni is not None:
            ni.health_stats.by_status[status] += 1
        if pni is not None:
            pni.health_stats.by_status[status] += 1

    def _tell_owner(self, msg: Msg, md: Md, status: HealthStatus, err: int, reason: str) -> None:
        event = msg.kept_event
        hdr = msg.hdr
        if not isinstance(event, Event):
            if msg.target is not None:
                hdr.dest_nid = msg.target  # the event tells what was asked for, not which path it took
            length = hdr.length if hdr.type == _GET else hdr.payload_length
            event = Event(EventKind.SEND, md, hdr, mlength=length, rlength=length, offset=hdr.offset)
        if status:
            event.status = -(err or errno.EIO)
            event.health = status
            event.reason = reason
        if status or hdr.wmd is NO_WMD:
            self._memory.forget_response(md)
        self._memory.complete(md, event)


def _load_of(msg: Msg) -> int:
    """The bytes that a message puts on its path: a GET counts with what it asks for."""
    hdr = msg.hdr
    return HEADER_SIZE + (hdr.length if hdr.type == _GET else hdr.payload_length)


def _awaits_answer(msg: Msg) -> bool:
    hdr = msg.hdr
    return hdr.type == _GET or (hdr.type == _PUT and hdr.wmd is not NO_WMD)
