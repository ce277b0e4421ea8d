"""Messages of which nobody awaits the end: who sends one is called when it is over."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Final

from ulnet.control.instance import LNet
from ulnet.core.event import Event, EventKind
from ulnet.core.md import Buffer, Md
from ulnet.core.status import LNetError, errno_text
from ulnet.nid import Nid

__all__ = ["Ended", "Port", "Sent", "nobody_asks"]

_MOST_FREE: Final = 256

# How a message ended: 0 or an errno, and why. One of which nothing was taken, for want of room, ends with
# ENOBUFS, one of which not all was taken with EPROTO.
Ended = Callable[[int, str], None]


def nobody_asks(error: int, text: str) -> None:
    """Take a message's end for nothing: one that is lost does no harm, or is asked for again."""


class Sent:
    """One message under way, a PUT or a GET; one that is over serves the next."""

    __slots__ = ("_core", "_free", "_wanted", "ended", "md")

    def __init__(self, core: LNet, free: list[Sent]) -> None:
        self._core = core
        self._free = free
        self._wanted = EventKind.SEND
        self.ended: Ended | None = None
        self.md: Md = Md([], self._handle)
        self.md.lasting = True
        self.md.arriving = []

    def bind(
        self, data: Buffer, wanted: EventKind, timeout: float | None, ended: Ended, method: str | None
    ) -> Md:
        """The descriptor of the next one. Raises LNetError."""
        md = self.md
        self.ended = ended
        self._wanted = wanted
        md.quiet = wanted is not EventKind.SEND
        md.user_ptr = method
        self._core.memory.rebind(md, data, 2 if md.quiet else 1, timeout)
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
            self._core.reclaim(self.md)

    def recycle(self) -> None:
        """It may serve another one."""
        self.md.fragments = []
        self._free.append(self)


class Port:
    """What one program sends, in one life of its node."""

    __slots__ = ("_all", "_corked", "_free", "_loop", "_spare", "core")

    def __init__(self, core: LNet) -> None:
        self.core: LNet = core
        self._loop = asyncio.get_running_loop()
        self._all: dict[Sent, None] = {}
        self._free: list[Sent] = []
        self._spare: list[Sent] = []  # that were freed in this turn of the loop
        self._corked = False

    @property
    def busy(self) -> bool:
        """Whether something is under way."""
        return len(self._all) > len(self._free) + len(self._spare)

    def close(self) -> None:
        """Give up all that is under way: nobody hears of its end."""
        for sent in list(self._all):
            sent.abort()

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
        sent = self._free.pop() if self._free else self._another()
        try:
            wanted = EventKind.ACK if ack else EventKind.SEND
            md = sent.bind(data, wanted, timeout, ended, method)
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
        offset: int = 0,
        source: Nid | None = None,
        timeout: float | None = None,
        method: str | None = None,
    ) -> Sent | None:
        """GET all of `into`; else as `send`."""
        self._cork()
        sent = self._free.pop() if self._free else self._another()
        try:
            md = sent.bind(into, EventKind.REPLY, timeout, ended, method)
            self.core.get(md, target, portal, match_bits, offset=offset, source=source)
        except LNetError as refused:
            self._refused(sent, refused)
            return None
        return sent

    def _another(self) -> Sent:
        sent = Sent(self.core, self._spare)
        self._all[sent] = None
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

    def _uncork(self) -> None:
        self._corked = False
        if self._spare:
            if len(self._free) < _MOST_FREE:
                self._free += self._spare
            else:
                for sent in self._spare:
                    del self._all[sent]
                    self.core.memory.drop(sent.md)
            self._spare.clear()
        self.core.uncork()
