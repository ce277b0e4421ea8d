"""Small messages join the way that was chosen for one before them, while that one waits to be written.

What waits together leaves by one call to the kernel, which costs more than any choice gains: a few KiB say
nothing of load. Only drivers that write so (`NI.batches`) have it, and only the balance "expected".

A lane lets alike messages join by counting down (`Lane.run`). They are counted for all to see when anybody
looks: before each choice, where rates are compared, and in `LNet.nis` and `LNet.peers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ulnet.core.selection.choice import Choice
from ulnet.wire.lnet import HEADER_SIZE

if TYPE_CHECKING:
    from ulnet.core.lane import Lane
    from ulnet.core.state import NodeState

__all__ = ["SAME_BATCH", "SMALL", "Convoy", "count_many"]

SAME_BATCH: Final = "same batch"
_MOST_MESSAGES: Final = 64
_MOST_BYTES: Final = 4096  # of payload, of all together
SMALL: Final = _MOST_BYTES + HEADER_SIZE  # others may join a message of that size, with its header


class Convoy:
    """The way that the last choice for a small message to a peer led to, and who may still join it there.

    A credit that the peer NI got back says that something has left: most likely these.
    """

    __slots__ = (
        "_bound",
        "_changes",
        "_cpt",
        "_epoch",
        "_lane",
        "_left",
        "_paces",
        "_room",
        "_state",
        "choice",
    )

    def __init__(self, state: NodeState, choice: Choice) -> None:
        self._state = state
        self._paces = choice[1].peer.paces
        self._lane: Lane | None = None  # whose messages join without asking
        self.choice = choice  # for those that join
        self._left = self._room = self._bound = self._cpt = 0
        self._epoch = self._changes = -1

    def begin(self, choice: Choice, size: int, cpt: int) -> None:
        """A message of `size` bytes, with its header, goes that way, and was the first to be asked to.

        Those that have joined the former ones must be counted.
        """
        self._let_go()
        self.choice = choice
        self._cpt = cpt
        self._epoch = self._state.epoch
        self._changes = self._paces.changes
        left = choice[0].tx_credits - 1
        if left >= _MOST_MESSAGES:
            left = _MOST_MESSAGES - 1
        elif left < 0:
            left = 0
        self._left = left
        self._room = _MOST_BYTES - size + HEADER_SIZE
        self._bound = choice[1].tx_credits - 1 - left  # more than these and `_left`: something left

    def takes(self, size: int, cpt: int, epoch: int) -> bool:
        """Whether a message of `size` bytes joins them."""
        left = self._left
        return (
            left > 0
            and size - HEADER_SIZE <= self._room
            and 0 < self.choice[1].tx_credits <= self._bound + left
            and cpt == self._cpt
            and epoch == self._epoch
            and self._changes == self._paces.changes
        )

    def add(self, size: int) -> None:
        """It does, and takes a credit next."""
        self.part()
        self._left -= 1
        self._room -= size - HEADER_SIZE

    def open(self, lane: Lane) -> None:
        """Messages of that lane may join by counting `run` down, while credits are at most it and `most`."""
        state = self._state
        if state.joining is not None:
            state.joining.part()
        state.joining = self._paces.joining = self
        self._lane = lane
        payload = lane.load - HEADER_SIZE
        credits = self._bound + self._left  # when it has taken its own
        run = self._left if not payload else min(self._left, self._room // payload)
        lane.run = lane.counted_to = run = min(run, credits) if credits > 0 else 0
        lane.most = credits - run

    def join_later(self) -> Lane | None:
        """The lane whose next messages may join before they take their credits, as many as there are."""
        lane = self._lane
        if lane is None:
            return None
        credits = self.choice[1].tx_credits
        if not 0 < credits <= lane.most + lane.run:
            return None
        without = lane.run - credits
        if without > 0:
            lane.run -= without
            lane.counted_to -= without
            lane.most += without
        return lane

    def settle(self) -> None:
        """Count those that have joined so."""
        lane = self._lane
        if lane is None:
            return
        count = lane.counted_to - lane.run
        if count:
            lane.counted_to = lane.run
            self._left -= count
            self._room -= count * (lane.load - HEADER_SIZE)
            count_many(self._state, self.choice, count)
            assert lane.flight is not None
            lane.flight.join(count)

    def part(self) -> None:
        """Nobody joins them without asking any more."""
        self.settle()
        self._let_go()

    def _let_go(self) -> None:
        lane = self._lane
        if lane is None:
            return
        lane.run = lane.counted_to = 0
        self._lane = None
        self._state.joining = self._paces.joining = None


def count_many(state: NodeState, choice: Choice, count: int) -> None:
    """Count that many equal choices by what decided them, and as turns."""
    ni, pni, ni_by, pni_by = choice
    peer = pni.peer
    ni.choices[ni_by] += count
    pni.choices[pni_by] += count
    state.seq = ni.net.seq = ni.seq = state.seq + count
    peer.seq = pni.net.seq = pni.seq = peer.seq + count
