"""Credits of NIs and peer NIs, and the queues of messages that wait for them (spec selection.md §8)."""

from __future__ import annotations

import errno
from collections import deque
from typing import TYPE_CHECKING

from ulnet.core.faults import Fate
from ulnet.core.msg import Msg
from ulnet.core.ni import NI, TxQueue
from ulnet.core.peer import PeerNi
from ulnet.core.state import NodeState
from ulnet.core.status import HealthStatus
from ulnet.wire.lnet import HEADER_SIZE, MsgType

if TYPE_CHECKING:
    from ulnet.core.lane import Lane

__all__ = ["ANSWERS", "Credits"]

ANSWERS = (int(MsgType.ACK), int(MsgType.REPLY))


class Credits:
    """A message takes one credit of its peer NI, then one of its NI, and goes to the driver.

    Without a credit it waits in that object's queue, first in, first out, unless it is told to leave.
    """

    __slots__ = ("_state", "gathering")

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self.gathering: Lane | None = None  # whose messages are to be posted before anything else is

    def post_gathered(self) -> None:
        """Post what is gathered."""
        raise NotImplementedError

    def fail(self, msg: Msg, err: int, reason: str) -> None:
        """End msg, soon."""
        raise NotImplementedError

    def finalize(self, msg: Msg, status: HealthStatus, err: int = 0, reason: str = "") -> None:
        """The driver is done with msg."""
        raise NotImplementedError

    def relaunch(self, msg: Msg, ni: NI | None = None, pni: PeerNi | None = None) -> None:
        """Send msg, which holds nothing and has left that pair, by another path."""
        raise NotImplementedError

    def _post(self, msg: Msg, ni: NI, pni: PeerNi) -> None:
        if self.gathering is not None:
            self.post_gathered()
        msg.committed = True
        ni.refs += 1
        pni.refs += 1
        pni.tx_queued_bytes += msg.hdr.payload_length + HEADER_SIZE
        if msg.hdr.type in ANSWERS:
            pni.answers += 1
            self._state.answers += 1
        credits = pni.tx_credits - 1
        pni.tx_credits = credits
        if credits < pni.min_tx_credits:
            pni.min_tx_credits = credits
        if credits < 0:
            pni.wait(msg)
            return
        self._post_on_ni(msg, ni)

    def post_in_lane(self, msg: Msg, lane: Lane, now: float) -> None:
        """The same for a message of a lane, which is complete but for what changes from one to the next."""
        if self.gathering is not None:
            self.post_gathered()
        msg.queued_at = now
        stats = self._state.stats
        allocated = stats.msgs_alloc = stats.msgs_alloc + 1
        if allocated > stats.msgs_max:
            stats.msgs_max = allocated
        ni, pni = lane.ni, lane.pni
        ni.refs += 1
        pni.refs += 1
        pni.tx_queued_bytes += lane.load
        credits = pni.tx_credits = pni.tx_credits - 1
        if credits < pni.min_tx_credits:
            pni.min_tx_credits = credits
        if credits < 0:
            pni.wait(msg)
            return
        credits = ni.tx_credits = ni.tx_credits - 1
        if credits < ni.min_tx_credits:
            ni.min_tx_credits = credits
        queue = lane.queue
        credits = queue.credits = queue.credits - 1
        outlet = lane.outlet
        if credits < 0:
            queue.waiting.append(msg)
        elif outlet is None or not outlet.sole:
            ni.lnd.send(ni, msg)
        else:
            outlet.tx_queue.append(msg)
            outlet.tx_bytes += lane.load + outlet.head_size - HEADER_SIZE
            if outlet.tx_idle:
                outlet.kick()

    def return_credits_of(self, run: list[Msg], lane: Lane, load: int) -> None:
        """The messages of a run, `load` bytes, have left by one lane."""
        if self.gathering is not None:
            self.post_gathered()
        count = len(run)
        ni, pni = lane.ni, lane.pni
        ni.refs -= count
        pni.refs -= count
        pni.tx_queued_bytes -= load
        ni.tx_credits += count
        if lane.epoch == self._state.epoch:
            queue = run[0].tx_queue
            queue.credits += count
            self._hand_over_waiting(queue, count, ni)
        else:  # the NI may have been given other queues meanwhile
            for msg in run:
                msg.tx_queue.credits += 1
                self._hand_over_waiting(msg.tx_queue, 1, ni)
        pni.tx_credits += count
        if pni.tx_queue:
            self._post_waiting(pni.tx_queue, count)

    def _hand_over_waiting(self, queue: TxQueue, count: int, ni: NI) -> None:
        """That many of those that wait for a credit of the NI have their turn."""
        waiting = queue.waiting
        while waiting and count:
            count -= 1
            self._hand_over_late(waiting.popleft(), ni)

    def _post_waiting(self, waiting: deque[Msg], count: int) -> None:
        """That many of those that wait for a peer NI have their turn."""
        now = self._state.clock()
        while waiting and count:
            count -= 1
            msg = waiting.popleft()
            ni = msg.ni
            assert ni is not None
            md = msg.md
            if msg.lane is None or not ni.active or now > msg.queued_at + ni.patience or self._state.faults:
                self._post_on_ni(msg, ni, waited=True)
                continue
            credits = ni.tx_credits = ni.tx_credits - 1
            if credits < ni.min_tx_credits:
                ni.min_tx_credits = credits
            queues = ni.tx_queues
            queue = msg.tx_queue = queues[0] if len(queues) == 1 else ni.queue_for(msg)
            credits = queue.credits = queue.credits - 1
            if credits < 0:
                queue.waiting.append(msg)
            elif md is not None and md.aborted:
                self._hand_over(msg, ni)
            else:
                ni.lnd.send(ni, msg)

    def _post_on_ni(self, msg: Msg, ni: NI, waited: bool = False) -> None:
        credits = ni.tx_credits - 1
        ni.tx_credits = credits
        if credits < ni.min_tx_credits:
            ni.min_tx_credits = credits
        queues = ni.tx_queues
        queue = msg.tx_queue = queues[0] if len(queues) == 1 else ni.queue_for(msg)
        queue.credits = credits = queue.credits - 1
        if credits < 0:
            queue.waiting.append(msg)
        elif waited:
            self._hand_over_late(msg, ni)
        else:
            self._hand_over(msg, ni)

    def _hand_over(self, msg: Msg, ni: NI) -> None:
        if not ni.active:
            self._state.defer(self._turn_back, msg, ni)
        elif msg.md is not None and msg.md.aborted:
            self.fail(msg, errno.ECANCELED, "the memory descriptor was unlinked before the message left")
        elif self._state.faults is None or not self._struck(msg, ni):
            ni.lnd.send(ni, msg)

    def _hand_over_late(self, msg: Msg, ni: NI) -> None:
        """The turn of a message that waited has come, unless it is past its deadline."""
        if self._state.clock() > msg.queued_at + ni.patience and (msg.md is None or msg.md.timeout is None):
            self.fail(msg, errno.ETIMEDOUT, f"it waited too long for its turn on {ni.nid} to {msg.next_nid}")
        else:
            self._hand_over(msg, ni)

    def _struck(self, msg: Msg, ni: NI) -> bool:
        """Whether a fault rule fails the message or keeps it for a while."""
        faults = self._state.faults
        assert faults is not None
        fate = faults.send(msg, ni, lambda: self._hand_over(msg, ni))
        if isinstance(fate, HealthStatus):
            msg.unsent = False  # the status alone decides, as if the message had left
            self._state.defer(self.finalize, msg, fate, errno.EIO, "a fault rule dropped the message")
        return fate is not Fate.PASSES

    def _return_credits(self, msg: Msg, ni: NI, pni: PeerNi) -> None:
        if self.gathering is not None:
            self.post_gathered()
        msg.committed = False
        ni.refs -= 1
        pni.refs -= 1
        pni.tx_queued_bytes -= msg.hdr.payload_length + HEADER_SIZE
        if msg.hdr.type in ANSWERS:
            pni.answers -= 1
            self._state.answers -= 1
        ni.tx_credits += 1
        queue = msg.tx_queue
        queue.credits = credits = queue.credits + 1
        if credits <= 0:
            self._hand_over_late(queue.waiting.popleft(), ni)
        pni.tx_credits = credits = pni.tx_credits + 1
        if credits <= 0:
            waiting = pni.tx_queue.popleft()
            assert waiting.ni is not None
            self._post_on_ni(waiting, waiting.ni, waited=True)

    def _let_go(self, msg: Msg, ni: NI, pni: PeerNi) -> None:
        msg.committed = False
        ni.refs -= 1
        pni.refs -= 1
        pni.tx_queued_bytes -= msg.hdr.payload_length + HEADER_SIZE
        if msg.hdr.type in ANSWERS:
            pni.answers -= 1
            self._state.answers -= 1

    def _return_peer_credit(self, pni: PeerNi) -> None:
        pni.tx_credits += 1
        if pni.tx_credits <= 0:
            waiting = pni.tx_queue.popleft()
            assert waiting.ni is not None
            self._post_on_ni(waiting, waiting.ni, waited=True)

    def change_cpts(self, ni: NI, cpts: tuple[int, ...]) -> None:
        """Give an NI other CPTs; what waits on it waits in the new queues, in the same order."""
        if self.gathering is not None:
            self.post_gathered()
        self._state.epoch += 1
        for msg in ni.replace_cpts(cpts):
            self._post_on_ni(msg, ni)

    # Leaving ---------------------------------------------------------------------------------------

    def leave(self, ni: NI | None, pni: PeerNi | None) -> None:
        """Messages that wait for credits of that NI, of that peer NI, or on that pair, set out anew."""
        if self.gathering is not None:
            self.post_gathered()
        on_nis: list[tuple[TxQueue, Msg]] = []
        for one in (ni,) if ni is not None else self._state.nis.values():
            for queue in one.tx_queues:
                if queue.waiting:
                    on_nis += [(queue, msg) for msg in _take_out(queue.waiting, None, pni)]
        on_peers: list[Msg] = []
        for peer_ni in (pni,) if pni is not None else self._state.peers.nis():
            if peer_ni.tx_queue:
                on_peers += _take_out(peer_ni.tx_queue, ni, None)
        for msg in on_peers:
            assert msg.peer_ni is not None
            msg.peer_ni.tx_credits += 1
        for queue, msg in on_nis:
            assert msg.ni is not None
            queue.credits += 1
            msg.ni.tx_credits += 1
        for _, msg in on_nis:
            assert msg.peer_ni is not None
            self._return_peer_credit(msg.peer_ni)
        for msg in [*(msg for _, msg in on_nis), *on_peers]:
            assert msg.ni is not None
            assert msg.peer_ni is not None
            self._let_go(msg, msg.ni, msg.peer_ni)
            self.land(msg, failed=True)
            self._state.defer(self._set_out_anew, msg, msg.ni)

    def leave_lane(self, msg: Msg) -> None:
        """msg goes the general way from now on, if it did not yet; there its header is its own."""
        raise NotImplementedError

    def _turn_back(self, msg: Msg, ni: NI) -> None:
        """The turn of msg came when its NI was gone."""
        assert msg.peer_ni is not None
        self._return_credits(msg, ni, msg.peer_ni)
        self.land(msg, failed=True)
        self._set_out_anew(msg, ni)

    def _set_out_anew(self, msg: Msg, ni: NI) -> None:
        self.leave_lane(msg)
        pni = msg.peer_ni
        msg.ni = msg.peer_ni = None
        if msg.src_spec == ni.nid and not ni.active and msg.hdr.type not in ANSWERS:
            self.fail(msg, errno.ENETDOWN, f"the local interface {ni.nid} was removed")
        else:
            self.relaunch(msg, ni, pni)

    def land(self, msg: Msg, failed: bool) -> None:
        """msg is not under way any more."""
        raise NotImplementedError


def _take_out(queue: deque[Msg], ni: NI | None, pni: PeerNi | None) -> list[Msg]:
    """Remove and return the messages of that NI or peer NI (None: any)."""
    chosen: list[Msg] = []
    for _ in range(len(queue)):
        msg = queue.popleft()
        if (ni is None or msg.ni is ni) and (pni is None or msg.peer_ni is pni):
            chosen.append(msg)
        else:
            queue.append(msg)
    return chosen
