"""Runs a command whose standard output may be closed, full, read no further, or without UTF-8."""

from __future__ import annotations

import codecs
import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper

__all__ = ["ended_by_ctrl_c", "of_output", "run_to_its_end"]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})  # of a stream that was open already
# What commands print in place of characters that the output's encoding lacks.
_BARS = dict(zip("▁▂▃▄▅▆▇█", "_.-=+*%#", strict=True))
_FAIL_OR_ESCAPE = ("strict", "backslashreplace", "surrogateescape")  # the last one in the C locale
_PLAIN = {"→": "->", "…": "...", "–": "-", "×": "x", "µ": "u", **_BARS}


def run_to_its_end(name: str, run: Callable[[], int], unwritten: Callable[[int], int]) -> int:
    """The exit status of `run`; `unwritten` tells it for the errno of output that cannot be written."""
    _open_what_is_closed()
    _replace_what_cannot_be_encoded()
    try:
        try:
            status = run()
        except SystemExit:  # argparse has shown its help
            sys.stdout.flush()
            raise
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        _write_no_more()  # the signal went to the reader, too
        return 130
    except BrokenPipeError:  # `lnetctl peer show | head` has read enough
        _write_no_more()
        return 141
    except OSError as error:
        if not of_output(error) or error.errno is None:
            raise
        _write_no_more()
        print(f"{name}: what it says cannot be written: {os.strerror(error.errno)}", file=sys.stderr)
        return unwritten(error.errno)


def of_output(error: OSError) -> bool:
    """Whether standard output is what could not be written: no file has a name in it."""
    return isinstance(error, BrokenPipeError) or (error.errno in _FULL and error.filename is None)


@contextmanager
def ended_by_ctrl_c() -> Iterator[None]:
    """While modules are loaded there is nothing to clean up: Ctrl-C ends the process at once, as it does C's.

    A KeyboardInterrupt there would be a traceback, or worse: not every module in C bears it.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # ignored, or somebody else's
        yield
        return
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    except ValueError:  # a thread's: signals are not its matter
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _open_what_is_closed() -> None:
    """A command does its work also where nobody wants to hear of it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, as long as it lives


def _replace_what_cannot_be_encoded() -> None:
    """A terminal without UTF-8 is no reason to fail: it gets other characters, or escapes."""
    codecs.register_error("ulnet.plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.errors in _FAIL_OR_ESCAPE:
            stream.reconfigure(errors="ulnet.plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    plain = (_PLAIN.get(one) or one.encode("ascii", "backslashreplace").decode() for one in lacking)
    return "".join(plain), error.end


def _write_no_more() -> None:
    """What is still in the buffers must not fail again when Python ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
