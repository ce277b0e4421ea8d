"""Notifications to many: what is published goes to each subscriber, as a stream."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from ulnet.rpc.errors import RpcError

if TYPE_CHECKING:
    from ulnet.rpc.call import Call

__all__ = ["Topic"]


class _Subscriber:
    __slots__ = ("_client", "_turns", "call", "news", "waiting")

    def __init__(self, call: Call) -> None:
        self.call = call
        self._turns = call.turns
        self._client = call.session.owner
        self.waiting: deque[Any] = deque()
        self.news = asyncio.Event()

    def go_on(self) -> None:
        """There is something for it."""
        self._turns.add(self._client, self.news.set)

    def lose(self, why: str) -> None:
        """Its stream ends, also where that waits for credit, and nothing is kept for it."""
        self.waiting.clear()
        self.call.lost = why
        assert self.call.news is not None
        for news in (self.news, self.call.news):
            self._turns.add(self._client, news.set)

    def end(self) -> None:
        """It is one no more."""
        self._turns.discard(self._client, self.news.set)


class Topic:
    """A stream without an end of its own. A subscriber for whom `backlog` notifications wait loses these
    and its subscription when the next one comes: its stream ends with ENOBUFS, behind what was sent.
    """

    def __init__(self, name: str, backlog: int) -> None:
        self.name = name
        self._backlog = backlog
        self._subscribers: set[_Subscriber] = set()

    @property
    def subscribers(self) -> int:
        """How many there are."""
        return len(self._subscribers)

    def publish(self, value: Any) -> None:
        """Tell all who subscribe now; nobody is waited for."""
        for subscriber in self._subscribers:
            if subscriber.call.lost:
                continue
            if len(subscriber.waiting) >= self._backlog:
                subscriber.lose(
                    f"{self.name}: notifications were lost, since {self._backlog} waited to be read: "
                    "subscribe anew, and read them sooner"
                )
            else:
                subscriber.waiting.append(value)
                subscriber.go_on()

    async def feed(self, call: Call) -> AsyncIterator[Any]:
        """The stream of one subscriber."""
        mine = _Subscriber(call)
        self._subscribers.add(mine)
        try:
            while True:
                while mine.waiting:
                    yield mine.waiting.popleft()
                if call.lost:
                    raise RpcError(errno.ENOBUFS, call.lost)
                mine.news.clear()
                await mine.news.wait()
        finally:
            self._subscribers.discard(mine)
            mine.end()
