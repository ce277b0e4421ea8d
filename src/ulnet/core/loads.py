"""What is under way on each path, counted until its delivery is known (core/flow.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulnet.core.flow import Flight, Flow
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.path import Path
from ulnet.core.peer import PeerNi
from ulnet.core.state import NodeState

if TYPE_CHECKING:
    from ulnet.core.parts import Parts

__all__ = ["Loads"]


class Loads:
    """Counts messages as load of their paths: by the answer where there is one, else by their completion.

    Small messages to a peer that has one path only are not counted (`Path.counts`): they say nothing of its
    rate.
    """

    __slots__ = ("_parts", "_state")

    def __init__(self, state: NodeState, parts: Parts) -> None:
        self._state = state
        self._parts = parts

    def begin(self, path: Path, msg: Msg, now: float) -> None:
        """msg sets out on its path, to a peer with several rails."""
        flight = path.flight
        if flight is None:
            flight = path.flight = self._flight(path.ni, path.peer_ni, path.load)
        flight.begin(now)
        msg.flight = flight
        if msg.md is not None and msg.awaits_answer:
            msg.md.flights.append(flight)

    def _flight(self, ni: NI, pni: PeerNi, load: int) -> Flight:
        pair = pni.flows.get(ni)
        if pair is None:
            pair = pni.flows[ni] = Flow(pni.peer.rates)
        peer = pni.peer.flows.get(ni)
        if peer is None:
            peer = pni.peer.flows[ni] = self._parts.flow(ni, pni.peer)
        return Flight(pair, peer, load)

    def on_hop(self, ni: NI, pni: PeerNi, msg: Msg, load: int, now: float) -> None:
        """msg, whose path another NI has chosen, sets out on that pair."""
        flight = msg.flight = self._flight(ni, pni, load)
        flight.begin(now)
        if msg.md is not None and msg.awaits_answer:
            msg.md.flights.append(flight)

    def left(self, msgs: list[Msg], now: float) -> None:
        """These have left: of those without an answer nothing more is to be heard."""
        for msg in msgs:
            flight = msg.flight
            if flight is not None:
                msg.flight = None
                if msg.md is None or not msg.awaits_answer:
                    flight.land(now)

    def end(self, msg: Msg) -> None:
        """msg is not under way on its path any more, and was not delivered there."""
        flight = msg.flight
        if flight is None:
            return
        msg.flight = None
        md = msg.md
        if md is None or not msg.awaits_answer:
            flight.abandon()
        elif flight in md.flights:
            md.flights.remove(flight)
            flight.abandon()
