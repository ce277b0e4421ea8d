"""Moving a file by 1 MiB PUTs: straight from the mapped source into the mapped destination.

The receiver opens the destination's memory, a match entry for each GiB (a PUT's offset has 32 bits).
The sender keeps a bounded number of acknowledged PUTs under way, over whichever rails the node chooses.
"""

from __future__ import annotations

import asyncio
import mmap
import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_PUT, TRUNCATE
from ulnet.core.status import LNetError
from ulnet.nid import Nid
from ulnet.node import Node
from ulnet.wire.lnet import LNET_MTU

__all__ = ["PACED_PIECES", "SMALLEST_CHUNK", "FileReceiver", "FileSender"]

_PORTAL = 60  # one that Lustre does not use
_SEGMENT = 1 << 30
SMALLEST_CHUNK = 4096
PACED_PIECES = 400  # at least so many: a cut must find some on their way
_TOGETHER = 2  # for each rail, where it is paced: one at a time would always take the rail that seems fastest
_MADV_POPULATE_WRITE = 23  # Linux 5.14; Python 3.11's mmap does not name it


class FileReceiver:
    """Takes `size` bytes into `path`; `bytes_by_rail` counts what came to each local NID.

    `rails` tells of the sender's NIDs which of ours they reach, where what is sent names others (bonding).
    """

    def __init__(self, node: Node, path: Path, size: int, rails: Mapping[Nid, Nid] | None = None) -> None:
        self._size = size
        self._rails = rails or {}
        self._complete = asyncio.Event()
        self.bytes_by_rail: Counter[Nid] = Counter()
        self.received: int = 0
        self._map = _allocated(path, size)
        if self._map is None:
            self._complete.set()
            return
        whole = memoryview(self._map)
        for start in range(0, size, _SEGMENT):
            node.attach(
                _PORTAL,
                start // _SEGMENT,
                whole[start : start + _SEGMENT],
                options=OP_PUT | MANAGE_REMOTE | TRUNCATE,
                handler=self._arrived,
            )

    def _arrived(self, event: Event) -> None:
        if event.kind is not EventKind.PUT or event.status:
            return
        self.received += event.mlength
        self.bytes_by_rail[self._rails.get(event.sender, event.target)] += event.mlength
        if self.received >= self._size:
            self._complete.set()

    async def finished(self) -> None:
        """Wait until every byte has come, then write them to the file."""
        await self._complete.wait()
        if self._map is not None:
            await asyncio.to_thread(self._map.flush)


def _allocated(path: Path, size: int) -> mmap.mmap | None:
    """A new file of that size in memory, its pages present: the move should not wait for them."""
    with open(path, "w+b") as file:
        if not size:
            return None
        os.posix_fallocate(file.fileno(), 0, size)
        mapped = mmap.mmap(file.fileno(), size)
    with suppress(OSError):
        mapped.madvise(_MADV_POPULATE_WRITE)
    return mapped


class FileSender:
    """Sends one file in PUTs of up to 1 MiB (smaller ones where that gives each rail less than 8).

    `pace` is the most it sends in a second, in bytes; pieces are smaller then too, and some leave together.
    """

    def __init__(
        self, node: Node, target: Nid, path: Path, rails: int, *, window: int = 16, pace: float = 0.0
    ) -> None:
        self._node = node
        self._target = target
        self._path = path
        self._window = window
        self._size = path.stat().st_size
        self._pace = pace
        pieces = PACED_PIECES if pace else 8 * rails
        self._chunk = min(LNET_MTU, max(SMALLEST_CHUNK, self._size // pieces))
        self._together = min(_TOGETHER * rails, window) * self._chunk
        self._began = 0.0
        self._next = 0
        self._in_flight = 0
        self._done: asyncio.Future[None] | None = None
        self._source = memoryview(b"")
        self.sent = 0

    async def run(self) -> None:
        """Send the whole file. Raises LNetError for the first PUT that fails."""
        loop = asyncio.get_running_loop()
        self._done = loop.create_future()
        self._began = loop.time()
        if not self._size:
            return
        self._source = _mapped(self._path)
        for _ in range(self._window):
            self._send_next()
        await self._done

    def _send_next(self) -> None:
        start = self._next
        if start >= self._size or self._done is None or self._done.done():
            return
        if self._pace:
            loop = self._done.get_loop()
            due = self._began + (start - start % self._together) / self._pace
            if loop.time() < due:
                loop.call_at(due, self._send_next)
                return
        chunk = self._source[start : min(start + self._chunk, self._size, (start // _SEGMENT + 1) * _SEGMENT)]
        self._next = start + chunk.nbytes
        self._in_flight += 1
        core = self._node.core
        core.put(
            core.memory.md_bind(chunk, self._acknowledger(chunk.nbytes), threshold=2),
            self._target,
            _PORTAL,
            start // _SEGMENT,
            offset=start % _SEGMENT,
        )

    def _acknowledger(self, length: int) -> Callable[[Event], None]:
        def handle(event: Event) -> None:
            assert self._done is not None
            if event.status:
                if not self._done.done():
                    self._done.set_exception(LNetError(-event.status, event.reason or "a PUT failed"))
            elif event.kind is EventKind.ACK:
                self._in_flight -= 1
                self.sent += length
                self._send_next()
                if not self._in_flight and self._next >= self._size and not self._done.done():
                    self._done.set_result(None)

        return handle


def _mapped(path: Path) -> memoryview:
    with open(path, "rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
