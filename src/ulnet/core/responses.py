"""Answers that are due: who waits for one, from which next hop, and until when (spec md-me-eq.md §4).

What a broken connection, or a node's new life, has to do with is found by the next hop, and not among all.
"""

from __future__ import annotations

from ulnet.core.deadlines import slot_of
from ulnet.core.md import Md
from ulnet.core.state import NodeState
from ulnet.nid import Nid

__all__ = ["Responses"]


class Responses:
    """The descriptors of one node that await answers, by their deadlines and by their next hops."""

    __slots__ = ("_hops", "_state", "mds")

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self.mds: dict[int, Md] = {}
        self._hops: dict[Nid, dict[Md, None]] = {}  # by where their last message went

    # Until when --------------------------------------------------------------------------------------

    def track_response(self, md: Md, now: float) -> None:
        """Expect an answer for md within its timeout, else the transaction timeout (seconds)."""
        self.forget_response(md)
        md.deadline_slot = md.wheel_slot = self._state.deadlines.add(md.key, self.deadline_of(md, now), md)

    def deadline_of(self, md: Md, now: float) -> float:
        """When an answer to what md sends now is overdue."""
        return now + (md.timeout if md.timeout is not None else self._state.settings.transaction_timeout)

    def track_again(self, md: Md, now: float) -> None:
        """Await the answer of one of many messages, most of which find md where it was for the one before."""
        timeout = md.timeout
        slot = slot_of(now + (self._state.settings.transaction_timeout if timeout is None else timeout))
        if slot != md.wheel_slot:
            self.track_response(md, now)
        else:
            md.deadline_slot = slot

    def settle_response(self, md: Md) -> None:
        """The response came, but more messages like that one are to be expected: md keeps its place."""
        md.deadline_slot = -1

    def forget_response(self, md: Md) -> None:
        """The response came, or nobody waits for it any more."""
        self.settle_response(md)
        if md.wheel_slot >= 0:
            self._state.deadlines.discard(md.key, md.wheel_slot)
            md.wheel_slot = -1
        md.until = 0.0

    def count_awaited(self) -> int:
        """How many descriptors await a response now."""
        return sum([md.deadline_slot >= 0 for md in self.mds.values()])

    @property
    def awaits_any(self) -> bool:
        """Whether any descriptor awaits a response."""
        return any(md.deadline_slot >= 0 for md in self.mds.values())

    # From where --------------------------------------------------------------------------------------

    def went(self, md: Md, nid: Nid) -> None:
        """A message of md goes by the next hop nid."""
        if md.next_nid == nid:
            return
        self.left_hop(md)
        md.next_nid = nid
        there = self._hops.get(nid)
        if there is None:
            there = self._hops[nid] = {}
        there[md] = None

    def left_hop(self, md: Md) -> None:
        """Nothing of md is under way any more."""
        nid = md.next_nid
        if nid is None:
            return
        md.next_nid = None
        there = self._hops.get(nid)
        if there is not None:
            there.pop(md, None)
            if not there:
                del self._hops[nid]

    def at_hop(self, nid: Nid | None) -> list[Md]:
        """The descriptors whose last message went by that next hop (None: any), the longest there first."""
        hops = self._hops.values() if nid is None else (self._hops.get(nid, {}),)
        return [md for there in hops for md in there]

    def awaits(self, nid: Nid) -> bool:
        """Whether an answer is due for something that left for that next hop."""
        return any(md.deadline_slot >= 0 for md in self._hops.get(nid, ()))
