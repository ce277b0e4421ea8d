"""Why a message ended: health status codes (spec health.md §3) and LNet's error type."""

from __future__ import annotations

import errno as _errno
from enum import IntEnum

__all__ = ["HealthStatus", "LNetError", "errno_text"]


class HealthStatus(IntEnum):
    """What an LND says of a finished message; numbers are those of spec health.md §3."""

    OK = 0
    LOCAL_INTERRUPT = 1
    LOCAL_DROPPED = 2
    LOCAL_ABORTED = 3
    LOCAL_NO_ROUTE = 4
    LOCAL_ERROR = 5
    LOCAL_TIMEOUT = 6
    REMOTE_ERROR = 7
    REMOTE_DROPPED = 8
    REMOTE_TIMEOUT = 9
    NETWORK_TIMEOUT = 10


class LNetError(Exception):
    """A request the node refuses: `errno` (positive), a sentence with the thing, the rule, the way out."""

    def __init__(self, errno: int, text: str) -> None:
        super().__init__(text)
        self.errno = errno
        self.text = text

    def __reduce__(self) -> tuple[type[LNetError], tuple[int, str]]:
        return type(self), (self.errno, self.text)  # copied, or passed between processes

    def __str__(self) -> str:
        return self.text


def errno_text(errno: int) -> str:
    """The C library's words for an errno of either sign (as lnetctl prints them)."""
    return _errno_words.get(abs(errno), f"Unknown error {errno}")


def _words() -> dict[int, str]:
    import os

    return {number: os.strerror(number) for number in _errno.errorcode}


_errno_words = _words()
