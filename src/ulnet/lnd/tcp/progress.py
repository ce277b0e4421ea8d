"""Connections with something under way, looked at many times a second; without any there is no timer.

The kernel knows of a silent path long before a time-out does: what it has sent stays unacknowledged.
A path is called stalled when that lasts longer than its round trips explain; messages still fail by the
time-out alone (spec wire-socklnd.md §6), which is kept to a twentieth of a second here. The fewer there are
to look at, the more often that is done.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios
from collections.abc import Callable
from typing import Final, Protocol

__all__ = ["QUIET", "SILENT", "ProgressTimer", "Watched", "is_stalled", "judge", "unacknowledged"]

_INTERVAL: Final = 0.05
_OFTEN: Final = 0.02  # where only so many are watched:
_FEW_WATCHED: Final = 16
_SLEPT: Final = 0.05  # seconds: where a turn comes later than that, this process was kept from running
_MOST: Final = 500  # looked at in one turn; where there are more, each has its turn later
QUIET: Final = 0.06  # seconds without an acknowledgement that are strange in a stream of packets
SILENT: Final = 0.25  # in a few packets: the peer may delay its acknowledgement for 0.2 s
_FEW: Final = 3  # packets
# Of struct tcp_info: packets in flight, ms since an acknowledgement, round trip and its spread in µs.
_INFO: Final = struct.Struct("=24xI28xI8xII")
_INT: Final = struct.Struct("i")
_SIOCOUTQ: Final = termios.TIOCOUTQ


class Watched(Protocol):
    """Something with deadlines; `watched` belongs to `ProgressTimer`."""

    watched: bool

    def check_progress(self, now: float) -> bool:
        """Look at it; False: it needs no more watching."""

    def excuse(self, seconds: float) -> None:
        """This process did not run for so long: what did not happen meanwhile is no fault of a path."""


class Clock(Protocol):
    """Keeps the time of the last look, for all who need it only roughly."""

    now: float


class ProgressTimer:
    """Calls `check_progress` of what is watched, twenty or fifty times a second."""

    __slots__ = ("_clock", "_due", "_loop", "_slept", "_timer", "_watched")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        slept: Callable[[float], None],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._slept = slept  # hears, once for all, for how long this process did not run
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # when the next turn should come
        self._watched: dict[Watched, None] = {}

    def watch(self, one: Watched) -> None:
        """Look at it from now on. (It is not watched yet.)"""
        one.watched = True
        self._watched[one] = None
        if self._timer is None:
            self._clock.now = self._loop.time()
            self._check_after(_OFTEN)

    def forget(self, one: Watched) -> None:
        """Look at it no more: it is gone."""
        one.watched = False
        self._watched.pop(one, None)
        if not self._watched and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def stop(self) -> None:
        """Look at nothing more."""
        for one in list(self._watched):
            self.forget(one)

    def _check(self) -> None:
        self._timer = None
        now = self._clock.now = self._loop.time()
        watched = self._watched
        turn = list(watched)
        late = now - self._due
        if late > _SLEPT:  # on a busy machine the peer was kept waiting, too
            self._slept(late)
            for one in turn:
                one.excuse(late)
        if len(turn) > _MOST:
            del turn[_MOST:]
            for one in turn:  # the others are first next time
                del watched[one]
                watched[one] = None
        for one in turn:
            if one.watched and not one.check_progress(now) and one.watched:
                one.watched = False
                del watched[one]
        if watched and not self._is_due():
            self._check_after(_OFTEN if len(watched) <= _FEW_WATCHED else _INTERVAL)

    def _is_due(self) -> bool:
        """Whether a turn is, as when another one had something watched; compiled code must ask by a call."""
        return self._timer is not None

    def _check_after(self, pause: float) -> None:
        self._due = self._clock.now + pause
        self._timer = self._loop.call_at(self._due, self._check)


def unacknowledged(sock: socket.socket) -> int:
    """Bytes given to the kernel that the peer's host has not acknowledged yet."""
    answer = bytearray(4)  # with bytes, which it may not write to, Python first makes an error and forgets it
    fcntl.ioctl(sock, _SIOCOUTQ, answer)
    value: int = _INT.unpack(answer)[0]
    return value


def is_stalled(sock: socket.socket, quiet: float) -> bool:
    """Whether the network is to blame that nothing was acknowledged for `quiet` seconds."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size)
    return judge(info, quiet)


def judge(info: bytes, quiet: float) -> bool:
    """Whether the network is to blame, by the kernel's struct tcp_info."""
    if len(info) < _INFO.size:
        return False
    in_flight, last_ack, round_trip, spread = _INFO.unpack_from(info)
    if not in_flight:  # the peer's host has all that it lets us send: its program reads slowly
        return False
    usual: float = (round_trip + 4 * spread) / 1e6
    patience = max(usual, QUIET if in_flight > _FEW else SILENT)
    return quiet >= patience <= float(last_ack) / 1000
