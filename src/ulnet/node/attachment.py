"""Memory that a program opened to its peers, and the events that happen on it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from ulnet.core.event import Event
from ulnet.core.md import Md
from ulnet.core.memory import Memory
from ulnet.core.portal import MatchEntry

__all__ = ["Attachment"]


class Attachment:
    """A match entry with its memory: close it, or read its events with `async for`.

    Events wait in a queue as long as the memory has operations left; with an endless threshold the
    reader must keep up, as with any queue.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._events: deque[Event] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self.me: MatchEntry | None = None
        self.md: Md | None = None

    def put_event(self, event: Event) -> None:
        """The MD's event handler."""
        self._events.append(event)
        if event.unlinked:
            self._ended = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next_event(self) -> Event:
        """The next event. Raises StopAsyncIteration after the last one."""
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._events.popleft()

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            try:
                event = await self.next_event()
            except StopAsyncIteration:
                return
            yield event

    def close(self) -> None:
        """Take the memory back; operations under way end first (their event is the last one)."""
        if self.me is not None:
            self._memory.me_unlink(self.me)
