"""Frames that leave together: several of one session are one message."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from ulnet.nid import Nid
from ulnet.node.port import Port
from ulnet.rpc.under_way import UnderWay
from ulnet.wire.rpc import HEAD_SIZE, MAX_BATCH, batch

__all__ = ["Lane", "Lanes", "bound"]

# Bytes of several frames. A larger frame is a message by itself: its driver may queue it behind bulk.
_ROOM: Final = 16384
_PLACE: Final = 4  # bytes that a frame takes in a batch, beside its own


def bound(nid: Nid) -> Nid | None:
    """The source of what answers what came to that NID."""
    return None if nid.is_lo else nid


class Lanes:
    """Those of one client or server; what a server has `under_way` on them is counted."""

    __slots__ = ("_loop", "_waiting", "port", "under_way")

    def __init__(self, port: Port, under_way: UnderWay | None = None) -> None:
        self.port: Port = port
        self.under_way: UnderWay | None = under_way
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Lane] = []  # on which something waits for the end of this turn of the loop

    def wait_on(self, lane: Lane) -> None:
        """Something waits on a lane: it leaves behind this turn of the loop."""
        if not self._waiting:
            self._loop.call_soon(self._leave)
        self._waiting.append(lane)

    def _leave(self) -> None:
        waiting, self._waiting = self._waiting, []
        for lane in waiting:
            lane.leave()


class Lane:
    """Frames of one session to one place, of which LNet acknowledges none: they leave together.

    Several are one message of `room` bytes at most, 16 KiB at most, if the other side knows that (`room` is
    not 0).
    Answers leave from the NID that was `asked`. `failed(owner, errno, text)` hears of each frame that failed.
    What is under way counts as that of `client`, else of `target`.
    """

    __slots__ = (
        "_bits",
        "_client",
        "_failed",
        "_frames",
        "_methods",
        "_owners",
        "_portal",
        "_session",
        "_size",
        "_timeout",
        "_waits",
        "asked",
        "lanes",
        "room",
        "source",
        "target",
    )

    def __init__(
        self,
        lanes: Lanes,
        session: int,
        target: Nid,
        portal: int,
        bits: int,
        asked: Nid | None,
        room: int,
        failed: Callable[[Any, int, str], None],
        client: Nid | None = None,
    ) -> None:
        self.target: Nid = target
        self.asked: Nid | None = asked
        self.source: Nid | None = None if asked is None else bound(asked)
        self.room: int = min(room, _ROOM)
        self.lanes: Lanes = lanes
        self._session = session
        self._portal = portal
        self._bits = bits
        self._failed = failed
        self._client = target if client is None else client
        self._waits = False
        self._begin()

    def _begin(self) -> None:
        self._frames: list[bytes] = []
        self._owners: list[Any] = []
        self._methods: list[str] = []
        self._size = HEAD_SIZE
        self._timeout: float | None = 0.0  # the longest that one of them has; None: LNet's own

    def add(self, frame: bytes, owner: object, method: str, timeout: float | None = None) -> None:
        """Send a frame of that owner, about that method, behind this turn of the loop at the latest."""
        size = len(frame) + _PLACE
        if self._frames and self._size + size > self.room:
            self._send()
        if not self._waits:
            self._waits = True
            self.lanes.wait_on(self)
        self._frames.append(frame)
        self._owners.append(owner)
        if method not in self._methods:
            self._methods.append(method)
        self._size += size
        before = self._timeout
        if before is not None and (timeout is None or timeout > before):
            self._timeout = timeout
        if len(self._frames) == MAX_BATCH:
            self._send()

    def leave(self) -> None:
        """What waits leaves now."""
        self._waits = False
        if self._frames:
            self._send()

    def _send(self) -> None:
        frames, owners, methods, timeout = self._frames, self._owners, self._methods, self._timeout
        self._begin()
        failed = self._failed
        data = frames[0] if len(frames) == 1 else batch(self._session, frames)
        under_way, client, size = self.lanes.under_way, self._client, len(data)
        if under_way is not None:
            under_way.add(client, size)

        def ended(error: int, text: str) -> None:
            if under_way is not None:
                under_way.ended(client, size)
            if error:
                for owner in owners:
                    failed(owner, error, text)

        # fmt: off
        self.lanes.port.send(self.target, self._portal, self._bits, data, ended=ended, source=self.source,
                        timeout=timeout, method=", ".join(methods))
        # fmt: on
