"""Bare PUTs, which nobody acknowledges: what the kernel has taken of them and the peer may not have.

Nothing else would tell that such a PUT was lost. A large one is sent when the peer has read it, which a
zero-copy request asks for (spec wire-socklnd.md §4.1). A connection is read in order, so one request serves
all that left before it: the last PUT of each batch asks. Where the peer could not answer, TCP's
acknowledgement has to do. Small ones are sent when the kernel has them; how many its host may lack is told
when their connection breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ulnet.lnd.base import is_bare
from ulnet.wire.socklnd import FRAME_HEADER_SIZE, FrameType, checksum, pack_frame_header

if TYPE_CHECKING:
    from ulnet.core.msg import Msg

__all__ = ["ZERO_COPY", "InDoubt", "Requests"]

ZERO_COPY: Final = 16384  # bytes of payload from which on a peer is asked
_MARKS: Final = 64


class InDoubt:
    """How many small bare PUTs of one connection the kernel has taken, and up to which byte.

    Batches are counted as a whole, and joined where there are many: the count is never too small.
    """

    __slots__ = ("_marks", "waiting")

    def __init__(self) -> None:
        self.waiting: int = 0  # those that the kernel does not have
        self._marks: list[
            tuple[int, int]
        ] = []  # bytes sent by then, and how many were among the last of them

    def sent(self, total: int, acknowledged: Callable[[], int]) -> None:
        """The kernel has all that waited, and so many bytes of this connection."""
        self._marks.append((total, self.waiting))
        self.waiting = 0
        if len(self._marks) > _MARKS:
            self._marks = self._lacked(acknowledged())
            if len(self._marks) > _MARKS:
                (_, first), (end, second) = self._marks[:2]
                self._marks[:2] = [(end, first + second)]

    def _lacked(self, acknowledged: int) -> list[tuple[int, int]]:
        return [mark for mark in self._marks if mark[0] > acknowledged]

    def lost(self, acknowledged: int, left: Iterable[Msg]) -> int:
        """The connection breaks, and the peer's host has so many bytes: how many PUTs it may lack.

        `left` are those that the kernel did not take whole: their owners are told of these.
        """
        begun = self.waiting - sum(is_bare(msg) and msg.hdr.payload_length < ZERO_COPY for msg in left)
        return sum(count for _, count in self._lacked(acknowledged)) + max(begun, 0)


class Requests:
    """What one connection has sent, and waits to have acknowledged."""

    __slots__ = ("_asking", "_cookie", "asked", "held")

    def __init__(self) -> None:
        self.held: list[Msg] = []  # the kernel has them, and the request is still to leave
        self.asked: dict[int, list[Msg]] = {}  # by the cookie that acknowledges them
        self._asking: Msg | None = None  # the one of the batch being sent that asks
        self._cookie = 0

    def __bool__(self) -> bool:
        return bool(self.held or self.asked)

    def ask(
        self,
        batch: Sequence[Msg],
        pieces: list[bytes | memoryview],
        cookie: Callable[[], int],
        head_size: int,
        sums: bool,
    ) -> None:
        """Have the last large bare PUT of a batch ask, whose frames are `pieces`."""
        behind = 0  # bytes from its beginning to the end of the batch
        for msg in reversed(batch):
            behind += head_size + msg.hdr.payload_length
            if msg.hdr.payload_length >= ZERO_COPY and is_bare(msg):
                self._cookie = cookie()
                if self._cookie:
                    self._asking = msg
                    _mark(pieces, behind, self._cookie, head_size, msg.payload if sums else None)
                return

    def sent(self, msgs: Sequence[Msg]) -> list[Msg]:
        """The kernel has taken these: those of them that wait for nothing more."""
        others = []
        for msg in msgs:
            if msg.hdr.payload_length < ZERO_COPY or not is_bare(msg):
                others.append(msg)
                continue
            self.held.append(msg)
            if msg is self._asking:
                self._asking = None
                self.asked[self._cookie] = self.held
                self.held = []
        return others

    def taken_back(self, msgs: Sequence[Msg]) -> None:
        """These have not begun to leave, and will not: the one that was to ask may be among them."""
        if self._asking in msgs:
            self._asking = None

    def close(self) -> list[Msg]:
        """The connection ends: all that waits, in order."""
        return [*(msg for msgs in self.asked.values() for msg in msgs), *self.held]


def _mark(
    pieces: list[bytes | memoryview],
    behind: int,
    cookie: int,
    head_size: int,
    summed: Sequence[memoryview] | None,
) -> None:
    """Write a cookie into the frame that begins `behind` bytes before the end; `summed`: payload to check."""
    at = len(pieces)
    while behind > 0:
        at -= 1
        behind -= len(pieces[at])
    piece = bytes(pieces[at])
    start = -behind
    stop = start + FRAME_HEADER_SIZE
    frame = pack_frame_header(FrameType.LNET, 0, cookie)
    if summed is not None:
        header = piece[stop : start + head_size]
        frame = pack_frame_header(FrameType.LNET, checksum(frame, header, *summed), cookie)
    pieces[at] = piece[:start] + frame + piece[stop:]
