"""PUTs that wait at lazy portals for memory, or have to give it up (spec md-me-eq.md §6)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ulnet.core.guard.receiver import ReceiverGuard
from ulnet.core.md import Md
from ulnet.core.memory import Memory
from ulnet.core.msg import Incoming
from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi
from ulnet.core.portal import NO_MATCH, Portal
from ulnet.core.state import NodeState
from ulnet.core.status import HealthStatus
from ulnet.nid import Nid
from ulnet.wire.lnet import PING_MATCH_BITS, PING_PORTAL, Header

if TYPE_CHECKING:
    from ulnet.core.lnd import Payload

__all__ = ["MAX_DELAYED", "OUSTED", "SLOW", "Delayed"]

# Messages that may wait on one lazy portal, half of them of one next hop; those with payload also stall
# their connection.
MAX_DELAYED: Final = 8192
OUSTED: Final = "it waited long for a match, and others found no place to wait"
SLOW: Final = "its payload came slowly, and others needed the memory"


class Delayed:
    """The messages that wait at one node. `take` goes on with one whose memory is found."""

    __slots__ = ("_drop", "_end", "_guard", "_memory", "_release", "_state", "_take")

    def __init__(
        self,
        state: NodeState,
        memory: Memory,
        guard: ReceiverGuard,
        take: Callable[[Incoming, tuple[Md, int, int]], None],
        end: Callable[[Incoming, HealthStatus, int, str], None],
        release: Callable[[Incoming], None],
        drop: Callable[[NI, PeerNi, Header, Payload | None, str, Nid], None],
    ) -> None:
        self._state = state
        self._memory = memory
        self._guard = guard
        self._take = take
        self._end = end
        self._release = release
        self._drop = drop

    def may_wait(self, portal: Portal, hdr: Header, hop: Nid) -> bool:
        """Whether an unmatched PUT waits for a match entry. On the reserved portal only pushes do.

        A next hop has half of what others leave. Who has none is given the place of what waits longest,
        if that is for longer than its sender may expect an answer.
        """
        if not portal.lazy or (portal.index == PING_PORTAL and hdr.match_bits != PING_MATCH_BITS):
            return False
        own = portal.hops.get(hop, 0)
        if own < (MAX_DELAYED - len(portal.delayed) + own) >> 1:
            return True
        if own:
            return False
        oldest, since = next(iter(portal.delayed.items()))
        if self._state.clock() - since <= self._state.settings.transaction_timeout:
            return False
        portal.let_go(oldest)
        self.drop(oldest, OUSTED)
        return True

    def match(self, portal: Portal) -> None:
        """Memory came for those that wait. Where a handler attaches more, the walk begins anew.

        So each is matched once, in order of arrival, however deep handlers attach.
        """
        portal.rematch = True
        if portal.matching:
            return
        portal.matching = True
        try:
            while portal.rematch:
                portal.rematch = False
                for incoming in list(portal.delayed):
                    if incoming in portal.delayed:
                        self._match_again(portal, incoming)
                    if portal.rematch:
                        break
        finally:
            portal.matching = False

    def _match_again(self, portal: Portal, incoming: Incoming) -> None:
        sender = self._current_sender(incoming)
        found = portal.match(incoming.hdr, sender.peer)
        if found is NO_MATCH:
            return
        portal.let_go(incoming)
        if isinstance(found, str):
            self.drop(incoming, found)
        else:
            self._take(incoming, found)

    def _current_sender(self, incoming: Incoming) -> PeerNi:
        """The peer NI of a message that waited; its NID may belong to another peer by now."""
        before = incoming.peer_ni
        now = self._state.peers.find_ni(before.nid)
        if now is None or now is before:
            return before
        before.refs -= 1
        now.refs += 1
        incoming.peer_ni = now
        return now

    def drop(self, incoming: Incoming, why: str) -> None:
        """A message that waited for memory gets none."""
        if incoming.identity:
            self._guard.ended(incoming, False)
        self._release(incoming)
        self._drop(incoming.ni, incoming.peer_ni, incoming.hdr, incoming.rx, why, incoming.next_nid)

    def give_up(self, put: Incoming) -> bool:
        """End a PUT whose payload is still coming, for others need its memory; False if that cannot be."""
        if put.rx is None or not put.rx.abandon(put):
            return False
        self._state.drops.count(put.ni, put.peer_ni, put.hdr, SLOW)
        self._end(put, HealthStatus.OK, errno.ETIMEDOUT, SLOW)
        return True

    def forget_rx(self, rx: Payload) -> None:
        """The connection of messages that wait died: their payload will never come."""
        for portal in self._memory.portals:
            if portal is None or not portal.delayed:
                continue
            for incoming in [one for one in portal.delayed if one.rx is rx and one.hdr.payload_length]:
                if incoming in portal.delayed:
                    portal.let_go(incoming)
                    incoming.rx = None
                    self.drop(incoming, "its connection closed while it waited for a match")
