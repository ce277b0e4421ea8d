"""Messages and callers that wait until a peer is known: they go on, fail, or go over to other peers."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Final

from ulnet.core.msg import Msg
from ulnet.core.peer import Peer, Waiter, may_be_peer
from ulnet.core.sender import Sender
from ulnet.core.state import NodeState
from ulnet.core.status import LNetError
from ulnet.nid import LO_NID, Nid

__all__ = ["Waiting"]

_LATE: Final = 5.0  # seconds in which a peer that is known may get NIDs of another one
_AT_ONCE: Final = 64  # messages that go on, or fail, in one turn of the loop
_MAX_ROUNDS: Final = 4  # a caller whose peer is replaced again and again is told so


class Waiting:
    """Keeps who waits with the peer that has the NID.

    `want` begins the discovery of one; `holds`: whether messages to it wait for that.
    """

    __slots__ = ("_going", "_holds", "_late", "_lost", "_sender", "_state", "_want", "served")

    def __init__(
        self,
        state: NodeState,
        sender: Sender,
        want: Callable[[Peer], None],
        holds: Callable[[Peer], bool],
    ) -> None:
        self._state = state
        self._sender = sender
        self._want: Callable[[Peer], None] = want
        self._holds: Callable[[Peer], bool] = holds
        self._lost: deque[tuple[Msg, int, str]] = deque()  # messages that fail, in turns
        self._going: dict[Peer, int] = {}  # how many of those that wait for each go on, in turns
        self.served: Peer | None = None  # whose turn it is
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
        waiters, peer.waiters = peer.waiters, []
        self._let_go(peer)
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
        waiters, peer.waiters = peer.waiters, []
        text = f"{peer.primary_nid} could not be discovered: {why}"
        idle, go_on = self._idle, self._going.get(peer, 0)
        self._lost += [(msg, number, text) for msg in peer.parked[go_on:]]
        del peer.parked[go_on:]
        if idle:
            self._serve_some()
        for waiter in waiters:
            waiter.tell(LNetError(number, why), None)

    @property
    def _idle(self) -> bool:
        return not (self._lost or self._going)

    def _let_go(self, peer: Peer) -> None:
        """All messages that wait for the peer now go on: those of one turn at once, where no others do."""
        idle = self._idle
        if peer.parked:
            if idle:
                self._going[peer] = len(peer.parked)
                self._serve_some()
            else:
                self._line_up(peer, len(peer.parked))

    def _serve_some(self) -> None:
        """A program may have sent thousands: those of one turn go on, or fail, the others in later ones."""
        room, lost = _AT_ONCE, self._lost
        try:
            for _ in range(min(room, len(lost))):
                room -= 1
                msg, number, text = lost.popleft()
                self._sender.fail(msg, number, text)
            for peer in list(islice(self._going, room)):
                while room and peer in self._going:  # who had no turn keeps its place
                    room = self._serve(peer, room)
        finally:
            if not self._idle:
                self._state.defer(self._serve_some)

    def _serve(self, peer: Peer, room: int) -> int:
        """Up to `room` messages that waited for the peer go on; how many others may then."""
        going = self._going
        if peer.gone:  # they go on with others, soon
            del going[peer]
            return room
        self.served = peer
        try:
            while room and going.get(peer) and peer.parked:
                room -= 1
                going[peer] -= 1
                self._sender.relaunch(peer.parked.pop(0))
        finally:
            self.served = None
            self._line_up(peer, min(going.pop(peer, 0), len(peer.parked)))  # behind the others
        return room

    def _line_up(self, peer: Peer, count: int) -> None:
        """So many that wait for the peer go on; if none are left, those that came meanwhile, if they may."""
        if peer.going is not (count > 0):
            peer.going = count > 0
            peer.mark()
        if count:
            self._going[peer] = count
        elif peer.parked and not peer.gone:
            if self._holds(peer):
                self._want(peer)
            else:
                self._line_up(peer, len(peer.parked))

    def move(self, peer: Peer, others: Iterable[Peer]) -> None:
        """NIDs of a peer are other peers' from now on: who waits for those goes on there."""
        for other in others:
            nids = other.members
            if peer in self._going:
                still = peer.parked[: self._going[peer]]
                self._going[peer] = sum(msg.target not in nids for msg in still)
            self._come_over(other, [msg for msg in peer.parked if msg.target in nids])
            other.waiters += [waiter for waiter in peer.waiters if waiter.nid in nids]
            peer.parked = [msg for msg in peer.parked if msg.target not in nids]
            peer.waiters = [waiter for waiter in peer.waiters if waiter.nid not in nids]
            if other.gone:  # it went over to yet another peer meanwhile
                self.move_on(other)
            else:
                self._want(other)
                if not self._holds(other):
                    self._let_go(other)

    def _come_over(self, peer: Peer, msgs: list[Msg]) -> None:
        """Messages for another peer wait for this one: before those that do already, unless these go on."""
        at = self._going.get(peer, 0)
        peer.parked[at:at] = msgs

    def move_on(self, peer: Peer) -> None:
        """The peer has left the table: who waits for it goes on with whoever has its NIDs now."""
        parked, peer.parked = peer.parked, []
        waiters, peer.waiters = peer.waiters, []
        others: dict[Peer, list[Msg]] = {}
        for msg in parked:
            try:
                self._state.must_run()
                assert msg.target is not None
                others.setdefault(self.peer_of(msg.target), []).append(msg)
            except LNetError as refused:
                self._sender.fail(msg, refused.errno, refused.text)
        for other, msgs in others.items():
            self._come_over(other, msgs)
            if self._holds(other):
                self._want(other)
            else:
                self._let_go(other)
        for waiter in waiters:
            waiter.rounds += 1
            try:
                self._state.must_run()
                if waiter.rounds > _MAX_ROUNDS:
                    raise LNetError(errno.EAGAIN, f"{waiter.nid}: its peer changes all the time; try again")
                self.wait(waiter, self.peer_of(waiter.nid))
            except LNetError as refused:
                waiter.tell(refused, None)
