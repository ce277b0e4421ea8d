"""What a server takes, and who is next: bounded, shared among clients, served in turn. No I/O, no clock.

Times are arguments, in seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

from ulnet.node.shares import Shares

__all__ = ["Admission"]

T = TypeVar("T")
_MOST_MS: Final = 2000
_BODIES: Final = 2  # may come however short the queue is: else one that does not come keeps out all others


class _Held(Generic[T]):
    """What has not begun of one key, and its bytes."""

    __slots__ = ("bytes", "coming", "key", "queue")

    def __init__(self, key: Hashable) -> None:
        self.key: Hashable = key
        self.queue: deque[tuple[T, int, bool]] = deque()
        self.coming: dict[T, tuple[int, bool]] = {}
        self.bytes: int = 0

    @property
    def count(self) -> int:
        """How many these are."""
        return len(self.queue) + len(self.coming)

    def newest(self) -> Iterator[tuple[T, int]]:
        """These, in the order in which they are sent away."""
        for item, (size, _) in reversed(self.coming.items()):
            yield item, size
        for item, size, _ in reversed(self.queue):
            yield item, size


class Admission(Generic[T]):
    """At most `concurrency` run at once; `queue` wait, with `queue_bytes` of data at most.

    Each key (a client) has a queue of its own, and they are served in turn. A request whose body is still to
    come waits beside them. Of those with `bulk`, which last as long as their client wants, a key has as many
    running as they leave places, at most; it is passed over while its next one is one too many.

    What has not begun makes room for a key that has less: the newest of who has most
    requests, if these are two more at least; or of who has most bytes, as long as these are more than the
    other one would have.
    """

    def __init__(self, concurrency: int, queue: int, queue_bytes: int) -> None:
        self._concurrency = concurrency
        self._most = queue
        self._room = queue_bytes
        self._held: dict[Hashable, _Held[T]] = {}
        self._turns: dict[Hashable, _Held[T]] = {}  # those with a queue; who is next is first
        self._passed: dict[Hashable, _Held[T]] = {}  # those that are passed over until one with bulk ends
        self._bulk = Shares(concurrency)
        self._refused: dict[Hashable, float] = {}  # the last two keys for which there was no room, and when
        self.running: int = 0
        self.queued: int = 0
        self.coming: int = 0  # whose bodies are
        self.bytes: int = 0  # of those that wait or run

    @property
    def waiting(self) -> int:
        """How many have not begun."""
        return self.queued + self.coming

    def enter(self, key: Hashable, size: int, bulk: bool = False) -> bool:
        """Whether one runs at once; it is handed to `done` then."""
        if (
            self._turns
            or self.running >= self._concurrency
            or (self.bytes and self.bytes + size > self._room)
            or (bulk and not self._bulk.take(key))
        ):
            return False
        self.running += 1
        self.bytes += size
        return True

    def offer(
        self, key: Hashable, item: T, size: int, now: float, *, body: bool = False, bulk: bool = False
    ) -> tuple[bool, list[T]]:
        """Whether an item is taken, and those that were sent away for it. Its `body` may have to come."""
        instead: list[T] = []
        needs_bytes = self.bytes > 0 and self.bytes + size > self._room
        if needs_bytes or self._is_full(body, bulk and not self._bulk.may_take(key)):
            held = self._held.get(key)
            loser = self._with_most_bytes(held, size) if needs_bytes else self._with_most(held)
            if loser is not None:
                instead = self._make_room(loser, held, size) if needs_bytes else [next(loser.newest())[0]]
            if loser is None or not instead:
                self._refuse(key, now)
                return False, instead
            for other in instead:
                self.remove(loser.key, other)
        held = self._held.get(key)
        if held is None:
            held = self._held[key] = _Held(key)
        held.bytes += size
        self.bytes += size
        if body:
            held.coming[item] = size, bulk
            self.coming += 1
        else:
            self._line_up(held, item, size, bulk)
        return True, instead

    def _is_full(self, body: bool, passed: bool) -> bool:
        """Whether there is no place for one more, which would be `passed` over or not."""
        free = self._concurrency - self.running
        if body:
            return self.waiting >= max(self._most + free, _BODIES)
        return (passed or bool(self._turns) or free <= 0) and self.waiting >= self._most

    def _with_most(self, held: _Held[T] | None) -> _Held[T] | None:
        """Who has most requests, if these are two more at least."""
        mine = held.count if held is not None else 0
        if mine + 1 >= self.waiting:
            return None
        loser = max(self._held.values(), key=lambda other: other.count)
        return loser if loser.count >= mine + 2 else None

    def _with_most_bytes(self, held: _Held[T] | None, size: int) -> _Held[T] | None:
        """Who has most bytes, if these are more than the other one would have."""
        mine = size + (held.bytes if held is not None else 0)
        if not self._held:
            return None
        loser = max(self._held.values(), key=lambda other: other.bytes)
        return loser if loser.bytes > mine else None

    def _make_room(self, loser: _Held[T], held: _Held[T] | None, size: int) -> list[T]:
        """What of the loser's has the bytes that are lacking; nothing, if that is more than may be taken."""
        mine = size + (held.bytes if held is not None else 0)
        lacking = self.bytes + size - self._room
        instead = []
        keeps = loser.bytes
        for item, its_size in loser.newest():
            if keeps <= mine:
                break
            if its_size:
                instead.append(item)
                keeps -= its_size
                lacking -= its_size
                if lacking <= 0:
                    return instead
        return []

    def _refuse(self, key: Hashable, now: float) -> None:
        self._refused.pop(key, None)
        self._refused[key] = now
        if len(self._refused) > 2:
            del self._refused[next(iter(self._refused))]

    def _line_up(self, held: _Held[T], item: T, size: int, bulk: bool) -> None:
        held.queue.append((item, size, bulk))
        if held.key not in self._passed:
            self._turns.setdefault(held.key, held)
        self.queued += 1

    def came(self, key: Hashable, item: T) -> None:
        """The body of an item is there: it waits for its turn."""
        held = self._held[key]
        size, bulk = held.coming.pop(item)
        self.coming -= 1
        self._line_up(held, item, size, bulk)

    def next(self) -> tuple[T, int, bool] | None:
        """Who runs now, its size, and whether it has bulk, to be handed to `done`.

        None: nobody waits that may, or enough run.
        """
        while self._turns and self.running < self._concurrency:
            held = self._turns.pop(next(iter(self._turns)))
            if held.queue[0][2] and not self._bulk.take(held.key):
                self._passed[held.key] = held
                continue
            found = held.queue.popleft()
            held.bytes -= found[1]
            if held.queue:
                self._turns[held.key] = held  # behind the others
            elif not held.coming:
                del self._held[held.key]
            self.queued -= 1
            self.running += 1
            return found
        return None

    def done(self, key: Hashable, size: int, bulk: bool = False) -> None:
        """One that ran has ended."""
        self.running -= 1
        self.bytes -= size
        if bulk:
            self._bulk.give(key)
            self._turns.update(self._passed)
            self._passed.clear()

    def remove(self, key: Hashable, item: T) -> bool:
        """Take one out that has not begun; False if it is not there."""
        held = self._held.get(key)
        if held is None:
            return False
        coming = held.coming.pop(item, None)
        if coming is not None:
            size = coming[0]
            self.coming -= 1
        else:
            for entry in held.queue:
                if entry[0] is item:
                    break
            else:
                return False
            held.queue.remove(entry)
            size = entry[1]
            self.queued -= 1
            if self._passed.pop(key, None) is not None:
                self._turns[key] = held  # its next one may be another now
            if not held.queue:
                del self._turns[key]
        held.bytes -= size
        self.bytes -= size
        if not held.queue and not held.coming:
            del self._held[key]
        return True

    def others_wait(self, key: Hashable, since: float) -> bool:
        """Whether another key has a request that waits for its turn, or had one without room `since` then."""
        if len(self._turns) > (key in self._turns) or len(self._passed) > (key in self._passed):
            return True
        return any(other != key and at >= since for other, at in self._refused.items())

    def retry_ms(self, service: float) -> int:
        """In how many milliseconds there may be room, where a call takes `service` seconds."""
        turns = (self.waiting + self.running) / self._concurrency
        return max(1, min(_MOST_MS, int(1000 * service * turns)))
