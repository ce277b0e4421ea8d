"""The queue of large frames that one process offers: they are fetched in their order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from ulnet.rpc import Call

__all__ = ["AHEAD", "FetchQueue"]

# While so many bytes of the frames being fetched are still to come, other frames wait. If all were fetched at
# once, all would be whole at the end together, and nobody could compute with the first ones meanwhile.
AHEAD: Final = 16 << 20


class FetchQueue:
    """Fetches frames from one process, those first that were offered first."""

    __slots__ = ("_due", "_waiting")

    def __init__(self) -> None:
        self._due = 0  # bytes that are still to come
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()  # with the bytes of each

    @property
    def idle(self) -> bool:
        """Whether nothing is fetched, or waits for that."""
        return not self._due and not self._waiting

    async def fetch(self, call: Call, memory: memoryview, came: Callable[[int], None]) -> None:
        """All that the call lends, into that memory. Raises LNetError.

        `came` is told the bytes of each piece; what it raises ends it.
        """
        size = memory.nbytes
        await self._admitted(size)
        moved = 0

        def progress(now: int, _: int) -> None:
            nonlocal moved
            came(now - moved)
            self._came(now - moved)
            moved = now

        try:
            await call.pull(memory, progress=progress)
        finally:
            self._came(size - moved)

    async def _admitted(self, size: int) -> None:
        if self._due < AHEAD and not self._waiting:
            self._due += size
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, admitted))
        try:
            await admitted
        except asyncio.CancelledError:
            if not admitted.cancelled():  # its bytes are counted already
                self._came(size)
            raise

    def _came(self, count: int) -> None:
        """So many bytes are here, or will not come."""
        self._due -= count
        while self._waiting and self._due < AHEAD:
            size, admitted = self._waiting.popleft()
            if not admitted.done():
                self._due += size
                admitted.set_result(None)
