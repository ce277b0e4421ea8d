"""Whether the other end of a Unix socket is there."""

from __future__ import annotations

import select
from typing import Protocol

__all__ = ["has_gone"]


class _HasDescriptor(Protocol):
    def fileno(self) -> int: ...


def has_gone(connection: _HasDescriptor) -> bool:
    """Whether the other end is closed for good, not only for what it would send. Reads nothing."""
    poll = select.poll()
    poll.register(connection.fileno(), 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))
