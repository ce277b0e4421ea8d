"""The sending half: choose a path, post, finish or try another path (spec selection.md §8, health.md §3)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ulnet.core.credits import ANSWERS
from ulnet.core.event import Event, EventKind
from ulnet.core.flights import Flights, load_of
from ulnet.core.guard.again import Again
from ulnet.core.md import Md
from ulnet.core.memory import Memory
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.peer import Peer, PeerNi, may_be_peer
from ulnet.core.selection import Choice, Selector
from ulnet.core.state import NodeState
from ulnet.core.status import HealthStatus, LNetError
from ulnet.nid import LNET_PID, LO_NID
from ulnet.wire.lnet import NO_WMD, PING_PORTAL, MsgType

if TYPE_CHECKING:
    from ulnet.core.health.resend import Attempts
    from ulnet.core.lnd import Master
    from ulnet.core.routing.choose import RoutedSelector
    from ulnet.nid import Nid

__all__ = ["Transmit"]

_PUT = int(MsgType.PUT)
_REPLY = int(MsgType.REPLY)
_GET = int(MsgType.GET)


class Transmit(Flights):
    """Outgoing messages of one node, from `send` until the owner of their memory is told how they ended."""

    __slots__ = ("_selector", "again", "hold", "relay", "relayed", "routed")

    def __init__(self, state: NodeState, memory: Memory, selector: Selector) -> None:
        super().__init__(state, memory)
        self._selector = selector
        self.again = Again(state, memory, self.leave_lane)
        # Set by discovery: whether it keeps a message back until the peer is known (it launches it then).
        self.hold: Callable[[Msg, Peer], bool] = lambda msg, peer: False
        # Set by routing: chooses gateways, while there are routes; sends messages on that pass through this
        # node, and hears how that ended.
        self.routed: RoutedSelector | None = None
        self.relay: Callable[[Msg], None] = lambda msg: None
        self.relayed: Callable[[Msg, HealthStatus], None] = lambda msg, status: None

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
        if self.gathering is not None:
            self.post_gathered()
        state = self._state
        hdr = msg.hdr
        if msg.transit is not None:
            self.relay(msg)
            return
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
        tag = dest.peer.guard
        if (tag or (msg.attempts is not None and msg.master is None)) and not self.again.identify(msg, tag):
            self.fail(msg, errno.ECONNRESET, "the peer was restarted: its former life may have the message")
            return
        try:
            ni, pni, final = self._choose(msg, dest)
        except LNetError as refusal:
            self.fail(msg, refusal.errno, refusal.text)
            return
        if final is not pni and self._asks_gateway(msg, pni, final):
            return
        hdr.src_nid = ni.nid
        hdr.dest_nid = final.nid
        msg.ni = ni
        msg.peer_ni = pni
        msg.next_nid = pni.nid
        msg.next_pid = hdr.dest_pid if final is pni else LNET_PID
        msg.queued_at = now = state.clock()
        if pni.peer.multi_rail:
            self.take_off(msg, ni, pni, now)
        if msg.md is not None:
            msg.md.ni = ni
            if msg.md.deadline_slot >= 0:
                self._memory.went(msg.md, pni.nid)
        if pni.watched:
            self.health.posted(pni)
        self._post(msg, ni, pni)

    def pass_on(self, msg: Msg, master: Master, ni: NI, nid: Nid) -> bool:
        """A driver without a wire of its own, which has msg, gives it to another NI to send to nid.

        False, and nothing is done, when nid cannot be the NID of a peer.
        """
        state = self._state
        pni = state.peers.learn(nid)
        if pni is None:
            return False
        assert msg.ni is not None
        assert msg.peer_ni is not None
        self.leave_lane(msg)
        self._return_credits(msg, msg.ni, msg.peer_ni)
        msg.master = master
        msg.ni = ni
        msg.peer_ni = pni
        msg.next_nid = nid
        self.land(msg, failed=True)
        if msg.transit is None:
            self.take_off(msg, ni, pni, state.clock())
        if msg.md is not None:
            self._memory.went(msg.md, nid)
        if pni.watched:
            self.health.posted(pni)
        self._post(msg, ni, pni)
        return True

    def relaunch(self, msg: Msg, ni: NI | None = None, pni: PeerNi | None = None) -> None:
        """Launch a message that came back, without having left that pair, or end it if nobody wants it."""
        if not self._state.running:
            self.fail(msg, errno.ESHUTDOWN, "the node is shutting down")
        elif msg.md is not None and msg.md.aborted:
            self.fail(msg, errno.ECANCELED, "the memory descriptor was unlinked before the message left")
        else:
            self.launch(msg)
            if ni is not None and pni is not None:
                self.health.moved(msg, ni, pni)

    def _asks_gateway(self, msg: Msg, pni: PeerNi, final: PeerNi) -> bool:
        """Whether msg waits until the gateway was discovered."""
        routed, peer = self.routed, pni.peer
        return not peer.settled and routed is not None and routed.asks_first(final) and self.hold(msg, peer)

    def post_on(self, msg: Msg, ni: NI, pni: PeerNi) -> None:
        """Send msg, which passes through this node, from ni to its next hop."""
        msg.ni = ni
        msg.peer_ni = pni
        msg.next_nid = pni.nid
        msg.queued_at = self._state.clock()
        if pni.watched:
            self.health.posted(pni)
        self._post(msg, ni, pni)

    def _choose(self, msg: Msg, dest: PeerNi) -> tuple[NI, PeerNi, PeerNi]:
        """The NIs of msg's next hop, and the one that it goes to in the end; the choice counts as a turn."""
        hdr = msg.hdr
        response = hdr.type in ANSWERS or msg.exact
        ping = hdr.portal == PING_PORTAL
        source = msg.src_spec
        if self.routed is not None and self.routed.needed(dest, source, response):
            return self._choose_gateway(msg, dest, response, ping)
        size = load_of(msg)
        if msg.attempts is None:
            try:
                choice = self._selector.choose(
                    dest, source=source, response=response, ping=ping, size=size, cpt=msg.cpt
                )
            except LNetError:
                if source is None or hdr.type not in ANSWERS:
                    raise
                choice = self._choose_again(msg, dest, ())  # the NI that was asked is gone: others answer
        else:
            choice = self._choose_again(msg, dest, msg.attempts.tried)
            self.health.switched(msg, choice[0], choice[1])
        ni, pni, _, _ = choice
        if not response and not pni.peer.multi_rail and pni.preferred is None and (source or not ping):
            pni.preferred = ni.nid
        self._selector.took(choice, msg, size)
        return ni, pni, pni

    def _choose_gateway(
        self, msg: Msg, dest: PeerNi, response: bool, ping: bool
    ) -> tuple[NI, PeerNi, PeerNi]:
        assert self.routed is not None
        attempts, answer = msg.attempts, msg.hdr.type in ANSWERS
        again = attempts is not None and answer
        path = self.routed.choose(
            dest,
            source=None if again else msg.src_spec,
            bound=response,
            ping=ping,
            via=None if again else msg.via,
            size=load_of(msg),
            cpt=msg.cpt,
            tried=() if attempts is None else attempts.tried,
        )
        ni, pni, final = path.ni, path.peer_ni, path.final
        if attempts is not None:
            self.health.switched(msg, ni, pni)
        if not response and not final.peer.multi_rail and final.preferred is None and not ping:
            final.preferred = ni.nid
        self._selector.took((ni, pni, path.ni_by, path.peer_ni_by), msg, load_of(msg))
        self.routed.took(path)
        return ni, pni, final

    def _choose_again(self, msg: Msg, dest: PeerNi, tried: Sequence[tuple[NI, PeerNi]]) -> Choice:
        """A path not tried, if there is one; an answer may leave from any NI, to any NID of its peer."""
        answer = msg.hdr.type in ANSWERS
        return self._selector.choose_again(
            dest,
            source=None if answer else msg.src_spec,
            tried=tried,
            response=answer,
            size=load_of(msg),
            cpt=msg.cpt,
        )

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

    # Completion ------------------------------------------------------------------------------------

    def finalize(self, msg: Msg, status: HealthStatus, err: int = 0, reason: str = "") -> None:
        """The driver is done with msg: return its credits, count it, tell the owner of its MD."""
        self.leave_lane(msg)
        if status:
            again = self.health.failed(msg, status)
            self._give_back(msg)
            if again:
                msg.final = False
                self.health.resender.schedule(msg)
            elif msg.copied:
                self._end(msg, HealthStatus.OK, 0, "")
            else:
                self._end(msg, status, err, reason)
            return
        ni, pni = msg.ni, msg.peer_ni
        assert ni is not None
        self._state.stats.msgs_alloc -= 1
        if pni is None:
            ni.refs -= 1
        else:
            self._return_credits(msg, ni, pni)
            if ni.watched or pni.watched:
                self.health.sent(ni, pni)
        if msg.transit is not None:
            self.relayed(msg, status)
            return
        if msg.flight is not None:
            self.land(msg, failed=False)
        self._count_sent(msg, ni, pni)
        if msg.md is not None:
            self._tell_owner(msg, msg.md, status, err, reason)

    def leave_lane(self, msg: Msg) -> None:
        lane = msg.lane
        if lane is None:
            return
        msg.own_header()
        event = msg.kept_event
        msg.kept_event = event.copy() if lane.kind == _REPLY and event is not None else None
        msg.lane = None
        if not lane.counted and (msg.committed or not msg.final):  # what has left was counted with its batch
            self._selector.took_many(lane.choice, 1)

    def fail(self, msg: Msg, err: int, reason: str) -> None:
        """End msg with that errno, soon: never in its caller's stack. Nobody's health suffers."""
        status = HealthStatus.REMOTE_ERROR if err == errno.EHOSTUNREACH else HealthStatus.LOCAL_ERROR
        self._state.defer(self._end, msg, status, err, reason)

    def take_back(self, msg: Msg) -> None:
        """A driver gives msg back without having sent any of it: it sets out anew, and nobody is to blame."""
        self.leave_lane(msg)
        ni, pni = msg.ni, msg.peer_ni
        self._give_back(msg)
        self._state.defer(self.relaunch, msg, ni, pni)

    def _end(self, msg: Msg, status: HealthStatus, err: int, reason: str) -> None:
        """msg failed for good, or a copy of it goes on."""
        self.leave_lane(msg)
        self._give_back(msg)
        self._state.stats.msgs_alloc -= 1
        if msg.md is not None:
            self._tell_owner(msg, msg.md, status, err, reason + _told_of(msg.attempts))
        elif msg.transit is not None:
            self.relayed(msg, status)

    def _give_back(self, msg: Msg) -> None:
        """msg holds nothing of its path any more."""
        ni, pni = msg.ni, msg.peer_ni
        if msg.committed and ni is not None and pni is not None:
            self._return_credits(msg, ni, pni)
        elif ni is not None:
            ni.refs -= 1
        self.land(msg, failed=True)
        msg.ni = msg.peer_ni = None

    def _count_sent(self, msg: Msg, ni: NI, pni: PeerNi | None) -> None:
        stats = self._state.stats
        kind = msg.hdr.type
        stats.send_count += 1
        if kind in (_PUT, _REPLY):
            stats.send_length += msg.hdr.payload_length
        ni.stats.sent[kind] += 1
        if pni is not None:
            pni.stats.sent[kind] += 1
        if msg.attempts is not None:
            stats.successful_resends += 1
        elif kind == _PUT:
            nsec = int((self._state.clock() - msg.queued_at) * 1e9)
            ni.latency_egress.add(nsec)
            if pni is not None:
                pni.latency_egress.add(nsec)

    def _tell_owner(self, msg: Msg, md: Md, status: HealthStatus, err: int, reason: str) -> None:
        if msg.copy_of is not None:
            self.again.copy_ended(msg, md, status)
            return
        event = msg.kept_event
        hdr = msg.hdr
        if not isinstance(event, Event):
            if msg.target is not None and msg.target != hdr.dest_nid:  # the event tells what was asked for
                hdr = hdr.copy() if md.put is msg and hdr.dest_nid != msg.next_nid else hdr
                hdr.dest_nid = msg.target
            length = hdr.length if hdr.type == _GET else hdr.payload_length
            event = Event(EventKind.SEND, md, hdr, mlength=length, rlength=length, offset=hdr.offset)
        if status:
            event.status = -(err or errno.EIO)
            event.health = status
            event.reason = reason
            if md.put is msg:
                md.put = None
        if status or (hdr.wmd is NO_WMD and not md.acks_due):
            self._memory.forget_response(md)
        self._memory.complete(md, event)


def _told_of(attempts: Attempts | None) -> str:
    if attempts is None or not attempts.count:
        return ""
    paths = len(attempts.tried)
    return f" (sent {attempts.count + 1} times, over {paths} path{'s' * (paths != 1)})"
