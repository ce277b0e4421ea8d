"""Messages out, over one node: each is a PUT or a GET, and whoever sends it may hear how it ended."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any, Final

from ulnet.control.instance import LNet
from ulnet.core.event import Event, EventKind
from ulnet.core.md import Buffer, Md
from ulnet.core.status import LNetError, errno_text
from ulnet.nid import Nid
from ulnet.node import Node
from ulnet.wire.rpc import HEAD_SIZE, batch

__all__ = ["Ended", "Lane", "Port", "Sent", "bound", "nobody_asks"]

_MOST_FREE: Final = 256
_MOST_TOGETHER: Final = 16  # frames: with more the other side would begin later than it could
_PLACE: Final = 4  # bytes that a frame takes in a batch, beside its own

# How a message ended: 0 or an errno, and why. One of which nothing was taken, for want of room, ends with
# ENOBUFS, one of which not all was taken with EPROTO.
Ended = Callable[[int, str], None]


def nobody_asks(error: int, text: str) -> None:
    """Take a frame's end for nothing: one that is lost does no harm, or is asked for again."""


def bound(nid: Nid) -> Nid | None:
    """The source of what answers what came to that NID."""
    return None if nid.is_lo else nid


class Sent:
    """One message under way, a PUT or a GET; one that is over serves the next."""

    __slots__ = ("_core", "_free", "_wanted", "ended", "md")

    def __init__(self, core: LNet, free: list[Sent]) -> None:
        self._core = core
        self._free = free
        self._wanted = EventKind.SEND
        self.ended: Ended | None = None
        self.md = Md([], self._handle)
        self.md.lasting = True

    def bind(
        self, data: memoryview, wanted: EventKind, timeout: float | None, ended: Ended, method: str | None
    ) -> Md:
        """The descriptor of the next one. Raises LNetError."""
        md = self.md
        self.ended = ended
        self._wanted = wanted
        md.quiet = wanted is not EventKind.SEND
        md.user_ptr = method
        self._core.memory.rebind(md, [data], 2 if md.quiet else 1, timeout)
        return md

    def _handle(self, event: Event) -> None:
        ended = self.ended
        length = self.md.length
        if event.unlinked:
            self.recycle()
        if ended is None:
            return
        if event.status:
            self.abort()
            ended(-event.status, event.reason or errno_text(event.status))
        elif event.kind is self._wanted:
            self.ended = None
            if event.mlength == length or self._wanted is EventKind.SEND:
                ended(0, "")
            elif event.mlength:
                ended(errno.EPROTO, f"{event.mlength} of {length} bytes were taken")
            else:
                ended(errno.ENOBUFS, "there is no room for it now")
        elif event.unlinked:
            self.ended = None
            ended(errno.ECANCELED, "it was cancelled")

    def abort(self) -> None:
        """Nobody wants to hear of it any more."""
        self.ended = None
        if self.md.linked:  # it may wait for an answer still
            self._core.memory.md_unlink(self.md)

    def recycle(self) -> None:
        """It may serve another one."""
        self.md.fragments = []
        self._free.append(self)


class Port:
    """What one client or server sends; in one life of its node."""

    __slots__ = ("_corked", "_free", "_lanes", "_loop", "_spare", "core")

    def __init__(self, node: Node) -> None:
        self.core = node.core
        self._lanes: list[Lane] = []  # on which something waits for the end of this turn of the loop
        self._loop = asyncio.get_running_loop()
        self._free: list[Sent] = []
        self._spare: list[Sent] = []  # that were freed in this turn of the loop
        self._corked = False

    @property
    def closed(self) -> bool:
        """Whether the node was shut down: nothing leaves any more."""
        return not self.core.state.running

    def send(
        self,
        target: Nid,
        portal: int,
        match_bits: int,
        data: Buffer,
        *,
        ended: Ended,
        ack: bool = False,
        offset: int = 0,
        source: Nid | None = None,
        timeout: float | None = None,
        method: str | None = None,
    ) -> Sent | None:
        """PUT data; `ended` hears of it once, later or at once. What cannot even begin has ended, too (None).

        `method` is what it is about: a trace of the node tells that.
        """
        core = self.core
        self._cork()
        if timeout is None and not ack:
            timeout = core.settings.transaction_timeout
        sent = self._free.pop() if self._free else Sent(core, self._spare)
        try:
            wanted = EventKind.ACK if ack else EventKind.SEND
            md = sent.bind(memoryview(data), wanted, timeout, ended, method)
            core.put(md, target, portal, match_bits, ack=ack, offset=offset, source=source)
        except LNetError as refused:
            self._refused(sent, refused)
            return None
        return sent

    def fetch(
        self,
        target: Nid,
        portal: int,
        match_bits: int,
        into: memoryview,
        *,
        ended: Ended,
        offset: int,
        timeout: float,
        method: str,
    ) -> Sent | None:
        """GET all of `into`; else as `send`."""
        self._cork()
        sent = self._free.pop() if self._free else Sent(self.core, self._spare)
        try:
            md = sent.bind(into, EventKind.REPLY, timeout, ended, method)
            self.core.get(md, target, portal, match_bits, offset=offset)
        except LNetError as refused:
            self._refused(sent, refused)
            return None
        return sent

    def _refused(self, sent: Sent, why: LNetError) -> None:
        ended = sent.ended
        sent.ended = None
        if sent.md.linked:
            self.core.memory.md_unlink(sent.md)
        else:
            sent.recycle()
        if ended is not None:
            ended(why.errno, str(why))

    def _cork(self) -> None:
        """What is sent in this turn of the loop leaves together behind it."""
        if not self._corked:
            self._corked = True
            self.core.cork()
            self._loop.call_soon(self._uncork)

    def wait_on(self, lane: Lane) -> None:
        """Something waits on a lane: it leaves behind this turn of the loop."""
        if not self._lanes:
            self._loop.call_soon(self._leave)
        self._lanes.append(lane)

    def _leave(self) -> None:
        lanes, self._lanes = self._lanes, []
        for lane in lanes:
            lane.leave()

    def _uncork(self) -> None:
        self._corked = False
        if self._spare:
            if len(self._free) < _MOST_FREE:
                self._free += self._spare
            else:
                for frame in self._spare:
                    self.core.memory.drop(frame.md)
            self._spare.clear()
        self.core.uncork()


class Lane:
    """Frames of one session to one place, of which LNet acknowledges none: they leave together.

    Several are one message of `room` bytes at most, if the other side knows that (`room` is not 0).
    Answers leave from the NID that was `asked`. `failed(owner, errno, text)` hears of each frame that failed.
    """

    __slots__ = (
        "_bits",
        "_failed",
        "_frames",
        "_methods",
        "_owners",
        "_portal",
        "_session",
        "_size",
        "_timeout",
        "_waits",
        "asked",
        "port",
        "room",
        "source",
        "target",
    )

    def __init__(
        self,
        port: Port,
        session: int,
        target: Nid,
        portal: int,
        bits: int,
        asked: Nid | None,
        room: int,
        failed: Callable[[Any, int, str], None],
    ) -> None:
        self.target = target
        self.asked = asked
        self.source = None if asked is None else bound(asked)
        self.room = room
        self.port = port
        self._session = session
        self._portal = portal
        self._bits = bits
        self._failed = failed
        self._waits = False
        self._begin()

    def _begin(self) -> None:
        self._frames: list[bytes] = []
        self._owners: list[Any] = []
        self._methods: list[str] = []
        self._size = HEAD_SIZE
        self._timeout: float | None = 0.0  # the longest that one of them has; None: LNet's own

    def add(self, frame: bytes, owner: object, method: str, timeout: float | None = None) -> None:
        """Send a frame of that owner, about that method, behind this turn of the loop at the latest."""
        size = len(frame) + _PLACE
        if self._frames and self._size + size > self.room:
            self._send()
        if not self._waits:
            self._waits = True
            self.port.wait_on(self)
        self._frames.append(frame)
        self._owners.append(owner)
        if method not in self._methods:
            self._methods.append(method)
        self._size += size
        before = self._timeout
        if before is not None and (timeout is None or timeout > before):
            self._timeout = timeout
        if len(self._frames) == _MOST_TOGETHER:
            self._send()

    def leave(self) -> None:
        """What waits leaves now."""
        self._waits = False
        if self._frames:
            self._send()

    def _send(self) -> None:
        frames, owners, methods, timeout = self._frames, self._owners, self._methods, self._timeout
        self._begin()
        failed = self._failed

        def ended(error: int, text: str) -> None:
            if error:
                for owner in owners:
                    failed(owner, error, text)

        data = frames[0] if len(frames) == 1 else batch(self._session, frames)
        # fmt: off
        self.port.send(self.target, self._portal, self._bits, data, ended=ended, source=self.source,
                        timeout=timeout, method=", ".join(methods))
        # fmt: on
