"""Where a driver takes small messages for one next hop: the queue of a connection.

A driver that has just one connection for them may put it into `Lane.outlet` when it gets a message of that
lane; the next ones of the same size are queued there without asking it. `sole` becomes False when that
is not so any more.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ulnet.core.msg import Msg

__all__ = ["Outlet"]


class Outlet:
    """A queue towards a next hop. `tx_bytes` are all that wait, each with `head_size` before its payload."""

    __slots__ = ("head_size", "sole", "tx_bytes", "tx_idle", "tx_queue")

    def __init__(self, head_size: int) -> None:
        self.head_size = head_size
        self.sole = False  # the connection that all small messages take
        self.tx_queue: deque[Msg] = deque()
        self.tx_bytes = 0
        self.tx_idle = True  # nothing queued, and nobody will look: `kick` is due

    def kick(self) -> None:
        """Something is queued on an idle connection."""
        raise NotImplementedError
