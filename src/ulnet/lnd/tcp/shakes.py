"""Whose turn it is with the TLS handshake: a step of it takes most of a millisecond."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["Shakes"]

_STEPS: Final = 2  # in one turn of the loop


class Shakes:
    """Steps of handshakes that wait for their turn, those of each address in their order.

    Addresses take turns, and so does what else the loop has to do.
    """

    __slots__ = ("_loop", "_scheduled", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._scheduled = False
        self._waiting: dict[str, deque[Callable[[], bool]]] = {}

    def later(self, address: str, step: Callable[[], bool]) -> None:
        """Take a step for that address in its turn; it tells whether there was anything to do."""
        waiting = self._waiting.get(address)
        if waiting is None:
            waiting = self._waiting[address] = deque()
        waiting.append(step)
        self._schedule()

    def _turn(self) -> None:
        self._scheduled = False
        left = _STEPS
        try:
            while left and self._waiting:
                address = next(iter(self._waiting))
                waiting = self._waiting.pop(address)
                step = waiting.popleft()
                if waiting:
                    self._waiting[address] = waiting
                if step():
                    left -= 1
        finally:
            self._schedule()

    def _schedule(self) -> None:
        if self._waiting and not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)
