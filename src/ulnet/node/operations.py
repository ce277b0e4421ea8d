"""PUT, GET, ping and discovery as awaitables over the core's events."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ulnet.control.instance import LNet
from ulnet.core.event import Event, EventKind
from ulnet.core.md import TRUNCATE, Buffer, Md, checked_timeout
from ulnet.core.peer import Peer
from ulnet.core.status import LNetError, errno_text
from ulnet.nid import ANY_NID, LO_NID, Nid
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import LNET_MTU, PING_MATCH_BITS, PING_PORTAL
from ulnet.wire.ping import MIN_INFO_SIZE, PREFIX_SIZE, Feature, PingInfo, info_size

__all__ = ["Operation", "Operations", "PingResult", "discover", "ping"]

# A node's info may grow between two pings; one whose info never fits is not asked for ever.
_MAX_PINGS = 3
_NOTHING_TAKEN = "its memory took none of the bytes: it is used up; it has to attach more, as Node.inbox does"
_MOST_FREE = 256  # operations that are kept for the next ones
_ACK: Final = EventKind.ACK
_REPLY: Final = EventKind.REPLY
_SEND: Final = EventKind.SEND


class Operation:
    """One PUT or GET under way: `done` gets how many bytes, or the LNetError that says why none.

    One whose descriptor has ended is `over`, and serves the next operation.
    """

    __slots__ = ("_core", "_free", "done", "md", "over", "target", "wanted")

    done: asyncio.Future[int]

    def __init__(self, core: LNet, free: list[Operation]) -> None:
        self._core = core
        self._free = free
        self.target: Nid = LO_NID
        self.wanted: EventKind = _ACK  # the event that ends it well
        self.over: bool = False
        self.md: Md = Md([], self._handle)
        self.md.lasting = True
        self.md.arriving = []

    def _handle(self, event: Event) -> None:
        done, wanted = self.done, self.wanted
        if done.done():
            pass
        elif event.status:
            words = event.reason or errno_text(event.status)
            done.set_exception(LNetError(-event.status, f"{self.target}: {words}"))
        elif event.kind is wanted:
            taken = event.mlength
            if taken or wanted is not _ACK or not self.md.length:
                done.set_result(taken)
            else:
                done.set_exception(LNetError(errno.ENOBUFS, f"{self.target}: {_NOTHING_TAKEN}"))
        elif event.unlinked:
            done.set_exception(LNetError(errno.ECANCELED, f"{self.target}: the operation was cancelled"))
        if event.unlinked:
            self._recycle()

    def _recycle(self) -> None:
        self.over = True
        self.md.fragments = []
        if len(self._free) < _MOST_FREE:
            self._free.append(self)
        else:
            self._core.memory.drop(self.md)

    async def result(self) -> int:
        """What `done` gets. Raises LNetError."""
        done = self.done
        try:
            return await done
        except BaseException:
            self.close(done)
            raise

    def close(self, done: asyncio.Future[int]) -> None:
        """Nobody waits for `done` any more: end the operation, unless it serves another one by now."""
        if self.done is not done or self.over:
            return
        done.cancel()
        if self.md.linked:
            self._core.reclaim(self.md)
        else:  # it was refused
            self._recycle()


class _Ping(Operation):
    """A ping under way: it keeps who answered, and by which next hop, and serves no other operation."""

    __slots__ = ("sender", "source")

    def __init__(self, core: LNet, loop: asyncio.AbstractEventLoop, target: Nid) -> None:
        super().__init__(core, [])
        self.done = asyncio.Future(loop=loop)
        self.target = target
        self.wanted = _REPLY
        self.md.quiet = True
        self.source: Nid = ANY_NID
        self.sender: Nid = ANY_NID

    def _handle(self, event: Event) -> None:
        if event.kind is _REPLY:
            self.source, self.sender = event.source, event.sender
        super()._handle(event)

    def _recycle(self) -> None:
        self.over = True
        self.md.fragments = []
        self._core.memory.drop(self.md)


class Operations:
    """What one node, in one of its lives, is asked to send."""

    __slots__ = ("_call_soon", "_core", "_corked", "_free", "_loop", "_memory")

    def __init__(self, core: LNet, loop: asyncio.AbstractEventLoop) -> None:
        self._core = core
        self._memory = core.memory
        self._loop = loop
        self._call_soon: Callable[[Callable[[], None]], object] = loop.call_soon
        self._corked = False  # what tasks ask for in this turn of the loop leaves together behind it
        self._free: list[Operation] = []

    def _cork(self) -> None:
        self._corked = True
        self._core.cork()
        self._call_soon(self._uncork)

    def _uncork(self) -> None:
        self._corked = False
        self._core.uncork()

    def _new(self, target: Nid, wanted: EventKind) -> Operation:
        """An operation that an event of that kind ends."""
        free = self._free
        operation = free.pop() if free else Operation(self._core, free)
        operation.done = asyncio.Future(loop=self._loop)
        operation.target = target
        operation.wanted = wanted
        operation.over = False
        operation.md.quiet = wanted is not _SEND
        return operation

    def ping(self, target: Nid, buffer: Buffer, source: Nid | None, timeout: float) -> _Ping:
        """Begin to ask a node who it is."""
        asked = _Ping(self._core, self._loop, target)
        self.get(target, PING_PORTAL, PING_MATCH_BITS, buffer, 0, source, timeout, None, TRUNCATE, asked)
        return asked

    def told(self, ping: _Ping, info: PingInfo) -> None:
        """A node has answered a ping."""
        self._core.discovery.told(ping.target, info, ping.source, ping.sender)

    def put(
        self,
        target: Nid,
        portal: int,
        match_bits: int,
        data: Buffer | list[Buffer],
        ack: bool,
        offset: int,
        hdr_data: int,
        source: Nid | None,
        timeout: float | None,
        cpt: int | None,
    ) -> Operation:
        """Begin what Node.put promises."""
        core = self._core
        if timeout is None and not ack:  # the core sees to answers only, unless told
            timeout = core.settings.transaction_timeout
        if not self._corked:
            self._cork()
        operation = self._new(target, _ACK if ack else _SEND)
        md = operation.md
        md.options = 0
        try:
            self._memory.rebind(md, data, 2 if ack else 1, timeout)
            # fmt: off
            core.put(md, target, portal, match_bits, ack=ack, offset=offset, hdr_data=hdr_data, source=source,
                     cpt=cpt)
            # fmt: on
        except Exception:
            operation.close(operation.done)
            raise
        return operation

    def get(
        self,
        target: Nid,
        portal: int,
        match_bits: int,
        buffer: Buffer,
        offset: int,
        source: Nid | None,
        timeout: float | None,
        cpt: int | None,
        options: int = 0,
        operation: Operation | None = None,
    ) -> Operation:
        """Begin what Node.get promises; a ping is an operation that is there already."""
        if not self._corked:
            self._cork()
        if operation is None:
            operation = self._new(target, _REPLY)
        md = operation.md
        md.options = options
        try:
            self._memory.rebind(md, buffer, 2, timeout)
            self._core.get(md, target, portal, match_bits, offset=offset, source=source, cpt=cpt)
        except Exception:
            operation.close(operation.done)
            raise
        return operation


@dataclass(frozen=True, slots=True)
class PingResult:
    """What a node said of itself: its primary NID first in `nids` (loopback left out)."""

    primary_nid: Nid
    nids: tuple[Nid, ...]
    features: Feature
    info: PingInfo


async def ping(
    operations: Operations, target: Nid, *, source: Nid | None, timeout: float, size: int = MIN_INFO_SIZE
) -> PingResult:
    """See Node.ping."""
    clock = asyncio.get_running_loop().time
    give_up = clock() + checked_timeout(timeout)
    for _ in range(_MAX_PINGS):
        buffer = bytearray(size)
        left = max(give_up - clock(), 0.0)
        operation = operations.ping(target, buffer, source, left)
        got = await operation.result()
        info, needed = _read_info(target, memoryview(buffer)[:got])
        if not info.truncated:
            operations.told(operation, info)
            nids = tuple(entry.nid for entry in info.entries if entry.nid != LO_NID)
            return PingResult(info.primary or target, nids, Feature(info.features & 0xFF), info)
        if not size < needed <= LNET_MTU:
            break
        size = needed
    raise LNetError(errno.EPROTO, f"{target} announces more ping info than it sends")


async def discover(core: LNet, target: Nid, *, force: bool, timeout: float | None) -> Peer:
    """See Node.discover."""
    if timeout is not None:
        checked_timeout(timeout)
    done: asyncio.Future[Peer] = asyncio.get_running_loop().create_future()

    def tell(error: LNetError | None, peer: Peer | None) -> None:
        if done.done():
            return
        if peer is not None:
            done.set_result(peer)
        else:
            done.set_exception(
                error
                or LNetError(
                    errno.EIO, f"{target} was not discovered: ask it with 'ulnet ping', which tells more"
                )
            )

    core.discover(target, force=force, done=tell)
    try:
        async with asyncio.timeout(timeout):
            return await done
    except LNetError:  # which may be a TimeoutError, too
        raise
    except TimeoutError:
        raise LNetError(
            errno.ETIMEDOUT, f"{target} was not discovered within {timeout:g} s; it is still being tried"
        ) from None


def _read_info(target: Nid, data: memoryview) -> tuple[PingInfo, int]:
    """The info in a ping's answer, and how many bytes all of it takes. Raises LNetError(EPROTO)."""
    try:
        return PingInfo.unpack(data), info_size(data[:PREFIX_SIZE])
    except WireError as bad:
        raise LNetError(errno.EPROTO, f"{target} answered the ping with something else: {bad}") from None
