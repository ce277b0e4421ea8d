"""Messages of which nobody awaits the end: who sends one is called when it is over."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from ulnet.control.instance import LNet
from ulnet.core.event import Event, EventKind
from ulnet.core.md import Buffer, Md
from ulnet.core.status import LNetError, errno_text
from ulnet.nid import Nid

__all__ = ["Ended", "Outbox"]

Ended = Callable[[int, LNetError | None], None]  # how many bytes were moved, or what failed


class Outbox:
    """What selftest sends on one node, in one life of it.

    `ended` hears of each message once, later, from an event handler; what raises LNetError has not begun.
    """

    __slots__ = ("_under_way", "core")

    def __init__(self, core: LNet) -> None:
        self.core: Final = core
        self._under_way: dict[int, Md] = {}

    @property
    def busy(self) -> bool:
        """Whether something is under way."""
        return bool(self._under_way)

    def put(
        self,
        target: Nid,
        portal: int,
        match_bits: int,
        data: bytes,
        ended: Ended,
        *,
        source: Nid | None = None,
        timeout: float | None = None,
    ) -> Md:
        """Send a PUT without ACK: it is over when it has left. `give_up` takes what this returns."""
        core = self.core
        if timeout is None:
            timeout = core.settings.transaction_timeout
        md = core.memory.md_bind(data, self._told, threshold=1, timeout=timeout)
        self._begin(md, target, ended, EventKind.SEND)
        try:
            core.put(md, target, portal, match_bits, ack=False, source=source)
        except BaseException:
            self.give_up(md)
            raise
        return md

    def get(
        self,
        target: Nid,
        portal: int,
        match_bits: int,
        memory: Buffer,
        ended: Ended,
        *,
        source: Nid | None = None,
        timeout: float | None = None,
    ) -> Md:
        """Send a GET: it is over when its REPLY is in memory."""
        core = self.core
        md = core.memory.md_bind(memory, self._told, threshold=2, timeout=timeout)
        md.quiet = True
        self._begin(md, target, ended, EventKind.REPLY)
        try:
            core.get(md, target, portal, match_bits, source=source)
        except BaseException:
            self.give_up(md)
            raise
        return md

    def _begin(self, md: Md, target: Nid, ended: Ended, wanted: EventKind) -> None:
        md.user_ptr = (target, ended, wanted)
        self._under_way[md.handle] = md

    def _told(self, event: Event) -> None:
        md = event.md
        if event.unlinked:
            self._under_way.pop(md.handle, None)
        asked = md.user_ptr
        if asked is None:
            return
        assert isinstance(asked, tuple)
        target, ended, wanted = asked
        if event.status:
            md.user_ptr = None
            ended(0, LNetError(-event.status, f"{target}: {event.reason or errno_text(event.status)}"))
        elif event.kind is wanted:
            md.user_ptr = None
            ended(event.mlength, None)
        elif event.unlinked:
            md.user_ptr = None
            ended(0, LNetError(errno.ECANCELED, f"{target}: the message was cancelled"))

    def give_up(self, md: Md) -> None:
        """Nobody asks for its end any more; what has not left does not leave."""
        md.user_ptr = None
        if md.linked:
            self.core.memory.md_unlink(md)

    def close(self) -> None:
        """Give up all of them."""
        for md in list(self._under_way.values()):
            self.give_up(md)
