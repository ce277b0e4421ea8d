"""PUT, GET and ping as awaitables over the core's events."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass

from ulnet.core.event import Event, EventKind
from ulnet.core.instance import LNet
from ulnet.core.md import TRUNCATE, Buffer, Md
from ulnet.core.self_info import MIN_INFO_SIZE
from ulnet.core.status import LNetError, errno_text
from ulnet.nid import LO_NID, Nid
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import LNET_MTU, PING_MATCH_BITS, PING_PORTAL
from ulnet.wire.ping import PREFIX_SIZE, Feature, PingInfo, info_size

__all__ = ["Operation", "PingResult", "get", "ping", "put"]


class Operation:
    """One PUT or GET under way; its future gets the last event, or an LNetError."""

    __slots__ = ("future", "md", "target", "wanted")

    def __init__(self, target: Nid, wanted: EventKind) -> None:
        self.future: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        self.target = target
        self.wanted = wanted
        self.md: Md | None = None

    def handle(self, event: Event) -> None:
        """The MD's event handler."""
        future = self.future
        if future.done():
            return
        if event.status:
            words = event.reason or errno_text(event.status)
            future.set_exception(LNetError(-event.status, f"{self.target}: {words}"))
        elif event.kind is self.wanted:
            future.set_result(event)
        elif event.kind is EventKind.UNLINK:
            future.set_exception(LNetError(errno.ECANCELED, f"{self.target}: the operation was cancelled"))

    async def result(self, core: LNet) -> Event:
        """Wait; a cancelled wait or a failed send takes the memory descriptor back."""
        try:
            return await self.future
        finally:
            if self.md is not None and self.md.linked:
                core.memory.md_unlink(self.md)


async def put(
    core: LNet,
    target: Nid,
    portal: int,
    match_bits: int,
    data: Buffer | list[Buffer],
    *,
    ack: bool,
    offset: int,
    hdr_data: int,
    source: Nid | None,
    timeout: float | None,
) -> int:
    """See Node.put."""
    operation = Operation(target, EventKind.ACK if ack else EventKind.SEND)
    md = core.memory.md_bind(data, operation.handle, threshold=2 if ack else 1, timeout=timeout)
    operation.md = md
    try:
        core.put(md, target, portal, match_bits, ack=ack, offset=offset, hdr_data=hdr_data, source=source)
    except LNetError:
        core.memory.md_unlink(md)
        raise
    return (await operation.result(core)).mlength


async def get(
    core: LNet,
    target: Nid,
    portal: int,
    match_bits: int,
    buffer: Buffer,
    *,
    offset: int,
    source: Nid | None,
    timeout: float | None,
    options: int = 0,
) -> int:
    """See Node.get."""
    operation = Operation(target, EventKind.REPLY)
    md = core.memory.md_bind(buffer, operation.handle, threshold=2, timeout=timeout, options=options)
    operation.md = md
    try:
        core.get(md, target, portal, match_bits, offset=offset, source=source)
    except LNetError:
        core.memory.md_unlink(md)
        raise
    return (await operation.result(core)).mlength


@dataclass(frozen=True, slots=True)
class PingResult:
    """What a node said of itself: its primary NID first in `nids` (loopback left out)."""

    primary_nid: Nid
    nids: tuple[Nid, ...]
    features: Feature
    info: PingInfo


async def ping(
    core: LNet, target: Nid, *, source: Nid | None, timeout: float, size: int = MIN_INFO_SIZE
) -> PingResult:
    """See Node.ping."""
    while True:
        buffer = bytearray(size)
        got = await get(
            core,
            target,
            PING_PORTAL,
            PING_MATCH_BITS,
            buffer,
            offset=0,
            source=source,
            timeout=timeout,
            options=TRUNCATE,
        )
        try:
            if got < PREFIX_SIZE:
                raise WireError(f"only {got} bytes of ping info")
            info = PingInfo.unpack(memoryview(buffer)[:got])
            needed = info_size(buffer[:PREFIX_SIZE])
        except WireError as bad:
            raise LNetError(errno.EPROTO, f"{target} answered the ping with something else: {bad}") from None
        if info.truncated and size < needed <= LNET_MTU:
            size = needed
            continue
        nids = tuple(entry.nid for entry in info.entries if entry.nid != LO_NID)
        primary = info.primary or target
        return PingResult(primary, nids, Feature(info.features & 0xFF), info)
