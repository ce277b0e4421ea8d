"""PUT, GET, ping and discovery as awaitables over the core's events."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass

from ulnet.control.instance import LNet
from ulnet.control.self_info import MIN_INFO_SIZE
from ulnet.core.event import Event, EventKind
from ulnet.core.md import TRUNCATE, Buffer, Md, fragments_of
from ulnet.core.peer import Peer
from ulnet.core.status import LNetError, errno_text
from ulnet.nid import LO_NID, Nid
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import LNET_MTU, PING_MATCH_BITS, PING_PORTAL
from ulnet.wire.ping import PREFIX_SIZE, Feature, PingInfo, info_size

__all__ = ["Operation", "Operations", "PingResult", "discover", "ping"]

# A node's info may grow between two pings; one whose info never fits is not asked for ever.
_MAX_PINGS = 3
_NOTHING_TAKEN = "its memory took none of the bytes: it is used up; it has to attach more, as Node.inbox does"
_MOST_FREE = 256  # operations that are kept for the next ones


class Operation:
    """One PUT or GET under way: `done` gets how many bytes, or the LNetError that says why none.

    `close` takes the memory descriptor back, whatever happened; one that is over serves the next operation.
    """

    __slots__ = ("_core", "_free", "_md", "_target", "_wanted", "done")

    done: asyncio.Future[int]

    def __init__(self, core: LNet, free: list[Operation]) -> None:
        self._core = core
        self._free = free
        self._target: Nid = LO_NID
        self._wanted = EventKind.ACK
        self._md: Md | None = Md([], self._handle)
        self._md.lasting = True

    def bind(
        self,
        target: Nid,
        wanted: EventKind,
        done: asyncio.Future[int],
        data: Buffer | list[Buffer],
        timeout: float | None,
        options: int = 0,
    ) -> Md:
        """The descriptor of the memory of the next operation. Raises LNetError."""
        self.done = done
        self._target = target
        self._wanted = wanted
        md = self._md
        assert md is not None
        md.quiet = wanted is not EventKind.SEND
        md.options = options
        fragments = [memoryview(data)] if isinstance(data, bytes) else fragments_of(data)
        self._core.memory.rebind(md, fragments, 2 if md.quiet else 1, timeout)
        return md

    def _handle(self, event: Event) -> None:
        done = self.done
        if done.done():
            return
        if event.status:
            words = event.reason or errno_text(event.status)
            done.set_exception(LNetError(-event.status, f"{self._target}: {words}"))
        elif event.kind is self._wanted:
            taken = event.mlength
            if taken or self._wanted is not EventKind.ACK or self._md is None or not self._md.length:
                done.set_result(taken)
            else:
                done.set_exception(LNetError(errno.ENOBUFS, f"{self._target}: {_NOTHING_TAKEN}"))
        elif event.unlinked:
            done.set_exception(LNetError(errno.ECANCELED, f"{self._target}: the operation was cancelled"))

    def close(self) -> None:
        """Forget the operation: nobody waits for it any more."""
        md = self._md
        if md is None:
            return
        if md.linked:
            self.done.cancel()
            if md.refs:
                self._md = None  # whatever holds this operation does not hold its memory
                md.lasting = False
            self._core.memory.md_unlink(md)
        if md.linked:
            return
        md.fragments = []
        if len(self._free) < _MOST_FREE:
            self._free.append(self)
        else:
            self._core.memory.drop(md)


class Operations:
    """What one node, in one of its lives, is asked to send."""

    __slots__ = ("_call_soon", "_core", "_corked", "_free", "_new_future")

    def __init__(self, core: LNet, loop: asyncio.AbstractEventLoop) -> None:
        self._core = core
        self._new_future: Callable[[], asyncio.Future[int]] = loop.create_future
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

    def told(self, target: Nid, info: PingInfo) -> None:
        """A node has answered a ping."""
        self._core.discovery.told(target, info)

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
        free = self._free
        operation = free.pop() if free else Operation(core, free)
        wanted = EventKind.ACK if ack else EventKind.SEND
        try:
            md = operation.bind(target, wanted, self._new_future(), data, timeout)
            core.put(
                md,
                target,
                portal,
                match_bits,
                ack=ack,
                offset=offset,
                hdr_data=hdr_data,
                source=source,
                cpt=cpt,
            )
        except Exception:
            operation.close()
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
    ) -> Operation:
        """Begin what Node.get promises."""
        if not self._corked:
            self._cork()
        free = self._free
        operation = free.pop() if free else Operation(self._core, free)
        try:
            md = operation.bind(target, EventKind.REPLY, self._new_future(), buffer, timeout, options)
            self._core.get(md, target, portal, match_bits, offset=offset, source=source, cpt=cpt)
        except Exception:
            operation.close()
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
    give_up = clock() + timeout
    for _ in range(_MAX_PINGS):
        buffer = bytearray(size)
        left = max(give_up - clock(), 0.0)
        operation = operations.get(
            target, PING_PORTAL, PING_MATCH_BITS, buffer, 0, source, left, None, TRUNCATE
        )
        try:
            got = await operation.done
        finally:
            operation.close()
        info, needed = _read_info(target, memoryview(buffer)[:got])
        if not info.truncated:
            operations.told(target, info)
            nids = tuple(entry.nid for entry in info.entries if entry.nid != LO_NID)
            return PingResult(info.primary or target, nids, Feature(info.features & 0xFF), info)
        if not size < needed <= LNET_MTU:
            break
        size = needed
    raise LNetError(errno.EPROTO, f"{target} announces more ping info than it sends")


async def discover(core: LNet, target: Nid, *, force: bool, timeout: float | None) -> Peer:
    """See Node.discover."""
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
