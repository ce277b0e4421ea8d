"""What becomes of a message that has come: put into its memory, dropped, acknowledged; and never twice."""

from __future__ import annotations

from ulnet.core.guard.notes import NO_ACK
from ulnet.core.guard.once import Once, Verdict
from ulnet.core.lnd import Payload
from ulnet.core.md import Md
from ulnet.core.memory import Memory
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi
from ulnet.core.state import NodeState
from ulnet.core.status import HealthStatus
from ulnet.core.transmit import Transmit
from ulnet.nid import LO_NID, Nid
from ulnet.wire.lnet import Header, MsgType

__all__ = ["Incoming"]

_ACK = int(MsgType.ACK)


class Incoming:
    """The steps that all kinds of incoming messages share."""

    __slots__ = ("_memory", "_once", "_state", "_transmit")

    def __init__(self, state: NodeState, memory: Memory, transmit: Transmit) -> None:
        self._state = state
        self._memory = memory
        self._transmit = transmit
        self._once = Once(state.clock, state.cookie)

    def finalize(self, msg: Msg, status: HealthStatus, err: int = 0, reason: str = "") -> None:
        """The payload of msg is in memory, or will never be."""
        raise NotImplementedError

    def acknowledge(self, hdr: Header, mlength: int, from_nid: Nid) -> None:
        """Answer the PUT with that header, which came by way of from_nid."""
        ack = Msg(
            Header(
                type=_ACK,
                dest_nid=hdr.src_nid,
                src_nid=hdr.dest_nid,
                dest_pid=hdr.src_pid,
                src_pid=self._state.pid,
                wmd=hdr.wmd,
                match_bits=hdr.match_bits,
                length=mlength,
            ),
            sending=True,
        )
        ack.src_spec = hdr.dest_nid if hdr.dest_nid != LO_NID else None
        ack.via = from_nid if from_nid != hdr.src_nid else None
        self._transmit.send(ack)

    def _incoming(self, ni: NI, pni: PeerNi, hdr: Header, from_nid: Nid) -> Msg:
        stats = self._state.stats
        stats.msgs_alloc += 1
        if stats.msgs_alloc > stats.msgs_max:
            stats.msgs_max = stats.msgs_alloc
        msg = Msg(hdr, sending=False)
        msg.ni = ni
        msg.peer_ni = pni
        msg.next_nid = from_nid
        ni.refs += 1
        pni.refs += 1
        return msg

    def _count_received(self, ni: NI, pni: PeerNi, hdr: Header) -> None:
        stats = self._state.stats
        kind = hdr.type
        stats.recv_count += 1
        stats.recv_length += hdr.payload_length
        ni.stats.received[kind] += 1
        pni.stats.received[kind] += 1

    def _deliver(self, msg: Msg, found: tuple[Md, int, int]) -> None:
        msg.md, msg.mlength, msg.offset = found
        self._receive_payload(msg)

    def _receive_payload(self, msg: Msg) -> None:
        rlen = msg.hdr.payload_length
        if not rlen:
            self.finalize(msg, HealthStatus.OK)
            return
        assert msg.md is not None
        assert msg.ni is not None
        buffers = msg.md.slices(msg.offset, msg.mlength) if msg.mlength else []
        msg.ni.lnd.recv(msg.ni, msg.rx, msg, buffers, msg.mlength, rlen)

    def _drop(self, ni: NI, pni: PeerNi | None, hdr: Header, rx: object, why: str) -> None:
        """Count a message that goes nowhere; its payload is still read off the connection."""
        stats = self._state.stats
        stats.drop_count += 1
        stats.drop_length += hdr.payload_length
        stats.drops[why] += 1
        ni.stats.dropped[hdr.type] += 1
        if pni is not None:
            pni.stats.dropped[hdr.type] += 1
        if hdr.payload_length and rx is not None:
            ni.lnd.recv(ni, rx, None, [], 0, hdr.payload_length)

    def _drop_delayed(self, msg: Msg, why: str) -> None:
        ni, pni = msg.ni, msg.peer_ni
        assert ni is not None
        assert pni is not None
        if msg.identity:
            self._once.ended(msg, False)
        self._state.stats.msgs_alloc -= 1
        ni.refs -= 1
        pni.refs -= 1
        self._drop(ni, pni, msg.hdr, msg.rx, why)

    def is_first(self, wmd: bytes) -> bool:
        """Whether the PUT with that identity is for this life, and neither a resend nor behind one."""
        once = self._once
        return wmd[13:] == once.first and not (once.resends and wmd[:15] in once.resends)

    def note(self, wmd: bytes) -> None:
        """A PUT that `is_first` was taken, whole, and is acknowledged."""
        self._once.notes.note(wmd)

    # Sent twice ------------------------------------------------------------------------------------

    def _admits(self, ni: NI, pni: PeerNi, hdr: Header, from_nid: Nid, rx: object) -> bool:
        """Whether a PUT that was sent twice is the first to come; else it is dropped, or in place of that."""
        verdict = self._once.judge(hdr.wmd)
        if verdict is Verdict.TAKE:
            return True
        if verdict is Verdict.REPLACE:
            first = self._once.under_way[hdr.wmd[:15]]
            if first.md is None:
                del self._memory.portal(first.hdr.portal).delayed[first]
                self._drop_delayed(first, "sent again while it waited for a match")
                return True
            if self._replaces(first, hdr):
                msg = self._incoming(ni, pni, hdr, from_nid)
                msg.rx = rx
                self._once.begins(msg)
                self._deliver(msg, (first.md, first.mlength, first.offset))
                return False
        length = self._once.outcome(hdr)
        self._drop(ni, pni, hdr, rx, "sent again, and was taken or may have been")
        if verdict is Verdict.ACKNOWLEDGE and length != NO_ACK and self._state.running:
            self.acknowledge(hdr, length, from_nid)
        return False

    def _replaces(self, first: Msg, hdr: Header) -> bool:
        """End a message whose payload is on its way; False if it stays."""
        ni, pni = first.ni, first.peer_ni
        assert ni is not None
        assert pni is not None
        old = first.hdr
        same = (old.payload_length, old.portal, old.match_bits) == (
            hdr.payload_length,
            hdr.portal,
            hdr.match_bits,
        )
        if not (same and isinstance(first.rx, Payload) and first.rx.abandon(first)):
            return False
        first.final = True
        self._state.stats.msgs_alloc -= 1
        ni.refs -= 1
        pni.refs -= 1
        return True
