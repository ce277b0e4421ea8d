"""What a server tells the clients of calls that go on: that it is at work, and the chunks of streams."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Final

from ulnet.node.watch import Watch
from ulnet.rpc.call import Call
from ulnet.rpc.context import clock_of
from ulnet.rpc.replies import Replies, head_of
from ulnet.wire.rpc import Chunk, Kind, Note

__all__ = ["Notices"]

_SILENCE: Final = 60.0  # seconds after which a client is gone whose node takes no notice
_LEAST_PATIENCE: Final = 0.05
_MOST_PATIENCE: Final = 10.0
_PAUSE: Final = 0.05  # before a chunk that failed is sent again, doubled up to
_LONG_PAUSE: Final = 2.0
_EARLY: Final = 0.001  # seconds that a timer may come too early


class Notices:
    """Looks at the calls of a server: `overdue(call)` and `gone(call)` hear of those that need no reply."""

    __slots__ = ("_clock", "_gone", "_loop", "_overdue", "_replies", "watch")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        replies: Replies,
        overdue: Callable[[Call], None],
        gone: Callable[[Call], None],
    ) -> None:
        self._loop = loop
        self._clock = clock_of(loop)
        self._replies = replies
        self._overdue = overdue
        self._gone = gone
        self.watch: Watch[Call] = Watch(loop, self._due)

    def arm(self, call: Call, now: float) -> None:
        """The next notice is due before the client loses its patience; or its deadline is."""
        patience = min(max(call.frame.patience / 1000, _LEAST_PATIENCE), _MOST_PATIENCE)
        due = now + 0.75 * patience
        if call.deadline is not None and call.deadline < due:
            due = call.deadline
        self.watch.add(call, due)

    def _due(self, call: Call) -> None:
        if call.deadline is not None and self._clock() + _EARLY >= call.deadline:
            self._overdue(call)
        else:
            self.still_working(call)

    def still_working(self, call: Call) -> None:
        """Tell the client, and when it hears again; who is gone needs no reply."""
        frame = call.frame
        patience = min(max(2 * frame.patience / 1000, _LEAST_PATIENCE), _MOST_PATIENCE)
        frame.patience = int(1000 * patience)
        self.arm(call, self._clock())
        note = Note(*head_of(frame), Kind.WORKING, frame.patience).pack()

        def ended(error: int, text: str) -> None:
            now = self._clock()
            if not error or error == errno.ENOBUFS:
                call.heard_at = now
            elif error == errno.ENOENT or self._replies.port.closed or now - call.heard_at >= _SILENCE:
                self._gone(call)

        self._replies.tell(call, note, ended)

    def send_chunk(self, call: Call, index: int, data: bytes | bytearray | memoryview) -> None:
        """Send a chunk until it arrives, or the call is over."""
        frame = Chunk(*head_of(call.frame), index, data).pack()
        self._replies.under_way.add(call.session.owner, len(frame))
        self._send_chunk(call, frame, _PAUSE)

    def _send_chunk(self, call: Call, frame: bytes, pause: float) -> None:
        def ended(error: int, text: str) -> None:
            gone = error == errno.ENOENT or self._replies.port.closed
            if error and not gone and not call.over and not self._replies.closed:
                again = min(2 * pause, _LONG_PAUSE)
                self._loop.call_later(pause, self._send_chunk, call, frame, again)
                return
            if gone:
                self._gone(call)
            self._replies.under_way.ended(call.session.owner, len(frame))
            call.under_way -= 1
            if call.news is not None:
                call.news.set()

        if call.over:
            self._replies.under_way.ended(call.session.owner, len(frame))
            return
        self._replies.send(call, frame, ended)
