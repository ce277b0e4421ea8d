"""PUTs with memory of their own, of which one caller alone hears: what `await node.put` is made of.

They take the lanes (docs/design/hot-path.md) and share a header but for the handle, by which each is told
from all others. Their descriptors are used again: while all goes well they have no events, only `on_end`.
Whatever is out of the ordinary ends as every message does, with an event for their handler.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from ulnet.core.event import Event, EventKind
from ulnet.core.guard.identity import FIRST, MAX_NUMBER
from ulnet.core.initiate import fits_header
from ulnet.core.lane import Lane, new_msg
from ulnet.core.lanes import LIGHT, NAMED, Lanes
from ulnet.core.md import MAX_TIMEOUT, Buffer, Md, fragments_of
from ulnet.core.memory import Memory
from ulnet.core.msg import Msg
from ulnet.core.peer import PeerNi
from ulnet.core.rails import ACK_TRACKED
from ulnet.core.state import NodeState
from ulnet.core.transmit import Transmit
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.lnet import HEADER_SIZE, LNET_MTU, NO_WMD, PING_PORTAL, Header, MsgType

__all__ = ["Singles"]

_PUT: Final = int(MsgType.PUT)
_GET: Final = int(MsgType.GET)
_WMD: Final = struct.Struct("<QQ")
_FIRST: Final = bytes((FIRST,))
_STEP: Final = 4  # from one handle to the next


class Singles:
    """Those of one node."""

    __slots__ = ("_lanes", "_memory", "_prefix", "_state", "_transmit")

    def __init__(self, state: NodeState, memory: Memory, lanes: Lanes, transmit: Transmit) -> None:
        self._state = state
        self._memory = memory
        self._lanes = lanes
        self._transmit = transmit
        self._prefix = struct.pack("<Q", state.cookie)

    def put(
        self,
        md: Md,
        data: Buffer | Sequence[Buffer],
        target: Nid,
        portal: int,
        match_bits: int,
        ack: bool,
        offset: int,
        hdr_data: int,
        timeout: float | None,
    ) -> bool:
        """Send data, with a descriptor that is idle; False, and nothing is done, if that goes another way.

        `md.on_end` hears, once and later, how many bytes were taken (without ack: left), or md's handler of
        an event that tells why not. Only after the former md may be used again.
        """
        state = self._state
        pni = state.peers.by_nid.get(target)
        if pni is None or (timeout is not None and not 0 <= timeout <= MAX_TIMEOUT):
            return False
        try:
            fragments = [memoryview(data)] if isinstance(data, bytes) else fragments_of(data)
        except Exception:  # the general way says what is wrong with it
            return False
        length = fragments[0].nbytes if len(fragments) == 1 else sum([view.nbytes for view in fragments])
        if state.cpts.count > 1 and not self._is_near(fragments, pni):
            return False
        now = state.clock()
        lane = pni.lane
        if (
            lane is None
            or lane.epoch != state.epoch
            or lane.changes != lane.paces.changes
            or lane.md is not None
            or lane.hdr is None
            or length != lane.hdr.payload_length
            or match_bits != lane.match_bits
            or hdr_data != lane.hdr_data
            or portal != lane.portal
            or offset != lane.offset
            or ack != lane.ack
            or (lane.counted and not (lane.run and 0 < lane.pni.tx_credits <= lane.most + lane.run))
        ):
            lane = self._lane(pni, length, portal, match_bits, ack, offset, hdr_data, now)
            if lane is None:
                return False
        elif lane.counted:
            lane.run -= 1
        md.fragments = fragments
        md.length = length
        md.timeout = timeout
        md.refs = 1
        md.ni = lane.ni
        memory = self._memory
        memory.register(md)
        pni = lane.pni
        if md.next_nid is not pni.nid:
            memory.went(md, pni.nid)
        free = lane.free
        msg = free.pop() if free else new_msg(lane)
        hdr = lane.hdr
        assert hdr is not None
        msg.md = md
        msg.hdr = hdr
        msg.payload = fragments
        msg.kept_event = None
        flight = msg.flight = lane.flight
        if ack:
            if flight is not None:
                md.flights.append(flight)
            md.threshold = 1
            md.acks_due = 1
            md.put = msg
            md.sent_at = now
            msg.name = self._name(md, pni)
            if lane.tracked or timeout is not None:
                memory.track_again(md, now)
        else:
            md.threshold = 0
            if timeout is not None:
                memory.track_again(md, now)
        if lane.heavy:
            self._transmit.take_off(msg, lane.ni, pni, now)
        self._transmit.post_in_lane(msg, lane, now)
        return True

    def _lane(
        self,
        pni: PeerNi,
        length: int,
        portal: int,
        match_bits: int,
        ack: bool,
        offset: int,
        hdr_data: int,
        now: float,
    ) -> Lane | None:
        """The lane, or one of those over several rails, for the next messages; None: they go another way."""
        if self._transmit.gathering is not None:
            self._transmit.post_gathered()
        lane = self._lanes.open_to(pni.nid)
        if lane is not None:
            shaped = self._shape(lane, length, portal, match_bits, ack, offset, hdr_data)
            return None if shaped is None else lane
        rails = pni.rails
        if rails is None:
            return None
        return self._lanes.rails.single(rails, length, portal, match_bits, ack, offset, hdr_data, now)

    def _is_near(self, fragments: list[memoryview], pni: PeerNi) -> bool:
        """Whether the lanes there are for memory of that CPT."""
        cpt = self._state.cpt_of(fragments)
        lane, rails = pni.lane, pni.rails
        return (lane is None or lane.cpt == cpt) and (rails is None or rails.cpt == cpt)

    def drop(self, md: Md) -> None:
        """md, which is idle, will not be used again."""
        self._memory.forget_response(md)
        self._memory.left_hop(md)

    def _name(self, md: Md, pni: PeerNi) -> bytes:
        """The handle of the PUT from md: an identity, if the peer keeps them."""
        tag = pni.peer.guard
        number = md.handle // _STEP
        if tag and number < MAX_NUMBER:
            md.used = True
            return self._prefix + number.to_bytes(5, "big") + tag + _FIRST
        md.used = False
        return _WMD.pack(self._state.cookie, md.handle)

    def _shape(
        self, lane: Lane, length: int, portal: int, match_bits: int, ack: bool, offset: int, hdr_data: int
    ) -> Header | None:
        """Make the header of what is asked for now; None if that is not for the lane."""
        if (
            length > LNET_MTU
            or lane.pid != LNET_PID
            or portal == PING_PORTAL
            or not fits_header(portal, match_bits, offset, hdr_data, LNET_PID)
        ):
            return None
        # fmt: off
        hdr = Header(_PUT, lane.pni.nid, lane.ni.nid, LNET_PID, self._state.pid, length,
                     NAMED if ack else NO_WMD, match_bits, hdr_data, portal, offset)
        # fmt: on
        lane.hdr = hdr
        lane.md = lane.event = None
        lane.load = HEADER_SIZE + length
        lane.outlet = None
        lane.heavy = length > LIGHT and lane.pni.peer.multi_rail
        lane.flew = lane.flew or lane.heavy
        lane.portal = portal
        lane.match_bits = match_bits
        lane.offset = offset
        lane.hdr_data = hdr_data
        lane.ack = ack
        lane.tracked = ack and self._state.settings.response_tracking & ACK_TRACKED != 0
        return hdr

    # How it ends -------------------------------------------------------------------------------------

    def left(self, msg: Msg, md: Md) -> None:
        """It was sent."""
        if md.aborted or md.refs > 1 or (msg.name and not (md.acks_due or md.replies_due)):
            self._memory.complete(md, _send_event(msg, md))
            return
        md.refs = 0
        if md.replies_due:  # what has left is not sent again: nobody needs msg any more
            self._give_back(msg)
        elif msg.name:  # it is kept until the ACK is there: it may have to be sent again
            msg.final = True
            msg.committed = False
            msg.flight = None  # that of md stays until then
        else:
            self._give_back(msg)
            self._end(md, msg.hdr, msg.hdr.payload_length)

    def waiting(self, wmd: bytes) -> Md | None:
        """Who waits for the ACK with that handle, and for nothing else."""
        key = int.from_bytes(wmd[8:13], "big") * _STEP + 1 if wmd[15] else int.from_bytes(wmd[8:], "little")
        md = self._memory.mds.get(key)
        if md is None or md.on_end is None or md.refs or md.aborted or not md.acks_due:
            return None
        put = md.put
        if put is None or put.name != wmd or put.lane is None:
            return None
        return md

    def acknowledged(self, md: Md, mlength: int) -> None:
        """The ACK for one that is `waiting` is there."""
        put = md.put
        assert put is not None
        md.acks_due = 0
        self._give_back(put)
        self._end(md, put.hdr, mlength)

    @staticmethod
    def _give_back(msg: Msg) -> None:
        """All went well: msg may be used again."""
        lane = msg.lane
        if lane is not None and not lane.closed:
            msg.md = None
            msg.payload = []
            msg.name = b""
            msg.final = False
            msg.committed = True
            lane.free.append(msg)

    def _end(self, md: Md, hdr: Header, length: int) -> None:
        """All went well: md may be used again."""
        memory = self._memory
        memory.retire(md)
        on_end = md.on_end
        assert on_end is not None
        try:
            on_end(length)
        except BaseException as exc:
            memory.handler_failed(Event(EventKind.SEND, md, hdr, mlength=length), exc)

    def fetching(self, wmd: bytes) -> Md | None:
        """Who waits for the REPLY with that handle, and for nothing else."""
        md = self._memory.mds.get(int.from_bytes(wmd[8:], "little"))
        if md is None or md.on_end is None or md.refs or md.aborted or not md.replies_due:
            return None
        return md if wmd.startswith(self._prefix) else None

    def fetched(self, md: Md, hdr: Header) -> None:
        """The REPLY for one that is `fetching` is in its memory."""
        md.replies_due = 0
        self._end(md, hdr, hdr.payload_length)


def _send_event(msg: Msg, md: Md) -> Event:
    hdr = msg.hdr
    length = hdr.length if hdr.type == _GET else hdr.payload_length
    if msg.target is not None and msg.target != hdr.dest_nid:  # the event tells what was asked for
        hdr = hdr.copy()
        hdr.dest_nid = msg.target
    return Event(EventKind.SEND, md, hdr, mlength=length, rlength=length, offset=hdr.offset)
