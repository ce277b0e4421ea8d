"""Feeds a script with the bytes it asks for.

A script is a generator: it yields how many bytes it wants next (an int), `ANY` for whatever there is,
or `Skip(n)`, and is sent the bytes. Bytes that the capture lacks arrive as the exception `Missing`,
except those skipped anyway.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

__all__ = ["ANY", "Missing", "Reader", "Script", "Skip"]

ANY: Final = 0


@dataclass(frozen=True, slots=True)
class Skip:
    """Pass over so many bytes."""

    size: int


Script = Generator[int | Skip, bytes, None]


class Missing(Exception):
    """`size` bytes are not in the capture; `had` bytes of what was asked for came before them."""

    def __init__(self, had: int, size: int) -> None:
        super().__init__(f"{size} bytes are missing from the capture")
        self.had = had
        self.size = size


class Reader:
    """The buffer between a stream and its script; it never holds more than one request."""

    __slots__ = ("_buffer", "_script", "_skip", "_want", "active")

    def __init__(self, script: Script) -> None:
        self._buffer = bytearray()
        self._script = script
        self._want = 0
        self._skip = 0
        self.active: bool = True
        self._resume(None)

    @property
    def waiting(self) -> tuple[int, int]:
        """Bytes that came of what the script asked for, and bytes that it still lacks."""
        if self._skip:
            return 0, self._skip
        return len(self._buffer), max(self._want - len(self._buffer), 0)

    def feed(self, missing: int, data: bytes) -> None:
        """Bytes arrived, after so many that are missing."""
        if missing and self.active:
            self._lose(missing)
        if self.active:
            self._buffer += data
            self._serve()

    def push_back(self, data: bytes) -> None:
        """Called by the script: these bytes of the last answer are to come again."""
        self._buffer[:0] = data

    def _serve(self) -> None:
        while self.active:
            if self._skip:
                taken = min(self._skip, len(self._buffer))
                del self._buffer[:taken]
                self._skip -= taken
                if self._skip:
                    return
                self._resume(b"")
            elif self._want == ANY:
                if not self._buffer:
                    return
                data = bytes(self._buffer)
                self._buffer.clear()
                self._resume(data)
            elif len(self._buffer) >= self._want:
                data = bytes(self._buffer[: self._want])
                del self._buffer[: self._want]
                self._resume(data)
            else:
                return

    def _lose(self, missing: int) -> None:
        skipped = min(self._skip, missing)
        self._skip -= skipped
        if skipped and not self._skip:
            self._resume(b"")
        if missing > skipped and self.active:
            had = len(self._buffer)
            self._buffer.clear()
            self._skip = 0
            self._resume(Missing(had, missing - skipped))

    def _resume(self, answer: bytes | Missing | None) -> None:
        try:
            if isinstance(answer, Missing):
                request = self._script.throw(answer)
            else:
                request = next(self._script) if answer is None else self._script.send(answer)
        except StopIteration:
            self.active = False
            self._buffer.clear()
            return
        if isinstance(request, Skip):
            self._skip, self._want = request.size, ANY
        else:
            self._want = request
