"""GETs that set out by lanes (docs/design/hot-path.md): as PUTs do, in lanes of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ulnet.core.event import Event, EventKind
from ulnet.core.initiate import REPLY_BIT, Initiate, fits_header
from ulnet.core.lane import LIGHT, NAMED, Lane, new_msg
from ulnet.core.lanes import Lanes
from ulnet.core.md import MAX_TIMEOUT, Buffer, Md, check_sink, fragments_of
from ulnet.core.memory import Memory
from ulnet.core.state import NodeState
from ulnet.core.transmit import Transmit
from ulnet.nid import LNET_PID, Nid
from ulnet.wire.lnet import HEADER_SIZE, LNET_MTU, PING_PORTAL, Header, MsgType

__all__ = ["Fetches"]

_GET: Final = int(MsgType.GET)


class Fetches:
    """Those of one node. `get` is what users call; where there is no lane it goes the general way."""

    __slots__ = ("_general", "_lanes", "_memory", "_state", "_transmit")

    def __init__(
        self, state: NodeState, memory: Memory, lanes: Lanes, transmit: Transmit, general: Initiate
    ) -> None:
        self._state = state
        self._memory = memory
        self._lanes = lanes
        self._transmit = transmit
        self._general = general

    def get(
        self,
        md: Md,
        target: Nid,
        portal: int,
        match_bits: int,
        *,
        offset: int = 0,
        source: Nid | None = None,
        pid: int = LNET_PID,
        cpt: int | None = None,
        exact: bool = False,
        via: Nid | None = None,
    ) -> None:
        """Ask for md.length bytes into md; SEND and REPLY events follow. `cpt` is md's unless given.

        `exact`: to that NID of the peer and no other; `via`: with `source`, over that gateway.
        Raises LNetError: ENOENT (md), EINVAL (numbers, read-only memory), ERANGE (cpt), ESHUTDOWN.
        """
        state = self._state
        pni = state.peers.by_nid.get(target)
        lane = None if pni is None else pni.fetches
        if (
            lane is None
            or lane.epoch != state.epoch
            or lane.changes != lane.paces.changes
            or source is not None
            or cpt is not None
            or exact
            or via is not None
            or not (
                (
                    md is lane.md
                    and match_bits == lane.match_bits
                    and portal == lane.portal
                    and offset == lane.offset
                    and pid == lane.pid
                )
                or self._shape(lane, md, portal, match_bits, offset, pid)
            )
        ):
            if self._transmit.gathering is not None:
                self._transmit.post_gathered()
            # fmt: off
            self._general.get(md, target, portal, match_bits, offset=offset, source=source, pid=pid, cpt=cpt,
                              exact=exact, via=via)
            # fmt: on
            if source is None and not exact and portal != PING_PORTAL:
                self._open(target, md.cpt if cpt is None else cpt, pid)
            return
        threshold = md.threshold
        if threshold >= 0:
            if not threshold:
                self._general.check_usable(md)
            md.threshold = threshold - 1
        md.refs += 1
        md.replies_due += 1
        md.ni = lane.ni
        if md.next_nid is not lane.pni.nid:
            self._memory.went(md, lane.pni.nid)
        free = lane.free
        msg = free.pop() if free else new_msg(lane)
        hdr = lane.hdr
        if msg.hdr is not hdr or msg.md is not md:
            assert hdr is not None
            msg.md = md
            msg.hdr = hdr
            msg.kept_event = lane.event
            msg.name = b""
        now = state.clock()
        transmit = self._transmit
        transmit.expect(md, lane, now)
        if lane.heavy:
            transmit.take_off(msg, lane.ni, lane.pni, now)
        transmit.post_in_lane(msg, lane, now)

    def fetch(
        self,
        md: Md,
        buffer: Buffer | Sequence[Buffer],
        target: Nid,
        portal: int,
        match_bits: int,
        offset: int,
        timeout: float | None,
    ) -> bool:
        """Fill buffer, with a descriptor that is idle; False, and nothing is done, if that goes another way.

        `md.on_end` hears, once and later, how many bytes came, or md's handler of an event: that of a REPLY
        that took another way, or one that tells why there is none. Only after the former is md idle again.
        """
        state = self._state
        pni = state.peers.by_nid.get(target)
        lane = None if pni is None else pni.fetches
        if (
            pni is None
            or lane is None
            or lane.epoch != state.epoch
            or lane.changes != lane.paces.changes
            or (timeout is not None and not 0 <= timeout <= MAX_TIMEOUT)
        ):
            return False
        try:
            fragments = fragments_of(buffer)
        except Exception:  # the general way says what is wrong with it
            return False
        length = fragments[0].nbytes if len(fragments) == 1 else sum([view.nbytes for view in fragments])
        hdr = lane.hdr
        if not (
            lane.md is None
            and hdr is not None
            and length == hdr.length
            and match_bits == lane.match_bits
            and portal == lane.portal
            and offset == lane.offset
        ):
            if lane.pid != LNET_PID or portal == PING_PORTAL or length > LNET_MTU:
                return False
            if not fits_header(portal, match_bits, offset, 0, LNET_PID):
                return False
            hdr = self._shape_named(lane, length, portal, match_bits, offset)
        for view in fragments:
            if view.readonly:
                return False
        if state.cpts.count > 1 and state.cpt_of(fragments) != lane.cpt:
            return False
        md.fragments = fragments
        md.length = length
        md.timeout = timeout
        md.refs = md.threshold = md.replies_due = 1
        md.ni = lane.ni
        memory = self._memory
        memory.register(md)
        if md.next_nid is not lane.pni.nid:
            memory.went(md, lane.pni.nid)
        free = lane.free
        msg = free.pop() if free else new_msg(lane)
        msg.md = md
        msg.hdr = hdr
        msg.kept_event = None
        msg.name = memory.wmd_of(md)
        md.sent_at = now = state.clock()
        if lane.tracked or timeout is not None:
            memory.track_again(md, now)
        if lane.heavy:
            self._transmit.take_off(msg, lane.ni, lane.pni, now)
        self._transmit.post_in_lane(msg, lane, now)
        return True

    def _open(self, target: Nid, cpt: int, pid: int) -> None:
        """Make a lane to target, if there is one for PUTs."""
        lanes = self._lanes
        lanes.open(target, cpt, pid)
        lane = lanes.open_to(target)
        dest = self._state.peers.by_nid.get(target)
        if lane is None or dest is None or lane.cpt != cpt or lane.pid != pid:
            return
        before = dest.fetches
        if before is not None:
            if before.epoch == lane.epoch and before.changes == lane.changes:
                return
            before.close()
        dest.fetches = fetches = Lane(lane.choice, lane.target, lane.epoch, cpt, pid, None)
        fetches.kind = _GET

    def _shape(self, lane: Lane, md: Md, portal: int, match_bits: int, offset: int, pid: int) -> bool:
        """Make the header of what is asked for now; False if that is not for the lane."""
        if (
            not md.linked
            or md.aborted
            or md.me is not None
            or md.cpt != lane.cpt
            or pid != lane.pid
            or portal == PING_PORTAL
            or not fits_header(portal, match_bits, offset, 0, pid)
        ):
            return False
        check_sink(md)
        wmd = self._memory.wmd_of(md)
        length = md.length
        # fmt: off
        told = Header(_GET, lane.target, lane.ni.nid, pid, self._state.pid, 0, wmd, match_bits,
                      0, portal, offset, length)
        # fmt: on
        self._ask(lane, wmd, length, portal, match_bits, offset)
        lane.event = Event(EventKind.SEND, md, told, mlength=length, rlength=length, offset=offset)
        if lane.md is not md:
            lane.md = md
            lane.mds.add(md)
            md.keep(lane)
            lane.until = 0.0
        lane.tracked = self._general.is_tracked(md, portal, REPLY_BIT)
        return True

    def _shape_named(self, lane: Lane, length: int, portal: int, match_bits: int, offset: int) -> Header:
        """The same for messages that have each a name."""
        lane.md = lane.event = None
        lane.tracked = self._state.settings.response_tracking & REPLY_BIT != 0
        return self._ask(lane, NAMED, length, portal, match_bits, offset)

    def _ask(self, lane: Lane, wmd: bytes, length: int, portal: int, match_bits: int, offset: int) -> Header:
        # fmt: off
        hdr = Header(_GET, lane.pni.nid, lane.ni.nid, lane.pid, self._state.pid, 0, wmd, match_bits,
                     0, portal, offset, length)
        # fmt: on
        lane.hdr = hdr
        lane.load = HEADER_SIZE
        lane.heavy = length > LIGHT and lane.pni.peer.multi_rail
        lane.flew = lane.flew or lane.heavy
        lane.portal = portal
        lane.match_bits = match_bits
        lane.offset = offset
        return hdr
