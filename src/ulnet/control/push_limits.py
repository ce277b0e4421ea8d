"""How many pushes are taken: a push costs this node up to 20 µs for each NID that it lists.

Each peer has an allowance, each next hop has one for what it sends for others, and all peers that nobody
configured share two: many of them at once would take all of this node's time otherwise. A push that is not
taken changes nothing; its peer is asked before the next message goes there.
"""

from __future__ import annotations

from typing import Final

from ulnet.core.event import Event
from ulnet.core.peer import PUSH_ROOM, Peer, PeerFlag
from ulnet.core.state import NodeState
from ulnet.nid import Nid
from ulnet.wire.ping import MIN_INFO_SIZE

__all__ = ["PushLimits"]

_PUSH_RATE: Final = 4096  # bytes a second that a peer may push for long: fifteen times 16 NIDs
_RELAY_ROOM: Final = 2 * PUSH_ROOM  # bytes that a node may push for others at once: for 480 …
_RELAY_RATE: Final = 8 * _PUSH_RATE  # … and a second for long
_MOST_RELAYS: Final = 1024
_ALL_ROOM: Final = 24 * PUSH_ROOM  # of all at once: what 5,700 nodes push that start together …
_ALL_RATE: Final = 32 * _PUSH_RATE  # … and a second for long: 480 pushes
_LONG_ROOM: Final = 2 * PUSH_ROOM  # of all that exceeds 16 NIDs of a push: eight lists of 1,000 …
_LONG_RATE: Final = 8 * _PUSH_RATE  # … and a second for long: two


class Allowance:
    """Bytes that may be taken: up to `room` at once, and `rate` a second for long."""

    __slots__ = ("_left", "_rate", "_room", "_since")

    def __init__(self, room: float, rate: float, now: float) -> None:
        self._room = room
        self._rate = rate
        self._left = room
        self._since = now

    def has(self, size: float, now: float) -> bool:
        """Whether so many bytes may be taken now."""
        self._left = min(self._left + (now - self._since) * self._rate, self._room)
        self._since = now
        return self._left >= size

    def take(self, size: float) -> None:
        """Take what it `has`."""
        self._left -= size


class PushLimits:
    """Which pushes one node takes."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        now = state.clock()
        self._all = Allowance(_ALL_ROOM, _ALL_RATE, now)
        self._long = Allowance(_LONG_ROOM, _LONG_RATE, now)
        self._relays: dict[Nid, Allowance] = {}  # by next hop

    def take(self, event: Event) -> bool:
        """Whether a push is taken; else it is counted, and its peer is asked when that matters."""
        peer = self._state.peers.find(event.source)
        if peer is None:
            return True
        now = self._state.clock()
        size = min(max(event.rlength, MIN_INFO_SIZE), PUSH_ROOM)
        if not self._own(peer, size, now) or not self._relayed(event, size, now):
            why = "more pushes than a peer may send"
        elif not peer.configured and not self._shared(size, now):
            why = "more pushes than all peers may send"
        else:
            peer.push_room -= size
            return True
        self._state.stats.drops[why] += 1
        if peer.flags & PeerFlag.NIDS_UPTODATE:
            peer.mark(PeerFlag.FORCE_PING, PeerFlag.NIDS_UPTODATE)
        return False

    @staticmethod
    def _own(peer: Peer, size: float, now: float) -> bool:
        """Whether it is within what its peer may send."""
        peer.push_room = min(peer.push_room + (now - peer.pushed_at) * _PUSH_RATE, PUSH_ROOM)
        peer.pushed_at = now
        return peer.push_room >= size

    def _relayed(self, event: Event, size: float, now: float) -> bool:
        """Whether it is within what its next hop may send for others: that one may name ever new ones."""
        if event.sender == event.source:
            return True
        relay = self._relays.pop(event.sender, None) or Allowance(_RELAY_ROOM, _RELAY_RATE, now)
        if len(self._relays) >= _MOST_RELAYS:
            self._relays.clear()
        self._relays[event.sender] = relay
        if not relay.has(size, now):
            return False
        relay.take(size)
        return True

    def _shared(self, size: float, now: float) -> bool:
        """Whether it is within what all peers together may send."""
        long = size - MIN_INFO_SIZE
        if not self._all.has(MIN_INFO_SIZE, now) or (long and not self._long.has(long, now)):
            return False
        self._all.take(MIN_INFO_SIZE)
        self._long.take(long)
        return True
