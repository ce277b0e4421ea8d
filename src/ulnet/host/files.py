"""Reading files of which nobody knows what they are: bounded in bytes and in time."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from typing import Final

__all__ = ["read_bounded"]

_PIECE: Final = 1 << 20
_PATIENCE: Final = 10.0  # seconds for the next bytes of a pipe …
_LONGEST: Final = 60.0  # … and for all of them


def read_bounded(path: str | os.PathLike[str], most: int, patience: float = _PATIENCE) -> str:
    """The UTF-8 text of a file, of which one longer than `most` bytes gives the first `most` + 1.

    A pipe may be silent for `patience` seconds. Raises OSError (ETIMEDOUT), UnicodeDecodeError.
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    pieces: list[bytes] = []
    left = most + 1
    give_up = time.monotonic() + _LONGEST
    try:
        waits = not stat.S_ISREG(os.fstat(number).st_mode)
        while left > 0:
            if waits:
                _await(number, path, min(patience, give_up - time.monotonic()))
            try:
                piece = os.read(number, min(left, _PIECE))
            except BlockingIOError:
                continue
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
    finally:
        os.close(number)
    data = b"".join(pieces)
    if left <= 0:  # too long: where it was cut does not matter
        return data.decode("utf-8", "replace")
    return data.decode("utf-8")


def _await(number: int, path: str | os.PathLike[str], patience: float) -> None:
    poll = select.poll()
    poll.register(number, select.POLLIN)
    if patience <= 0 or not poll.poll(patience * 1000):
        raise OSError(errno.ETIMEDOUT, f"{os.strerror(errno.ETIMEDOUT)}: nobody writes to this pipe", path)
