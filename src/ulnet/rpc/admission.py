"""What a server takes, and who is next: bounded queues, served in turn. No I/O, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ["Admission"]

T = TypeVar("T")
_MOST_MS = 2000


class Admission(Generic[T]):
    """At most `concurrency` run at once; `queue` wait, with `queue_bytes` of data at most.

    Each key (a client) has a queue of its own, and they are served in turn. `running` counts those that run.
    """

    def __init__(self, concurrency: int, queue: int, queue_bytes: int) -> None:
        self._concurrency = concurrency
        self._most = queue
        self._room = queue_bytes
        self._queues: dict[Hashable, deque[tuple[T, int]]] = {}  # in the order in which they are served
        self.running: int = 0
        self.waiting: int = 0
        self.bytes: int = 0  # of those that wait or run

    def enter(self, size: int) -> bool:
        """Whether one runs at once; it is handed to `done` then."""
        if (
            self.waiting
            or self.running >= self._concurrency
            or (self.bytes and self.bytes + size > self._room)
        ):
            return False
        self.running += 1
        self.bytes += size
        return True

    def offer(self, key: Hashable, item: T, size: int) -> tuple[bool, T | None]:
        """Whether an item is taken, and the one that was sent away for it."""
        instead = None
        idle = not self.waiting and self.running < self._concurrency
        if self.bytes and self.bytes + size > self._room:
            return False, None
        if not idle and self.waiting >= self._most:
            instead = self._displace(key)
            if instead is None:
                return False, None
        self._queues.setdefault(key, deque()).append((item, size))
        self.waiting += 1
        self.bytes += size
        return True, instead

    def _displace(self, key: Hashable) -> T | None:
        """The newest of the longest queue, if that has at least two more than the one of `key`."""
        mine = len(self._queues.get(key, ()))
        if not self._queues or mine + 1 >= self.waiting:
            return None
        longest = max(self._queues, key=lambda other: len(self._queues[other]))
        queue = self._queues[longest]
        if len(queue) < mine + 2:
            return None
        item, size = queue.pop()
        self.waiting -= 1
        self.bytes -= size
        return item

    def next(self) -> tuple[T, int] | None:
        """Who runs now, and its size, to be handed to `done`; None: nobody waits, or enough run."""
        if not self.waiting or self.running >= self._concurrency:
            return None
        key = next(iter(self._queues))
        queue = self._queues.pop(key)
        found = queue.popleft()
        if queue:
            self._queues[key] = queue  # behind the others
        self.waiting -= 1
        self.running += 1
        return found

    def done(self, size: int) -> None:
        """One that ran has ended."""
        self.running -= 1
        self.bytes -= size

    def remove(self, key: Hashable, item: T) -> bool:
        """Take one out that waits; False if it does not."""
        queue = self._queues.get(key)
        for entry in queue or ():
            if entry[0] is item:
                assert queue is not None
                queue.remove(entry)
                if not queue:
                    del self._queues[key]
                self.waiting -= 1
                self.bytes -= entry[1]
                return True
        return False

    def retry_ms(self, service: float) -> int:
        """In how many milliseconds there may be room, where a call takes `service` seconds."""
        turns = (self.waiting + self.running) / self._concurrency
        return max(1, min(_MOST_MS, int(1000 * service * turns)))
