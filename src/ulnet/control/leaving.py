"""NIs that are to be deleted: they take nothing new, and what is under way ends (Multi-Rail design, DLC).

It goes on receiving, and answering what was asked of it. Peers hear that they have to send elsewhere when
nothing of ours is on its way over it any more: to them our messages from a NID that is none of ours would
come from somebody else.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Sequence

from ulnet.control.discovery import Discovery
from ulnet.core.guard.identity import is_identity
from ulnet.core.md import Md
from ulnet.core.memory import Memory
from ulnet.core.ni import NI
from ulnet.core.peer import PeerFlag
from ulnet.core.sender import Sender
from ulnet.core.state import NodeState
from ulnet.nid import NetType, Nid

__all__ = ["Leaving"]

_SHOWN = 3
_AT_ONCE = 64  # requests that end in a turn
_GRACE = 1.0  # seconds for answers that come by another NI, since the one that was asked is gone
_DISCOVERED = int(PeerFlag.DISCOVERED)
_PUSH_SENT = int(PeerFlag.PUSH_SENT)


class Leaving:
    """Lets NIs of one node go; who deletes them asks `held` again and again, and gives up when it likes."""

    __slots__ = ("_credits", "_discovery", "_graces", "_guard", "_memory", "_nis_changed", "_state")

    def __init__(
        self,
        state: NodeState,
        memory: Memory,
        sender: Sender,
        discovery: Discovery,
        nis_changed: Callable[[], None],
    ) -> None:
        self._guard, self._credits = sender.guard, sender.credits
        self._state = state
        self._memory = memory
        self._discovery = discovery
        self._nis_changed = nis_changed
        self._graces: dict[Nid, float] = {}  # until when NIs that are gone have theirs

    def begin(self, nis: Sequence[NI]) -> None:
        """Begin: the NIs take nothing new from now on."""
        for ni in nis:
            ni.open = False
        self._state.generation.invalidate("NIs are about to go")

    def unlist(self, nis: Sequence[NI]) -> None:
        """Peers are told that these are gone."""
        for ni in nis:
            ni.listed = False
        self._nis_changed()

    def stay(self, nis: Sequence[NI]) -> None:
        """Keep the NIs after all, as far as they are still there; those drained before stay drained."""
        for ni in nis:
            ni.open = ni.active and not ni.drained
            ni.listed = not ni.drained
        self._nis_changed()

    def keep(self, nis: Sequence[NI], drained: bool) -> None:
        """Drain the NIs from now on, or no more."""
        for ni in nis:
            ni.drained = drained
        self.stay(nis)

    def gone(self, ni: NI) -> None:
        """ni was deleted, and with its connections the answers that were on their way to it.

        Of pings and pushes that left by it none is waited for: both begin again on another path, which does
        no harm, while their time-out would leave a peer with old news for minutes.
        """
        for peer in self._state.peers:
            for exchange in list(peer.exchanges.values()):
                md = exchange.md
                if md is not None and md.ni is ni and not md.refs:
                    self._memory.md_unlink(md, errno.ECONNRESET)
        self._graces[ni.nid] = self._state.clock() + _GRACE
        self._state.defer(self._end_requests)  # once those are on their way that are sent again

    def _end_requests(self) -> None:
        """End what has left by an NI that is gone, waits for one answer, and is not sent again.

        Where the peer knows another NI, its answer may come by that within a moment. A PUT that the peer
        would notice to have is left to the guard there, if that sends it again once there is a path.
        """
        if self._guard.due or self._credits.leaving:  # both have their turns: see then what is left
            self._state.defer(self._end_requests)
            return
        now, over, stranded = self._state.clock(), deque[tuple[Md, int]](), self._guard.stranded
        self._graces = {nid: end for nid, end in self._graces.items() if end > now}
        ends = set()
        for md in list(self._memory.mds.values()):
            if md.deadline_slot >= 0 and _has_lost_its_ni(md) and md.acks_due + md.replies_due == 1:
                put = md.put
                waiting = put is not None and stranded.get(put) == put.queued_at
                again = waiting or (put is not None and md.refs > 0 and is_identity(put.wmd))
                end = self._graces.get(md.ni.nid) if md.ni is not None else None
                if not self._has_other_ni(md) or (end is None and not again):
                    over.append((md, md.handle))
                elif end is not None:
                    ends.add(end)
        self._end_some(over)
        if ends:
            self._state.timers.at(min(ends), self._end_requests)

    def _end_some(self, over: deque[tuple[Md, int]]) -> None:
        """End these, so many in a turn, but what was answered, is bound anew, or left by another NI."""
        for _ in range(min(_AT_ONCE, len(over))):
            md, handle = over.popleft()
            if md.handle == handle and md.deadline_slot >= 0 and _has_lost_its_ni(md):
                self._memory.md_unlink(md, errno.ENETDOWN)
        if over:
            self._state.defer(self._end_some, over)

    def _has_other_ni(self, md: Md) -> bool:
        """Whether the peer that md waits for may answer to another NI."""
        peer = md.asked.peer if md.asked is not None else None
        nets = self._state.nets
        here = [nid.net for nid in peer.members if nid.net in nets] if peer and peer.multi_rail else []
        return any(ni.open for net in here for ni in nets[net].nis)

    def held(self, ni: NI) -> str:
        """What would be lost with ni, in words; empty if nothing would."""
        waiting = self.waiting(ni)
        due = [md.next_nid for md in self._memory.mds.values() if md.deadline_slot >= 0 and md.ni is ni]
        facts = []
        if ni.refs > waiting:
            facts.append(f"{ni.refs - waiting} messages under way{self._with_whom(ni)}")
        if waiting:
            facts.append(f"{waiting} messages that wait for a program to attach memory")
        if due:
            facts.append(f"{len(due)} answers due{_names('from', due)}")
        return ", ".join(facts)

    def waiting(self, ni: NI) -> int:
        """How many messages that came in by ni wait for a program to attach memory."""
        portals = [portal for portal in self._memory.portals if portal is not None]
        return sum(msg.ni is ni for portal in portals for msg in portal.delayed)

    def _with_whom(self, ni: NI) -> str:
        net = ni.net.net
        return _names(
            "to", [pni.nid for pni in self._state.peers.nis() if pni.tx_queued_bytes and pni.nid.net == net]
        )

    def announced(self) -> bool:
        """Whether every peer that listens to us has heard which of our NIs it may use."""
        due = self._discovery.push_due
        return not any(
            peer.flags & _PUSH_SENT or (peer.flags & _DISCOVERED and due(peer)) for peer in self._state.peers
        )


def _has_lost_its_ni(md: Md) -> bool:
    """Whether its NI is gone, and nothing is under way that is sent again: what slaves still have is not."""
    ni = md.ni
    return ni is not None and not ni.active and (not md.refs or ni.nid.net.type == NetType.BOND)


def _names(word: str, nids: Sequence[Nid | None]) -> str:
    names = [str(nid) for nid in dict.fromkeys(nids) if nid is not None]
    if not names:
        return ""
    more = f" and {len(names) - _SHOWN} others" if len(names) > _SHOWN else ""
    return f" {word} {', '.join(names[:_SHOWN])}{more}"
