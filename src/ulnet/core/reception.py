"""The receiving half: judge a header, find its memory, answer (spec wire-lnet.md §4.5, md-me-eq.md §6)."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from ulnet.core.access import DENIED
from ulnet.core.answers import Answers
from ulnet.core.drops import FAULT_RULE, NOT_ASKED, REPEATED
from ulnet.core.event import Event, EventKind
from ulnet.core.faults import Fate, FaultInjector
from ulnet.core.guard.identity import MARKS
from ulnet.core.guard.receiver import ReceiverGuard
from ulnet.core.guard.receiver import Verdict as Repeat
from ulnet.core.guard.seen import NO_ACK
from ulnet.core.match import Match, Verdict
from ulnet.core.md import ACK_DISABLE, MANAGE_REMOTE, MAX_SIZE, TRUNCATE, Md
from ulnet.core.memory import Memory
from ulnet.core.msg import Incoming
from ulnet.core.ni import NI
from ulnet.core.path_load import take_answered
from ulnet.core.peer import PeerNi, may_be_peer
from ulnet.core.portal import NO_MATCH, PORTALS, Portal
from ulnet.core.receiver import Receiver, answers_left
from ulnet.core.refusals import NO_MEMORY, is_refusal, of_get, refusal, wording
from ulnet.core.selection.paths import PathSet
from ulnet.core.sender import Sender
from ulnet.core.state import NodeState
from ulnet.core.stats import Latency
from ulnet.core.status import HealthStatus
from ulnet.nid import LO_NID, Nid
from ulnet.wire.lnet import LNET_MTU, NO_WMD, PING_PORTAL, Header, MsgType

if TYPE_CHECKING:
    from ulnet.core.lnd import Master, Payload
    from ulnet.core.parts import Parts

__all__ = ["Reception"]

_ACK: Final = int(MsgType.ACK)
_PUT: Final = int(MsgType.PUT)
_GET: Final = int(MsgType.GET)
_REPLY: Final = int(MsgType.REPLY)
# Python 3.11 takes long to find the members of an enumeration.
_TAKE: Final = Verdict.TAKE
_DROP: Final = Verdict.DROP
_OK: Final = HealthStatus.OK
_PUT_EVENT: Final = EventKind.PUT
_GET_EVENT: Final = EventKind.GET
_ACK_EVENT: Final = EventKind.ACK
_REPLY_EVENT: Final = EventKind.REPLY
STRANGE_SOURCE: Final = "another node of that net sent it than its source"
UNVOUCHED: Final = "its sender has no certificate for its source, and is no gateway of ours to that net"
_MOST_PAYLOAD: Final = {_ACK: 0, _GET: 0, _PUT: LNET_MTU, _REPLY: LNET_MTU}  # other kinds nobody sends


class Reception:
    """Incoming messages of one node."""

    __slots__ = ("_kinds", "_parts", "answers", "faults", "guard", "memory", "sender", "state", "waits")

    def __init__(
        self,
        state: NodeState,
        faults: FaultInjector,
        memory: Memory,
        sender: Sender,
        answers: Answers,
        parts: Parts,
    ) -> None:
        self.state: NodeState = state
        self.faults: FaultInjector = faults
        self.memory: Memory = memory
        self.waits: list[float] = []  # seconds from requests to the answers that are being taken
        self.sender: Sender = sender
        self.answers: Answers = answers
        self._parts = parts
        self.guard: ReceiverGuard = ReceiverGuard(state.clock, state.cookie, state.secret)
        self._kinds = {_PUT: self._put, _GET: self._get, _ACK: self._ack, _REPLY: self._reply}

    def heard(self, ni: NI, hop: PeerNi) -> None:
        """Something came over that pair, of which one end is not well."""
        self._parts.heard(ni, hop)

    # What a header leads to ------------------------------------------------------------------------

    def judge(self, receiver: Receiver, hdr: Header) -> Match:
        """What becomes of messages with that header, until another generation."""
        state, ni = self.state, receiver.ni
        kind = hdr.type
        if hdr.payload_length > _MOST_PAYLOAD.get(kind, -1):
            return Match(hdr, Verdict.REFUSE)
        master = None
        if hdr.dest_nid != ni.nid:
            master = state.masters.get(hdr.dest_nid)  # over any NI: it may have been a slave at that time
            if master is None and (hdr.dest_nid.net == ni.nid.net or hdr.dest_nid in state.nis):
                return Match(hdr, Verdict.REFUSE)
        if not ni.active:
            return Match(hdr, Verdict.DROP, "the interface is shutting down")
        if not self._is_believed(receiver, hdr.src_nid):
            return Match(hdr, Verdict.DROP, UNVOUCHED)
        if hdr.dest_nid != ni.nid and master is None:
            return Match(hdr, Verdict.FORWARD)
        if self._is_strange(receiver, hdr.src_nid):
            return Match(hdr, Verdict.DROP, STRANGE_SOURCE)
        match = self._find_sender(receiver, hdr, master)
        if match.verdict is not Verdict.TAKE:
            return match
        self._find_object(match, receiver)
        sender, hop = match.sender, match.hop
        assert sender is not None
        assert hop is not None
        match.peer_generation = sender.peer.generation
        if hop is not sender:
            match.hop_generation = hop.peer.generation
        match.stamp = (
            state.generation.number
            + match.peer_generation.number
            + match.hop_generation.number
            + match.portal_generation.number
        )
        return match

    def _is_believed(self, receiver: Receiver, source: Nid) -> bool:
        """Whether who is connected may send in the name of that NID: by certificate, or as our gateway.

        Without a certificate that is so for NIDs of plain nets that have never shown one.
        """
        vouches = receiver.vouches
        if vouches is None:
            local = self.state.nets.get(source.net)
            needed = local is not None and local.needs_certificates
            known = self.state.peers.find_ni(source) if source != receiver.nid else None
            if not needed and (known is None or known.vouches is None):
                return True
        elif vouches(source):
            return True
        return self._parts.leads_over(receiver.nid, source.net)

    def _is_strange(self, receiver: Receiver, source: Nid) -> bool:
        """Whether a message for this node has a source that cannot be that of who sent it here."""
        state, ni = self.state, receiver.ni
        if source == receiver.nid or source == LO_NID or receiver.nid in state.nis:
            return False
        if source.net == ni.net.net or source in state.nis:
            return True
        masters = [master for nid, master in state.masters.items() if nid.net == source.net]
        return bool(masters) and not any(master.comes_by(source, receiver.nid) for master in masters)

    def _find_object(self, match: Match, receiver: Receiver) -> None:
        """What a message is about: memory of this node, or a request of its own."""
        hdr = match.hdr
        if hdr.type in (_PUT, _GET):
            self._find_memory(match, receiver)
        elif hdr.type == _ACK and is_refusal(hdr.length):
            match.verdict = Verdict.DROPPED
        else:
            self._find_request(match, receiver)

    def _find_sender(self, receiver: Receiver, hdr: Header, master: Master | None) -> Match:
        """The sender of a message for this node, and its hop; or why the message is dropped."""
        state, ni, src = self.state, receiver.ni, hdr.src_nid
        sender = state.peers.learn(src) if src != LO_NID or ni.nid == LO_NID else None
        if sender is None:
            why = "too many unknown peers" if may_be_peer(src) else "its source is no node"
            return Match(hdr, Verdict.DROP, why)
        if sender.preferred is None and not sender.peer.multi_rail and src.net == ni.nid.net:
            sender.preferred = ni.nid
            sender.peer.generation.invalidate("it knows one of our NIs")
        if receiver.nid == src and sender.vouches is None and receiver.vouches is not None:
            self._parts.certified(sender, receiver.vouches)
        match = Match(hdr, Verdict.TAKE, sender=sender)
        match.master = master
        if master is not None and src.net == hdr.dest_nid.net:
            match.hop = state.peers.learn(receiver.nid) or sender
        elif receiver.nid != src and src != LO_NID:
            over = self._parts.last_hop(ni, hdr, receiver.nid)
            if isinstance(over, str):
                return Match(hdr, Verdict.DROP, over, sender)
            match.hop = over
        return match

    def _find_memory(self, match: Match, receiver: Receiver) -> None:
        """The memory that a PUT or GET is for, where all that are like it are for the same."""
        hdr, sender = match.hdr, match.sender
        assert sender is not None
        kind = hdr.type
        portal = self._portal_of(match, receiver)
        if portal is None:
            return
        match.portal = portal
        match.portal_generation = portal.generation
        md = portal.first(hdr)
        if md is None or md.options & MAX_SIZE:
            return
        remote = md.options & MANAGE_REMOTE != 0
        length = hdr.payload_length if kind == _PUT else hdr.length
        offset = hdr.offset if remote else md.offset
        if offset + length > md.length or length > LNET_MTU:
            return
        if kind == _PUT:
            if len(md.fragments) != 1:
                return
            match.wants_ack = hdr.wmd != NO_WMD and not md.options & ACK_DISABLE
            if hdr.wmd[15] in MARKS and not match.wants_ack:  # what becomes of its resend is noted with care
                return
            match.moving = not remote
        elif not remote or hdr.portal == PING_PORTAL:  # a router looks at each ping before it is answered
            return
        match.md = md
        match.handle = md.handle
        match.offset = offset
        match.answers = self._answers(match, receiver, _ACK if kind == _PUT else _REPLY)
        # fmt: off
        match.event = Event(EventKind.PUT if kind == _PUT else EventKind.GET, md, hdr,
                            sender.peer.primary_nid, receiver.nid, length, hdr.payload_length, offset)
        # fmt: on

    def _portal_of(self, match: Match, receiver: Receiver) -> Portal | None:
        """The portal that such messages may reach; None: they are dropped, and the match says why."""
        hdr = match.hdr
        portal = self.memory.portals[hdr.portal] if hdr.portal < PORTALS else None
        if portal is None:
            match.why = NO_MEMORY
        elif self._is_admitted(receiver, hdr):
            return portal
        else:
            match.why = DENIED
        match.verdict = Verdict.DROP
        return None

    def _is_admitted(self, receiver: Receiver, hdr: Header) -> bool:
        """Whether the access lists let the source do that, and who sent it unless that is our gateway."""
        access, nid, source = self.state.access, receiver.nid, hdr.src_nid
        if nid in self.state.nis:
            return True
        if not access.admits(hdr, receiver.ni):
            return False
        if nid == source or not access.denies_by_name(nid, hdr, receiver.ni):
            return True
        return self._parts.leads_over(nid, source.net)

    def _answers(self, match: Match, receiver: Receiver, kind: int) -> PathSet:
        """The paths of answers to messages like that."""
        hdr, sender = match.hdr, match.sender
        assert sender is not None
        source = hdr.dest_nid if hdr.dest_nid != LO_NID else None
        via = receiver.nid if receiver.nid != hdr.src_nid else None
        return self.answers.paths(sender, kind, source, via, hdr.src_pid)

    def _find_request(self, match: Match, receiver: Receiver) -> None:
        """The request that an ACK or REPLY is for."""
        hdr, sender = match.hdr, match.sender
        assert sender is not None
        md = self.memory.find_wmd(hdr.wmd)
        if md is None or md.threshold >= 0 or hdr.wmd[15] or not md.has_asked(sender):
            return  # it takes one answer, and not the next
        match.md = md
        match.handle = md.handle
        kind, length = (
            (EventKind.ACK, hdr.length) if hdr.type == _ACK else (EventKind.REPLY, hdr.payload_length)
        )
        # fmt: off
        match.event = Event(kind, md, hdr, sender.peer.primary_nid, receiver.nid, length,
                            hdr.payload_length if kind is EventKind.REPLY else 0)
        # fmt: on

    # A header has arrived --------------------------------------------------------------------------

    def begin(self, receiver: Receiver, match: Match, hdr: Header, rx: Payload) -> int:
        """See `Receiver.begin`."""
        verdict, ni = match.verdict, receiver.ni
        taken = verdict is _TAKE
        if not taken and verdict is Verdict.REFUSE:
            return -errno.EPROTO
        if self.faults.active and ni.active and self._struck(receiver, hdr, rx):
            return 0
        if not taken and verdict is Verdict.FORWARD:
            self._parts.forward(ni, hdr, receiver.nid, rx)
            return 0
        sender, hop = match.sender, match.hop
        if sender is None or hop is None:
            self.drop(ni, None, hdr, rx, match.why)
            return 0
        if match.master is not None:
            match.master.heard(ni, hdr, receiver.nid)
            match.master.received(hdr.type, 1, hdr.payload_length)
        if taken or verdict is not _DROP or match.why is NO_MEMORY:
            hop.heard_at = self.state.clock()
            if ni.unhealthy or hop.unhealthy:
                self._parts.heard(ni, hop)
        if not taken:
            if verdict is _DROP:
                self.drop_request(ni, sender, hdr, rx, match.why, receiver.nid)
            else:
                self._was_dropped(receiver, sender, hdr)
        elif self._too_many_answers(sender, hop, hdr):
            self.drop(ni, sender, hdr, rx, "too many answers wait for this peer")
        else:
            self._kinds[hdr.type](receiver, match, hdr, rx)
        return 0

    def _too_many_answers(self, sender: PeerNi, hop: PeerNi, hdr: Header) -> bool:
        """Whether a message wants an answer more than may wait for where it came from."""
        wanted = hdr.type == _GET or (hdr.type == _PUT and hdr.wmd != NO_WMD)
        return wanted and answers_left(sender, hop, self.state.answers) <= 0

    def _struck(self, receiver: Receiver, hdr: Header, rx: Payload) -> bool:
        """Whether a fault rule drops the message or keeps it for a while."""
        fate = self.faults.receive(receiver.ni, hdr, rx, lambda: self._begin_again(receiver, hdr, rx))
        if fate is Fate.DROPPED:
            self.drop(receiver.ni, None, hdr, rx, FAULT_RULE)
        return fate is not Fate.PASSES

    def _begin_again(self, receiver: Receiver, hdr: Header, rx: Payload) -> None:
        if receiver.begin(hdr, rx):
            _pass_by(hdr, rx)

    def _incoming(self, receiver: Receiver, match: Match, hdr: Header, rx: Payload) -> Incoming:
        stats = self.state.stats
        stats.msgs_alloc += 1
        if stats.msgs_alloc > stats.msgs_max:
            stats.msgs_max = stats.msgs_alloc
        sender, hop = match.sender, match.hop
        assert sender is not None
        assert hop is not None
        incoming = Incoming(hdr, receiver.ni, sender, receiver.nid)
        incoming.hop = hop
        incoming.rx = rx
        receiver.ni.refs += 1
        sender.refs += 1
        return incoming

    def _put(self, receiver: Receiver, match: Match, hdr: Header, rx: Payload) -> None:
        sender, guard = match.sender, self.guard
        assert sender is not None
        named = hdr.wmd[15] in MARKS and guard.is_meant(hdr.wmd)
        if named and guard.is_repeated(hdr.wmd) and not self._admits(receiver, match, hdr, rx):
            return
        portal = match.portal
        assert portal is not None
        found = portal.match(hdr, sender.peer, match.md)
        if isinstance(found, str) and not (
            found is NO_MATCH and self._parts.may_wait(portal, hdr, receiver.nid)
        ):
            self.drop_request(receiver.ni, sender, hdr, rx, found, receiver.nid)
            return
        incoming = self._incoming(receiver, match, hdr, rx)
        incoming.answers = match.answers
        if named:
            guard.begins(incoming)
        if isinstance(found, str):
            portal.hold(incoming, self.state.clock())
        else:
            self.take(incoming, found)

    def take(self, incoming: Incoming, found: tuple[Md, int, int]) -> None:
        """The memory of a message is found: there goes its payload."""
        incoming.md, incoming.mlength, incoming.offset = found
        if incoming.hdr.portal == PING_PORTAL:
            self._parts.taken(incoming)
        self._receive_payload(incoming)

    def _receive_payload(self, incoming: Incoming) -> None:
        rlen = incoming.hdr.payload_length
        if not rlen:
            self.end(incoming, _OK, 0, "")
            return
        md, rx, mlength = incoming.md, incoming.rx, incoming.mlength
        assert md is not None
        assert rx is not None
        if md.arriving is not None:
            md.arriving.append(incoming)
        rx.take(incoming, md.slices(incoming.offset, mlength) if mlength else [], mlength, rlen)

    def _get(self, receiver: Receiver, match: Match, hdr: Header, rx: Payload) -> None:
        ni, sender, portal = receiver.ni, match.sender, match.portal
        assert sender is not None
        assert portal is not None
        if hdr.portal == PING_PORTAL and hdr.src_nid not in self.state.nis:
            self._parts.pinged(hdr.dest_nid)
        found = portal.match(hdr, sender.peer, match.md)
        if isinstance(found, str):
            self.drop_request(ni, sender, hdr, rx, found, receiver.nid)
            return
        md, mlength, offset = found
        self._count_received(ni, sender, hdr)
        payload = md.slices(offset, mlength) if mlength else []
        # fmt: off
        event = Event(_GET_EVENT, md, hdr, sender.peer.primary_nid, receiver.nid, mlength,
                      hdr.payload_length, offset)
        # fmt: on
        self.answers.reply(self._answers(match, receiver, _REPLY), [hdr.wmd], md, payload, event)

    def _ack(self, receiver: Receiver, match: Match, hdr: Header, rx: Payload) -> None:
        ni, sender = receiver.ni, match.sender
        assert sender is not None
        md = self.memory.find_wmd(hdr.wmd)
        if md is None or not md.acks_due or not md.has_asked(sender):
            self.drop(ni, sender, hdr, None, NOT_ASKED)
            return
        md.acks_due -= 1
        if hdr.wmd[15]:
            self.end_put(md)
        self._answered(md, ni.latency_ack, sender.latency_ack)
        self.load_answered(md, match.hop, ni)
        self._count_received(ni, sender, hdr)
        event = Event(_ACK_EVENT, md, hdr, sender.peer.primary_nid, receiver.nid, hdr.length)
        self.memory.complete(md, event)

    def _was_dropped(self, receiver: Receiver, sender: PeerNi, hdr: Header) -> None:
        """The peer dropped a request of ours, and says why: it has ended."""
        ni = receiver.ni
        get = of_get(hdr.length)
        md = self.memory.find_wmd(hdr.wmd)
        if md is None or not (md.replies_due if get else md.acks_due) or not md.has_asked(sender):
            self.drop(ni, sender, hdr, None, NOT_ASKED)
            return
        if get:
            md.replies_due -= 1
            self._answered(md, ni.latency_get, sender.latency_get)
        else:
            md.acks_due -= 1
            if hdr.wmd[15]:
                self.end_put(md)
            self._answered(md, ni.latency_ack, sender.latency_ack)
        self.load_answered(md, sender, ni)
        self._count_received(ni, sender, hdr)
        kind = EventKind.REPLY if get else EventKind.ACK
        event = Event(kind, md, hdr, sender.peer.primary_nid, receiver.nid)
        err, why = wording(hdr.length)
        self.state.drops.told(sender.nid, MsgType.GET if get else MsgType.PUT, hdr.match_bits, why)
        event.status = -err
        event.reason = f"the peer dropped it: {why}"
        self.memory.complete(md, event)

    def end_put(self, md: Md) -> None:
        """The PUT that has the handle of an ACK is over: it will not be sent again."""
        put, md.put = md.put, None
        if put is not None and not put.committed and put.path is not None:
            put.path.recycle(put)

    def _reply(self, receiver: Receiver, match: Match, hdr: Header, rx: Payload) -> None:
        ni, sender = receiver.ni, match.sender
        assert sender is not None
        md = self.memory.find_wmd(hdr.wmd)
        if md is None or not md.replies_due or not md.has_asked(sender):
            self.drop(ni, sender, hdr, rx, NOT_ASKED)
            return
        mlength = hdr.payload_length
        if mlength > md.length:
            if not md.options & TRUNCATE:
                self.drop(ni, sender, hdr, rx, "REPLY longer than its memory descriptor")
                return
            mlength = md.length
        md.replies_due -= 1
        md.refs += 1
        self._answered(md, ni.latency_get, sender.latency_get)
        incoming = self._incoming(receiver, match, hdr, rx)
        incoming.md = md
        incoming.mlength = mlength
        self._receive_payload(incoming)

    def _answered(self, md: Md, of_ni: Latency, of_peer: Latency) -> None:
        """The answer takes one operation of md; its time counts where somebody keeps track."""
        if md.deadline_slot >= 0:
            nsec = int((self.state.clock() - md.sent_at) * 1e9)
            of_ni.add(nsec)
            of_peer.add(nsec)
            self.memory.settle_response(md)
        if md.threshold > 0:
            md.threshold -= 1

    def load_answered(self, md: Md, hop: PeerNi | None, ni: NI) -> None:
        """An answer came over that pair: a request of md is under way no more."""
        if md.in_flight:
            loads = self.sender.loads
            loads.answer(md.in_flight, None if hop is None else hop.path_loads.get(ni))
            loads.settle()

    def _count_received(self, ni: NI, sender: PeerNi, hdr: Header) -> None:
        stats = self.state.stats
        kind = hdr.type
        stats.recv_count += 1
        stats.recv_length += hdr.payload_length
        of_ni, of_peer = ni.stats, sender.stats
        of_ni.received[kind] += 1
        of_peer.received[kind] += 1
        of_ni.received_bytes += hdr.payload_length
        of_peer.received_bytes += hdr.payload_length

    # The end ---------------------------------------------------------------------------------------

    def end(self, incoming: Incoming, status: HealthStatus, err: int, reason: str) -> None:
        """The payload of an incoming message is in memory, or never will be: `err` alone accuses nobody."""
        if incoming.ended:
            self.state.report(f"driver finalized a message twice: {incoming.hdr!r}")
            self.state.stats.drops["finalized twice"] += 1
            return
        incoming.ended = True
        incoming.rx = None  # which may hold this one and its memory: no cycle keeps them
        if incoming.transit is not None:
            self._parts.received(incoming, status)
            return
        ni, sender, md, hdr = incoming.ni, incoming.peer_ni, incoming.md, incoming.hdr
        assert md is not None
        self.release(incoming)
        is_put = hdr.type == _PUT
        kind = _PUT_EVENT if is_put else _REPLY_EVENT
        # fmt: off
        event = Event(kind, md, hdr, sender.peer.primary_nid, incoming.next_nid, incoming.mlength,
                      hdr.payload_length, incoming.offset)
        # fmt: on
        if status or err:
            self._parts.broken(ni, incoming.next_nid, status)
            event.status = -(err or errno.EIO)
            event.health = status
            event.reason = reason
        else:
            self._count_received(ni, sender, hdr)
        if md.in_flight and not is_put:
            asked = take_answered(md.in_flight, incoming.hop.path_loads.get(ni))
            asked.abandon() if event.status else asked.answered(self.state.clock())
        wants_ack = is_put and not status and hdr.wmd != NO_WMD and not md.options & ACK_DISABLE
        if incoming.identity:
            acked = wants_ack and not md.aborted  # what was given up is, too: its sender is told
            self.guard.ended(incoming, acked or not event.status, acked)
        self.memory.complete_one(md, event)
        if wants_ack and self.state.running and not md.aborted:
            self._acknowledge(sender, hdr, incoming.mlength, incoming.next_nid, incoming.answers)

    def _acknowledge(
        self, sender: PeerNi, hdr: Header, mlength: int, from_nid: Nid, paths: PathSet | None = None
    ) -> None:
        """Answer the PUT with that header, which came by way of from_nid; `paths`, if they are known."""
        if paths is None or not self.answers.is_valid(paths):  # its NID may belong to another peer by now
            now = self.state.peers.find_ni(sender.nid) or sender
            source = hdr.dest_nid if hdr.dest_nid != LO_NID else None
            via = from_nid if from_nid != hdr.src_nid else None
            paths = self.answers.paths(now, _ACK, source, via, hdr.src_pid)
        self.answers.acknowledge(paths, [hdr.wmd], hdr.match_bits, mlength)

    def reclaim(self, md: Md) -> None:
        """Throw away what is still to come into the memory of md."""
        for incoming in list(md.arriving or ()):
            if incoming.rx is not None and incoming.rx.abandon(incoming):
                self.end(incoming, _OK, errno.ECANCELED, "its memory was reclaimed")

    def release(self, incoming: Incoming) -> None:
        """A message needs its NI, its sender and its memory no more."""
        md = incoming.md
        if md is not None and md.arriving and incoming in md.arriving:
            md.arriving.remove(incoming)
        self.state.stats.msgs_alloc -= 1
        incoming.ni.refs -= 1
        incoming.peer_ni.refs -= 1

    def drop(self, ni: NI, sender: PeerNi | None, hdr: Header, rx: Payload | None, why: str) -> None:
        """Count a message that goes nowhere; its payload is still read off the connection."""
        self.state.drops.count(ni, sender, hdr, why)
        if rx is not None:
            _pass_by(hdr, rx)

    def drop_request(
        self, ni: NI, sender: PeerNi, hdr: Header, rx: Payload | None, why: str, from_nid: Nid
    ) -> None:
        """Drop a message for which there is no memory here; a peer that understands it is told so."""
        self.drop(ni, sender, hdr, rx, why)
        length = refusal(sender, hdr, why)
        hop = self.state.peers.find_ni(from_nid) or sender
        if length is not None and self.state.running and not self._too_many_answers(sender, hop, hdr):
            self._acknowledge(sender, hdr, length, from_nid)

    # Sent twice ------------------------------------------------------------------------------------

    def _admits(self, receiver: Receiver, match: Match, hdr: Header, rx: Payload) -> bool:
        """Whether a PUT that was sent twice is the first to come; else it is dropped, or in place of that."""
        guard, sender = self.guard, match.sender
        assert sender is not None
        verdict = guard.judge(hdr.wmd, receiver.nid)
        if verdict is Repeat.TAKE:
            return True
        first = guard.under_way[hdr.wmd[:15]] if verdict is Repeat.REPLACE else None
        if first is not None and first.peer_ni.peer is sender.peer:  # nobody else gets its place
            if first.md is None:
                self.memory.portal(first.hdr.portal).let_go(first)
                self._parts.drop_delayed(first, "sent again while it waited for a match")
                return True
            if self._replaces(first, hdr):
                incoming = self._incoming(receiver, match, hdr, rx)
                guard.begins(incoming)
                self.take(incoming, (first.md, first.mlength, first.offset))
                return False
        length = guard.outcome(hdr)
        self.drop(receiver.ni, sender, hdr, rx, REPEATED)
        if verdict is Repeat.ACKNOWLEDGE and length != NO_ACK and self.state.running:
            self._acknowledge(sender, hdr, length, receiver.nid)
        return False

    def _replaces(self, first: Incoming, hdr: Header) -> bool:
        """End a message whose payload is on its way; False if it stays."""
        old = first.hdr
        same = (old.payload_length, old.portal, old.match_bits) == (
            hdr.payload_length,
            hdr.portal,
            hdr.match_bits,
        )
        if not (same and first.rx is not None and first.rx.abandon(first)):
            return False
        first.ended = True
        self.release(first)
        return True

    # Faults ----------------------------------------------------------------------------------------

    def forget_rx(self, rx: Payload) -> None:
        """The connection died of messages that fault rules hold: their payload will never come."""
        if self.faults.active:
            for ni, hdr in self.faults.forget_rx(rx):
                self.drop(ni, None, hdr, None, "its connection closed while a fault rule held it")


def _pass_by(hdr: Header, rx: Payload) -> None:
    """Nothing comes of a message."""
    if hdr.payload_length:
        rx.take(None, [], 0, hdr.payload_length)
    elif hdr.type == _GET:
        rx.unanswered()
