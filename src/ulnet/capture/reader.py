"""Feeds a script with the bytes it asks for.

A script is a generator: it yields how many bytes it wants next (an int), `ANY` for what there is of
the next `PIECE` bytes, or `Skip(n)`, and is sent the bytes. Bytes that the capture lacks arrive as the
exception `Missing`, except those skipped anyway.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

__all__ = ["ANY", "PIECE", "Missing", "Reader", "Script", "Skip"]

ANY: Final = 0
PIECE: Final = 4096  # who asks for ANY, and pushes most of it back, does so again and again


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
    """The buffer between a stream and its script; between two packets it holds less than one request."""

    __slots__ = ("_at", "_buffer", "_script", "_skip", "_want", "active")

    def __init__(self, script: Script) -> None:
        self._buffer = bytearray()
        self._at = 0  # what is before it in the buffer was read
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
        had = len(self._buffer) - self._at
        return had, max(self._want - had, 0)

    def feed(self, missing: int, data: bytes) -> None:
        """Bytes arrived, after so many that are missing."""
        if missing and self.active:
            self._lose(missing)
        if self.active:
            self._buffer += data
            self._serve()
            del self._buffer[: self._at]
            self._at = 0

    def push_back(self, data: bytes) -> None:
        """Called by the script: the last bytes that it was sent, which are these, are to come again."""
        self._at -= len(data)
        if self._at < 0:  # the first of them came with an earlier packet
            self._buffer[:0] = data[: -self._at]
            self._at = 0

    def _serve(self) -> None:
        while self.active:
            left = len(self._buffer) - self._at
            if self._skip:
                taken = min(self._skip, left)
                self._at += taken
                self._skip -= taken
                if self._skip:
                    return
                self._resume(b"")
            elif left and left >= self._want:
                start = self._at
                self._at += self._want or min(left, PIECE)
                self._resume(bytes(self._buffer[start : self._at]))
            else:
                return

    def _lose(self, missing: int) -> None:
        skipped = min(self._skip, missing)
        self._skip -= skipped
        if skipped and not self._skip:
            self._resume(b"")
        if missing > skipped and self.active:
            had = len(self._buffer) - self._at
            self._clear()
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
            self._clear()
            return
        if isinstance(request, Skip):
            self._skip, self._want = request.size, ANY
        else:
            self._want = request

    def _clear(self) -> None:
        self._buffer.clear()
        self._at = 0
