"""The receiving half: check a header, find its memory, answer (spec wire-lnet.md §4.5, md-me-eq.md §6)."""

from __future__ import annotations

import errno
from collections.abc import Callable

from ulnet.core.event import Event, EventKind
from ulnet.core.faults import Fate
from ulnet.core.flow import take_answered
from ulnet.core.guard.identity import MARKS
from ulnet.core.incoming import Incoming
from ulnet.core.md import ACK_DISABLE, TRUNCATE, Md
from ulnet.core.memory import Memory
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi, may_be_peer
from ulnet.core.portal import NO_MATCH, PORTALS, Portal
from ulnet.core.state import NodeState
from ulnet.core.stats import Latency
from ulnet.core.status import HealthStatus
from ulnet.core.transmit import Transmit
from ulnet.nid import LO_NID, Nid
from ulnet.wire.lnet import LNET_MTU, NO_WMD, PING_MATCH_BITS, PING_PORTAL, Header, MsgType

__all__ = ["MAX_ANSWERS", "MAX_DELAYED", "MAX_PEER_ANSWERS", "Receive"]

_ACK = int(MsgType.ACK)
_PUT = int(MsgType.PUT)
_GET = int(MsgType.GET)
_REPLY = int(MsgType.REPLY)
_MOST_PAYLOAD = {_ACK: 0, _GET: 0, _PUT: LNET_MTU, _REPLY: LNET_MTU}  # other kinds nobody sends

# Messages that may wait on one lazy portal; those with payload also stall their connection.
MAX_DELAYED = 4096
# ACKs and REPLYs that may wait for credits: of one peer NI, and of all. Who asks for more is not heard.
MAX_PEER_ANSWERS = 65536
MAX_ANSWERS = 262144


class Receive(Incoming):
    """Incoming messages of one node."""

    __slots__ = ("_kinds", "arrived", "forward", "last_hop")

    def __init__(self, state: NodeState, memory: Memory, transmit: Transmit) -> None:
        super().__init__(state, memory, transmit)
        self._kinds = {_PUT: self._put, _ACK: self._ack, _GET: self._get, _REPLY: self._reply}
        memory.on_delayed(self._match_delayed, self._drop_delayed)
        # Set by routing: takes messages for others; hears that the payload of one came; tells who passed on
        # a message for this node, or why it must be dropped.
        self.forward: Callable[[NI, Header, Nid, object], None]
        self.arrived: Callable[[Msg, HealthStatus], None]
        self.last_hop: Callable[[NI, Header, Nid], PeerNi | str]

    def parse(self, ni: NI, hdr: Header, from_nid: Nid, rx: object) -> int:
        """Take a header that arrived on ni from the next hop from_nid: 0, or -errno for a protocol error."""
        kind = hdr.type
        if hdr.payload_length > _MOST_PAYLOAD.get(kind, -1):
            return -errno.EPROTO
        mine = hdr.dest_nid == ni.nid
        master = None
        if not mine:
            master = self._state.masters.get(hdr.dest_nid)
            mine = master is not None  # over any NI: it may have been a slave when the message set out
        if not mine and (hdr.dest_nid.net == ni.nid.net or hdr.dest_nid in self._state.nis):
            return -errno.EPROTO
        if not ni.active:
            self._drop(ni, None, hdr, rx, "the interface is shutting down")
            return 0
        if self._state.faults is not None and self._struck(ni, hdr, from_nid, rx):
            return 0
        if not mine:
            self.forward(ni, hdr, from_nid, rx)
            return 0
        src = hdr.src_nid
        pni = self._state.peers.learn(src) if src != LO_NID or ni.nid == LO_NID else None
        if pni is None:
            why = "too many unknown peers" if may_be_peer(src) else "its source is no node"
            self._drop(ni, None, hdr, rx, why)
            return 0
        if pni.preferred is None and not pni.peer.multi_rail and src.net == ni.nid.net:
            pni.preferred = ni.nid
        hop = pni
        if master is not None:
            hop = self._state.peers.learn(from_nid) or pni
            master.heard(ni, hdr, from_nid)
        elif from_nid != src and src != LO_NID:
            over = self.last_hop(ni, hdr, from_nid)
            if isinstance(over, str):
                self._drop(ni, pni, hdr, rx, over)
                return 0
            hop = over
        hop.heard_at = self._state.clock()
        if ni.watched or hop.watched:
            self._transmit.health.heard(ni, hop)
        if (
            (pni.answers >= MAX_PEER_ANSWERS or self._state.answers >= MAX_ANSWERS)
            and hdr.wmd != NO_WMD
            and kind in (_PUT, _GET)
        ):
            self._drop(ni, pni, hdr, rx, "too many answers wait for this peer")
            return 0
        self._kinds[kind](ni, pni, hdr, from_nid, rx)
        return 0

    def _struck(self, ni: NI, hdr: Header, from_nid: Nid, rx: object) -> bool:
        """Whether a fault rule drops the message or keeps it for a while."""
        faults = self._state.faults
        assert faults is not None
        fate = faults.receive(ni, hdr, rx, lambda: self._parse_again(ni, hdr, from_nid, rx))
        if fate is Fate.DROPPED:
            self._drop(ni, None, hdr, rx, "a fault rule")
        return fate is not Fate.PASSES

    def _parse_again(self, ni: NI, hdr: Header, from_nid: Nid, rx: object) -> None:
        if self.parse(ni, hdr, from_nid, rx) and hdr.payload_length:
            ni.lnd.recv(ni, rx, None, [], 0, hdr.payload_length)

    # The four kinds --------------------------------------------------------------------------------

    def _put(self, ni: NI, pni: PeerNi, hdr: Header, from_nid: Nid, rx: object) -> None:
        mark = hdr.wmd[15]
        named = mark in MARKS and self._once.is_meant(hdr.wmd)
        if named and self._once.is_repeated(hdr.wmd) and not self._admits(ni, pni, hdr, from_nid, rx):
            return
        portal = self._memory.portals[hdr.portal] if hdr.portal < PORTALS else None
        if portal is None:
            self._drop(ni, pni, hdr, rx, "nothing is attached to the portal")
            return
        found = portal.match(hdr, pni.peer)
        if isinstance(found, str) and not (found is NO_MATCH and _may_wait(portal, hdr)):
            self._drop(ni, pni, hdr, rx, found)
            return
        msg = self._incoming(ni, pni, hdr, from_nid)
        msg.rx = rx
        if named:
            self._once.begins(msg)
        if isinstance(found, str):
            portal.delayed[msg] = None
        else:
            self._deliver(msg, found)

    def _get(self, ni: NI, pni: PeerNi, hdr: Header, from_nid: Nid, rx: object) -> None:
        portal = self._memory.portals[hdr.portal] if hdr.portal < PORTALS else None
        found = portal.match(hdr, pni.peer) if portal is not None else "nothing is attached to the portal"
        if isinstance(found, str):
            self._drop(ni, pni, hdr, rx, found)
            return
        md, mlength, offset = found
        self._count_received(ni, pni, hdr)
        reply = Msg(
            Header(
                type=_REPLY,
                dest_nid=hdr.src_nid,
                src_nid=hdr.dest_nid,
                dest_pid=hdr.src_pid,
                src_pid=self._state.pid,
                payload_length=mlength,
                wmd=hdr.wmd,
            ),
            sending=True,
        )
        reply.md = md
        reply.payload = md.slices(offset, mlength) if mlength else []
        reply.src_spec = hdr.dest_nid if hdr.dest_nid != LO_NID else None
        reply.via = from_nid if from_nid != hdr.src_nid else None
        reply.kept_event = Event(
            EventKind.GET, md, hdr, pni.peer.primary_nid, from_nid, mlength, hdr.payload_length, offset
        )
        self._transmit.send(reply)

    def _ack(self, ni: NI, pni: PeerNi, hdr: Header, from_nid: Nid, rx: object) -> None:
        md = self._memory.find_wmd(hdr.wmd)
        if md is None or not md.acks_due:
            self._drop(ni, pni, hdr, None, "answer to nothing that waits")
            return
        md.acks_due -= 1
        if hdr.wmd[15]:
            md.put = None
        self._answered(md, ni.latency_ack, pni.latency_ack)
        if md.flights:
            hop = self._hop(pni, hdr, from_nid)
            take_answered(md.flights, hop.flows.get(ni)).land(self._state.clock())
        self._count_received(ni, pni, hdr)
        event = Event(EventKind.ACK, md, hdr, pni.peer.primary_nid, from_nid, hdr.length)
        self._memory.complete(md, event)

    def _reply(self, ni: NI, pni: PeerNi, hdr: Header, from_nid: Nid, rx: object) -> None:
        md = self._memory.find_wmd(hdr.wmd)
        if md is None or not md.replies_due:
            self._drop(ni, pni, hdr, rx, "answer to nothing that waits")
            return
        mlength = hdr.payload_length
        if mlength > md.length:
            if not md.options & TRUNCATE:
                self._drop(ni, pni, hdr, rx, "REPLY longer than its memory descriptor")
                return
            mlength = md.length
        md.replies_due -= 1
        self._answered(md, ni.latency_get, pni.latency_get)
        msg = self._incoming(ni, pni, hdr, from_nid)
        msg.rx = rx
        msg.md = md
        msg.mlength = mlength
        self._receive_payload(msg)

    def _hop(self, pni: PeerNi, hdr: Header, from_nid: Nid) -> PeerNi:
        """The peer NI that a message came over: its sender, or a gateway."""
        return pni if from_nid == hdr.src_nid else self._state.peers.find_ni(from_nid) or pni

    def _answered(self, md: Md, of_ni: Latency, of_peer: Latency) -> None:
        """The answer takes one operation of md; its time counts where somebody keeps track."""
        if md.deadline_slot >= 0:
            nsec = int((self._state.clock() - md.sent_at) * 1e9)
            of_ni.add(nsec)
            of_peer.add(nsec)
            self._memory.forget_response(md)
        if md.threshold > 0:
            md.threshold -= 1
        md.refs += 1

    # Completion ------------------------------------------------------------------------------------

    def finalize(self, msg: Msg, status: HealthStatus, err: int = 0, reason: str = "") -> None:
        """The payload of an incoming message is in memory, or will never be."""
        if msg.transit is not None:
            self.arrived(msg, status)
            return
        stats = self._state.stats
        stats.msgs_alloc -= 1
        ni, pni, md, hdr = msg.ni, msg.peer_ni, msg.md, msg.hdr
        assert ni is not None
        assert pni is not None
        assert md is not None
        ni.refs -= 1
        pni.refs -= 1
        assert msg.next_nid is not None
        kind = EventKind.PUT if hdr.type == _PUT else EventKind.REPLY
        event = Event(
            kind, md, hdr, pni.peer.primary_nid, msg.next_nid, msg.mlength, hdr.payload_length, msg.offset
        )
        if status:
            self._transmit.health.broken(ni, pni, status)
            event.status = -(err or errno.EIO)
            event.health = status
            event.reason = reason
        else:
            self._count_received(ni, pni, hdr)
        if kind is EventKind.REPLY and md.flights:
            hop = self._hop(pni, hdr, msg.next_nid)
            flight = take_answered(md.flights, hop.flows.get(ni))
            if status:
                flight.abandon()
            else:
                flight.land(self._state.clock())
        wants_ack = kind is EventKind.PUT and hdr.wmd != NO_WMD and not md.options & ACK_DISABLE
        if msg.identity:
            self._once.ended(msg, not status, wants_ack and not md.aborted)
        self._memory.complete(md, event)
        if wants_ack and not event.status and self._state.running:
            self.acknowledge(hdr, msg.mlength, msg.next_nid)

    # Delays ------------------------------------------------------------------------------------------

    def _match_delayed(self, portal: Portal) -> None:
        """Memory came for those that wait. Where a handler attaches more, the walk begins anew.

        So each is matched once, in order of arrival, however deep handlers attach.
        """
        portal.rematch = True
        if portal.matching:
            return
        portal.matching = True
        try:
            while portal.rematch:
                portal.rematch = False
                for msg in list(portal.delayed):
                    if msg in portal.delayed:
                        self._match_again(portal, msg)
                    if portal.rematch:
                        break
        finally:
            portal.matching = False

    def _match_again(self, portal: Portal, msg: Msg) -> None:
        pni = self._current_sender(msg)
        found = portal.match(msg.hdr, pni.peer)
        if found is NO_MATCH:
            return
        del portal.delayed[msg]
        if isinstance(found, str):
            self._drop_delayed(msg, found)
        else:
            self._deliver(msg, found)

    def _current_sender(self, msg: Msg) -> PeerNi:
        """The peer NI of a message that waited; its NID may belong to another peer by now."""
        pni = msg.peer_ni
        assert pni is not None
        now = self._state.peers.find_ni(pni.nid)
        if now is None or now is pni:
            return pni
        pni.refs -= 1
        now.refs += 1
        msg.peer_ni = now
        return now

    def forget_rx(self, rx: object) -> None:
        """The connection of delayed messages died: their payload will never come."""
        if self._state.faults is not None:
            for ni, hdr in self._state.faults.forget_rx(rx):
                self._drop(ni, None, hdr, None, "its connection closed while a fault rule held it")
        for portal in self._memory.portals:
            if portal is None or not portal.delayed:
                continue
            for msg in [msg for msg in portal.delayed if msg.rx is rx and msg.hdr.payload_length]:
                if msg in portal.delayed:
                    del portal.delayed[msg]
                    msg.rx = None
                    self._drop_delayed(msg, "its connection closed while it waited for a match")


def _may_wait(portal: Portal, hdr: Header) -> bool:
    """Whether an unmatched PUT waits for a match entry. On the reserved portal only pushes do."""
    if not portal.lazy or len(portal.delayed) >= MAX_DELAYED:
        return False
    return portal.index != PING_PORTAL or hdr.match_bits == PING_MATCH_BITS
