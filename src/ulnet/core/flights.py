"""Messages under way count as load of their paths until their delivery is known (core/flow.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulnet.core.flow import Flight, Flow
from ulnet.core.gather import Gather
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi
from ulnet.wire.lnet import HEADER_SIZE, NO_WMD, MsgType

if TYPE_CHECKING:
    from ulnet.core.health import Health

__all__ = ["Flights", "load_of"]

_PUT = int(MsgType.PUT)
_GET = int(MsgType.GET)


class Flights(Gather):
    """Where messages take off and land."""

    __slots__ = ("health",)

    health: Health  # set by it: it judges failures and decides what is sent again

    def take_off(self, msg: Msg, ni: NI, pni: PeerNi, now: float) -> None:
        """Count msg on its path until its delivery is known: by the answer, where there is one."""
        if self._state.landing is not None:
            self._state.land()
        flight = msg.flight = self.flight(ni, pni, load_of(msg))
        flight.begin(now)
        if msg.md is not None and awaits_answer(msg):
            msg.md.flights.append(flight)

    def flight(self, ni: NI, pni: PeerNi, load: int) -> Flight:
        """That of messages from ni to pni that put so many bytes on their path."""
        pair = pni.flows.get(ni)
        if pair is None:
            pair = pni.flows[ni] = Flow(pni.peer.paces)
        peer = pni.peer.flows.get(ni)
        if peer is None:
            peer = pni.peer.flows[ni] = self.health.rates.flow(ni, pni.peer)
        return Flight(pair, peer, load)

    def land_many(self, run: list[Msg], now: float) -> None:
        """Messages of one way have left, in order; of most nothing more is to be heard.

        They keep their flights, for what comes out of a lane's pool sets out on the same again.
        """
        begin, end = 0, len(run)
        last = run[-1].flight
        while begin < end:
            flight = run[begin].flight
            stop = end
            if flight is not last:  # if it is, those between have it too: no lane goes back to a former one
                stop = begin + 1
                while stop < end and run[stop].flight is flight:
                    stop += 1
            if flight is not None and not awaits_answer(run[begin]):  # the same for all of one flight
                flight.land_many(stop - begin, now)
            begin = stop

    def land(self, msg: Msg, failed: bool) -> None:
        flight = msg.flight
        if flight is None:
            return
        msg.flight = None
        if msg.md is not None and awaits_answer(msg):
            if failed and flight in msg.md.flights:
                msg.md.flights.remove(flight)
                flight.abandon()
        elif failed:
            flight.abandon()
        else:
            flight.land(self._state.clock())


def load_of(msg: Msg) -> int:
    """The bytes that a message puts on its path: a GET counts with what it asks for."""
    hdr = msg.hdr
    return HEADER_SIZE + (hdr.length if hdr.type == _GET else hdr.payload_length)


def awaits_answer(msg: Msg) -> bool:
    hdr = msg.hdr
    return hdr.type == _GET or (hdr.type == _PUT and hdr.wmd is not NO_WMD)
