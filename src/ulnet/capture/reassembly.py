"""One direction of a TCP connection, put back in order (bounded: what is missing is given up in the end)."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

__all__ = ["Budget", "Chunk", "HalfStream"]

_HALF: Final = 1 << 31
_MASK: Final = (1 << 32) - 1
_MAX_HELD: Final = 4 << 20  # bytes that wait behind a hole
_MAX_SEGMENTS: Final = 4096


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes in order, after `missing` bytes that the capture does not have."""

    missing: int
    data: bytes


class Budget:
    """Bytes held back by all directions together."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int = 64 << 20) -> None:
        self.limit: int = limit
        self.used: int = 0


class HalfStream:
    """Takes segments as captured, gives chunks in order.

    Segments behind a hole wait for it to be filled, until the other end acknowledges past it (then the
    capture lost it), too much waits, or `flush`.
    """

    __slots__ = ("_acked", "_at", "_budget", "_held", "_held_bytes", "_next", "_serial")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._next: int | None = None  # sequence number of the next byte
        self._at = 0  # its place in the stream
        self._acked = 0
        self._held: list[tuple[int, int, bytes, int]] = []  # heap: place, serial, data, bytes cut off
        self._held_bytes = 0
        self._serial = 0

    def start(self, seq: int) -> None:
        """The first byte will have this sequence number."""
        if self._next is None:
            self._next = seq & _MASK

    def feed(self, seq: int, data: bytes, cut: int = 0) -> list[Chunk]:
        """Take a segment whose last `cut` bytes were not captured."""
        if not data and not cut:
            return []
        self.start(seq)
        place = self._place(seq)
        if place <= self._at:
            chunks = self._deliver(place, data, cut)
            return chunks + self._drain() if chunks else []
        self._serial += 1
        heapq.heappush(self._held, (place, self._serial, data, cut))
        self._held_bytes += len(data)
        self._budget.used += len(data)
        crowded = (
            self._held_bytes > _MAX_HELD
            or len(self._held) > _MAX_SEGMENTS
            or self._budget.used > self._budget.limit
        )
        return self.flush() if crowded else self._give_up_acked()

    def acknowledged(self, ack: int) -> list[Chunk]:
        """The other end has everything before ack, so what is missing before it will not come again."""
        if self._next is None:
            return []
        self._acked = max(self._acked, self._place(ack))
        return self._give_up_acked()

    def reached(self, seq: int) -> bool:
        """Whether everything before seq has been given."""
        return self._next is not None and self._place(seq) <= self._at

    def flush(self) -> list[Chunk]:
        """Everything that waits, with its holes."""
        chunks: list[Chunk] = []
        while self._held:
            chunks += self._jump()
        return chunks

    def _place(self, seq: int) -> int:
        assert self._next is not None
        ahead = (seq - self._next) & _MASK
        return self._at + (ahead if ahead < _HALF else ahead - _HALF - _HALF)

    def _deliver(self, place: int, data: bytes, cut: int) -> list[Chunk]:
        """The part of a segment at or before the next byte that is new."""
        overlap = self._at - place
        cut -= max(overlap - len(data), 0)
        data = data[overlap:]
        chunks = [Chunk(0, data)] if data else []
        if cut > 0:
            chunks.append(Chunk(cut, b""))
        self._advance(len(data) + max(cut, 0))
        return chunks

    def _advance(self, size: int) -> None:
        assert self._next is not None
        self._next = (self._next + size) & _MASK
        self._at += size

    def _drain(self) -> list[Chunk]:
        chunks: list[Chunk] = []
        while self._held and self._held[0][0] <= self._at:
            place, _, data, cut = heapq.heappop(self._held)
            self._held_bytes -= len(data)
            self._budget.used -= len(data)
            chunks += self._deliver(place, data, cut)
        return chunks

    def _give_up_acked(self) -> list[Chunk]:
        chunks: list[Chunk] = []
        while self._held and self._held[0][0] <= self._acked:
            chunks += self._jump()
        return chunks

    def _jump(self) -> list[Chunk]:
        """Give up the hole before the first segment that waits."""
        missing = self._held[0][0] - self._at
        self._advance(missing)
        return [Chunk(missing, b""), *self._drain()]
