"""Messages and callers that wait until a peer is known: they go on, fail, or go over to other peers."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from ulnet.core.msg import Msg
from ulnet.core.peer import Peer, Waiter, may_be_peer
from ulnet.core.sender import Sender
from ulnet.core.state import NodeState
from ulnet.core.status import LNetError
from ulnet.nid import LO_NID, Nid

__all__ = ["Waiting"]

_LATE: Final = 5.0  # seconds in which a peer that is known may get NIDs of another one
_AT_ONCE: Final = 64  # messages that fail in one turn of the loop
_MAX_ROUNDS: Final = 4  # a caller whose peer is replaced again and again is told so


class Waiting:
    """Keeps who waits with the peer that has the NID. `want` begins the discovery of one."""

    __slots__ = ("_late", "_lost", "_sender", "_state", "_want")

    def __init__(self, state: NodeState, sender: Sender, want: Callable[[Peer], None]) -> None:
        self._state = state
        self._sender = sender
        self._want: Callable[[Peer], None] = want
        self._lost: deque[tuple[Msg, int, str]] = deque()  # messages that fail, in turns
        self._late: set[Waiter] = set()  # whose peers are known, and may get more NIDs now

    def peer_of(self, nid: Nid) -> Peer:
        """The peer of a NID, which is made where there is none. Raises LNetError: EINVAL, ENOMEM."""
        pni = self._state.peers.learn(nid)
        if pni is None:
            if may_be_peer(nid):
                raise LNetError(errno.ENOMEM, f"too many unknown peers: cannot remember {nid}")
            raise LNetError(errno.EINVAL, f"{nid} cannot be a peer: give the NID of one interface")
        return pni.peer

    def wait(self, waiter: Waiter, peer: Peer) -> None:
        """A caller waits for a peer from now on."""
        if peer.primary_nid == LO_NID:
            self._state.defer(waiter.tell, None, peer)
            return
        peer.waiters.append(waiter)
        self._want(peer)

    def known(self, peer: Peer, other: Peer | None) -> None:
        """The peer is known: all who wait for it go on.

        `other` may be a NID of this peer, and says so soon, or not: callers hear of the peer then.
        """
        parked, waiters = self._taken(peer)
        for msg in parked:
            self._sender.relaunch(msg)
        for waiter in waiters:
            if other is None or other.gone or waiter.rounds:
                waiter.tell(None, peer)
                continue
            later = Waiter(other.primary_nid, partial(self._tell_merged, waiter), self._state.mistake)
            later.rounds = 1
            self._late.add(waiter)
            until = self._state.clock() + _LATE
            self._state.timers.at(until, partial(self._tell_merged, waiter, None, None))
            self.wait(later, other)

    def _tell_merged(self, waiter: Waiter, error: LNetError | None, peer: Peer | None) -> None:
        """Tell a caller, once, which peer has its NID now; `error` counts where the node ends."""
        if waiter not in self._late:
            return
        self._late.remove(waiter)
        if self._state.running:
            error, peer = None, self._state.peers.find(waiter.nid)
        waiter.tell(error, peer)

    def fail(self, peer: Peer, number: int, why: str) -> None:
        """The peer could not be discovered: all who wait for it are told so."""
        parked, waiters = self._taken(peer)
        text = f"{peer.primary_nid} could not be discovered: {why}"
        idle = not self._lost
        self._lost += [(msg, number, text) for msg in parked]
        if idle:
            self._fail_some()
        for waiter in waiters:
            waiter.tell(LNetError(number, why), None)

    def _fail_some(self) -> None:
        """A program may have sent thousands: those of one turn fail, and the others in those that come."""
        lost = self._lost
        for _ in range(min(_AT_ONCE, len(lost))):
            msg, number, text = lost.popleft()
            self._sender.fail(msg, number, text)
        if lost:
            self._state.defer(self._fail_some)

    def move(self, peer: Peer, others: Iterable[Peer]) -> None:
        """NIDs of a peer are other peers' from now on: who waits for those goes on there."""
        for other in others:
            nids = other.members
            msgs = [msg for msg in peer.parked if msg.target in nids]
            other.waiters += [waiter for waiter in peer.waiters if waiter.nid in nids]
            peer.parked = [msg for msg in peer.parked if msg.target not in nids]
            peer.waiters = [waiter for waiter in peer.waiters if waiter.nid not in nids]
            if other.gone:  # it went over to yet another peer meanwhile
                self.move_on(other)
            else:
                self._want(other)
            for msg in msgs:
                self._sender.relaunch(msg)

    def move_on(self, peer: Peer) -> None:
        """The peer has left the table: who waits for it goes on with whoever has its NIDs now."""
        parked, waiters = self._taken(peer)
        for msg in parked:
            self._sender.relaunch(msg)
        for waiter in waiters:
            waiter.rounds += 1
            try:
                self._state.must_run()
                if waiter.rounds > _MAX_ROUNDS:
                    raise LNetError(errno.EAGAIN, f"{waiter.nid}: its peer changes all the time; try again")
                self.wait(waiter, self.peer_of(waiter.nid))
            except LNetError as refused:
                waiter.tell(refused, None)

    @staticmethod
    def _taken(peer: Peer) -> tuple[list[Msg], list[Waiter]]:
        parked, peer.parked = peer.parked, []
        waiters, peer.waiters = peer.waiters, []
        return parked, waiters
