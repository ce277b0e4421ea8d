"""Memory that a program opened to its peers, and the events that happen on it."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from typing import Self

from ulnet.core.event import Event
from ulnet.core.md import Md
from ulnet.core.memory import MatchEntry, Memory
from ulnet.core.status import LNetError

__all__ = ["MAX_EVENTS", "Attachment"]

# Events that may wait to be read: peers decide how many there are.
MAX_EVENTS = 65536


class Attachment:
    """A match entry with its memory: close it, or read its events with `async for`.

    Where more than MAX_EVENTS wait to be read, those that follow are lost; the reader is told when it
    comes to the gap. Memory with a handler of its own has no events here.
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._events: deque[Event | None] = deque()  # None: some were lost here
        self._news = asyncio.Event()
        self._ended = False
        self.me: MatchEntry | None = None
        self.md: Md | None = None

    def put_event(self, event: Event) -> None:
        """The MD's event handler."""
        events = self._events
        if event.unlinked:
            self._ended = True
            events.append(event)
        elif len(events) < MAX_EVENTS:
            events.append(event)
        elif events[-1] is not None:
            events.append(None)
        self._news.set()

    async def next_event(self) -> Event:
        """The next event. Raises StopAsyncIteration after the last, LNetError(ENOBUFS) at a gap."""
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        event = self._events.popleft()
        if event is None:
            raise LNetError(
                errno.ENOBUFS,
                f"events were lost, because {MAX_EVENTS} waited to be read: read them sooner, "
                "or attach the memory with a handler or a threshold",
            )
        return event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        return await self.next_event()

    def close(self) -> None:
        """Take the memory back; operations under way end first (their event is the last one)."""
        if self.me is not None:
            self._memory.me_unlink(self.me)
