"""When peers are asked because of what others say of them: whoever says so decides how often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ulnet.core.peer import Peer, PeerFlag
from ulnet.core.state import NodeState
from ulnet.wire.ping import MIN_INFO_SIZE

__all__ = ["Asking"]

_ASK_AGAIN: Final = 10.0  # seconds, of a peer whose NIDs others list, or whose pushes tell nothing
_LONG_PACE: Final = 1.25e-5  # seconds from a long answer to the next, for each byte: ten times what it takes

_DISCOVERING = int(PeerFlag.DISCOVERING)
_UPTODATE = int(PeerFlag.NIDS_UPTODATE)
_FORCE_PING = int(PeerFlag.FORCE_PING)


class Asking:
    """Has peers asked anew who they are, as often as they may be. `want` begins the discovery of one."""

    __slots__ = ("_later", "_long_at", "_needed_for", "_state", "_want")

    def __init__(
        self, state: NodeState, needed_for: Callable[[Peer], str], want: Callable[[Peer], None]
    ) -> None:
        self._state = state
        self._needed_for: Callable[[Peer], str] = needed_for
        self._want: Callable[[Peer], None] = want
        self._later: set[Peer] = set()  # that are asked when they may be again
        self._long_at = 0.0  # when a peer whose answers are long may be asked for a push that tells nothing

    def ask(self, peer: Peer, *, always: bool = False) -> None:
        """What another peer says of its NIDs tells something of this one: does this one say so too?"""
        if always:
            if self.must(peer):
                self._want(peer)
            return
        now = self._state.clock()
        if peer.asked_at and now - peer.asked_at < _ASK_AGAIN:  # whoever says so, as often as they like
            if peer not in self._later:
                self._later.add(peer)
                self._state.timers.at(peer.asked_at + _ASK_AGAIN, lambda: self._again(peer))
            return
        peer.asked_at = now
        peer.mark(_FORCE_PING, _UPTODATE)
        self._want(peer)

    def _again(self, peer: Peer) -> None:
        self._later.discard(peer)
        if not peer.gone:
            self.ask(peer)

    def must(self, peer: Peer) -> bool:
        """A push told nothing: its peer must be asked. False: not now, for its answers are long.

        Merging these takes this node's time, and whoever pushes decides how often.
        """
        now = self._state.clock()
        if peer.info_size > MIN_INFO_SIZE and not (peer.configured or self._needed_for(peer)):
            if now < self._long_at or now - peer.pushed_nothing_at < _ASK_AGAIN:
                if peer.flags & _DISCOVERING:
                    peer.stale = True
                else:
                    peer.mark(remove=_UPTODATE)
                return False
            self._long_at = now + peer.info_size * _LONG_PACE
        peer.pushed_nothing_at = now
        peer.attempts = 0  # others may push in its name: no message to it fails for that
        peer.mark(_FORCE_PING, _UPTODATE)
        return True
