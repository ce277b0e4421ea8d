"""Credits of NIs and peer NIs, and the queues of messages that wait for them (spec selection.md §8)."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ulnet.core.faults import Fate, FaultInjector
from ulnet.core.msg import ANSWERS, Msg
from ulnet.core.ni import NI, TxQueue
from ulnet.core.path import Path
from ulnet.core.peer import PeerNi
from ulnet.core.state import NodeState
from ulnet.core.status import HealthStatus
from ulnet.nid import LO_NID
from ulnet.wire.lnet import HEADER_SIZE

if TYPE_CHECKING:
    from ulnet.core.parts import Parts
    from ulnet.core.timers import Timer

__all__ = ["Credits"]

_PATROL: Final = 1.0  # seconds between looks at messages that wait
_AT_ONCE: Final = 64  # messages that leave in one turn of the loop


class Credits:
    """A message takes one credit of its peer NI, then one of its NI, and goes to the driver.

    Without a credit it waits in that object's queue, first in, first out, unless it is told to leave.
    Messages of one path take their credits, and give them back, together. What its driver has no connection
    for holds a credit of its peer NI only: peers that cannot be reached hold up no others. Nor do those that
    read no answers: while half of an NI's credits are held by answers, further answers need none.
    """

    __slots__ = ("_faults", "_parts", "_patrol", "_state", "_waited_for", "leaving")

    def __init__(self, state: NodeState, faults: FaultInjector, parts: Parts) -> None:
        self._state = state
        self._faults = faults
        self._parts = parts
        self._waited_for: dict[PeerNi, None] = {}  # those whose credits messages wait for, or did lately
        self._patrol: Timer | None = None  # when to look for messages that have waited for too long
        self.leaving: deque[Msg] = deque()  # they wait no more, and have their turn to set out anew, or end

    # Taking ----------------------------------------------------------------------------------------

    def take(self, path: Path, msgs: list[Msg], count: int, size: int) -> None:
        """`count` messages of `size` bytes in all set out: as many as may go to the driver; others wait."""
        ni, pni = path.ni, path.peer_ni
        ni.refs += count
        pni.refs += count
        pni.tx_queued_bytes += size
        if path.answers:
            pni.answers += count
            self._state.answers += count
        credits = pni.tx_credits = pni.tx_credits - count
        if credits < pni.min_tx_credits:
            pni.min_tx_credits = credits
        if credits < 0:
            may_go = max(count + credits, 0)
            for msg in msgs[may_go:]:
                pni.wait(msg)
            self._waited_for[pni] = None
            self._look_soon()
            if not may_go:
                return
            msgs, count = msgs[:may_go], may_go
        self._enter_ni(path, msgs, count, False)

    def _enter_ni(self, path: Path, msgs: list[Msg], count: int, waited: bool) -> None:
        """`count` messages have credits of their peer NI, and need those of the NI."""
        ni, queue = path.ni, path.queue
        needed = count
        if path.answers and not queue.waiting and path.needs(count) <= max(queue.credits, 0):
            needed = path.needs(count)
        credits = ni.tx_credits = ni.tx_credits - needed
        if credits < ni.min_tx_credits:
            ni.min_tx_credits = credits
        credits = queue.credits = queue.credits - needed
        if credits < 0 and needed == count:
            may_go = max(count + credits, 0)
            queue.waiting.extend(msgs[may_go:])
            self._look_soon()
            if not may_go:
                return
            msgs = msgs[:may_go]
        if path.answers:
            spare = min(needed, len(msgs)) - path.needs(len(msgs))  # where others wait, each paid
            ni.tx_credits += spare
            queue.credits += spare
            queue.answers += len(msgs)
        if waited:
            self._hand_over_late(path, msgs[0])
        elif ni.active and not self._faults.active:
            ni.lnd.send(ni, msgs)
        else:
            self._hand_over(path, msgs)

    # To the driver ---------------------------------------------------------------------------------

    def _hand_over(self, path: Path, msgs: list[Msg]) -> None:
        ni = path.ni
        if not ni.active:
            for msg in msgs:
                self._state.defer(self._turn_back, msg)
            return
        # Loopback has them where it receives, an NI that is made of others where one of these sends.
        if self._faults.active and ni.nid != LO_NID and ni.nid not in self._state.masters:
            msgs = [msg for msg in msgs if not self._struck(path, msg)]
            if not msgs:
                return
        ni.lnd.send(ni, msgs)

    def _hand_over_late(self, path: Path, msg: Msg) -> None:
        """The turn of a message that waited, or was kept by a fault rule, has come, unless it is over."""
        if self._is_over(msg, self._state.clock()):
            self._fail_over(msg)
            return
        try:
            self._hand_over(path, [msg])
        except Exception as error:  # who gave a credit back, or waits for one, has nothing to do with it
            self._state.call_failed(error)

    # Who waits for too long, or leaves -------------------------------------------------------------

    def _look_soon(self) -> None:
        """Messages begin to wait."""
        if self._patrol is None and self._state.running:
            self._patrol = self._state.timers.at(self._state.clock() + _PATROL, self._look)

    def close(self) -> None:
        """The node shuts down."""
        self._state.timers.cancel(self._patrol)
        self._patrol = None

    def _look(self) -> None:
        """End those that wait and are past their deadlines, or unlinked."""
        self._patrol, now = None, self._state.clock()
        self._take_waiting(None, None, lambda msg: self._is_over(msg, now))
        self._waited_for = {pni: None for pni in self._waited_for if pni.tx_queue}
        queues = (queue for ni in self._state.nis.values() for queue in ni.tx_queues)
        if self._waited_for or any(queue.waiting for queue in queues):
            self._look_soon()

    def leave(self, ni: NI | None, pni: PeerNi | None) -> None:
        """Messages that wait for credits of that NI, of that peer NI, or on that pair, set out anew, soon."""
        if pni is None or pni.tx_queued_bytes:
            self._take_waiting(ni, pni, _may_go_elsewhere)

    def _let_some_go(self) -> None:
        """So many end, or set out anew, in the next turn; all do when the node shuts down."""
        left = len(self.leaving)
        for _ in range(min(_AT_ONCE, left) if self._state.running else left):
            self._state.defer(self._let_one_go)
        if left:
            self._state.defer(self._let_some_go)

    def _let_one_go(self) -> None:
        if not self.leaving:
            return  # they did when CPTs were changed
        msg = self.leaving.popleft()
        self._settle(msg)
        if self._state.running and self._is_over(msg, self._state.clock()):
            self._fail_over(msg)
        else:
            self._parts.set_out_anew(msg)

    @staticmethod
    def _is_over(msg: Msg, now: float) -> bool:
        """Whether nobody wants a message to leave any more: it is past its deadline, or was unlinked."""
        md, ni = msg.md, msg.ni
        late = ni is not None and now > msg.queued_at + ni.patience
        if md is None:
            return late or (msg.transit is not None and now > msg.transit.deadline)
        return bool(md.aborted) or (late and md.timeout is None)

    def _fail_over(self, msg: Msg) -> None:
        if msg.md is not None and msg.md.aborted:
            text = "the memory descriptor was unlinked before the message left"
            self._parts.fail(msg, errno.ECANCELED, text)
            return
        assert msg.ni is not None
        text = f"it waited too long for its turn on {msg.ni.nid} to {msg.next_nid}"
        if msg.transit is not None:
            msg.transit.why = text
        self._parts.fail(msg, errno.ETIMEDOUT, text)

    def _struck(self, path: Path, msg: Msg) -> bool:
        """Whether a fault rule fails the message or keeps it for a while."""
        fate = self._faults.send(msg, path.ni, lambda: self._hand_over_late(path, msg))
        if isinstance(fate, HealthStatus):
            msg.unsent = False  # the status alone decides, as if the message had left
            text = "a fault rule dropped the message"
            self._state.defer(self._parts.completed, [msg], fate, errno.EIO, text)
        return fate is not Fate.PASSES

    def awaits_connection(self, msgs: list[Msg]) -> None:
        """Their driver has to connect first: who waits for credits of their NI has its turn, soon."""
        for msg in msgs:
            path = msg.path
            if path is None or msg.unconnected or not msg.committed:
                continue
            msg.unconnected = True
            queue = path.queue
            queue.answers -= path.answers
            path.ni.tx_credits += path.needs(1)
            queue.credits += path.needs(1)
            if queue.waiting:
                self._state.defer(self._serve_ni, queue, 1)

    def has_connection(self, msgs: list[Msg]) -> None:
        """They leave now. Where all credits of their NI are in use, others wait until these are done."""
        for msg in msgs:
            path = msg.path
            if path is not None and msg.unconnected:
                msg.unconnected = False
                path.ni.tx_credits -= path.needs(1)
                path.queue.credits -= path.needs(1)
                path.queue.answers += path.answers

    def _turn_back(self, msg: Msg) -> None:
        """The turn of msg came when its NI was gone."""
        self.give_back_of(msg)
        self._parts.set_out_anew(msg)

    # Giving back -----------------------------------------------------------------------------------

    def give_back(self, path: Path, count: int, size: int) -> None:
        """Messages, `size` bytes in all, are done with their path: others that wait have their turn."""
        ni, pni, queue = path.ni, path.peer_ni, path.queue
        ni.refs -= count
        pni.refs -= count
        pni.tx_queued_bytes -= size
        back = count
        if path.answers:
            pni.answers -= count
            self._state.answers -= count
            queue.answers -= count
            back = path.needs(count)
        ni.tx_credits += back
        queue.credits += back
        if queue.waiting:
            self._serve_ni(queue, back)
        pni.tx_credits += count
        if pni.tx_queue:
            self._serve_peer(pni, count)

    def give_back_of(self, msg: Msg) -> None:
        """Give the credits of one message back."""
        path = msg.path
        assert path is not None
        if msg.unconnected:
            self.has_connection([msg])
        msg.committed = False
        self.give_back(path, 1, msg.hdr.payload_length + HEADER_SIZE)

    def _serve_ni(self, queue: TxQueue, count: int) -> None:
        """Up to `count` messages that wait for a credit of the NI have their turn."""
        waiting = queue.waiting
        count = max(min(count, queue.credits + len(waiting)), 0)  # fewer, where others had theirs at once
        while waiting:
            path = waiting[0].path
            assert path is not None
            needed = path.needs(1)
            if needed > count:
                return
            count -= needed
            path.ni.tx_credits += 1 - needed
            queue.credits += 1 - needed
            queue.answers += path.answers
            self._hand_over_late(path, waiting.popleft())

    def _serve_peer(self, pni: PeerNi, count: int) -> None:
        """Up to `count` messages that wait for a credit of the peer NI have their turn."""
        waiting = pni.tx_queue
        while waiting and count:
            count -= 1
            msg = waiting.popleft()
            assert msg.path is not None
            self._enter_ni(msg.path, [msg], 1, True)

    def _take_waiting(self, ni: NI | None, pni: PeerNi | None, goes: Callable[[Msg], bool]) -> None:
        """Those messages leave all queues, if they go, and have their turn behind those that left before."""
        self._parts.uncork()
        waited: list[Msg] = []
        for one in (ni,) if ni is not None else self._state.nis.values():
            for queue in one.tx_queues:
                if queue.waiting:
                    out = _take_out(queue.waiting, None, pni, goes)
                    queue.credits += len(out)
                    one.tx_credits += len(out)
                    waited += out
                    self._state.defer(self._serve_ni, queue, 0)  # answers that need none may be first now
        on_nis = len(waited)
        for peer_ni in (pni,) if pni is not None else list(self._waited_for):
            if peer_ni.tx_queue:
                out = _take_out(peer_ni.tx_queue, ni, None, goes)
                peer_ni.tx_credits += len(out)
                waited += out
        for msg in waited:
            msg.committed = False
            msg.path = None  # an ACK that comes before it sets out anew must not take it for sent
        if waited and not self.leaving:
            self._state.defer(self._let_some_go)
        self.leaving += waited
        for msg in waited[:on_nis]:
            assert msg.peer_ni is not None
            msg.peer_ni.tx_credits += 1
            self._serve_peer(msg.peer_ni, 1)

    def _settle(self, msg: Msg) -> None:
        """A message that was taken out of a queue is none of its path's any more."""
        ni, pni, answers = msg.ni, msg.peer_ni, msg.hdr.type in ANSWERS
        assert ni is not None and pni is not None
        ni.refs -= 1
        pni.refs -= 1
        pni.tx_queued_bytes -= msg.hdr.payload_length + HEADER_SIZE
        pni.answers -= answers
        self._state.answers -= answers

    def change_cpts(self, ni: NI, cpts: tuple[int, ...]) -> None:
        """Give an NI other CPTs; what waited for it sets out anew at once, so that nothing overtakes it."""
        self._state.generation.invalidate("an NI has other CPTs")
        self._take_waiting(ni, None, lambda _: True)
        ni.replace_cpts(cpts)
        while self.leaving:
            self._let_one_go()


def _may_go_elsewhere(msg: Msg) -> bool:
    """Not so an answer from the NI that was asked, while that is well, to the NID that asked."""
    path, ni = msg.path, msg.ni
    if path is None or ni is None or not path.answers or msg.attempts is not None or path.route is not None:
        return True
    return path.source != ni.nid or ni.fatal or not ni.active


def _take_out(queue: deque[Msg], ni: NI | None, pni: PeerNi | None, goes: Callable[[Msg], bool]) -> list[Msg]:
    """Remove and return the messages of that NI or peer NI (None: any), if they go."""
    out = [m for m in queue if (ni is None or m.ni is ni) and (pni is None or m.peer_ni is pni) and goes(m)]
    if out:
        gone = set(out)
        stay = [msg for msg in queue if msg not in gone]
        queue.clear()
        queue.extend(stay)
    return out
