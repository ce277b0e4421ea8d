"""Files that commands are given."""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import suppress
from typing import TextIO

__all__ = [
    "LONGEST",
    "Unreadable",
    "probe_writing",
    "read_text",
    "standard_input",
    "write_bytes",
    "write_files",
    "write_text",
]

LONGEST = 1 << 24  # characters; who reads more reads an endless device


class Unreadable(Exception):
    """A file that cannot be read: one sentence, and a number."""

    def __init__(self, text: str, number: int = errno.EINVAL) -> None:
        super().__init__(text)
        self.errno = number


def read_text(name: str) -> str:
    """The text of a file; `-` is standard input. Raises Unreadable."""
    from ulnet.host.files import read_bounded  # late: its package is slow to load, and lnetctl seldom reads

    try:
        text = standard_input().read(LONGEST + 1) if name == "-" else read_bounded(name, LONGEST)
    except OSError as error:
        number = error.errno or errno.EIO
        raise Unreadable(f"{name} cannot be read: {error.strerror or os.strerror(number)}", number) from None
    except UnicodeDecodeError as bad:
        text = f"{name} is not UTF-8 text: {bad.reason} at byte {bad.start}"
        raise Unreadable(text, errno.EILSEQ) from None
    if len(text) > LONGEST:
        raise Unreadable(f"{name} has more than {LONGEST} characters, {LONGEST} are allowed", errno.EFBIG)
    return text


def standard_input() -> TextIO:
    """Standard input, if there is one. Raises Unreadable."""
    if sys.stdin is None:  # the caller closed it
        raise Unreadable("standard input is closed: name a file", errno.EBADF)
    return sys.stdin


def probe_writing(name: str) -> None:
    """Find out whether a file can be written, and leave nothing there. Raises OSError."""
    absent = not os.path.exists(name)
    with open(name, "ab"):
        pass
    if absent:
        os.unlink(os.path.realpath(name))


def write_text(name: str, text: str) -> None:
    """Write a file whole, or leave what is there as it is. Raises OSError."""
    write_bytes(name, text.encode())


def write_bytes(name: str, data: bytes) -> None:
    """The same with bytes. Raises OSError."""
    try:
        before = os.stat(name)
    except FileNotFoundError:
        before = None
    if before is not None and not stat.S_ISREG(before.st_mode):  # a device or a pipe keeps nothing
        with open(name, "wb") as file:
            file.write(data)
        return
    write_files((os.path.realpath(name), data, None))


def write_files(*files: tuple[str | os.PathLike[str], bytes, int | None]) -> None:
    """Write regular files whole: all of them, or none, for others may read them at any moment.

    Each has the mode that is given; without one it keeps its own, and its owner. A link is not followed.
    Raises OSError, which names the file.
    """
    written: list[tuple[str, str]] = []
    try:
        for path, data, mode in files:
            name = os.fspath(path)
            try:
                _write_beside(name, data, mode, written)
            except OSError as failed:
                number = failed.errno or errno.EIO
                raise OSError(number, failed.strerror or os.strerror(number), name) from None
        for beside, name in written:
            os.replace(beside, name)
    except BaseException:
        for beside, _ in written:
            with suppress(FileNotFoundError):
                os.unlink(beside)
        raise


def _write_beside(name: str, data: bytes, mode: int | None, written: list[tuple[str, str]]) -> None:
    before = None
    if mode is None:
        with suppress(FileNotFoundError):
            before = os.stat(name)
    beside = f"{name}.{os.getpid()}.new"
    number = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode)
    written.append((beside, name))
    with open(number, "wb") as file:
        file.write(data)
        file.flush()
        if before is not None:
            os.fchown(number, before.st_uid, before.st_gid)
            os.fchmod(number, stat.S_IMODE(before.st_mode))
        os.fsync(number)
