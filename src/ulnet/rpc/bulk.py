"""Bulk of any size: memory that a client lends, and how a server moves it, piece by piece over all rails."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from typing import Final

from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_GET, OP_PUT, Buffer, fragments_of
from ulnet.core.memory import MatchEntry, Memory
from ulnet.core.status import LNetError
from ulnet.nid import Nid
from ulnet.node import Node
from ulnet.rpc.errors import RpcError
from ulnet.rpc.estimate import Estimate
from ulnet.wire.lnet import LNET_MTU
from ulnet.wire.rpc import BULK_PORTAL, MAX_BULK, REGION, Bulk

__all__ = ["Loan", "Meter", "Progress", "flat", "move"]

Progress = Callable[[int, int], None]  # bytes that were moved, of so many
_PAUSE: Final = 0.05  # seconds, doubled up to
_LONG_PAUSE: Final = 1.0
_FIRST_PIECE: Final = 2.5  # seconds that a piece may take, before the first has come
_LEAST_PIECE: Final = 1.0
_LEAST_PUSHED: Final = 5.0  # LNet itself mends what can be mended
_MOST_PATIENCE: Final = 64.0  # seconds for a piece, after others were in vain
_MOVED: Final = (EventKind.PUT, EventKind.GET)
# What ends a transfer at once: the client has taken its memory away, or this node is closed.
_FINAL: Final = frozenset({errno.ENOENT, errno.EMSGSIZE, errno.EINVAL, errno.EPROTO})


def flat(memory: Buffer) -> memoryview:
    """The memory as bytes, not copied. Raises LNetError(EINVAL)."""
    return fragments_of(memory)[0]


class Meter:
    """How much of the memory that a call lends was moved: `progress` hears of each piece, and of none twice.

    What it raises ends the call, whose task this is made in.
    """

    __slots__ = ("_moved", "_progress", "_seen", "_task", "failed", "total")

    def __init__(self, progress: Progress) -> None:
        self._progress: Progress | None = progress
        self._moved = 0
        self._seen: set[tuple[int, int]] = set()  # match bits and offsets
        self._task = asyncio.current_task()
        self.total = 0
        self.failed: Exception | None = None

    def __call__(self, event: Event) -> None:
        """Of the memory."""
        place = event.match_bits, event.offset
        if self._progress is None or event.status or event.kind not in _MOVED or place in self._seen:
            return
        self._seen.add(place)
        self._moved += event.mlength
        try:
            self._progress(self._moved, self.total)
        except Exception as failed:
            self.failed = failed
            self.end()
            if self._task is not None:
                self._task.cancel()

    def end(self) -> None:
        """The call has ended."""
        self._progress = None


class Loan:
    """Memory of a client that its server may write to, or read: `bulk` is what the request tells of it."""

    __slots__ = ("_entries", "_memory", "bulk", "view")

    def __init__(
        self,
        memory: Memory,
        view: memoryview,
        bits: int,
        *,
        writable: bool,
        meter: Meter | None = None,
    ) -> None:
        if view.nbytes > MAX_BULK:
            raise RpcError(
                errno.EMSGSIZE, f"bulk of {view.nbytes} bytes: at most {MAX_BULK}; make several calls", "no"
            )
        if writable and view.readonly:
            raise RpcError(errno.EINVAL, "into read-only memory: give a bytearray or a writable view", "no")
        self.view = view
        self.bulk = Bulk(bits, view.nbytes)
        self._memory = memory
        self._entries: list[MatchEntry] = []
        options = (OP_PUT if writable else OP_GET) | MANAGE_REMOTE
        try:
            for number, begin in enumerate(range(0, view.nbytes, REGION)):
                me = memory.me_attach(BULK_PORTAL, match_bits=bits + number)
                self._entries.append(me)
                memory.md_attach(me, view[begin : begin + REGION], meter, options=options)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Take the memory back."""
        for me in self._entries:
            self._memory.me_unlink(me)
        self._entries.clear()


async def move(
    node: Node,
    client: Nid,
    bulk: Bulk,
    memory: memoryview,
    offset: int,
    *,
    push: bool,
    window: int,
    time_left: Callable[[], float | None],
    progress: Progress | None,
) -> None:
    """Move all of `memory` to (or, without `push`, from) that offset of a client's bulk.

    `window` pieces are under way at once. A piece that fails is moved again while time is left. Raises
    LNetError.
    """
    total = memory.nbytes
    if not 0 <= offset <= offset + total <= bulk.length:
        raise RpcError(
            errno.EINVAL,
            f"bulk of {total} bytes at {offset}: the client lends {bulk.length} bytes (into_size, bulk_size)",
        )
    pieces = _pieces(memory, offset)
    moved = 0
    mover = _Mover(node, client, push, time_left)

    async def work() -> None:
        nonlocal moved
        for at, piece in pieces:
            await mover.move(piece, bulk.bits + at // REGION, at % REGION)
            moved += piece.nbytes
            if progress is not None:
                progress(moved, total)

    workers = min(window, -(-total // LNET_MTU))
    if workers == 1:
        await work()
        return
    tasks = [asyncio.ensure_future(work()) for _ in range(workers)]
    try:
        await asyncio.gather(*tasks)
    except GeneratorExit:  # its loop is gone
        raise
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # nothing touches the memory after this
        raise


def _pieces(memory: memoryview, offset: int) -> Iterator[tuple[int, memoryview]]:
    """Places in the client's bulk, and what belongs there: no piece is in two regions."""
    begin = 0
    while begin < memory.nbytes:
        at = offset + begin
        size = min(LNET_MTU, REGION - at % REGION)
        yield at, memory[begin : begin + size]
        begin += size


class _Mover:
    """Moves pieces of one transfer, each until it is there.

    LNet sends a PUT again over another path if that one dies. One whose ACK is lost, or a GET whose REPLY is,
    it reports after its time-out, which is therefore that of a piece here, by those that came: each attempt
    has twice as long.
    """

    def __init__(self, node: Node, client: Nid, push: bool, time_left: Callable[[], float | None]) -> None:
        self._node = node
        self._client = client
        self._push = push
        self._time_left = time_left
        self._times = Estimate(_FIRST_PIECE)
        self._clock = asyncio.get_running_loop().time

    async def move(self, piece: memoryview, bits: int, place: int) -> None:
        """Raises LNetError for what no further attempt can mend, or when time is over."""
        node, client = self._node, self._client
        pause = _PAUSE
        patience = max(_LEAST_PUSHED if self._push else _LEAST_PIECE, 4 * self._times.expected)
        while True:
            left = self._time_left()
            if left is not None and left <= 0:
                raise RpcError(errno.ETIMEDOUT, "the call's time is over before its bulk was moved")
            try:
                began = self._clock()
                wait = patience if left is None else min(patience, left)
                async with asyncio.timeout(wait):  # also of a REPLY that has begun to come
                    if self._push:
                        moved = await node.put(client, BULK_PORTAL, bits, piece, offset=place, timeout=wait)
                    else:
                        moved = await node.get(client, BULK_PORTAL, bits, piece, offset=place, timeout=wait)
                if moved != piece.nbytes:
                    raise RpcError(errno.EPROTO, "the client lends less memory than it has said")
                self._times.observe(self._clock() - began)
                return
            except LNetError as failed:
                if failed.errno in _FINAL or not node.running:
                    raise
            except TimeoutError:
                pass
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONG_PAUSE)
            patience = min(2 * patience, _MOST_PATIENCE)
