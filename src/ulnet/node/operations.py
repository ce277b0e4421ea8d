"""PUT, GET, ping and discovery as awaitables over the core's events."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass
from typing import Self

from ulnet.core.event import Event, EventKind
from ulnet.core.instance import LNet
from ulnet.core.md import TRUNCATE, Buffer, Md
from ulnet.core.peer import Peer
from ulnet.core.self_info import MIN_INFO_SIZE
from ulnet.core.status import LNetError, errno_text
from ulnet.nid import LO_NID, Nid
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import LNET_MTU, PING_MATCH_BITS, PING_PORTAL
from ulnet.wire.ping import PREFIX_SIZE, Feature, PingInfo, info_size

__all__ = ["Operation", "PingResult", "discover", "get", "ping", "put"]

# A node's info may grow between two pings; one whose info never fits is not asked for ever.
_MAX_PINGS = 3


class Operation:
    """One PUT or GET under way: `done` gets its answer, or the LNetError that says why there is none.

    Leaving the context takes the memory descriptor back, whatever happened.
    """

    __slots__ = ("_core", "_md", "_target", "_wanted", "done")

    def __init__(self, core: LNet, target: Nid, wanted: EventKind) -> None:
        self._core = core
        self._target = target
        self._wanted = wanted
        self._md: Md | None = None
        self.done: asyncio.Future[Event] = asyncio.get_running_loop().create_future()

    def bind(
        self, data: Buffer | list[Buffer], threshold: int, timeout: float | None, options: int = 0
    ) -> Md:
        """The operation's memory descriptor."""
        self._md = self._core.memory.md_bind(
            data, self._handle, threshold=threshold, timeout=timeout, options=options
        )
        return self._md

    def _handle(self, event: Event) -> None:
        done = self.done
        if done.done():
            return
        if event.status:
            words = event.reason or errno_text(event.status)
            done.set_exception(LNetError(-event.status, f"{self._target}: {words}"))
        elif event.kind is self._wanted:
            done.set_result(event)
        elif event.unlinked:
            done.set_exception(LNetError(errno.ECANCELED, f"{self._target}: the operation was cancelled"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.done.cancel()
        if self._md is not None:
            self._core.memory.md_unlink(self._md)


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
    cpt: int | None,
) -> int:
    """See Node.put."""
    if timeout is None and not ack:  # the core sees to answers only, unless told
        timeout = core.settings.transaction_timeout
    with Operation(core, target, EventKind.ACK if ack else EventKind.SEND) as operation:
        md = operation.bind(data, 2 if ack else 1, timeout)
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
        return (await operation.done).mlength


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
    cpt: int | None = None,
) -> int:
    """See Node.get."""
    with Operation(core, target, EventKind.REPLY) as operation:
        md = operation.bind(buffer, 2, timeout, options)
        core.get(md, target, portal, match_bits, offset=offset, source=source, cpt=cpt)
        return (await operation.done).mlength


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
    clock = asyncio.get_running_loop().time
    give_up = clock() + timeout
    for _ in range(_MAX_PINGS):
        buffer = bytearray(size)
        got = await get(
            core,
            target,
            PING_PORTAL,
            PING_MATCH_BITS,
            buffer,
            offset=0,
            source=source,
            timeout=max(give_up - clock(), 0.0),
            options=TRUNCATE,
        )
        info, needed = _read_info(target, memoryview(buffer)[:got])
        if not info.truncated:
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
        return await asyncio.wait_for(done, timeout)
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
