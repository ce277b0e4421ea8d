"""A connection of the programs that do without a node: what waits to be sent goes as the kernel takes it."""

from __future__ import annotations

import select
import socket

from work import CONGESTION

__all__ = ["Queue"]


class Queue:
    """One connection, watched by `poll` for what comes, and for room while it is full."""

    __slots__ = ("full", "queue", "sock")

    def __init__(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONGESTION)
        sock.setblocking(False)
        self.sock = sock
        self.queue: list[bytes] = []
        self.full = False  # the kernel takes no more now

    def flush(self, poll: select.epoll) -> None:
        """Send what waits, as far as the kernel takes it."""
        data = b"".join(self.queue)
        self.queue.clear()
        try:
            sent = self.sock.send(data)
        except BlockingIOError:
            sent = 0
        except ConnectionError:  # reading tells that it was closed
            sent = len(data)
        full = sent < len(data)
        if full:
            self.queue.append(data[sent:])
        if full is not self.full:
            self.full = full
            poll.modify(self.sock, select.EPOLLIN | (select.EPOLLOUT if full else 0))
