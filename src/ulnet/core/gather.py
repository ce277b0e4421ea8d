"""PUTs that handlers ask for while a run of events is told: they are posted together behind it.

While one handler after the other is called nothing leaves, so credits, references and the like are taken in
sum. Whatever looks at them, or takes some, comes behind what was asked for before: it has that posted first
(`Credits.gathering`). See docs/design/hot-path.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ulnet.core.credits import Credits
from ulnet.core.deadlines import end_of
from ulnet.core.state import NodeState
from ulnet.wire.lnet import HEADER_SIZE

if TYPE_CHECKING:
    from ulnet.core.lane import Lane
    from ulnet.core.md import Md
    from ulnet.core.memory import Memory
    from ulnet.core.msg import Msg

__all__ = ["Gather"]


class Gather(Credits):
    """Messages of one lane, gathered from a run of handlers."""

    __slots__ = ("_memory", "among_rails")

    def __init__(self, state: NodeState, memory: Memory) -> None:
        super().__init__(state)
        self._memory = memory
        self.among_rails = False  # handlers are called, and each choice they cause is one to gather behind

    def gather(self, lane: Lane | None, now: float) -> None:
        """Several handlers are called next: what they send by that lane is kept until `post_gathered`.

        If that is one of several ways, or None: by the way that messages join without a choice, which each
        choice moves (`RailLanes.put`).
        """
        if self.gathering is not None:
            self.post_gathered()
        if lane is None or lane.counted:
            self.among_rails = True
            joining = self._state.joining
            lane = None if joining is None else joining.join_later()
        if lane is None or lane.heavy or lane.md is None:
            return
        lane.gathered = []
        lane.since = now
        self.gathering = lane

    def end_gathering(self) -> None:
        """They have been called."""
        self.among_rails = False
        self.post_gathered()

    def post_gathered(self) -> None:
        lane = self.gathering
        if lane is None:
            return
        self.gathering = None
        msgs, lane.gathered = lane.gathered, None
        if not msgs:
            return
        now = self._state.clock()
        md = lane.md
        if lane.ack and md is not None:
            md.sent_at = now
            if md.deadline_slot >= 0:
                self.expect(md, lane, now)
        # Read before the first and behind the last: where those between are evenly apart the sum is right.
        middle = (lane.since + now) / 2
        for msg in msgs:
            msg.queued_at = middle
        if len(msgs) > 1:
            msgs[0].queued_at, msgs[-1].queued_at = lane.since, now
        self.post_many_in_lane(msgs, lane)

    def expect(self, md: Md, lane: Lane, now: float) -> None:
        """An answer to what md sends now; the next messages will keep its place in the deadlines."""
        md.sent_at = now
        if not lane.tracked:
            return
        if now >= lane.until or md.wheel_slot != lane.slot:
            self._memory.track_again(md, now)
            lane.slot = md.wheel_slot
            lane.until = now + end_of(lane.slot) - self._memory.deadline_of(md, now)
        elif md.deadline_slot < 0:
            md.deadline_slot = lane.slot
            self._state.stats.rst_alloc += 1

    def post_many_in_lane(self, msgs: list[Msg], lane: Lane) -> None:
        """Post several at once that have their time; in sum where none has to wait."""
        count = len(msgs)
        ni, pni, queue, outlet = lane.ni, lane.pni, lane.queue, lane.outlet
        if outlet is None or not outlet.sole or count > min(pni.tx_credits, ni.tx_credits, queue.credits):
            for msg in msgs:
                self.post_in_lane(msg, lane, msg.queued_at)
            return
        stats = self._state.stats
        stats.msgs_alloc += count
        if stats.msgs_alloc > stats.msgs_max:
            stats.msgs_max = stats.msgs_alloc
        ni.refs += count
        pni.refs += count
        pni.tx_queued_bytes += count * lane.load
        credits = pni.tx_credits = pni.tx_credits - count
        if credits < pni.min_tx_credits:
            pni.min_tx_credits = credits
        credits = ni.tx_credits = ni.tx_credits - count
        if credits < ni.min_tx_credits:
            ni.min_tx_credits = credits
        queue.credits -= count
        outlet.tx_queue.extend(msgs)
        outlet.tx_bytes += count * (lane.load + outlet.head_size - HEADER_SIZE)
        if outlet.tx_idle:
            outlet.kick()
