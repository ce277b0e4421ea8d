"""Hears at once when links and addresses come and go: one netlink socket on the event loop."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ulnet.host.link_table import DONE, LINKS_AND_ADDRESSES, LinkTable, dump_request
from ulnet.host.values import HostError

__all__ = ["LinkMonitor"]

_BUFFER: Final = 262144  # the kernel never cuts a message to less than 32 KiB, a dump's are shorter
_RECEIVE_QUEUE: Final = 1 << 20
_AGAIN: Final = 1.0  # seconds after a dump that was refused
_DUMP_PATIENCE: Final = 5.0  # seconds; the answer is made while it is read


class LinkMonitor:
    """A table of links that follows the kernel's; `changed` is called after each change."""

    def __init__(self, loop: asyncio.AbstractEventLoop, changed: Callable[[], None]) -> None:
        """Raises HostError where netlink is not to be had."""
        self._loop = loop
        self._changed = changed
        self._again: asyncio.TimerHandle | None = None  # the table has gaps
        try:
            self._sock = _netlink(LINKS_AND_ADDRESSES)
        except (OSError, AttributeError) as error:
            raise _refused(error) from None
        try:
            self.table: LinkTable = _whole_table()
        except OSError as error:
            self._sock.close()
            raise _refused(error) from None
        self._sock.setblocking(False)
        loop.add_reader(self._sock, self._on_readable)

    def close(self) -> None:
        """Stop listening."""
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()

    def fileno(self) -> int:
        """The descriptor of its socket."""
        return self._sock.fileno()

    def catch_up(self) -> bool:
        """Take what the kernel has told by now, without calling `changed`; whether there was anything."""
        news = lost = False
        while True:
            try:
                self.table.feed(self._sock.recv(_BUFFER))
                news = True
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    break
                lost = True  # more happened than the queue holds: what follows has gaps
        if lost:
            self._fill_gaps()
        return news or lost

    def _fill_gaps(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        try:
            self.table = _whole_table()
        except OSError:  # no descriptor left, say
            self._again = self._loop.call_later(_AGAIN, self._fill_gaps_late)

    def _fill_gaps_late(self) -> None:
        self._fill_gaps()
        self._changed()

    def _on_readable(self) -> None:
        self.catch_up()
        self._changed()


def _netlink(groups: int) -> socket.socket:
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    try:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_QUEUE)
        sock.bind((0, groups))
    except OSError:
        sock.close()
        raise
    return sock


def _whole_table() -> LinkTable:
    """All that is there now. Raises OSError."""
    table = LinkTable()
    with _netlink(0) as sock:
        sock.settimeout(_DUMP_PATIENCE)
        for addresses in (False, True):
            sock.send(dump_request(addresses))
            while table.feed(sock.recv(_BUFFER)) != DONE:
                pass
    return table


def _refused(error: Exception) -> HostError:
    number = error.errno if isinstance(error, OSError) and error.errno else errno.ENOSYS
    return HostError(number, f"links cannot be watched: netlink cannot be used here ({error})")
