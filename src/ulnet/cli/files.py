"""Files that commands are given."""

from __future__ import annotations

import errno
import os
import sys
from typing import TextIO

__all__ = ["LONGEST", "Unreadable", "read_text", "standard_input"]

LONGEST = 1 << 24  # characters; who reads more reads an endless device


class Unreadable(Exception):
    """A file that cannot be read: one sentence, and a number."""

    def __init__(self, text: str, number: int = errno.EINVAL) -> None:
        super().__init__(text)
        self.errno = number


def read_text(name: str) -> str:
    """The text of a file; `-` is standard input. Raises Unreadable."""
    try:
        if name == "-":
            text = standard_input().read(LONGEST + 1)
        else:
            with open(name, encoding="utf-8") as file:
                text = file.read(LONGEST + 1)
    except OSError as error:
        number = error.errno or errno.EIO
        raise Unreadable(f"{name} cannot be read: {os.strerror(number)}", number) from None
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
