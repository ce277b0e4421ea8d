"""The sending half of the guard: PUTs that may have been lost with their path go over another one, once.

What a driver still has may have left in part, and what has left is not answered yet: both are sent again
as copies, which say that they are. The owner of the memory hears of the original's end and of one ACK.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final

from ulnet.core.guard.identity import AGAIN, Guarded, again, is_identity
from ulnet.core.md import Md
from ulnet.core.memory import Memory
from ulnet.core.msg import Attempts, Msg
from ulnet.core.ni import NI
from ulnet.core.path_load import PathLoad, take_answered
from ulnet.core.peer import PeerNi
from ulnet.core.selection.criteria import is_stalled
from ulnet.core.state import NodeState
from ulnet.core.status import HealthStatus
from ulnet.nid import Nid
from ulnet.wire.lnet import NO_WMD, MsgType

if TYPE_CHECKING:
    from ulnet.core.parts import Parts

__all__ = ["SenderGuard"]

_PUT: Final = int(MsgType.PUT)
_LOOK_AGAIN: Final = 0.5  # seconds between looks for another path where there was none
_AT_ONCE: Final = 64  # copies in one turn of the loop


class SenderGuard:
    """PUTs under way, as far as the peer would notice one that it has already."""

    __slots__ = ("_doubts", "_memory", "_parts", "_state", "due", "stranded")

    def __init__(self, state: NodeState, memory: Memory, parts: Parts) -> None:
        self._state = state
        self._memory = memory
        self._parts = parts
        self._doubts: set[tuple[NI | None, Nid | None, Nid | None]] = set()
        self.stranded: dict[Msg, float] = {}  # PUTs that were queued then, and had no other path when lost
        self.due: dict[Msg, float] = {}  # those that may be lost, and have their turn to be copied soon

    # Before a message leaves -------------------------------------------------------------------------

    def identify(self, msg: Msg, peer: Guarded) -> bool:
        """Name msg for its peer, if that keeps identities.

        False if msg may be with another life of the peer already, so that this one must not get it.
        """
        md = msg.md
        if md is None or msg.wmd is NO_WMD or msg.template.type != _PUT or (md.used and md.put is not msg):
            return True
        if md.put is msg and msg.wmd[15] == AGAIN:
            known = msg.wmd[13:15] == peer.guard
            if not known and msg.attempts is not None:
                msg.attempts.forsaken = True
            return known
        if peer.guard:
            self._memory.identify(msg, md, peer)
        return True

    # After it failed ---------------------------------------------------------------------------------

    @staticmethod
    def is_safe(msg: Msg) -> bool:
        """Whether the peer would notice that it has msg already."""
        return msg.md is not None and msg.md.put is msg and is_identity(msg.wmd)

    @staticmethod
    def is_answered(msg: Msg) -> bool:
        """Whether the ACK of msg came while it waited to set out again."""
        return msg.md is not None and msg.wmd[15] == AGAIN and msg.md.put is not msg

    def mark(self, msg: Msg) -> None:
        """msg may have left, and sets out again."""
        if self.is_safe(msg):
            msg.wmd = again(msg.wmd)

    # With its path -----------------------------------------------------------------------------------

    def lost(self, ni: NI | None, nid: Nid | None, dest: Nid | None = None) -> None:
        """What was under way from ni to the next hop nid, for dest (None: any), may be lost.

        Drivers give back what has not begun to leave right after they told of the loss; then we look.
        """
        if not self._doubts:  # many paths may go at a time, each with all that is under way
            self._state.defer(self._look)
        self._doubts.add((ni, nid, dest))

    def _look(self) -> None:
        doubts, self._doubts = self._doubts, set()

        def is_lost(put: Msg) -> bool:
            ni, to, dest = put.ni, put.next_nid, put.hdr.dest_nid
            return not doubts.isdisjoint([(ni, to, None), (ni, to, dest), (ni, None, None), (None, to, None)])

        self.copy_lost(is_lost)
        self._unload(doubts)

    def _unload(self, doubts: set[tuple[NI | None, Nid | None, Nid | None]]) -> None:
        """What had left by a path that is gone is no load of it any more, for no answer may ever tell.

        A descriptor that goes on sending would hold it for ever, and that path get nothing.
        """
        self._parts.uncork()
        gone: set[PathLoad] = set()
        for ni, hop, dest in doubts:
            pni = self._state.peers.find_ni(hop) if hop is not None and dest is None else None
            path_load = pni.path_loads.get(ni) if pni is not None and ni is not None else None
            if path_load is not None and path_load.outstanding:
                gone.add(path_load)
        for md in self._memory.mds.values() if gone else ():
            for one in [one for one in md.in_flight if one.pair in gone]:
                md.in_flight.remove(one)
                one.abandon()

    def copy_lost(self, is_lost: Callable[[Msg], bool]) -> None:
        """Copy PUTs that have a path, and may be lost there, where the peer would notice to have them."""
        lost = {}
        for md in self._memory.at_hop(None) if self._state.running else ():
            put = md.put
            attempts = put.attempts if put is not None else None
            for one in (put, attempts.well if attempts is not None else None):
                if one and one.ni and one.path and is_identity(one.wmd) and is_lost(one):
                    lost[one] = one.queued_at
                    if attempts is not None and attempts.well is one:
                        attempts.well = None
        self.copy_all(lost)

    def copy_all(self, lost: dict[Msg, float]) -> None:
        """Copy these behind those that are due."""
        idle = not self.due
        self.due.update(lost)
        if idle:
            self._copy_due()

    def _copy_due(self) -> None:
        first = list(islice(self.due, _AT_ONCE if self._state.running else None))
        if first and self._state.running:
            self._state.defer(self._copy_due)  # first, as a driver may raise something
        for put in first:
            md, ni, pni, anew = put.md, put.ni, put.peer_ni, put.queued_at != self.due.pop(put, None)
            anew = anew or (ni is not None and put.path is None)  # it sets out anew soon
            if ni is None and md is not None and not md.refs and put.attempts is not None:
                ni, pni = next(reversed(put.attempts.tried), (None, None))  # it ended before its copy did
            if not anew and md and md.put is put and ni is not None and pni is not None:
                self._copy(md, put, ni, self._state.peers.find_ni(pni.nid) or pni)

    def _copy(self, md: Md, put: Msg, ni: NI, pni: PeerNi) -> None:
        attempts, limit = put.attempts, self._state.settings.retry_count
        if attempts is not None and attempts.failure[0] and attempts.count >= limit:
            # What has left by a path that only pauses may arrive yet, and what has not ends by itself.
            if md.acks_due == 1 and not md.refs and not is_stalled(ni, pni):
                self._memory.md_unlink(md, *attempts.failure)
            return
        if not self._parts.has_path_beside(put, ni, pni):
            self._look_later(put)
            return
        if pni.peer.gone or not self._parts.allows(put, ni, pni):
            self._leave_to_original(md, attempts)
            return
        msg = Msg(put.template)
        msg.wmd, msg.payload, msg.md = again(put.wmd), put.payload, md
        msg.target, msg.source, msg.cpt = put.target, put.source, put.cpt
        msg.attempts, msg.master, msg.copy_of = put.attempts, put.master, put
        put.copied = True
        md.put = msg
        md.refs += 1
        load = pni.path_loads.get(ni)
        if load in [one.pair for one in md.in_flight]:  # else it was unloaded
            take_answered(md.in_flight, load).abandon()
        stats = self._state.stats
        stats.msgs_alloc += 1
        stats.msgs_max = max(stats.msgs_max, stats.msgs_alloc)
        self._parts.send_again(msg)

    def _look_later(self, put: Msg) -> None:
        """Another path may be there later."""
        if not self.stranded:
            self._state.timers.at(self._state.clock() + _LOOK_AGAIN, self._look_again)
        self.stranded[put] = put.queued_at

    def _look_again(self) -> None:
        stranded, self.stranded = self.stranded, {}
        self.copy_all(stranded)

    def _leave_to_original(self, md: Md, attempts: Attempts | None) -> bool:
        """Leave md's PUT to its original, with all attempts; False where that is lost."""
        well = attempts.well if attempts is not None else None
        if attempts is None or well is None or well.next_nid is None:
            return False
        md.put, md.ni, well.copied, attempts.count, attempts.tried = well, well.ni, False, 0, []
        self.mark(well)
        self._memory.went(md, well.next_nid)
        return True

    def copy_ended(self, msg: Msg, md: Md, status: HealthStatus, err: int = 0, reason: str = "") -> None:
        """A copy was sent, or failed for good: then its original's end counts again."""
        original, attempts = msg.copy_of, msg.attempts
        assert original is not None
        assert attempts is not None
        if status and not msg.copied:
            original.copied = False
            if md.put is msg and not self._leave_to_original(md, attempts):
                attempts.failure = err or errno.EIO, reason
                md.put = original  # which may be acknowledged yet, and is not the first any more if it leaves
                self.mark(original)
                self._look_later(original)
            if attempts.tried:
                self._memory.went(md, attempts.tried[0][1].nid)  # who is there, since who was may be gone
        elif not status:
            attempts.failure = 0, ""
        self._memory.release(md)
        if status and attempts.forsaken:
            self._memory.md_unlink(md, errno.ECONNRESET)
