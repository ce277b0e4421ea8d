"""Turns of discovery: peers of which something happened are queued, and what can be done now is done.

All turns are taken from a deferred call: events only note what happened, so that nothing here runs
inside a driver's stack or inside a sender's.
"""

from __future__ import annotations

from collections.abc import Callable

from ulnet.core.discovery.table import STATE_MASK, STEPS, Action, Input, decide
from ulnet.core.peer import Peer, PeerFlag
from ulnet.core.state import NodeState

__all__ = ["Turns"]

_DISCOVERING = int(PeerFlag.DISCOVERING)
_LAST = frozenset({Input.DELETE, Input.GIVE_UP, Input.PING, Input.PUSH, Input.WAIT, Input.DONE})  # of a turn


class Turns:
    """The queue, and the steps of the state machine; `_actions` are those that do something themselves."""

    def __init__(self, state: NodeState) -> None:
        self._state = state
        self._actions: dict[Action, Callable[[Peer], None]] = {}
        self._queue: dict[Peer, None] = {}
        self._scheduled = False
        self.active = False
        self.unexpected = 0  # inputs that the table does not have

    def push_due(self, peer: Peer) -> bool:
        """Whether the peer should be told our NIDs (spec discovery.md §3)."""
        raise NotImplementedError

    def queued(self, peer: Peer) -> bool:
        """Whether the peer waits for its turn."""
        return peer in self._queue

    def _feed(self, peer: Peer, what: Input) -> bool:
        """One input of the state machine; whether the table has it."""
        found = STEPS[peer.flags & STATE_MASK].get(what)
        if found is None:
            self.unexpected += 1
            where = f"discovery of {peer.primary_nid}, state {peer.flags:#x}"
            self._state.report(f"{where}: {what.name} ignored")
            return False
        action, after = found
        peer.mark(after, STATE_MASK & ~after)
        call = self._actions.get(action)
        if call is not None:
            call(peer)
        else:
            self._enqueue(peer)
        return True

    def _enqueue(self, peer: Peer) -> None:
        self._queue[peer] = None
        if not self._scheduled:
            self._scheduled = True
            self._state.defer(self._work)

    def _work(self) -> None:
        self._scheduled = False
        queue, self._queue = self._queue, {}
        for peer in queue:
            if self.active:
                self._turn(peer)

    def _turn(self, peer: Peer) -> None:
        """Do for the peer what can be done now; it may have been queued again, and be done."""
        while peer.flags & _DISCOVERING and not peer.gone:
            what = decide(peer.flags, self.push_due(peer), peer.error is not None)
            if not self._feed(peer, what) or what in _LAST:
                return
