"""Moving a file by 1 MiB PUTs: straight from the mapped source into the mapped destination.

The sender announces the file with one PUT; when that is acknowledged, the receiver has opened the
destination's memory, a match entry for each GiB (a PUT's offset has 32 bits). Then data flows, a
bounded number of acknowledged PUTs at a time, over whichever rails the node chooses.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_PUT, TRUNCATE
from ulnet.core.status import LNetError
from ulnet.nid import Nid
from ulnet.node import Node
from ulnet.wire.lnet import LNET_MTU

__all__ = ["FileReceiver", "FileSender"]

_PORTAL = 32
_ANNOUNCE_BITS = 1 << 62
_SEGMENT = 1 << 30
_MAX_ANNOUNCEMENT = 4096


class FileReceiver:
    """Takes one file into `path`; `bytes_by_rail` counts what came to each local NID."""

    def __init__(self, node: Node, path: Path) -> None:
        self._node = node
        self._path = path
        self._expected = -1
        self._complete = asyncio.Event()
        self._map: mmap.mmap | None = None
        self.bytes_by_rail: Counter[Nid] = Counter()
        self.received = 0
        node.attach(
            _PORTAL, _ANNOUNCE_BITS, bytearray(_MAX_ANNOUNCEMENT), threshold=1, handler=self._announced
        )

    def _announced(self, event: Event) -> None:
        if event.kind is not EventKind.PUT or event.status:
            return
        self._expected = int(json.loads(bytes(event.data))["size"])
        with open(self._path, "w+b") as file:
            os.posix_fallocate(file.fileno(), 0, max(self._expected, 1))
            file.truncate(self._expected)
            if self._expected:
                self._map = mmap.mmap(file.fileno(), self._expected)
        if self._map is None:
            self._complete.set()
            return
        whole = memoryview(self._map)
        for start in range(0, self._expected, _SEGMENT):
            self._node.attach(
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
        self.bytes_by_rail[event.target] += event.mlength
        if self.received >= self._expected:
            self._complete.set()

    async def finished(self) -> None:
        """Wait until as many bytes have come as were announced, then write them to the file."""
        await self._complete.wait()
        if self._map is not None:
            await asyncio.to_thread(self._map.flush)


class FileSender:
    """Sends one file; `sent` counts acknowledged bytes."""

    def __init__(self, node: Node, target: Nid, path: Path, window: int = 16) -> None:
        self._node = node
        self._target = target
        self._path = path
        self._window = window
        self._size = path.stat().st_size
        self._next = 0
        self._in_flight = 0
        self._done: asyncio.Future[None] | None = None
        self._source = memoryview(b"")
        self.sent = 0

    async def run(self) -> None:
        """Announce and send the whole file. Raises LNetError for the first PUT that fails."""
        self._done = asyncio.get_running_loop().create_future()
        announcement = json.dumps({"name": self._path.name, "size": self._size}).encode()
        await self._node.put(self._target, _PORTAL, _ANNOUNCE_BITS, announcement)
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
        chunk = self._source[start : min(start + LNET_MTU, self._size)]
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
                if not self._in_flight and not self._done.done():
                    self._done.set_result(None)

        return handle


def _mapped(path: Path) -> memoryview:
    with open(path, "rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
