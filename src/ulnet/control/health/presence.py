"""Which peers are gone: their hosts refuse connections at one NID, and nothing connects us at any other.

No answer comes from them any more, so nobody waits for one; who watches peers is told, and told again when
something of them is heard. A peer that is merely silent is not gone: its answers may be late.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TypeAlias

from ulnet.core.guard.seen import STALE
from ulnet.core.memory import Memory
from ulnet.core.peer import Peer, PeerNi
from ulnet.core.state import NodeState
from ulnet.nid import Nid

__all__ = ["PeerWatcher", "Presence"]

# Hears of a peer's primary NID, whether the peer is there, and why it is not.
PeerWatcher: TypeAlias = "Callable[[Nid, bool, str], None]"


class Presence:
    """What is known of that at one node."""

    __slots__ = ("_broke", "_gone", "_lost", "_memory", "_state", "watchers")

    def __init__(self, state: NodeState, memory: Memory) -> None:
        self._state = state
        self._memory = memory
        self._lost: dict[PeerNi, float] = {}  # when their last connection broke, or a call was refused
        self._gone: dict[Peer, str] = {}  # and why
        self._broke: dict[PeerNi, float] = {}  # when their last connection broke, whatever was heard since
        self.watchers: dict[PeerWatcher, None] = {}

    def lost(self, pni: PeerNi) -> None:
        """The last connection with a peer NI broke."""
        self._lost[pni] = self._broke[pni] = self._state.clock()

    def is_back(self, pni: PeerNi, since: float) -> bool:
        """Whether its connections broke after that, lately enough to send again, and it was heard since."""
        return since <= self._broke.get(pni, -1.0) < pni.heard_at and self._state.clock() - since < STALE

    def refused(self, pni: PeerNi, reason: str) -> None:
        """The host of a peer NI says that nobody listens there."""
        self._lost[pni] = self._state.clock()
        peer = pni.peer
        if peer.gone or not all(map(self._is_out, peer.members.values())):
            return
        if peer not in self._gone:
            self._gone[peer] = reason
            self._tell(peer, False, reason)
        self._state.defer(self._forsake, peer)  # when what was sent once more has failed, too

    def _forsake(self, peer: Peer) -> None:
        if peer in self._gone:
            for member in peer.members.values():
                self._memory.forsake(member.nid, errno.ECONNREFUSED)

    def _is_out(self, pni: PeerNi) -> bool:
        """Whether nothing connects us there since it was last heard of, if ever."""
        return pni.heard_at < 0 or self._lost.get(pni, -1.0) >= pni.heard_at

    def heard(self, pni: PeerNi) -> None:
        """Something came from a peer NI that was not well."""
        self._lost.pop(pni, None)
        if self._gone and self._gone.pop(pni.peer, None) is not None:
            self._tell(pni.peer, True, "")

    def forget(self, pni: PeerNi) -> None:
        """A NID belongs to no peer, or to another one."""
        self._lost.pop(pni, None)
        self._broke.pop(pni, None)
        if pni.peer.gone or len(pni.peer.members) <= 1:
            self._gone.pop(pni.peer, None)

    def _tell(self, peer: Peer, there: bool, reason: str) -> None:
        for watcher in list(self.watchers):
            self._state.defer(self._call, watcher, peer.primary_nid, there, reason)

    def _call(self, watcher: PeerWatcher, nid: Nid, there: bool, reason: str) -> None:
        if watcher not in self.watchers:
            return
        try:
            watcher(nid, there, reason)
        except BaseException as error:  # a program's call must not break the node
            self._state.mistake(error, f"who watches peers failed on {nid}")
