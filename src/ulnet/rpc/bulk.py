"""Bulk of any size: memory that a client lends, and how a server moves it, piece by piece over all rails."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from contextvars import copy_context
from typing import Final, NamedTuple

from ulnet.control.instance import LNet
from ulnet.core.event import Event, EventKind
from ulnet.core.md import MANAGE_REMOTE, OP_GET, OP_PUT, Buffer, fragments_of
from ulnet.core.memory import MatchEntry
from ulnet.nid import Nid
from ulnet.node.port import Port, Sent
from ulnet.node.watch import Watch
from ulnet.rpc.errors import RpcError
from ulnet.rpc.estimate import Estimate
from ulnet.wire.lnet import LNET_MTU
from ulnet.wire.rpc import BULK_PORTAL, MAX_BULK, REGION, Bulk

__all__ = ["Loan", "Meter", "Progress", "Stalled", "flat", "move"]

Progress = Callable[[int, int], None]  # bytes that were moved, of so many
_PAUSE: Final = 0.05  # seconds, doubled up to
_LONG_PAUSE: Final = 1.0
_LEAST_SIZE: Final = 4096  # bytes of a piece
_FAST: Final = 0.008  # seconds: a piece that is there sooner has larger ones behind it
_FIRST_PIECE: Final = 2.5  # seconds that a piece may take, before the first has come
_LEAST_PIECE: Final = 1.0
_LEAST_PUSHED: Final = 5.0  # LNet itself mends what can be mended
_MOST_PATIENCE: Final = 64.0  # seconds for a piece, after others were in vain
_NOTHING: Final = memoryview(b"")
_MOVED: Final = (EventKind.PUT, EventKind.GET)
_WATCHED: Final = 30.0  # seconds, in which a transfer must move …
_LEAST_MOVED: Final = LNET_MTU  # … so many bytes, or its rest, while other clients wait
_PLACES: Final = 1024  # of pieces: so many are kept, to tell of none twice, …
_MEAN: Final = 4096  # … and one more for each so many bytes that are lent
# What ends a transfer at once: the client has taken its memory away, its access lists or ours deny that, or
# this node is closed.
_FINAL: Final = frozenset({errno.ENOENT, errno.EACCES, errno.EMSGSIZE, errno.EINVAL, errno.EPROTO})


class Stalled(RpcError):
    """A transfer that hardly moves was given up, for other clients."""


def flat(memory: Buffer) -> memoryview:
    """The memory as bytes, not copied. Raises LNetError(EINVAL)."""
    return fragments_of(memory)[0]


class Meter:
    """How much of the memory that a call lends was moved: `progress` hears of each piece, and of none twice.

    The places of pieces are kept for that, 1,024 and one for each 4 KiB lent; it hears of no piece beyond
    those. What it raises ends the call, whose task this is made in.
    """

    __slots__ = ("_moved", "_progress", "_seen", "_task", "failed", "total")

    def __init__(self, progress: Progress) -> None:
        self._progress: Progress | None = progress
        self._moved = 0
        self._seen: set[tuple[int, int]] = set()  # match bits and offsets
        self._task = asyncio.current_task()
        self.total: int = 0
        self.failed: Exception | None = None

    def __call__(self, event: Event) -> None:
        """Of the memory."""
        place = event.match_bits, event.offset
        if self._progress is None or event.status or event.kind not in _MOVED or place in self._seen:
            return
        if len(self._seen) >= _PLACES + self.total // _MEAN:
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

    __slots__ = ("_core", "_entries", "bulk", "view")

    def __init__(
        self,
        core: LNet,
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
        self.view: memoryview = view
        self.bulk: Bulk = Bulk(bits, view.nbytes)
        self._core = core
        self._entries: list[MatchEntry] = []
        options = (OP_PUT if writable else OP_GET) | MANAGE_REMOTE
        try:
            for number, begin in enumerate(range(0, view.nbytes, REGION)):
                me = core.memory.me_attach(BULK_PORTAL, match_bits=bits + number)
                self._entries.append(me)
                md = core.memory.md_attach(me, view[begin : begin + REGION], meter, options=options)
                md.arriving = []
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Take the memory back: nothing comes into it any more. What was asked for may leave still."""
        for me in self._entries:
            md = me.md
            self._core.memory.me_unlink(me)
            if md is not None and md.linked:
                self._core.reclaim(md)
        self._entries.clear()
        self.view.release()  # what the call raises may hold this


class PieceLimits(NamedTuple):
    """How many pieces of one transfer are under way at once, and the bytes of each.

    Small ones let the rails of a slow network end together. Where pieces come fast, the next are larger.
    """

    window: int
    size: int

    @classmethod
    def of(cls, window: int, size: int) -> PieceLimits:
        """Those, if they can be. Raises RpcError(EINVAL)."""
        if window < 1 or not _LEAST_SIZE <= size <= LNET_MTU:
            text = f"window={window}, piece={size}: give a window from 1, and pieces of {_LEAST_SIZE} to "
            raise RpcError(errno.EINVAL, f"{text}{LNET_MTU} bytes")
        return cls(window, size)


async def move(
    port: Port,
    client: Nid,
    bulk: Bulk,
    memory: memoryview,
    offset: int,
    *,
    push: bool,
    limits: PieceLimits,
    time_left: Callable[[], float | None],
    others_wait: Callable[[float], bool],
    progress: Progress | None,
    method: str,
) -> None:
    """Move all of `memory` to (or, without `push`, from) that offset of a client's bulk.

    A piece that fails is moved again while time is left. `others_wait(since)` tells whether other clients
    wait now, or found no room since that time of the loop: who hardly moves then is given up (Stalled).
    Raises LNetError.
    """
    total = memory.nbytes
    if not 0 <= offset <= offset + total <= bulk.length:
        raise RpcError(
            errno.EINVAL,
            f"bulk of {total} bytes at {offset}: the client lends {bulk.length} bytes (into_size, bulk_size)",
        )
    # fmt: off
    transfer = _Transfer(port, client, bulk.bits, memory, offset, push, time_left, others_wait, progress,
                         method)
    # fmt: on
    await transfer.run(limits)


class _Piece:
    """A piece under way; one that is moved makes room for the next."""

    __slots__ = ("_transfer", "at", "began", "due_at", "patience", "pause", "sent", "view")

    def __init__(self, transfer: _Transfer) -> None:
        self._transfer = transfer
        self.began = self.due_at = 0.0
        self.view = _NOTHING
        self.sent: Sent | None = None

    def begin(self, at: int, view: memoryview, patience: float) -> None:
        """The place in the client's bulk, and what belongs there."""
        self.at = at
        self.view = view
        self.pause = _PAUSE
        self.patience = patience  # seconds that an attempt may take

    def ended(self, error: int, text: str) -> None:
        """An attempt has ended."""
        self._transfer.ended(self, error, text)

    def again(self) -> None:
        """Make another attempt."""
        self._transfer.send(self)


class _Transfer:
    """Moves pieces, each until it is there, from one event to the next.

    LNet sends a PUT again over another path if that one dies. One whose ACK is lost, or a GET whose REPLY is,
    it reports after its time-out, which is therefore that of a piece here, by those that came: each attempt
    has twice as long. A REPLY that has begun to come and stops is seen here alone.
    """

    def __init__(
        self,
        port: Port,
        client: Nid,
        bits: int,
        memory: memoryview,
        offset: int,
        push: bool,
        time_left: Callable[[], float | None],
        others_wait: Callable[[float], bool],
        progress: Progress | None,
        method: str,
    ) -> None:
        self._port = port
        self._client = client
        self._bits = bits
        self._memory = memory
        self._offset = offset
        self._push = push
        self._time_left = time_left
        self._others_wait = others_wait
        self._progress = progress
        self._method = method
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._times = Estimate(_FIRST_PIECE)
        self._next = 0  # the place in the memory from which on nothing was begun
        self._moved = 0
        self._seen = 0  # bytes that had been moved when it was last looked at
        self._size = LNET_MTU  # of the next pieces
        self._most = LNET_MTU  # bytes of a piece
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._watch: Watch[_Piece] = Watch(self._loop, self._late)
        self._pieces: list[_Piece] = []
        self._pauses: dict[_Piece, asyncio.TimerHandle] = {}

    async def run(self, limits: PieceLimits) -> None:
        """Move all of it. Raises LNetError."""
        self._size = limits.size
        count = min(limits.window, -(-self._memory.nbytes // limits.size))
        self._pieces = [_Piece(self) for _ in range(count)]
        self._look_later()
        try:
            for piece in self._pieces:
                self._begin(piece)
            if self._pieces:
                await self._done
        finally:  # nothing touches the memory after this, or holds it
            self._memory = _NOTHING
            for piece in self._pieces:
                if piece.view is not _NOTHING:
                    piece.view.release()  # what LNet has of it still are views of its own
                    piece.view = _NOTHING
                if piece.sent is not None:
                    piece.sent.abort()
            for timer in self._pauses.values():
                timer.cancel()
            self._look_timer.cancel()
            self._watch.close()

    def _look_later(self) -> None:
        self._look_timer = self._loop.call_later(_WATCHED, self._look)

    def _look(self) -> None:
        """Whether enough was moved since it was last looked at, as long as others wait."""
        moved = self._moved - self._seen
        enough = moved >= min(_LEAST_MOVED, self._memory.nbytes - self._seen)
        if enough or not self._others_wait(self._loop.time() - _WATCHED):
            self._seen = self._moved
            self._look_later()
            return
        words = f"{moved} bytes of bulk in {_WATCHED:g} s while others waited, {_LEAST_MOVED} is the least"
        self._fail(Stalled(errno.ETIMEDOUT, f"{self._client}: {words}: call again when more can be moved"))

    def _begin(self, piece: _Piece) -> None:
        begin, memory = self._next, self._memory
        if begin >= memory.nbytes or self._done.done():
            return
        at = self._offset + begin
        size = min(self._size, REGION - at % REGION, memory.nbytes - begin)  # no piece is in two regions
        self._next = begin + size
        patience = max(_LEAST_PUSHED if self._push else _LEAST_PIECE, 4 * self._times.expected)
        piece.begin(at, memory[begin : begin + size], patience)
        self.send(piece)

    def send(self, piece: _Piece) -> None:
        """Make an attempt."""
        self._pauses.pop(piece, None)
        left = self._time_left()
        if left is not None and left <= 0:
            self._fail(RpcError(errno.ETIMEDOUT, "the call's time is over before its bulk was moved"))
            return
        wait = piece.patience if left is None else min(piece.patience, left)
        piece.began = self._loop.time()
        self._watch.add(piece, piece.began + wait)
        port, bits, place = self._port, self._bits + piece.at // REGION, piece.at % REGION
        # fmt: off
        if self._push:
            piece.sent = port.send(self._client, BULK_PORTAL, bits, piece.view, ended=piece.ended, ack=True,
                                   offset=place, timeout=wait, method=self._method)
        else:
            piece.sent = port.fetch(self._client, BULK_PORTAL, bits, piece.view, ended=piece.ended,
                                    offset=place, timeout=wait, method=self._method)
        # fmt: on

    def ended(self, piece: _Piece, error: int, text: str) -> None:
        """An attempt has ended."""
        piece.sent = None
        self._watch.discard(piece)
        if self._done.done():
            return
        if error:
            if error in _FINAL or self._port.closed:
                self._fail(RpcError(error, f"bulk of the client at {self._client}: {text}"))
            else:
                self._put_off(piece)
            return
        took = self._loop.time() - piece.began
        self._times.observe(took)
        if took < _FAST and self._size < LNET_MTU:
            self._size = min(2 * self._size, LNET_MTU)
        if self._progress is None:
            self._arrived(piece)
        else:  # which may do anything: not here, among the events of a batch
            self._loop.call_soon(self._tell, piece, self._progress, context=self._context)

    def _tell(self, piece: _Piece, progress: Progress) -> None:
        if self._done.done():
            return
        try:
            progress(self._moved + piece.view.nbytes, self._memory.nbytes)
        except Exception as failed:
            self._fail(failed)
        else:
            self._arrived(piece)

    def _arrived(self, piece: _Piece) -> None:
        """A piece is there."""
        self._moved += piece.view.nbytes
        if self._moved == self._memory.nbytes:
            self._done.set_result(None)
        else:
            self._begin(piece)

    def _late(self, piece: _Piece) -> None:
        """An attempt takes too long."""
        sent, piece.sent = piece.sent, None
        if sent is not None:
            sent.abort()
        self._put_off(piece)

    def _put_off(self, piece: _Piece) -> None:
        self._pauses[piece] = self._loop.call_later(piece.pause, piece.again)
        piece.pause = min(2 * piece.pause, _LONG_PAUSE)
        piece.patience = min(2 * piece.patience, _MOST_PATIENCE)

    def _fail(self, why: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(why)
