"""What is under way on each path, counted until its delivery is known (core/path_load.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulnet.core.msg import ANSWERS, Msg
from ulnet.core.ni import NI
from ulnet.core.path import Path
from ulnet.core.path_load import InFlight, PathLoad, take_answered
from ulnet.core.peer import PeerNi
from ulnet.core.state import NodeState
from ulnet.wire.lnet import NO_WMD

if TYPE_CHECKING:
    from ulnet.core.parts import Parts

__all__ = ["Loads"]


class Loads:
    """Counts messages as load of their paths: by the answer where there is one, else by their completion.

    Small messages to a peer that has one path only are not counted (`Path.counts`): they say nothing of its
    rate.
    """

    __slots__ = ("_count", "_parts", "_state", "answered")

    def __init__(self, state: NodeState, parts: Parts) -> None:
        self._state = state
        self._parts = parts
        self.answered: InFlight | None = None  # of what was answered last, …
        self._count = 0  # … so many messages are not counted off yet

    def answer(self, in_flight: list[InFlight], pair: PathLoad | None) -> None:
        """An answer over `pair` came, for one of those: it counts off with the next `settle`."""
        one = in_flight.pop(0) if in_flight[0].pair is pair else take_answered(in_flight, pair)
        if one is not self.answered:
            self.settle()
            self.answered = one
            self._count = 0
        self._count += 1

    def settle(self) -> None:
        """Count off what was answered, before anybody looks at loads or adds to them."""
        answered = self.answered
        if answered is not None:
            self.answered = None
            answered.answered(self._state.clock(), self._count)

    def begin(self, path: Path, msgs: list[Msg], now: float) -> None:
        """Messages of one header set out on their path, to a peer with several rails."""
        in_flight = path.in_flight
        if in_flight is None:
            in_flight = path.in_flight = self._in_flight(path.ni, path.peer_ni, path.load)
        if self.answered is not None:
            self.settle()
        in_flight.begin(now, len(msgs))
        answered = msgs[0].awaits_answer  # all of them, or none
        for msg in msgs:
            msg.in_flight = in_flight
            if answered and msg.md is not None:
                msg.md.in_flight.append(in_flight)

    def _in_flight(self, ni: NI, pni: PeerNi, load: int) -> InFlight:
        pair = pni.path_loads.get(ni)
        if pair is None:
            pair = pni.path_loads[ni] = PathLoad(pni.peer.rates)
        peer = pni.peer.path_loads.get(ni)
        if peer is None:
            peer = pni.peer.path_loads[ni] = self._parts.path_load(ni, pni.peer)
        return InFlight(pair, peer, load)

    def on_hop(self, ni: NI, pni: PeerNi, msg: Msg, load: int, now: float) -> None:
        """msg, whose path another NI has chosen, sets out on that pair."""
        in_flight = msg.in_flight = self._in_flight(ni, pni, load)
        in_flight.begin(now)
        if msg.md is not None and msg.awaits_answer:
            msg.md.in_flight.append(in_flight)

    def left(self, msgs: list[Msg], now: float) -> None:
        """Messages of one kind have left: of those without an answer nothing more is to be heard."""
        over: InFlight | None = None  # of so many …
        count = 0
        answers = msgs[0].hdr.type in ANSWERS
        for msg in msgs:
            in_flight = msg.in_flight
            if in_flight is None:
                continue
            msg.in_flight = None
            if msg.wmd is not NO_WMD and msg.md is not None and not answers:
                continue
            if in_flight is not over:
                if over is not None:
                    over.answered(now, count)
                over, count = in_flight, 0
            count += 1
        if over is not None:
            over.answered(now, count)

    def end(self, msg: Msg) -> None:
        """msg is not under way on its path any more, and was not delivered there."""
        in_flight = msg.in_flight
        if in_flight is None:
            return
        msg.in_flight = None
        md = msg.md
        if md is None or not msg.awaits_answer:
            in_flight.abandon()
        elif in_flight in md.in_flight:
            md.in_flight.remove(in_flight)
            in_flight.abandon()
