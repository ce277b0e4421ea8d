"""What handlers raise: what their clients are told of it, and what the server's log says."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from traceback import TracebackException, format_exception
from typing import Final

from ulnet.core.lines import Line
from ulnet.core.notices import Notices
from ulnet.core.status import LNetError
from ulnet.nid import Nid
from ulnet.nid.errors import escaped
from ulnet.rpc.errors import MOST_ERRNO
from ulnet.rpc.service import NotOfType

__all__ = ["Failures", "told"]

_log = logging.getLogger("ulnet.rpc")
_MOST_LINES: Final = 16  # a second: clients decide how often a handler fails
_FRAME: Final = "  File "
_LONGEST: Final = 1000  # characters of the exception's text in the line


def told(failed: BaseException, *, traceback: bool = False) -> tuple[int, str]:
    """The errno and the text for the client, whatever the exception is. EREMOTEIO: it has none to be sent."""
    number, text = _told(failed)
    if traceback:
        try:
            text = "\0".join((text, "".join(format_exception(failed))))
        except Exception as worse:
            text = f"{text}\0its traceback cannot be told: {type(worse).__name__}"
    return number, text


def _told(failed: BaseException) -> tuple[int, str]:
    name = type(failed).__name__
    try:
        if not isinstance(failed, LNetError):
            return errno.EREMOTEIO, f"{name}: {failed}"
        number: object = getattr(failed, "errno", None)
        if isinstance(number, int) and 0 < number <= MOST_ERRNO:
            return number, str(failed)
        return errno.EREMOTEIO, f"{name}: {failed} (raised with errno {number!r}: give 1 to {MOST_ERRNO})"
    except Exception as worse:
        return errno.EREMOTEIO, f"{name}: it has no text, for its __str__ raises {type(worse).__name__}"


class Failures:
    """The log's lines of what the handlers of a service raise: one a second of each method.

    With its traceback as an error; an LNetError is an answer, and told at DEBUG alone.
    """

    def __init__(self, service: str, clock: Callable[[], float]) -> None:
        self._service = service
        self._notices = Notices(clock, _log.warning, _MOST_LINES)

    def log(self, method: str, client: Nid, failed: BaseException) -> None:
        """A handler raised it."""
        if isinstance(failed, NotOfType):
            return
        answer = isinstance(failed, LNetError)
        level = logging.DEBUG if answer else logging.ERROR
        if not _log.isEnabledFor(level) or not self._notices.is_due((method, level)):
            return
        text = f"{self._service}: {method}, called by {client}, raised {told(failed)[1][:_LONGEST]}"
        line = Line("program.failed", text, what=method)
        trace = "" if answer else _escaped_traceback(failed)
        self._notices.tell(
            line,
            lambda line: (
                _log.log(level, "%s\n%s", line, trace)
                if trace
                else _log.log(level, "%s", line, exc_info=None if answer else failed)
            ),
        )


def _escaped_traceback(failed: BaseException) -> str:
    """Its traceback, if there is text in it, perhaps of who called, that must be escaped; else ""."""
    try:
        found = TracebackException.from_exception(failed)
        before = list(found.format())
        _escape_parts(found)
        after = list(map(_escaped_piece, found.format()))
    except Exception as worse:  # an exception with oddities
        return f"its traceback cannot be told: {type(worse).__name__}"
    return "".join(after).rstrip("\n") if after != before else ""


def _escape_parts(found: TracebackException) -> None:
    """Notes are several pieces otherwise, and names of files and functions are in pieces of several lines."""
    left: list[TracebackException | None] = [found]
    while left:
        one = left.pop()
        if one is None:
            continue
        notes = getattr(one, "__notes__", None)
        if isinstance(notes, list):
            one.__notes__ = [escaped(str(note)) for note in notes]
        if isinstance(getattr(one, "filename", None), str):  # a SyntaxError's
            one.filename = escaped(one.filename)
        for frame in one.stack:
            frame.filename, frame.name = escaped(frame.filename), escaped(frame.name)
        left += (one.__cause__, one.__context__, *(getattr(one, "exceptions", None) or ()))


def _escaped_piece(piece: str) -> str:
    """One of those that a traceback consists of, which may end with line breaks."""
    if piece.startswith(_FRAME):  # file and code, in lines of their own
        return escaped(piece, keep="\n")
    text = piece.strip("\n")
    begin = piece.index(text)
    return piece[:begin] + escaped(text) + piece[begin + len(text) :]
