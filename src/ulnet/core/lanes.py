"""The fast lane of messages: what is the same from one to the next is kept (docs/design/hot-path.md).

A lane is the way to one NID of a peer while there is only one, and nothing that the choice depends on has
changed. Its messages come out of a pool, share a header while they ask for the same, take their credits
as all others do, and end in batches. Whatever is out of the ordinary goes the general way.
"""

from __future__ import annotations

from typing import Final

from ulnet.core.event import Event, EventKind
from ulnet.core.initiate import Initiate, fits_header
from ulnet.core.lane import LIGHT, NAMED, Lane, new_msg
from ulnet.core.md import Md
from ulnet.core.memory import Memory
from ulnet.core.peer import PeerNi
from ulnet.core.rails import RailLanes
from ulnet.core.selection import Selector
from ulnet.core.state import NodeState
from ulnet.core.transmit import Transmit
from ulnet.nid import LNET_PID, LO_NID, Nid
from ulnet.wire.lnet import HEADER_SIZE, NO_WMD, PING_PORTAL, Header, MsgType

__all__ = ["LIGHT", "NAMED", "Lane", "Lanes"]

_PUT: Final = int(MsgType.PUT)
_ACK: Final = int(MsgType.ACK)


class Lanes:
    """Those of one node. `put` is what users call; where there is no lane it goes the general way."""

    __slots__ = ("_by_nid", "_general", "_memory", "_selector", "_state", "_transmit", "rails")

    def __init__(
        self, state: NodeState, memory: Memory, selector: Selector, transmit: Transmit, general: Initiate
    ) -> None:
        self._state = state
        self._by_nid = state.peers.by_nid
        self._memory = memory
        self._selector = selector
        self._transmit = transmit
        self._general = general
        self.rails = RailLanes(state, memory, selector, transmit, general, self._is_plain)

    def put(
        self,
        md: Md,
        target: Nid,
        portal: int,
        match_bits: int,
        *,
        ack: bool = True,
        offset: int = 0,
        hdr_data: int = 0,
        source: Nid | None = None,
        pid: int = LNET_PID,
        cpt: int | None = None,
    ) -> None:
        """Send all of md's memory; SEND and (with ack) ACK events follow. `cpt` is md's unless given.

        Raises LNetError: ENOENT (md), EINVAL (numbers), ERANGE (cpt), ESHUTDOWN.
        """
        state = self._state
        pni = self._by_nid.get(target)
        lane = None if pni is None else pni.lane
        if (
            lane is None
            or lane.epoch != state.epoch
            or lane.changes != lane.paces.changes
            or source is not None
            or cpt is not None
            or (
                ack
                and (not md.acks_due if md.used else lane.pni.peer.guard != b"")  # spares most the call
                and not self._is_plain(md, lane.pni)
            )
        ):
            self._put_elsewhere(pni, md, target, portal, match_bits, ack, offset, hdr_data, source, pid, cpt)
            return
        counted = lane.counted
        if (
            not (
                md is lane.md
                and match_bits == lane.match_bits
                and hdr_data == lane.hdr_data
                and portal == lane.portal
                and offset == lane.offset
                and ack == lane.ack
                and pid == lane.pid
            )
            and (counted or not self._shape(lane, md, portal, match_bits, ack, offset, hdr_data, pid))
        ) or (
            counted
            and not (
                (run := lane.run)
                and (
                    lane.gathered is not None
                    or lane.pni.tx_credits == lane.most + run  # nobody else took or gave back any
                    or 0 < lane.pni.tx_credits < lane.most + run
                )
            )
        ):
            self._put_elsewhere(pni, md, target, portal, match_bits, ack, offset, hdr_data, source, pid, cpt)
            return
        if md.threshold >= 0:
            self._take_one(md)
        md.refs += 1
        md.ni = lane.ni
        free = lane.free
        msg = free.pop() if free else new_msg(lane)
        hdr = lane.hdr
        if msg.hdr is not hdr or msg.md is not md:
            assert hdr is not None
            msg.md = md
            msg.hdr = hdr
            msg.payload = md.fragments
            msg.kept_event = lane.event
            msg.flight = lane.flight
        if counted:
            lane.run = run - 1
        if ack:
            if md.next_nid is not lane.next_nid:
                self._memory.went(md, lane.next_nid)
            if counted and lane.flight is not None:
                md.flights.append(lane.flight)
            md.acks_due += 1
            if not md.used:
                md.put = msg
        gathered = lane.gathered
        if gathered is not None:
            gathered.append(msg)
            if ack and md.deadline_slot < 0:
                self._transmit.expect(md, lane, lane.since)
            return
        transmit = self._transmit
        now = state.clock()
        if ack:
            transmit.expect(md, lane, now)
        if lane.heavy:
            transmit.take_off(msg, lane.ni, lane.pni, now)
        transmit.post_in_lane(msg, lane, now)

    def _take_one(self, md: Md) -> None:
        """One of the operations that md has left. Raises LNetError(ENOENT)."""
        if not md.threshold:
            self._general.check_usable(md)
        md.threshold -= 1

    def _put_elsewhere(
        self,
        pni: PeerNi | None,
        md: Md,
        target: Nid,
        portal: int,
        match_bits: int,
        ack: bool,
        offset: int,
        hdr_data: int,
        source: Nid | None,
        pid: int,
        cpt: int | None,
    ) -> None:
        """By the lanes over several rails, if there are any, else the general way."""
        if self._transmit.gathering is not None:
            self._transmit.post_gathered()
        if pni is not None and source is None and cpt is None:
            rails = pni.rails
            if rails is not None and self.rails.put(
                rails, md, portal, match_bits, ack, offset, hdr_data, pid
            ):
                return
        # fmt: off
        self._general.put(md, target, portal, match_bits, ack=ack, offset=offset, hdr_data=hdr_data,
                          source=source, pid=pid, cpt=cpt)
        # fmt: on
        if source is None and portal != PING_PORTAL:
            self.open(target, md.cpt if cpt is None else cpt, pid)

    def open_to(self, target: Nid) -> Lane | None:
        """The lane to that NID, as long as it holds."""
        pni = self._state.peers.by_nid.get(target)
        lane = None if pni is None else pni.lane
        if (
            lane is None
            or lane.counted
            or lane.epoch != self._state.epoch
            or lane.changes != lane.paces.changes
        ):
            return None
        return lane

    @staticmethod
    def _is_plain(md: Md, pni: PeerNi) -> bool:
        """Whether a PUT that is to be acknowledged has the handle of its memory, not one of its own."""
        if md.used:
            return md.refs > 0 or md.acks_due > 0
        return not pni.peer.guard

    def open(self, target: Nid, cpt: int, pid: int) -> None:
        """Make a lane to target, if there is only one way."""
        state = self._state
        dest = state.peers.by_nid.get(target)
        if dest is None:
            return
        changes = state.epoch + dest.peer.paces.changes  # neither ever falls
        if changes == dest.lane_none:
            return
        lane = dest.lane
        if lane is not None and lane.epoch + lane.changes == changes:
            return
        rails = dest.rails
        if rails is not None and rails.epoch + rails.changes == changes:
            return
        dest.close_lane()
        calm = self._is_calm(dest)
        choice = self._selector.only_choice(dest, cpt) if calm else None
        if calm and choice is None and self.rails.open(dest, cpt, pid):
            return
        if choice is None or choice[0].watched or choice[1].watched or len(choice[0].tx_queues) > 1:
            dest.lane_none = changes
        else:
            dest.lane = Lane(choice, dest.nid, state.epoch, cpt, pid, None)

    def _is_calm(self, dest: PeerNi) -> bool:
        """Whether nobody has to look at each message to that peer."""
        return (
            self._state.faults is None
            and self._selector.trace is None
            and self._transmit.routed is None
            and self._state.running
            and dest.peer.settled
            and dest.nid != LO_NID
        )

    def _shape(
        self,
        lane: Lane,
        md: Md,
        portal: int,
        match_bits: int,
        ack: bool,
        offset: int,
        hdr_data: int,
        pid: int,
    ) -> bool:
        """Make the header of what is asked for now; False if that is not for the lane."""
        if self._transmit.gathering is not None:
            self._transmit.post_gathered()
        length = md.length
        if (
            not md.linked
            or md.aborted
            or md.me is not None
            or md.cpt != lane.cpt
            or pid != lane.pid
            or portal == PING_PORTAL
            or not fits_header(portal, match_bits, offset, hdr_data, pid)
            or (md.timeout is not None and not ack)
        ):
            return False
        wmd = self._memory.wmd_of(md) if ack else NO_WMD
        state = self._state
        # fmt: off
        lane.hdr = Header(_PUT, lane.pni.nid, lane.ni.nid, pid, state.pid, length, wmd, match_bits,
                          hdr_data, portal, offset)
        told = Header(_PUT, lane.target, lane.ni.nid, pid, state.pid, length, wmd, match_bits,
                      hdr_data, portal, offset)
        # fmt: on
        lane.event = Event(EventKind.SEND, md, told, mlength=length, rlength=length, offset=offset)
        lane.load = HEADER_SIZE + length
        lane.outlet = None
        lane.heavy = length > LIGHT and lane.pni.peer.multi_rail
        lane.flew = lane.flew or lane.heavy
        if lane.md is not md:
            lane.md = md
            lane.mds.add(md)
            md.keep(lane)
            lane.until = 0.0
        lane.portal = portal
        lane.match_bits = match_bits
        lane.offset = offset
        lane.hdr_data = hdr_data
        lane.ack = ack
        lane.tracked = ack and self._general.is_tracked(md, portal)
        return True

    def gather(self, pni: PeerNi) -> None:
        """Handlers are called next, for messages from pni: what they send there is posted together."""
        self._transmit.gather(pni.lane, self._state.clock())

    def end_gathering(self) -> None:
        """They have been called."""
        self._transmit.end_gathering()

    # Acknowledgements ------------------------------------------------------------------------------

    def answers_to(self, dest: PeerNi, pid: int, source: Nid) -> Lane | None:
        """The lane of ACKs to dest and the process there from source, the NID that was asked."""
        state = self._state
        if not self._is_calm(dest):
            return None
        ni = state.nis.get(source)
        if ni is None or not ni.active or ni.watched or dest.watched or len(ni.tx_queues) > 1:
            return None
        choice = self._selector.choose(dest, source=source, response=True)
        return Lane(choice, dest.nid, state.epoch, 0, pid, source)

    def acknowledge(self, lane: Lane, hdr: Header, mlength: int, name: bytes = b"") -> None:
        """Answer the PUT with that header (and that handle, if one is given in place of the header's).

        Its ACK is another one than the last only if handle or length are.
        """
        ack = lane.hdr
        wmd = NAMED if name else hdr.wmd
        if ack is None or ack.length != mlength or ack.wmd != wmd or ack.match_bits != hdr.match_bits:
            # fmt: off
            ack = lane.hdr = Header(_ACK, lane.pni.nid, lane.ni.nid, lane.pid, self._state.pid, 0,
                                    wmd, hdr.match_bits, 0, 0, 0, mlength)
            # fmt: on
            lane.load = HEADER_SIZE
        free = lane.free
        msg = free.pop() if free else new_msg(lane)
        msg.hdr = ack
        msg.name = name
        state = self._state
        state.answers += 1
        lane.pni.answers += 1
        self._transmit.post_in_lane(msg, lane, state.clock())

    def acknowledge_many(self, lane: Lane, hdr: Header, mlength: int, count: int) -> None:
        """Answer that many PUTs with that header."""
        self.acknowledge(lane, hdr, mlength)
        ack = lane.hdr
        count -= 1
        if not count or ack is None:
            return
        free = lane.free
        msgs = free[-count:]
        del free[-count:]
        while len(msgs) < count:
            msgs.append(new_msg(lane))
        now = self._state.clock()
        for msg in msgs:
            msg.hdr = ack
            msg.name = b""
            msg.queued_at = now
        self._state.answers += count
        lane.pni.answers += count
        self._transmit.post_many_in_lane(msgs, lane)
