"""Peers that nobody configured and that never answered: they are forgotten after a while."""

from __future__ import annotations

from itertools import islice, takewhile
from typing import Final

from ulnet.core.peer import Peer, PeerFlag
from ulnet.core.state import NodeState
from ulnet.core.timers import Timer

__all__ = ["FORGOTTEN_AFTER", "MOST", "Ageing"]

FORGOTTEN_AFTER: Final = 300.0  # seconds; longer than any message may take by default
MOST: Final = 1024  # peers in a turn of the loop: thousands may be learned at once

_KNOWN = int(PeerFlag.CONFIGURED | PeerFlag.NO_DISCOVERY)


class Ageing:
    """Looks at each learned peer once, and again as long as it is silent and in use."""

    __slots__ = ("_silent", "_state", "_timer")

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._silent: dict[Peer, float] = {}  # when to look at it, the earliest first
        self._timer: Timer | None = None

    def learned(self, peer: Peer) -> None:
        """A peer was made of an unknown NID."""
        self._silent[peer] = self._state.clock() + FORGOTTEN_AFTER
        self._schedule()

    def left(self, peer: Peer) -> None:
        """A peer is no longer in the table: nothing is kept of it."""
        self._silent.pop(peer, None)

    def _schedule(self) -> None:
        if self._silent and self._timer is None and self._state.running:
            self._timer = self._state.timers.at(next(iter(self._silent.values())), self._look)

    def close(self) -> None:
        """The node shuts down."""
        self._state.timers.cancel(self._timer)

    def _look(self) -> None:
        self._timer = None
        now = self._state.clock()
        due = islice(takewhile(lambda one: one[1] <= now, self._silent.items()), MOST)
        for peer in [peer for peer, _ in due]:
            self._silent.pop(peer, None)
            if not _heard(peer) and not self._state.peers.forget(peer):
                self._silent[peer] = now + FORGOTTEN_AFTER
        self._schedule()


def _heard(peer: Peer) -> bool:
    """Whether it answered, is configured by now, or is no longer in the table."""
    return peer.gone or peer.heard or bool(peer.flags & _KNOWN)
