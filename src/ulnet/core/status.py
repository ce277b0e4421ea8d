"""Why a message ended: health status codes (spec health.md §3) and LNet's error type."""

from __future__ import annotations

import errno as _errno
from enum import IntEnum

__all__ = [
    "HealthStatus",
    "LNetConnectionError",
    "LNetError",
    "LNetPermissionError",
    "LNetSystemError",
    "LNetTimeoutError",
    "errno_text",
    "of_system",
]


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
    """A request the node refuses: `errno` (positive), a sentence with the thing, the rule, the way out.

    Made with ETIMEDOUT it is a LNetTimeoutError; with an errno of a way that is not there, or broke, a
    LNetConnectionError; with EACCES a LNetPermissionError. What else the system refuses is a
    LNetSystemError. All of these are OSErrors, too; what LNet's own rules refuse is none.
    """

    def __new__(cls, errno: int, text: str, *more: object) -> LNetError:
        """An error of the class that its number has."""
        if cls is LNetError and errno in _BY_ERRNO:
            kind = _BY_ERRNO[errno]
            return kind.__new__(kind, errno, text)
        return super().__new__(cls, errno, text)

    def __init__(self, errno: int, text: str) -> None:
        super().__init__(text)
        self.errno = errno
        self.text = text

    def __reduce__(self) -> tuple[type[LNetError], tuple[int, str]]:
        return type(self), (self.errno, self.text)  # copied, or passed between processes

    def __str__(self) -> str:
        return self.text


class LNetTimeoutError(LNetError, TimeoutError):
    """An answer did not come in time, or a message could not leave in time."""

    errno: int


class LNetConnectionError(LNetError, ConnectionError):
    """The peer refuses, is gone or began anew, or no way leads there."""

    errno: int


class LNetPermissionError(LNetError, PermissionError):
    """This process, or the peer, may not do that."""

    errno: int


class LNetSystemError(LNetError, OSError):
    """The system refused something else: a port is taken, a device or a descriptor is not to be had."""

    errno: int


_BY_ERRNO: dict[int, type[LNetError]] = {
    _errno.ETIMEDOUT: LNetTimeoutError,
    _errno.ECONNABORTED: LNetConnectionError,
    _errno.ECONNREFUSED: LNetConnectionError,
    _errno.ECONNRESET: LNetConnectionError,
    _errno.EHOSTDOWN: LNetConnectionError,
    _errno.EHOSTUNREACH: LNetConnectionError,
    _errno.ENETDOWN: LNetConnectionError,
    _errno.ENETUNREACH: LNetConnectionError,
    _errno.EACCES: LNetPermissionError,
}


def of_system(errno: int, text: str) -> LNetError:
    """The error for what the system refused, with the class of its number, or a LNetSystemError.

    LNet's rules use some of these numbers as well (ENODEV, ENOSPC, EADDRINUSE): so who asked the system
    says that it was the system.
    """
    return _BY_ERRNO.get(errno, LNetSystemError)(errno, text)


def errno_text(errno: int) -> str:
    """The C library's words for an errno of either sign (as lnetctl prints them)."""
    return _errno_words.get(abs(errno), f"Unknown error {errno}")


def _words() -> dict[int, str]:
    import os

    return {number: os.strerror(number) for number in _errno.errorcode}


_errno_words = _words()
