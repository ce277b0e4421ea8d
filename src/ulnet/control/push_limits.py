"""How many pushes are taken: a push costs this node up to 20 µs for each NID that it lists.

Each peer has a token bucket (`Allowance.silent_at` says when it is full), and so has each next hop for what
it sends for others. All peers share two more: many at once would take all of this node's time otherwise.
Peers whose pushes others send share two of their own, so that invented sources take nothing from peers with
a connection. Configured peers and gateways take nothing from what is shared. A push that is not taken
changes nothing; its peer is asked before the next message to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ulnet.core.event import Event
from ulnet.core.state import NodeState
from ulnet.nid import Nid
from ulnet.wire.ping import MIN_INFO_SIZE

if TYPE_CHECKING:
    from ulnet.core.parts import Parts

__all__ = ["PushLimits"]

_PUSH_ROOM: Final = 65536.0  # bytes: of a peer that has been silent
_PUSH_RATE: Final = 4096  # bytes a second that a peer may push for long: fifteen times 16 NIDs
_RELAY_ROOM: Final = 2 * _PUSH_ROOM  # bytes that a node may push for others at once: for 480 …
_RELAY_RATE: Final = 8 * _PUSH_RATE  # … and a second for long
_MOST_RELAYS: Final = 1024
_ALL_ROOM: Final = 24 * _PUSH_ROOM  # of all at once: what 5,700 nodes push that start together …
_ALL_RATE: Final = 32 * _PUSH_RATE  # … and a second for long: 480 pushes
_LONG_ROOM: Final = 2 * _PUSH_ROOM  # of all that exceeds 15 NIDs of a push: eight lists of 1,000 …
_LONG_RATE: Final = 8 * _PUSH_RATE  # … and a second for long: two


class TokenBucket:
    """A token bucket of bytes: up to `room` at once, and `rate` a second for long."""

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


class Shared:
    """What all peers together may push: whole pushes up to 15 NIDs, and what exceeds these."""

    __slots__ = ("_all", "_long")

    def __init__(self, now: float) -> None:
        self._all = TokenBucket(_ALL_ROOM, _ALL_RATE, now)
        self._long = TokenBucket(_LONG_ROOM, _LONG_RATE, now)

    def has(self, size: float, now: float) -> bool:
        """Whether a push of that size may be taken now."""
        long = size - MIN_INFO_SIZE
        return self._all.has(MIN_INFO_SIZE, now) and (not long or self._long.has(long, now))

    def take(self, size: float) -> None:
        """Take what it `has`."""
        self._all.take(MIN_INFO_SIZE)
        self._long.take(size - MIN_INFO_SIZE)


class PushLimits:
    """Which pushes one node takes."""

    def __init__(self, state: NodeState, parts: Parts) -> None:
        self._state = state
        self._parts = parts
        now = state.clock()
        self._direct = Shared(now)
        self._relayed = Shared(now)
        self._relays: dict[Nid, TokenBucket] = {}  # by next hop

    def take(self, event: Event) -> bool:
        """Whether a push is taken; else it is counted, and its peer is asked when that matters."""
        peer = self._state.peers.find(event.source)
        if peer is None:
            return True
        now = self._state.clock()
        size = min(max(event.rlength, MIN_INFO_SIZE), _PUSH_ROOM)
        silent_at = max(peer.allowance.silent_at, now) + size / _PUSH_RATE
        relay = None if event.sender == event.source else self._relay(event.sender, now)
        shared = None
        if not (peer.configured or self._parts.needed_for(peer)):
            shared = self._direct if relay is None else self._relayed
        if silent_at > now + _PUSH_ROOM / _PUSH_RATE or (relay is not None and not relay.has(size, now)):
            why = "more pushes than a peer may send"
        elif shared is not None and not shared.has(size, now):
            why = "more pushes than all peers may send"
        else:
            peer.allowance.silent_at = silent_at
            for one in (relay, shared):
                if one is not None:
                    one.take(size)
            return True
        self._state.stats.drops[why] += 1
        self._parts.push_refused(peer)
        return False

    def _relay(self, sender: Nid, now: float) -> TokenBucket:
        """What a next hop may send for others: that one may name ever new ones."""
        relay = self._relays.pop(sender, None) or TokenBucket(_RELAY_ROOM, _RELAY_RATE, now)
        if len(self._relays) >= _MOST_RELAYS:
            self._relays.clear()
        self._relays[sender] = relay
        return relay
