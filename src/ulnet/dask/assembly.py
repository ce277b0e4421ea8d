"""A message of Dask that is arriving, frame by frame."""

from __future__ import annotations

import errno
from typing import Final

from ulnet.rpc import RpcError

__all__ = ["LEAD", "LEAD_PIECE", "Assembly"]

_NOTHING: Final = memoryview(b"")
LEAD_PIECE: Final = 262144  # bytes, at most, of a piece of a frame that comes unasked
LEAD: Final = 8 * LEAD_PIECE  # bytes of a frame that come so: the others are asked for meanwhile


class Assembly:
    """A message that is arriving; `fetched` bytes of its frames came, or come, outside its first call.

    The beginning of one frame may come unasked, in pieces, before the frame has memory or afterwards.
    """

    __slots__ = ("_early", "_index", "_lead", "_lead_due", "_memory", "_pulled", "fetched", "frames", "sizes")

    def __init__(self) -> None:
        self.fetched: int = 0
        self.sizes: tuple[int, ...] | None = None  # of its frames, once they are known
        self.frames: dict[int, memoryview] = {}
        self._early: dict[int, memoryview] = {}  # pieces of the lead, by their offset; empty: copied
        self._index = -1  # of the frame that has a lead
        self._lead = self._lead_due = 0  # its bytes, and those that are still to come
        self._memory = _NOTHING
        self._pulled = False

    @property
    def whole(self) -> bool:
        """Whether all is here."""
        return self.sizes is not None and len(self.sizes) == len(self.frames)

    def expect_lead(self, index: int, memory: memoryview, lead: int) -> None:
        """So many bytes at the beginning of that frame come unasked. Raises RpcError(EBADMSG)."""
        if self._index >= 0:
            raise RpcError(errno.EBADMSG, f"frames {self._index} and {index} of a message come unasked")
        self._index = index
        self._memory = memory
        self._lead = self._lead_due = lead
        early, self._early = self._early, {}
        for offset, data in early.items():
            self.add_lead(offset, data)

    def add_lead(self, offset: int, data: memoryview) -> None:
        """A piece of a lead, in memory of its own. Raises RpcError(EBADMSG)."""
        size = data.nbytes
        if offset % LEAD_PIECE or offset + size > LEAD or not 0 < size <= LEAD_PIECE or offset in self._early:
            raise RpcError(errno.EBADMSG, f"{size} bytes at {offset} are no piece of the lead of a frame")
        if self._index < 0:
            self._early[offset] = data
            return
        if offset + size > self._lead or size > self._lead_due:
            raise RpcError(errno.EBADMSG, f"{size} bytes at {offset} are beyond a lead of {self._lead}")
        self._early[offset] = _NOTHING
        self._memory[offset : offset + size] = data
        self._lead_due -= size
        self._perhaps_whole()

    def pulled(self, index: int, memory: memoryview) -> None:
        """All of a frame but its lead is here."""
        if index != self._index:
            self.frames[index] = memory
            return
        self._pulled = True
        self._perhaps_whole()

    def _perhaps_whole(self) -> None:
        if self._pulled and not self._lead_due:
            self.frames[self._index] = self._memory
