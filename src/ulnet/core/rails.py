"""Lanes over several rails: what decides among them is weighed for each message, all else is kept.

The ways to one process (each from one NI to one NID of the peer) are lanes of their own, with pools, headers
and outlets; `Rails` holds what was asked for last, and which ways have been used (docs/design/hot-path.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ulnet.core.event import Event, EventKind
from ulnet.core.initiate import Initiate, fits_header
from ulnet.core.lane import NAMED, Lane, new_msg
from ulnet.core.md import Keeper, Md
from ulnet.core.memory import Memory
from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi
from ulnet.core.selection import Selector
from ulnet.core.selection.choice import Choice
from ulnet.core.state import NodeState
from ulnet.core.status import LNetError
from ulnet.core.transmit import Transmit
from ulnet.nid import LNET_PID
from ulnet.wire.lnet import HEADER_SIZE, LNET_MTU, NO_WMD, PING_PORTAL, Header, MsgType

__all__ = ["ACK_TRACKED", "RailLanes", "Rails"]

ACK_TRACKED: Final = 2  # in `response_tracking`

_PUT: Final = int(MsgType.PUT)


class Rails(Keeper):
    """The ways to the process of a peer that is known by one of its NIDs, and the last request to it."""

    __slots__ = (
        "ack",
        "changes",
        "cpt",
        "dest",
        "epoch",
        "hdr_data",
        "load",
        "match_bits",
        "md",
        "mds",
        "offset",
        "paces",
        "peer",
        "pid",
        "portal",
        "request",
        "single",
        "tracked",
        "ways",
        "wmd",
    )

    def __init__(self, dest: PeerNi, epoch: int, cpt: int, pid: int) -> None:
        self.dest = dest
        self.epoch = epoch
        self.peer = dest.peer
        self.paces = self.peer.paces
        self.changes = self.paces.changes
        self.cpt = cpt
        self.pid = pid
        self.ways: dict[NI, dict[PeerNi, Lane]] = {}
        self.request = 0  # counts them
        self.load = 0  # of its messages, bytes with the header
        self.single = False  # of a descriptor that is for one message (`Singles`)
        self.md: Md | None = None
        self.mds: set[Md] = set()  # that may have messages in the pools of ways
        self.wmd = NO_WMD
        self.portal = self.match_bits = self.offset = self.hdr_data = 0
        self.ack = False
        self.tracked = False  # its answer is waited for

    def ask(
        self,
        load: int,
        wmd: bytes,
        portal: int,
        match_bits: int,
        ack: bool,
        offset: int,
        hdr_data: int,
        tracked: bool,
    ) -> None:
        """The next messages are other ones than the last."""
        self.request += 1
        self.load = load
        self.wmd = wmd
        self.portal = portal
        self.match_bits = match_bits
        self.ack = ack
        self.offset = offset
        self.hdr_data = hdr_data
        self.tracked = tracked

    def forget(self, md: Md) -> None:
        self.mds.discard(md)
        if self.md is md:
            self.md = None
        for ways in self.ways.values():
            for way in ways.values():
                way.forget(md)

    def close(self) -> None:
        """Hold nothing any more; what is under way goes on."""
        self.md = None
        for ways in self.ways.values():
            for way in ways.values():
                way.close()
        for md in self.mds:
            md.let_go(self)
        self.mds.clear()


class RailLanes:
    """Sends by them. `put` and `open` say whether that was possible."""

    __slots__ = ("_general", "_is_plain", "_memory", "_selector", "_state", "_transmit")

    def __init__(
        self,
        state: NodeState,
        memory: Memory,
        selector: Selector,
        transmit: Transmit,
        general: Initiate,
        is_plain: Callable[[Md, PeerNi], bool],
    ) -> None:
        self._state = state
        self._memory = memory
        self._selector = selector
        self._transmit = transmit
        self._general = general
        self._is_plain = is_plain

    def put(
        self,
        rails: Rails,
        md: Md,
        portal: int,
        match_bits: int,
        ack: bool,
        offset: int,
        hdr_data: int,
        pid: int,
    ) -> bool:
        """Send all of md's memory, if one of these lanes does; False, and nothing is done, else."""
        state = self._state
        if (
            rails.epoch != state.epoch
            or rails.changes != rails.paces.changes
            or (ack and not self._is_plain(md, rails.dest))
        ):
            return False
        if not (
            md is rails.md
            and match_bits == rails.match_bits
            and hdr_data == rails.hdr_data
            and portal == rails.portal
            and offset == rails.offset
            and ack == rails.ack
            and pid == rails.pid
        ) and not self._take_request(rails, md, portal, match_bits, ack, offset, hdr_data, pid):
            return False
        threshold = md.threshold
        if not threshold:
            return False
        way = self._choose(rails)
        if way is None:
            return False
        ni, pni = way.ni, way.pni
        if threshold > 0:
            md.threshold = threshold - 1
        md.refs += 1
        md.ni = ni
        free = way.free
        msg = free.pop() if free else new_msg(way)
        hdr = way.hdr
        if msg.hdr is not hdr or msg.md is not md:
            assert hdr is not None
            msg.md = md
            msg.hdr = hdr
            msg.payload = md.fragments
            msg.kept_event = way.event
            msg.flight = way.flight
        flight = way.flight
        assert flight is not None
        now = state.clock()
        flight.begin(now)
        if ack:
            if md.next_nid is not pni.nid:
                self._memory.went(md, pni.nid)
            md.flights.append(flight)
            md.acks_due += 1
            if not md.used:
                md.put = msg
            md.sent_at = now
            if rails.tracked:
                self._memory.track_again(md, now)
        transmit = self._transmit
        transmit.post_in_lane(msg, way, now)
        if transmit.among_rails and way.run:
            transmit.gather(way, now)
        return True

    def single(
        self,
        rails: Rails,
        length: int,
        portal: int,
        match_bits: int,
        ack: bool,
        offset: int,
        hdr_data: int,
        now: float,
    ) -> Lane | None:
        """The way, counted, for a message with memory of its own; None, and nothing is done, else."""
        if rails.epoch != self._state.epoch or rails.changes != rails.paces.changes:
            return None
        load = HEADER_SIZE + length
        if not (
            rails.single
            and load == rails.load
            and match_bits == rails.match_bits
            and hdr_data == rails.hdr_data
            and portal == rails.portal
            and offset == rails.offset
            and ack == rails.ack
        ):
            if (
                length > LNET_MTU
                or rails.pid != LNET_PID
                or portal == PING_PORTAL
                or not fits_header(portal, match_bits, offset, hdr_data, LNET_PID)
            ):
                return None
            rails.md = None
            rails.single = True
            tracked = ack and self._state.settings.response_tracking & ACK_TRACKED != 0
            rails.ask(load, NAMED if ack else NO_WMD, portal, match_bits, ack, offset, hdr_data, tracked)
        way = self._choose(rails)
        if way is not None and way.flight is not None:
            way.flight.begin(now)
        return way

    def _choose(self, rails: Rails) -> Lane | None:
        """The way of the next message, which counts; None if it is not for these lanes."""
        selector, peer = self._selector, rails.peer
        self._state.settle()
        choice = selector.by_load(peer, rails.load, rails.cpt)
        if choice is None:
            choice = selector.choose(rails.dest, size=rails.load, cpt=rails.cpt)
        ways = rails.ways.get(choice[0])
        way = None if ways is None else ways.get(choice[1])
        if way is None or way.request != rails.request:
            way = self._way(rails, choice, way)
            if way is None:
                return None
        if selector.weighted:
            selector.take_turns(choice, rails.cpt)
        selector.count(choice)
        if way.flight is None:  # it may be the first there
            way.flight = self._transmit.flight(way.ni, way.pni, rails.load)
        convoy = selector.gather(choice, rails.load, rails.cpt)
        if convoy is not None:  # the next ones like that join it as if there were no other way
            convoy.open(way)
            rails.dest.lane = way
        return way

    def open(self, dest: PeerNi, cpt: int, pid: int) -> bool:
        """Make the lanes to that NID of a peer that is not known to have one way only."""
        if not dest.peer.multi_rail:
            return False
        try:
            self._selector.choose(dest, cpt=cpt)
        except LNetError:  # no way at all: the general way tells of it, by events
            return False
        dest.rails = Rails(dest, self._state.epoch, cpt, pid)
        return True

    def _take_request(
        self,
        rails: Rails,
        md: Md,
        portal: int,
        match_bits: int,
        ack: bool,
        offset: int,
        hdr_data: int,
        pid: int,
    ) -> bool:
        """Note what is asked for now; False if that is not for these lanes."""
        if (
            not md.linked
            or md.aborted
            or md.me is not None
            or md.cpt != rails.cpt
            or pid != rails.pid
            or portal == PING_PORTAL
            or not fits_header(portal, match_bits, offset, hdr_data, pid)
            or (md.timeout is not None and not ack)
        ):
            return False
        if rails.md is not md:
            rails.md = md
            rails.mds.add(md)
            md.keep(rails)
        rails.single = False
        wmd = self._memory.wmd_of(md) if ack else NO_WMD
        tracked = ack and self._general.is_tracked(md, portal)
        rails.ask(HEADER_SIZE + md.length, wmd, portal, match_bits, ack, offset, hdr_data, tracked)
        return True

    def _way(self, rails: Rails, choice: Choice, way: Lane | None) -> Lane | None:
        """That way, with the header of the last request; None if nobody may go there without being seen."""
        ni, pni = choice[0], choice[1]
        state, md = self._state, rails.md
        target = rails.dest.nid
        if way is None:
            if ni.watched or pni.watched or len(ni.tx_queues) > 1:
                return None
            way = Lane(choice, target, state.epoch, rails.cpt, rails.pid, None)
            way.counted = True
            rails.ways.setdefault(ni, {})[pni] = way
        elif way.run and state.joining is not None:
            state.joining.part()  # what joined had another header
        length = rails.load - HEADER_SIZE
        # fmt: off
        way.hdr = Header(_PUT, pni.nid, ni.nid, rails.pid, state.pid, length, rails.wmd, rails.match_bits,
                         rails.hdr_data, rails.portal, rails.offset)
        told = way.hdr
        if pni.nid != target:
            told = Header(_PUT, target, ni.nid, rails.pid, state.pid, length, rails.wmd, rails.match_bits,
                          rails.hdr_data, rails.portal, rails.offset)
        # fmt: on
        way.event = None
        if md is not None:
            way.event = Event(EventKind.SEND, md, told, mlength=length, rlength=length, offset=rails.offset)
        way.portal = rails.portal
        way.match_bits = rails.match_bits
        way.offset = rails.offset
        way.hdr_data = rails.hdr_data
        way.tracked = rails.tracked
        if way.md is not md:
            way.md = md
            way.until = 0.0
        if way.load != rails.load:
            way.load = rails.load
            way.outlet = None
            way.flight = None
        elif rails.ack != way.ack:
            way.flight = None
        way.ack = rails.ack
        way.request = rails.request
        return way
