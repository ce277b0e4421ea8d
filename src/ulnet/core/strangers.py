"""Peers that nobody configured: which of them is forgotten when there are too many."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from ulnet.core.peer import Peer, PeerFlag

__all__ = ["Strangers"]

_CANDIDATES: Final = 16  # how many are looked at to find one that can be forgotten
_DISCOVERED: Final = int(PeerFlag.DISCOVERED)


class Strangers:
    """The learned peers of one table, those longest known first.

    Whoever sends a message may invent its source, and whoever is believed may list what it likes. So those
    that have a connection, or have answered, are forgotten last.
    """

    __slots__ = ("_heard", "_others")

    def __init__(self) -> None:
        self._others: dict[Peer, None] = {}
        self._heard: dict[Peer, None] = {}  # of those that were looked at

    def add(self, peer: Peer) -> None:
        """A peer was learned."""
        self._others[peer] = None

    def remove(self, peer: Peer) -> None:
        """A peer leaves the table."""
        if peer in self._others:
            del self._others[peer]
        else:
            del self._heard[peer]

    def make_room(self, forget: Callable[[Peer], bool], keep: Peer | None) -> bool:
        """Have one forgotten that is not `keep`; `forget` says whether one can be. True if one was.

        To keep one, for what it lists, nobody is forgotten who was heard.
        """
        others = self._others
        tried = 0
        while others and tried < _CANDIDATES:
            peer = next(iter(others))
            if _was_heard(peer):
                del others[peer]
                self._heard[peer] = None
                continue
            if peer is not keep and forget(peer):
                return True
            tried += 1
            _to_the_end(others, peer)
        if others or keep is not None:
            return False
        for peer in list(islice(self._heard, _CANDIDATES)):
            if forget(peer):
                return True
            _to_the_end(self._heard, peer)
        return False


def _was_heard(peer: Peer) -> bool:
    """Whether it has or had a connection, or answered over a gateway."""
    return bool(peer.flags & _DISCOVERED) or any(pni.heard_at >= 0 for pni in peer.members.values())


def _to_the_end(peers: dict[Peer, None], peer: Peer) -> None:
    """Others are asked next time."""
    del peers[peer]
    peers[peer] = None
