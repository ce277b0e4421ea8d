"""Frames out, over one node: each is a PUT, and whoever sends it may hear how it ended."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Final

from ulnet.control.instance import LNet
from ulnet.core.event import Event, EventKind
from ulnet.core.md import Md
from ulnet.core.status import LNetError, errno_text
from ulnet.nid import Nid
from ulnet.node import Node

__all__ = ["Ended", "Port", "nobody_asks"]

_MOST_FREE: Final = 256

# How a frame ended: 0 or an errno, and why; a frame that found a full inbox ends with ENOBUFS.
Ended = Callable[[int, str], None]


def nobody_asks(error: int, text: str) -> None:
    """Take a frame's end for nothing: one that is lost does no harm, or is asked for again."""


class _Frame:
    """One frame under way; one that is over serves the next."""

    __slots__ = ("_core", "_free", "_wanted", "ended", "md")

    def __init__(self, core: LNet, free: list[_Frame]) -> None:
        self._core = core
        self._free = free
        self._wanted = EventKind.SEND
        self.ended: Ended | None = None
        self.md = Md([], self._handle)
        self.md.lasting = True

    def bind(self, data: bytes, ack: bool, timeout: float | None, ended: Ended, method: str | None) -> Md:
        """The descriptor of the next frame. Raises LNetError."""
        md = self.md
        self.ended = ended
        self._wanted = EventKind.ACK if ack else EventKind.SEND
        md.quiet = ack
        md.user_ptr = method
        self._core.memory.rebind(md, data, 2 if ack else 1, timeout)
        return md

    def _handle(self, event: Event) -> None:
        ended = self.ended
        if event.unlinked:
            self.recycle()
        if ended is None:
            return
        if event.status:
            self.ended = None
            if self.md.linked:  # it may wait for an ACK still
                self._core.memory.md_unlink(self.md)
            ended(-event.status, event.reason or errno_text(event.status))
        elif event.kind is self._wanted:
            self.ended = None
            if self._wanted is EventKind.ACK and not event.mlength:
                ended(errno.ENOBUFS, "there is no room for it now")
            else:
                ended(0, "")
        elif event.unlinked:
            self.ended = None
            ended(errno.ECANCELED, "it was cancelled")

    def recycle(self) -> None:
        """It may serve another one."""
        self.md.fragments = []
        self._free.append(self)


class Port:
    """What one client or server sends; in one life of its node."""

    __slots__ = ("_corked", "_free", "_loop", "_spare", "core")

    def __init__(self, node: Node) -> None:
        self.core = node.core
        self._loop = asyncio.get_running_loop()
        self._free: list[_Frame] = []
        self._spare: list[_Frame] = []  # that were freed in this turn of the loop
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
        data: bytes,
        *,
        ended: Ended,
        ack: bool = False,
        source: Nid | None = None,
        timeout: float | None = None,
        method: str | None = None,
    ) -> None:
        """Send a frame; `ended` hears of it once, later or at once. What cannot even begin has ended, too.

        `method` is what it is about: a trace of the node tells that.
        """
        core = self.core
        if not self._corked:  # what is sent in this turn of the loop leaves together behind it
            self._corked = True
            core.cork()
            self._loop.call_soon(self._uncork)
        if timeout is None and not ack:
            timeout = core.settings.transaction_timeout
        frame = self._free.pop() if self._free else _Frame(core, self._spare)
        try:
            md = frame.bind(data, ack, timeout, ended, method)
            core.put(md, target, portal, match_bits, ack=ack, source=source)
        except LNetError as refused:
            frame.ended = None
            if frame.md.linked:
                core.memory.md_unlink(frame.md)
            else:
                frame.recycle()
            ended(refused.errno, str(refused))

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
