"""The order in which messages pass through a router: peer router credits, then buffers (spec routing.md §6).

A message takes a router credit of the peer NI that sent it, then a buffer. Without a credit it waits with
its sender, without a buffer with the pool; until then its connection is not read on, so that TCP slows
the sender down. A node that takes nothing can hold up no more messages than its senders have credits, and
no more than half of the buffers: what other senders send keeps flowing.

What a gateway sends needs no more than its credit (see `pools`). So in rows and trees of routers each of them
always takes what the next one has for it, and none waits for itself. In a ring of routers their credits may
all be taken by messages for the next one: a router of which nothing passes gets more, up to a bound, so that
the ring turns and messages reach their nets. Whatever still waits at its deadline is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from ulnet.core.msg import Transit
from ulnet.core.peer import PeerNi
from ulnet.core.routing.pools import BufferPool, Pools

__all__ = ["MAX_INSIDE", "MAX_WAITING", "Gate"]

# Messages without payload that may wait for one peer NI's credits: they do not stall its connection.
MAX_WAITING: Final = 16384
MAX_INSIDE: Final = 131072  # messages in all: of one sender no more wait than others leave
_MOST: Final = 3  # times its credits, that a router gets beyond them while nothing of it passes


class Gate:
    """Credits and queues. `admit` is called for each message that has all it needs, never from `leave`.

    `soon` calls a function later, outside the present stack. `waits` is told when a message begins to wait;
    while any does, `relieve` is to be called again and again.
    """

    __slots__ = ("_admit", "_extra", "_inside", "_queues", "_soon", "_stuck", "_waits", "pools")

    def __init__(
        self,
        pools: Pools,
        admit: Callable[[Transit], None],
        soon: Callable[[Callable[[Transit], None], Transit], None],
        waits: Callable[[], None] = lambda: None,
    ) -> None:
        self.pools: Pools = pools
        self._admit: Callable[[Transit], None] = admit
        self._soon: Callable[[Callable[[Transit], None], Transit], None] = soon
        self._waits: Callable[[], None] = waits
        self._queues: dict[PeerNi, deque[Transit]] = {}
        self._extra: dict[PeerNi, int] = {}  # credits that routers have beyond theirs, for the time being
        self._stuck: dict[PeerNi, None] = {}  # those that wait, and of which nothing has passed lately
        self._inside = 0

    def __len__(self) -> int:
        """Messages that pass through or wait to."""
        return self._inside

    def enter(self, transit: Transit) -> bool:
        """A message came; False if it must be dropped: too many of its kind wait."""
        sender = transit.sender
        credits = sender.rtr_credits - 1
        if -credits > min(MAX_WAITING, max(MAX_INSIDE - self._inside, 0)):  # who has credits may always
            return False
        self._inside += 1
        sender.rtr_credits = credits
        if credits < sender.min_rtr_credits:
            sender.min_rtr_credits = credits
        if credits < 0 and (-credits > self._extra.get(sender, 0) or sender in self._queues):
            self._queues.setdefault(sender, deque()).append(transit)
            self._waits()
        elif self._has_buffer(transit):
            self._admit(transit)
        return True

    def leave(self, transit: Transit) -> None:
        """A message has passed, or will not: its buffer and its credit go to those who wait longest."""
        if transit.left:
            return
        transit.left = True
        self._inside -= 1
        pool = self._pool_of(transit)
        if not transit.has_credit:  # it waited with its sender
            self._queues[transit.sender].remove(transit)
        elif transit.buffer is None:
            pool.leave_queue(transit)
        else:
            pool.take_back(transit)
            self._next_for(pool)
        self._return_credit(transit.sender)

    def _next_for(self, pool: BufferPool) -> None:
        while (waiter := pool.serve_next()) is not None:
            self._soon(self._admit_late, waiter)

    def _return_credit(self, sender: PeerNi) -> None:
        sender.rtr_credits += 1
        if self._extra and sender.rtr_credits >= 0:
            self._extra.pop(sender, None)
        queue = self._queues.get(sender)
        if queue is None:
            return
        self._stuck.pop(sender, None)
        self._serve(sender, queue)

    def _serve(self, sender: PeerNi, queue: deque[Transit]) -> None:
        """Those that wait with their sender have the credits that are there."""
        most = self._extra.get(sender, 0)
        while queue and -sender.rtr_credits - len(queue) < most:
            waiter = queue.popleft()
            if self._has_buffer(waiter):
                self._soon(self._admit_late, waiter)
        if not queue:
            del self._queues[sender]

    def _pool_of(self, transit: Transit) -> BufferPool:
        return self.pools.fitting(transit.hdr.payload_length, transit.cpt)

    def _has_buffer(self, transit: Transit) -> bool:
        """Whether a message that has a credit has a buffer, too; else it waits for one."""
        transit.has_credit = True
        if self._pool_of(transit).give_or_queue(transit):
            return True
        self._waits()
        return False

    def _admit_late(self, transit: Transit) -> None:
        if not transit.left:  # it may have been dropped meanwhile
            self._admit(transit)

    def relieve(self) -> None:
        """Give routers more credits, of which nothing has passed since the last call."""
        for sender in self._stuck:
            queue = self._queues[sender]
            credits, extra = sender.max_rtr_credits, self._extra.get(sender, 0)
            if queue[0].from_router and extra < _MOST * credits:
                self._extra[sender] = extra + credits
                self._serve(sender, queue)
        self._stuck = dict.fromkeys(self._queues)

    @property
    def anything_waits(self) -> bool:
        """Whether any message waits for a credit or a buffer."""
        return bool(self._queues) or any(pool.waiting for pool in self.pools)

    def waiting(self) -> Iterator[Transit]:
        """All that wait for a credit or a buffer."""
        for queue in list(self._queues.values()):
            yield from list(queue)
        for pool in self.pools:
            yield from pool.queued()

    def resized(self) -> None:
        """The pools have other sizes: who waits may have a buffer now."""
        for pool in self.pools:
            self._next_for(pool)
