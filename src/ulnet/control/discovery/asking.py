"""How often peers are asked who they are while no message waits for that: they or others cause it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from ulnet.core.ni import MAX_HEALTH
from ulnet.core.peer import Peer, PeerFlag, PeerNi
from ulnet.core.state import NodeState
from ulnet.wire.ping import MIN_INFO_SIZE

__all__ = ["Asking"]

_ASK_AGAIN: Final = 10.0  # seconds, of a peer whose NIDs others list, or whose pushes tell nothing
_ASK_SOON: Final = 1.0  # seconds, where a caller waits for the discovery of the peer that lists them
_LONG_PACE: Final = 1.25e-5  # seconds from a long answer to the next, for each byte: ten times what it takes
_LONG_ROOM: Final = 1.0  # seconds of these that may be ahead: for 200 peers with 20 NIDs at once

_DISCOVERING = int(PeerFlag.DISCOVERING)
_UPTODATE = int(PeerFlag.NIDS_UPTODATE)
_FORCE_PING = int(PeerFlag.FORCE_PING)


class Asking:
    """Has peers asked anew who they are, as often as they may be. `want` begins the discovery of one."""

    __slots__ = ("_later", "_long_at", "_needed_for", "_state", "_suspect", "_want")

    def __init__(
        self,
        state: NodeState,
        needed_for: Callable[[Peer], str],
        suspect: Callable[[PeerNi], None],
        want: Callable[[Peer], None],
    ) -> None:
        self._state = state
        self._suspect: Callable[[PeerNi], None] = suspect
        self._needed_for: Callable[[Peer], str] = needed_for
        self._want: Callable[[Peer], None] = want
        # Those that are asked when they may be again, and which of their NIDs are asked then.
        self._later: dict[Peer, dict[PeerNi, None]] = {}
        self._long_at = 0.0  # when all long answers that nothing waited for are paid for

    def ask(self, peer: Peer) -> None:
        """What was said by, or of, a NID of a peer tells that it may have others now."""
        if self.must(peer):
            self._want(peer)

    def doubt(self, peer: Peer, suspects: Collection[PeerNi], waited_for: bool = False) -> None:
        """Another one lists NIDs of a peer: does this one say so too? The suspects are asked themselves.

        `waited_for`: a caller waits for the discovery of the one that lists them, so for this answer, too.
        """
        now, asked_at = self._state.clock(), peer.allowance.asked_at
        pause = _ASK_SOON if waited_for else _ASK_AGAIN
        if asked_at and now - asked_at < pause:  # whoever says so, as often as they like
            if peer not in self._later:
                self._later[peer] = {}
                self._state.timers.at(asked_at + _ASK_AGAIN, lambda: self._again(peer))
            self._later[peer].update(dict.fromkeys(suspects))
            return
        for pni in suspects:
            if pni.health == MAX_HEALTH and pni.failed_at <= pni.heard_at:  # not silent
                self._suspect(pni)
        peer.allowance.asked_at = now
        peer.mark(_FORCE_PING, _UPTODATE)
        self._want(peer)

    def _again(self, peer: Peer) -> None:
        suspects = self._later.pop(peer)
        if not peer.gone:
            self.doubt(peer, [pni for pni in suspects if pni.peer is peer])

    def must(self, peer: Peer) -> bool:
        """Have a peer whose push told nothing asked by a ping. False: not now, for its answers are long.

        Merging these takes this node's time, and whoever pushes decides how often.
        """
        now, allowance = self._state.clock(), peer.allowance
        early = now < self._long_at or now - allowance.pushed_nothing_at < _ASK_AGAIN
        if early and self._is_long(peer):
            if peer.flags & _DISCOVERING:
                peer.stale = True
            else:
                peer.mark(remove=_UPTODATE)
            return False
        allowance.pushed_nothing_at = now
        peer.attempts = 0  # others may push in its name: no message to it fails for that
        peer.mark(_FORCE_PING, _UPTODATE)
        return True

    def may(self, peer: Peer) -> bool:
        """Whether a ping may be sent now. If its answer is long, and nothing waits for it, it is counted."""
        if peer.parked or peer.waiters or not self._is_long(peer):
            return True
        now = self._state.clock()
        if self._long_at > now + _LONG_ROOM:
            return False
        self._long_at = max(self._long_at, now) + peer.allowance.info_size * _LONG_PACE
        return True

    def _is_long(self, peer: Peer) -> bool:
        long = peer.allowance.info_size > MIN_INFO_SIZE
        return long and not (peer.configured or self._needed_for(peer))
