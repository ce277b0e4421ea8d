"""Which connections have something to read, or room to write (docs/design/hot-path.md).

Called by the event loop for each connection, a node with many of them spends as much on that as on their
messages. Here the loop watches one file, the epoll, and those that are ready are read in one go. The first
few connections stay the loop's own, for there a wake-up costs a call to the kernel less. A loop of ours
(`ulnet.lnd.loop`) reads both kinds without a turn of it.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ulnet.lnd.loop import Loop

if TYPE_CHECKING:
    from ulnet.lnd.tcp.receive import Receiver
    from ulnet.lnd.tcp.shared import Shared

__all__ = ["Poller"]

_FEW: Final = 8
_TURN: Final = 64  # connections read in a row, before others in the loop have their turn
_SHARE: Final = 16  # … and before what they led to is sent


class Poller:
    """One per driver. Level-triggered: what is not read now is told of again."""

    __slots__ = ("_alone", "_epoll", "_express", "_loop", "_many", "_shared", "few")

    def __init__(self, loop: asyncio.AbstractEventLoop, shared: Shared) -> None:
        self._loop = loop
        self._express = loop.express if isinstance(loop, Loop) else None
        self._shared = shared
        self.few = _FEW  # so many are the loop's own
        self._alone: set[int] = set()  # those
        self._many: dict[int, Receiver] = {}  # the others
        self._epoll: select.epoll | None = None  # while there are others

    def watch(self, number: int, conn: Receiver) -> None:
        """Have conn read whenever something comes; `number` is its file descriptor."""
        epoll = self._own_epoll() if len(self._alone) >= self.few else None
        if epoll is None:
            self._alone.add(number)
            self._read(number, conn.on_readable)
        else:
            epoll.register(number, select.EPOLLIN)
            self._many[number] = conn

    def watch_room(self, number: int, writer: Callable[[], None]) -> None:
        """Call `writer` whenever that descriptor takes more."""
        if self._express is not None:
            self._express.watch_room(number, writer)
        else:
            self._loop.add_writer(number, writer)

    def forget_room(self, number: int) -> None:
        """Do not, any more."""
        if self._express is not None:
            self._express.forget_room(number)
        else:
            self._loop.remove_writer(number)

    def _own_epoll(self) -> select.epoll | None:
        """None if this process can open no more files."""
        if self._epoll is None:
            try:
                self._epoll = select.epoll()
            except OSError:
                return None
            self._read(self._epoll.fileno(), self._on_ready)
        return self._epoll

    def _read(self, number: int, reader: Callable[[], None]) -> None:
        if self._express is not None:
            self._express.read(number, reader)
        else:
            self._loop.add_reader(number, reader)

    def _leave(self, number: int) -> None:
        if self._express is not None:
            self._express.leave(number)
        else:
            self._loop.remove_reader(number)

    def forget(self, number: int) -> None:
        """Do not, any more (if it was watched at all)."""
        if number in self._alone:
            self._alone.remove(number)
            self._leave(number)
            return
        if self._many.pop(number, None) is None:
            return
        epoll = self._epoll
        assert epoll is not None
        epoll.unregister(number)
        if not self._many:
            self._leave(epoll.fileno())
            epoll.close()
            self._epoll = None

    def _on_ready(self) -> None:
        if self._epoll is None:  # closed by what the loop called just before
            return
        shared = self._shared
        many = self._many
        ready = self._epoll.poll(0, _TURN)
        if len(ready) == 1:
            many[ready[0][0]].on_readable()
            return
        for first in range(0, len(ready), _SHARE):
            shared.receiving = not shared.dirty
            try:
                for number, _ in ready[first : first + _SHARE]:
                    conn = many.get(number)
                    if conn is not None and conn.read():  # None: one before it led to its end
                        conn.was_read()
            finally:
                shared.received()
