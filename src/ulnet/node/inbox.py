"""An inbox: memory for PUTs that is attached again and again, and messages that stay whole.

Its memory is in blocks, each of which serves so many messages. A block that is used up is not used again: the
next one is new memory. So a message has its bytes for itself for as long as anybody holds a view of them,
and a block counts as free when nobody does. Pages of a block that nothing was written to take no memory.
Blocks that are used up, but into which messages are still coming, do not count, up to four times as many.
"""

from __future__ import annotations

import asyncio
import errno
import mmap
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self

from ulnet.core.event import Event, EventKind
from ulnet.core.md import MAX_SIZE, OP_PUT, TRUNCATE
from ulnet.core.status import LNetError
from ulnet.nid import Nid
from ulnet.wire.lnet import LNET_MTU

if TYPE_CHECKING:
    from ulnet.control.instance import LNet
    from ulnet.core.md import Md
    from ulnet.core.memory import MatchEntry

__all__ = ["Inbox", "Message"]

_BLOCKS: Final = 4
_WAITING: Final = 4  # times as many may be used up while messages are still coming into them
_PATIENCE: Final = 5.0  # seconds for which a block that is used up waits for those, whoever else needs it
_SHORT: Final = 16  # times as many short messages may be in a block
_NOTHING: Final = memoryview(b"")


class Message:
    """One message. `data` is a view of its bytes, which are its own; `initiator` the sender's primary NID.

    `source` is the NID that it came from, `target` the one that it came to.
    """

    __slots__ = ("data", "hdr_data", "initiator", "match_bits", "source", "target")

    def __init__(self, event: Event) -> None:
        self.data: memoryview = event.data
        self.initiator: Nid = event.initiator
        self.source: Nid = event.source
        self.target: Nid = event.target
        self.match_bits: int = event.match_bits
        self.hdr_data: int = event.hdr_data

    def release(self) -> None:
        """Let its memory go before the message goes. Other views that were made of it still hold it."""
        self.data = _NOTHING

    def __repr__(self) -> str:
        return f"<message of {self.data.nbytes} bytes from {self.initiator}>"


class Inbox:
    """Messages as an endless stream: `async for message in inbox`, or each to `handler`.

    There is room for `slots` messages of `size` bytes that are not read, or still held; for more of shorter
    ones, but not beyond 16 times as many. One that finds none is counted in `dropped`, and its sender is
    told that 0 bytes were taken (`Node.put` raises ENOBUFS); a longer one is refused (EMSGSIZE).

    What messages that come slowly keep waiting does not count, up to memory for 4 times `slots` messages: so
    an inbox has five times the memory of `slots` messages at most. When more waits, messages are given up
    that are still coming 5 s after their block was used up, or whose next hop keeps more than half of the
    waiting blocks. They are counted in `dropped`, and their senders are told ENOBUFS as well.
    """

    def __init__(
        self,
        core: LNet,
        portal: int,
        match_bits: int,
        *,
        ignore_bits: int = 0,
        slots: int = 256,
        size: int = 4096,
        handler: Callable[[Message], None] | None = None,
    ) -> None:
        if not (0 < slots <= 1 << 20 and 0 < size <= LNET_MTU):
            raise LNetError(
                errno.EINVAL,
                f"inbox of {slots} slots of {size} bytes: give 1 to {1 << 20} slots of 1 to {LNET_MTU} bytes",
            )
        self.dropped: int = 0
        self._core = core
        self._memory = core.memory
        self._portal = portal
        self._bits = (match_bits, ignore_bits)
        self._size = size
        self._blocks = min(_BLOCKS, slots)
        self._per_block = -(-slots // self._blocks)
        self._live: dict[int, weakref.ref[mmap.mmap]] = {}  # by their own id
        # Of blocks with room, or into which messages are still coming; by the handle of their memory.
        self._entries: dict[int, MatchEntry] = {}
        self._latest = 0  # the handle of that into which something came
        self._arms = False  # in the next turn of the loop
        self._since: dict[int, float] = {}  # when blocks were seen to be used up, and to wait
        self._timer: asyncio.TimerHandle | None = None  # for when the first of too many has waited for long
        self._last: MatchEntry | None = None  # takes what finds no block
        self._loop = asyncio.get_running_loop()
        self._home_thread = threading.get_ident()
        self._messages: deque[Message] = deque()
        self._handler = self._messages.append if handler is None else handler
        self._news: asyncio.Event | None = asyncio.Event() if handler is None else None
        self.closed: bool = False
        try:
            self._attach_last()
            self._arm()
        except BaseException:
            self.close()
            raise

    # Memory ----------------------------------------------------------------------------------------

    def _attach_last(self) -> None:
        me = self._entry(at_head=False)
        self._memory.md_attach(me, bytearray(), self._found_no_room, options=OP_PUT | TRUNCATE)
        self._last = me

    def _entry(self, at_head: bool) -> MatchEntry:
        bits, ignored = self._bits
        return self._memory.me_attach(self._portal, match_bits=bits, ignore_bits=ignored, at_head=at_head)

    def _arm(self) -> None:
        """Attach as many blocks as there may be; those go before the descriptor without memory.

        Blocks that are used up, but into which messages are still coming, do not count: who keeps the rest of
        a message back takes no room from others.
        """
        mds = [me.md for me in self._entries.values()]
        coming = [md for md in mds if md is not None and md.exhausted]
        now = self._loop.time()
        self._since = {md.handle: self._since.get(md.handle, now) for md in coming}
        most = self._blocks * _WAITING
        if len(coming) > most:
            self._give_up(coming, len(coming) - most, now)
        room = self._blocks + min(len(coming), most)
        while not self.closed and len(self._live) < room:
            block = mmap.mmap(-1, self._per_block * self._size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            me = self._entry(at_head=True)
            md = self._memory.md_attach(
                me,
                memoryview(block),
                self._arrived,
                options=OP_PUT | MAX_SIZE,
                max_size=self._size,
                threshold=self._per_block * _SHORT,
            )
            md.arriving = []
            self._entries[md.handle] = me
            watch = weakref.ref(block, self._freed)
            self._live[id(watch)] = watch

    def _give_up(self, coming: list[Md], count: int, now: float) -> None:
        """End what comes into that many blocks: first of who has most of them to himself, and the oldest.

        Only blocks that have waited for long, or of one hop that has more than half of them: else new
        messages find no room until the first of them has waited for long.
        """
        since = self._since
        hops = {md: {put.next_nid for put in md.arriving or ()} for md in coming}
        has = Counter([hop for each in hops.values() for hop in each])
        least = {md: min([has[hop] for hop in each], default=0) for md, each in hops.items()}
        for md in sorted(coming, key=lambda md: (-least[md], since[md.handle])):
            if not (count and md.arriving):
                continue
            if now - since[md.handle] >= _PATIENCE or least[md] * 2 > len(coming):
                self.dropped += self._core.give_up(md)
                count -= not md.arriving
        later = [when for when in since.values() if now - when < _PATIENCE]
        if count and later and self._timer is None and not self.closed:
            self._timer = self._loop.call_at(min(later) + _PATIENCE, self._waited)

    def _waited(self) -> None:
        self._timer = None
        self._arm_again()

    def _freed(self, block: weakref.ref[mmap.mmap]) -> None:
        """Nobody holds anything of a block any more; this may be any thread."""
        self._live.pop(id(block), None)
        if self.closed or self._loop.is_closed():
            return
        if threading.get_ident() == self._home_thread:
            self._arm_soon()
        else:
            self._loop.call_soon_threadsafe(self._arm_again)

    def _arm_soon(self) -> None:
        if not self._arms:
            self._arms = True
            self._loop.call_soon(self._arm_again)

    def _arm_again(self) -> None:
        self._arms = False
        try:
            self._arm()
        except LNetError:  # the node is shutting down
            self._end()

    # Events ----------------------------------------------------------------------------------------

    def _arrived(self, event: Event) -> None:
        if event.unlinked:
            self._entries.pop(event.md.handle, None)
        elif event.md.handle != self._latest:  # the one before may be used up
            self._latest = event.md.handle
            self._arm_soon()
        if event.kind is EventKind.PUT and not event.status and not self.closed:
            self._handler(Message(event))
            if self._news is not None:
                self._news.set()

    def _found_no_room(self, event: Event) -> None:
        if event.kind is EventKind.PUT:
            self.dropped += 1
            self._arm_soon()
        elif event.unlinked:  # by close, or because the node shuts down
            self._last = None
            self._end()

    # Reading ---------------------------------------------------------------------------------------

    async def receive(self) -> Message:
        """The next message. Raises StopAsyncIteration when the inbox or its node was closed."""
        assert self._news is not None, "its messages go to its handler"
        while not self._messages:
            if self.closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._messages.popleft()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        return await self.receive()

    def __len__(self) -> int:
        return len(self._messages)

    # The end ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Take the memory back: what comes from now on finds nothing. What was not read can still be read."""
        self._end()
        last, self._last = self._last, None
        entries, self._entries = self._entries, {}
        for me in [*entries.values(), *([] if last is None else [last])]:
            self._memory.me_unlink(me)

    def _end(self) -> None:
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._news is not None:
            self._news.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
