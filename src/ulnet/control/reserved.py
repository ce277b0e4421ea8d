"""Buffers at the reserved portal for what peers send unasked: pushes, and control messages of bonding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ulnet.core.event import Event
from ulnet.core.md import ACK_DISABLE, OP_PUT, Md
from ulnet.core.msg import Incoming
from ulnet.wire.lnet import PING_PORTAL

if TYPE_CHECKING:
    from ulnet.core.memory import Memory
    from ulnet.core.state import NodeState

__all__ = ["ReservedBuffers", "taken"]

_MOST_COMING: Final = 64  # messages at the same time


class ReservedBuffers:
    """Those for one kind of messages, each of which takes one; `handler` hears how it ended.

    One is always free, since who has the others may take long to send. Where too many messages are coming,
    one is given up: of the next hop that sends most of them, the one that began first. With `ack` that one is
    acknowledged all the same, where it asks for that.
    """

    __slots__ = (
        "_ack",
        "_bits",
        "_coming",
        "_give_up",
        "_handler",
        "_mds",
        "_memory",
        "_open",
        "_options",
        "_size",
        "_state",
    )

    def __init__(
        self,
        state: NodeState,
        memory: Memory,
        give_up: Callable[[Incoming], bool],
        handler: Callable[[Event], None],
        *,
        match_bits: int,
        ignore_bits: int = 0,
        options: int = 0,
        size: int,
        ack: bool,
    ) -> None:
        self._state = state
        self._memory = memory
        self._give_up = give_up
        self._handler = handler
        self._bits = (match_bits, ignore_bits)
        self._options = OP_PUT | options
        self._size = size
        self._ack = ack
        self._mds: dict[Md, None] = {}  # free, or taken by a message whose payload is on its way
        self._coming: dict[Md, Incoming] = {}  # those messages; who began first is first
        self._open = False

    def open(self) -> None:
        """Take messages."""
        self._open = True
        self._offer()

    def close(self) -> None:
        """Take no more: nobody hears of those that are coming."""
        self._open = False
        self._coming.clear()
        self._withdraw(list(self._mds))

    def grow(self, size: int) -> None:
        """Messages are longer than was thought: the next ones find more room."""
        if size > self._size:
            self._size = size
            self._withdraw([md for md in self._mds if md not in self._coming])
            self._offer()

    def _withdraw(self, mds: list[Md]) -> None:
        for md in mds:
            del self._mds[md]
            self._memory.md_unlink(md)

    def begins(self, incoming: Incoming) -> None:
        """A message has a buffer, and its payload is on its way there."""
        md = incoming.md
        if md is None or md.aborted:
            return
        self._mds[md] = None
        self._coming[md] = incoming
        if len(self._coming) > _MOST_COMING:
            self._give_one_up()
        self._offer()

    def _give_one_up(self) -> None:
        hops = Counter([one.next_nid for one in self._coming.values()])
        for md, one in sorted(self._coming.items(), key=lambda item: -hops[item[1].next_nid]):
            options = md.options
            if not self._ack:
                md.options |= ACK_DISABLE
            if self._give_up(one):
                return
            md.options = options

    def _offer(self) -> None:
        """See that one is free."""
        room = len(self._coming) <= _MOST_COMING
        if room and self._open and self._state.running and len(self._mds) == len(self._coming):
            bits, ignored = self._bits
            me = self._memory.me_attach(PING_PORTAL, match_bits=bits, ignore_bits=ignored)
            # fmt: off
            md = self._memory.md_attach(me, bytearray(self._size), self._told, options=self._options,
                                        threshold=1, user_ptr=self)
            # fmt: on
            if md.linked:  # no message that waited has had it
                self._mds[md] = None

    def _told(self, event: Event) -> None:
        md = event.md
        if md not in self._mds:
            return
        self._coming.pop(md, None)
        try:
            self._handler(event)
        finally:
            if event.unlinked:
                self._mds.pop(md, None)
                self._offer()


def taken(incoming: Incoming) -> None:
    """Memory at the reserved portal is taken by a message."""
    buffers = incoming.md.user_ptr if incoming.md is not None else None
    if isinstance(buffers, ReservedBuffers):
        buffers.begins(incoming)
