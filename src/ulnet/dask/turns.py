"""In which order the large frames of one process are fetched."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from distributed.protocol.utils import host_array

from ulnet.rpc import Call

__all__ = ["AHEAD", "Turns"]

# Bytes that are still to come, of frames that are being fetched, from which on others wait. All at once
# would be whole at the end together, and nobody would compute with the first ones meanwhile.
AHEAD: Final = 16 << 20


class Turns:
    """Fetches frames from one process, those first that were offered first."""

    __slots__ = ("_due", "_waiting")

    def __init__(self) -> None:
        self._due = 0  # bytes that are still to come
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()  # with the bytes of each

    @property
    def idle(self) -> bool:
        """Whether nothing is fetched, or waits for that."""
        return not self._due and not self._waiting

    async def fetch(self, call: Call, size: int) -> memoryview:
        """All that the call lends, in new memory. Raises LNetError."""
        await self._turn(size)
        moved = 0

        def progress(now: int, _: int) -> None:
            nonlocal moved
            self._came(now - moved)
            moved = now

        try:
            frame: memoryview = host_array(size)
            await call.pull(frame, progress=progress)
        finally:
            self._came(size - moved)
        return frame

    async def _turn(self, size: int) -> None:
        if self._due < AHEAD and not self._waiting:
            self._due += size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had its turn already
                self._came(size)
            raise

    def _came(self, count: int) -> None:
        """So many bytes are here, or will not come."""
        self._due -= count
        while self._waiting and self._due < AHEAD:
            size, turn = self._waiting.popleft()
            if not turn.done():
                self._due += size
                turn.set_result(None)
