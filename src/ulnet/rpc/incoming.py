"""Frames that come to a server: a turn of the loop serves some, and clients have their turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from ulnet.core.md import Buffer
from ulnet.nid import Nid
from ulnet.node import Message
from ulnet.node.turns import Turns
from ulnet.rpc.counters import ServerCounters
from ulnet.rpc.under_way import UnderWay
from ulnet.wire.errors import WireError
from ulnet.wire.rpc import Frame, frames_in, unpack

__all__ = ["Incoming"]

_TURN: Final = 128  # frames in a turn: each may begin a call
_ROOM: Final = 8 << 20  # bytes of messages that wait for theirs


class Incoming:
    """Has each frame of messages served: `serve(frame, message, alone)`, `alone` where it is a whole message.

    A message waits when the turn of the loop has served its share. A client of which much waits loses what
    comes then, and sends its calls again. Once `closed`, nothing is served.
    """

    __slots__ = ("_counters", "_serve", "_turns", "_waiting", "closed")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        counters: ServerCounters,
        serve: Callable[[Frame, Message, bool], None],
    ) -> None:
        self.closed: bool = False
        self._counters = counters
        self._serve = serve
        self._turns = Turns(loop, _TURN)
        self._waiting = UnderWay(_ROOM)

    @property
    def bytes(self) -> int:
        """Those of messages that wait."""
        return self._waiting.total

    def arrived(self, message: Message) -> None:
        """A message is there."""
        try:
            frames = frames_in(message.data)
        except WireError:
            self._counters.malformed += 1
            return
        if self._turns.take():
            self._frames(frames, message)
            return
        client = message.initiator
        if not self._waiting.may_have_more(client):
            self._counters.busy += 1
            return
        kept: list[Buffer] = [frame if isinstance(frame, bytes) else bytes(frame) for frame in frames]
        message.release()
        size = sum(map(len, kept))
        self._waiting.add(client, size)
        self._turns.add(client, partial(self._turn_of, kept, message, client, size))

    def _turn_of(self, frames: list[Buffer], message: Message, client: Nid, size: int) -> None:
        self._waiting.ended(client, size)
        if not self.closed:
            self._frames(frames, message)

    def _frames(self, frames: list[Buffer], message: Message) -> None:
        count = len(frames)
        self._turns.spend(count - 1)
        for raw in frames:
            try:
                frame = unpack(raw)
            except WireError:
                self._counters.malformed += 1
                continue
            self._serve(frame, message, count == 1)
