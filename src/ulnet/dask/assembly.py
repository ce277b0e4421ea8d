"""A message of Dask that is arriving, frame by frame."""

from __future__ import annotations

import errno
from typing import Final

from ulnet.rpc import RpcError

__all__ = ["EAGER", "EAGER_PIECE", "Assembly"]

_NOTHING: Final = memoryview(b"")
EAGER_PIECE: Final = 262144  # bytes of a piece that is sent eagerly, at most
EAGER: Final = 8 * EAGER_PIECE  # bytes at the beginning of a frame that are sent so; the rest is fetched


class Assembly:
    """A message that is arriving, or a section of one that has `more`.

    `counted` bytes of memory it takes; `fetched` bytes of its frames came, or come, outside its first call:
    those of `parts`, and pieces.

    The beginning of one frame may be sent eagerly, which is without being asked for: its pieces come before
    or after the call that announces the frame.
    """

    __slots__ = (
        "_eager",
        "_eager_due",
        "_early",
        "_index",
        "_memory",
        "_pulled",
        "_seen",
        "counted",
        "fetched",
        "frames",
        "more",
        "parts",
        "sizes",
    )

    def __init__(self) -> None:
        self.counted: int = 0
        self.fetched: int = 0
        self.more: bool = False
        self.sizes: tuple[int, ...] | None = None  # of its frames, once they are known
        self.frames: dict[int, memoryview] = {}
        self.parts: set[int] = set()
        self._early: dict[int, memoryview] = {}  # pieces that came before their frame has memory, by offset
        self._seen: set[int] = set()  # offsets of pieces that came
        self._index = -1  # of the frame whose beginning is sent eagerly
        self._eager = self._eager_due = 0  # bytes of that beginning, and those that are still to come
        self._memory = _NOTHING
        self._pulled = False

    @property
    def whole(self) -> bool:
        """Whether all is here."""
        return self.sizes is not None and len(self.sizes) == len(self.frames)

    @property
    def announced(self) -> bool:
        """Whether the frame whose beginning is sent eagerly has memory."""
        return self._index >= 0

    @property
    def early(self) -> int:
        """Bytes of pieces that came before their frame has memory."""
        return sum(piece.nbytes for piece in self._early.values())

    def expect_eager(self, index: int, memory: memoryview, eager: int) -> None:
        """So many bytes at the beginning of that frame are sent eagerly. Raises RpcError(EBADMSG)."""
        if self.announced:
            text = f"frames {self._index} and {index} of a message are sent eagerly: one may be"
            raise RpcError(errno.EBADMSG, text)
        for offset, data in self._early.items():
            self._must_fit(offset, data.nbytes, eager)  # before anything is changed
        self._index = index
        self._memory = memory
        self._eager = self._eager_due = eager
        early, self._early = self._early, {}
        for offset, data in early.items():
            self._place(offset, data)

    def expect_no_eager(self) -> None:
        """The rest of that frame does not come: its memory is let go."""
        self._index, self._memory, self._eager, self._eager_due = -1, _NOTHING, 0, 0

    def add_eager(self, offset: int, data: memoryview) -> None:
        """A piece that was sent eagerly, in memory of its own. Raises RpcError(EBADMSG)."""
        size = data.nbytes
        if offset % EAGER_PIECE or offset >= EAGER or not 0 < size <= EAGER_PIECE or offset in self._seen:
            raise RpcError(
                errno.EBADMSG,
                f"{size} bytes at {offset} are no piece to be sent eagerly: those have 1 to {EAGER_PIECE} "
                f"bytes, begin at multiples of that below {EAGER}, and come once",
            )
        if self.announced:
            self._place(offset, data)
        else:
            self._early[offset] = data
        self._seen.add(offset)

    def _place(self, offset: int, data: memoryview) -> None:
        size = data.nbytes
        self._must_fit(offset, size, self._eager)
        self._memory[offset : offset + size] = data
        self._eager_due -= size
        self._perhaps_whole()

    @staticmethod
    def _must_fit(offset: int, size: int, eager: int) -> None:
        if offset + size > eager:
            text = f"{size} bytes at {offset} are beyond the {eager} that are to be sent eagerly"
            raise RpcError(errno.EBADMSG, text)

    def pulled(self, index: int, memory: memoryview) -> None:
        """All of a frame is here but what is sent eagerly."""
        if index != self._index:
            self.frames[index] = memory
            return
        self._pulled = True
        self._perhaps_whole()

    def _perhaps_whole(self) -> None:
        if self._pulled and not self._eager_due:
            self.frames[self._index] = self._memory
