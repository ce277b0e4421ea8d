"""What becomes of a choice: counts by what decided it, turns, weights, and who follows the traffic."""

from __future__ import annotations

from ulnet.core.msg import Msg
from ulnet.core.selection.choice import NOT_MULTI_RAIL, NOT_TRIED, RESPONSE, SOURCE_GIVEN, Choice
from ulnet.core.selection.convoy import SAME_BATCH, SMALL, Convoy, count_many
from ulnet.core.selection.live import LiveTrace
from ulnet.core.state import NodeState

__all__ = ["Counting"]

_BOUND = frozenset({SOURCE_GIVEN, RESPONSE, NOT_MULTI_RAIL, NOT_TRIED})


class Counting:
    """The counting half of a `Selector`."""

    __slots__ = ("_state", "trace", "weighted")

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self.weighted = False  # some choice was by weight: all must be counted from then on
        self.trace: LiveTrace | None = None  # while somebody follows

    def took(self, choice: Choice, msg: Msg, size: int) -> None:
        """Count a choice: as a turn of all that it uses, and by what decided it."""
        if self._state.joining is not None:
            self._state.joining.settle()
        ni, pni, _, pni_by = choice
        peer = pni.peer
        if self.weighted and pni_by not in _BOUND:
            peer.standings[msg.cpt].take_turns(ni, pni)
        self.count(choice)
        if pni_by not in _BOUND:
            self.gather(choice, size, msg.cpt)
        if self.trace is not None and not self.trace.note(choice, msg, self._state.clock()):
            self.trace = None
            self._state.epoch += 1  # not any more

    def take_turns(self, choice: Choice, cpt: int) -> None:
        """Count a choice among the rails of a peer for weights, once there are some."""
        choice[1].peer.standings[cpt].take_turns(choice[0], choice[1])

    def count(self, choice: Choice) -> None:
        """Count a choice by what decided it, and as a turn; what joined others must be counted."""
        state = self._state
        ni, pni, ni_by, pni_by = choice
        peer = pni.peer
        ni.choices[ni_by] += 1
        pni.choices[pni_by] += 1
        state.seq = ni.net.seq = ni.seq = state.seq + 1
        peer.seq = pni.net.seq = pni.seq = peer.seq + 1

    def took_many(self, choice: Choice, count: int) -> None:
        """Count messages that took the only choice there was; nobody follows."""
        self._state.settle()
        count_many(self._state, choice, count)

    def gather(self, choice: Choice, size: int, cpt: int) -> Convoy | None:
        """Note a message that goes that way by load; those that it joined, or others may join."""
        ni, pni, ni_by, pni_by = choice
        peer = pni.peer
        convoy = peer.convoy
        if ni_by == SAME_BATCH or pni_by == SAME_BATCH:
            if convoy is not None:
                convoy.add(size)
            return convoy
        standing = peer.standings.get(cpt)
        state = self._state
        if not ni.batches or size > SMALL or standing is None or standing.epoch != state.epoch:
            return None
        joined = standing.joined(ni, pni)
        if joined is None:
            return None
        if convoy is None:
            convoy = peer.convoy = Convoy(state, joined)
        convoy.begin(joined, size, cpt)
        return convoy
