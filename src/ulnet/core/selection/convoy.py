"""Small messages join the way that was chosen for one before them, while that one waits to be written.

What waits together leaves by one call to the kernel, which costs more than any choice gains: a few KiB say
nothing of load. Only drivers that write so (`NI.batches`) have it, and only the balance "expected".
"""

from __future__ import annotations

from typing import Final

from ulnet.core.selection.choice import Choice
from ulnet.wire.lnet import HEADER_SIZE

__all__ = ["SAME_BATCH", "Convoy", "is_small"]

SAME_BATCH: Final = "same batch"
_MOST_MESSAGES: Final = 16
_MOST_BYTES: Final = 4096  # of payload, of all together


class Convoy:
    """The way that the last choice for a small message led to, and who may still join it there.

    A credit that the peer NI got back says that something has left: most likely these.
    """

    __slots__ = (
        "_changes",
        "_cpt",
        "_credits",
        "_epoch",
        "_left",
        "_ni",
        "_paces",
        "_pni",
        "_room",
        "choice",
    )

    def __init__(self, choice: Choice, size: int, cpt: int, epoch: int) -> None:
        self.choice = choice  # for those that join
        self._ni = choice[0]
        self._pni = choice[1]
        self._cpt = cpt
        self._epoch = epoch
        self._paces = self._pni.peer.paces
        self._changes = self._paces.changes
        self._left = _MOST_MESSAGES
        self._room = _MOST_BYTES
        self._credits = 0
        self.add(size)

    def takes(self, size: int, cpt: int, epoch: int) -> bool:
        """Whether a message of `size` bytes, with its header, joins them."""
        return (
            self._left > 0
            and size - HEADER_SIZE <= self._room
            and 0 < self._pni.tx_credits <= self._credits
            and self._ni.tx_credits > 0
            and cpt == self._cpt
            and epoch == self._epoch
            and self._changes == self._paces.changes
        )

    def joins(self, size: int) -> bool:
        """Let it join them if there is room, where nothing else has changed."""
        credits, payload = self._pni.tx_credits, size - HEADER_SIZE
        if (
            self._left > 0
            and payload <= self._room
            and 0 < credits <= self._credits
            and self._ni.tx_credits > 0
        ):
            self._left -= 1
            self._room -= payload
            self._credits = credits - 1
            return True
        return False

    def add(self, size: int) -> None:
        """It does, and takes a credit next."""
        self._left -= 1
        self._room -= size - HEADER_SIZE
        self._credits = self._pni.tx_credits - 1


def is_small(size: int) -> bool:
    """Whether others may join a message of that size, with its header."""
    return size - HEADER_SIZE <= _MOST_BYTES
