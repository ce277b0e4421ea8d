"""HTTP connections of `ulnet dash`: so many at once, and each asks for something in time."""

from __future__ import annotations

import asyncio
import resource
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

from ulnet.observe.clients import who_gives_way

__all__ = ["AT_ONCE", "Connection", "allow_files"]

AT_ONCE: Final = 64  # connections that are accepted before the event loop does something else
_MOST: Final = 256
_SLOW: Final = 10.0  # seconds in which a request must have come
_AHEAD: Final = 65536  # bytes behind a request that is being answered: browsers send none
_FILES: Final = 4096  # descriptors that are enough, whatever nodes are asked, and how


def allow_files() -> None:
    """Let this process have as many descriptors as it needs, where the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, _FILES), hard))


class Connection(H11Protocol):
    """A client's connection.

    One too many takes the place of another: of the address that has most, first of those that ask for
    nothing, the one that came first.
    """

    _since: float
    _slow: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It has a place."""
        super().connection_made(transport)
        self._since = self.loop.time()
        self._must_ask()
        # A quarter of the descriptors: those that are accepted at once come before any is closed.
        if len(self.connections) > min(_MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4):
            others = [one for one in self.connections if isinstance(one, Connection) and one is not self]
            others.sort(key=lambda one: (not one._asks_nothing, one._since))
            leaves = who_gives_way((one.client[0] if one.client else "", one) for one in others)
            if leaves is not None:
                leaves._hang_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        self._has_asked()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """A part of a request, or more."""
        super().data_received(data)
        if not self._asks_nothing:
            self._has_asked()
            if len(self.conn.trailing_data[0]) > _AHEAD:  # else it would grow with each answer
                self._hang_up()
        elif self._slow is None:
            self._must_ask()

    @property
    def _asks_nothing(self) -> bool:
        """Whether no request is being answered."""
        cycle: Any = self.cycle
        return cycle is None or bool(cycle.response_complete)

    def _must_ask(self) -> None:
        self._slow = self.loop.call_later(_SLOW, self._was_slow)

    def _has_asked(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _was_slow(self) -> None:
        self._slow = None
        if self._asks_nothing:
            self._hang_up()

    def _hang_up(self) -> None:
        self.connections.discard(self)  # it is closed in a moment
        self.transport.abort()
