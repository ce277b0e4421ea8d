"""SIGHUP and SIGTERM end the demo as Ctrl-C does: what it made is removed, and its status tells which it was.

Only the first of them counts: a shell that loses its terminal passes on a SIGHUP that the system has sent
already, and the second must not disturb the end that the first began.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Interruption", "cancelled_by_signals", "ended_by_signals"]

_SIGNALS = (signal.SIGHUP, signal.SIGTERM)


class Interruption:
    """What a signal does."""

    def __init__(self) -> None:
        self.number: int = 0  # of the signal that came first
        self._work: asyncio.Task[object] | None = None
        self._patient = False

    def take(self, number: int, frame: FrameType | None) -> None:
        """The handler: SystemExit, or where a task is at work, that is cancelled."""
        if self.number:
            return
        self.number = number
        if self._work is None:
            sys.exit(128 + number)
        self._work.get_loop().call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._work is not None and not self._patient:
            self._work.cancel()

    def begin(self, work: asyncio.Task[object]) -> None:
        """This task is at work."""
        self._work, self._patient = work, False

    def wait(self) -> None:
        """The end has begun: a signal that comes now is noted, and waits for it."""
        self._patient = True

    def end(self) -> None:
        """The work is over."""
        self._work = None


_interruption = Interruption()  # one, as a process has one handler of each signal


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Leave by SystemExit, with 128 and the signal's number, whatever else its end brought with it.

    A signal that is ignored, as `nohup` has it, stays so.
    """
    _interruption.number = 0
    heeded = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, _interruption.take) for number in heeded}
    try:
        yield
    except BaseException:  # a terminal that is gone, say, takes no last words
        if not _interruption.number:
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if _interruption.number:
        _forget_output()
        sys.exit(128 + _interruption.number)


@contextmanager
def cancelled_by_signals() -> Iterator[Interruption]:
    """Have them cancel this task meanwhile, as asyncio.run does it for SIGINT. Raises CancelledError."""
    task = asyncio.current_task()
    assert task is not None
    _interruption.begin(task)
    try:
        yield _interruption
    finally:
        _interruption.end()
    if _interruption.number:  # it came when there was nothing left to be cancelled
        raise asyncio.CancelledError


def _forget_output() -> None:
    """What a terminal that is gone did not take must not fail again when Python ends."""
    for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
