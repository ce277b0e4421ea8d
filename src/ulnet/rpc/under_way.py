"""How much a server has under way to or from each of its clients: who does not move it gets no more."""

from __future__ import annotations

import asyncio
from typing import Final

from ulnet.nid import Nid

__all__ = ["UnderWay"]

_BESIDE: Final = 1024  # bytes that a message under way takes beside its own
_NEXT: Final = 2  # that wait go on when a message has ended: those under way may become more again


class UnderWay:
    """Bytes under way, of about `room` for all clients, in messages of any size.

    A client may have more as long as it has less than is left: half of all if it is alone. Its streams leave
    some of that for its calls. Who has nothing under way may have a message.
    """

    __slots__ = ("_left", "_own", "_room", "_waiting")

    def __init__(self, room: int) -> None:
        self._room = room
        self._left = room
        self._own: dict[Nid, int] = {}
        self._waiting: dict[Nid, dict[asyncio.Event, None]] = {}

    @property
    def total(self) -> int:
        """How many they are."""
        return self._room - self._left

    def may_have_more(self, client: Nid) -> bool:
        """Whether one more message may be sent to that client."""
        own = self._own.get(client, 0)
        return not own or own < self._left

    def may_stream(self, client: Nid) -> bool:
        """Whether that may be the chunk of a stream."""
        own = self._own.get(client, 0)
        return not own or 2 * own < self._left

    def add(self, client: Nid, size: int) -> None:
        """A message of that size is sent to the client."""
        size += _BESIDE
        self._own[client] = self._own.get(client, 0) + size
        self._left -= size

    def ended(self, client: Nid, size: int) -> None:
        """One of that size is not under way any more."""
        size += _BESIDE
        self._left += size
        own = self._own[client] - size
        if own:
            self._own[client] = own
        else:
            del self._own[client]
        if self._waiting and client in self._waiting and self.may_stream(client):
            self._go_on(client, all_of_them=not own)

    def _go_on(self, client: Nid, all_of_them: bool) -> None:
        waiting = self._waiting[client]
        for news in list(waiting)[: None if all_of_them else _NEXT]:
            del waiting[news]
            news.set()
        if not waiting:
            del self._waiting[client]

    async def wait(self, client: Nid, news: asyncio.Event) -> None:
        """Wait until the client, which may have no chunk now, may have one, or for other news."""
        self._waiting.setdefault(client, {})[news] = None
        try:
            news.clear()
            await news.wait()
        finally:
            waiting = self._waiting.get(client)
            if waiting is not None and news in waiting:
                del waiting[news]
                if not waiting:
                    del self._waiting[client]
