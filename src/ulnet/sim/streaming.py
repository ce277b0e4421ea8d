"""Streams of messages: one memory descriptor keeps a window of them under way, as bulk programs do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ulnet.core.event import Event, EventKind
from ulnet.core.md import INFINITE, TRUNCATE, Md
from ulnet.core.status import LNetError
from ulnet.sim.traffic import Operation

if TYPE_CHECKING:
    from ulnet.nid import Nid
    from ulnet.sim.node import SimNode

__all__ = ["Streaming"]


class Streaming:
    """`count` PUTs (or GETs) of the same memory, at most `window` at a time; each answer sends the next.

    The events of one descriptor do not say which message they are about, so what is promised is judged for
    all of them together: one SEND for each, no more answers than messages, and one last event. After the
    first failure no further message is sent. LNet sees to one answer of a descriptor, not to several: so who
    waits for several gives up by itself, when nothing was heard for longer than a transaction may take.
    """

    def __init__(
        self,
        node: SimNode,
        target: Nid,
        portal: int,
        match_bits: int,
        data: bytearray,
        *,
        kind: str,
        count: int,
        window: int,
        ack: bool,
        begun: Callable[[Operation], None],
    ) -> None:
        self._node = node
        self._loop = node.loop
        self._core = node.core
        self._target = target
        self._portal = portal
        self._match_bits = match_bits
        self._data = data
        self._kind = kind
        self._left = count
        self._window = window
        self._ack = ack and kind == "put"
        self._wanted = EventKind.REPLY if kind == "get" else EventKind.ACK if self._ack else EventKind.SEND
        self._begun = begun
        self._md: Md | None = None
        self._patience = 10.0 + node.core.settings.transaction_timeout
        self._heard_at = 0.0  # when the last event came
        self._open: list[Operation] = []  # begun, with no end yet, the oldest first
        self._sent = self._away = self._answered = self._refused = 0
        self.delivered = 0  # PUTs of it that are in the other node's memory
        self.failed: bool = False
        self.ended: bool = False

    def __repr__(self) -> str:
        counts = f"{self._sent} sent, {self._away} left, {self._answered} answered"
        return f"<stream of {self._kind}s to {self._target}: {counts}, {self.delivered} delivered>"

    def begin(self) -> None:
        """Send the first window; on the node's loop. Raises LNetError for what cannot even begin."""
        options = TRUNCATE if self._kind == "get" else 0
        self._md = self._core.memory.md_bind(self._data, self._handle, threshold=INFINITE, options=options)
        try:
            self._one()
        except LNetError:
            self._stop()
            raise
        self._heard_at = self._loop.time()
        self._loop.call_later(self._patience, self._look)
        self._more()

    def _look(self) -> None:
        """Give up, if nothing was heard for long."""
        if self._md is None:
            return
        left = self._heard_at + self._patience - self._loop.time()
        if left > 0:
            self._loop.call_later(left, self._look)
        else:
            self.failed = True
            self._stop()

    def _more(self) -> None:
        try:
            while self._left and not self.failed and len(self._open) < self._window:
                self._one()
        except LNetError as refused:
            self.failed = True
            self._node.sim.note(f"stream refused {refused}")
        self._stop_if_over()

    def _stop_if_over(self) -> None:
        if not self._open and self._away == self._sent:
            self._stop()

    def _one(self) -> None:
        node, md = self._node, self._md
        assert md is not None
        number = node.sim.next_number()
        operation = Operation(self._kind, self._target, EventKind.SEND, number, len(self._data))
        self._open.append(operation)
        self._sent += 1
        self._left -= 1
        try:
            if self._kind == "get":
                self._core.get(md, self._target, self._portal, self._match_bits)
            else:
                where = self._portal, self._match_bits
                node.sim.ledger.sent(node, operation, self._data, where, self)
                self._core.put(
                    md,
                    self._target,
                    self._portal,
                    self._match_bits,
                    ack=self._ack,
                    hdr_data=operation.number,
                )
        except LNetError:
            self._open.remove(operation)
            self._sent -= 1
            raise
        self._begun(operation)

    def _handle(self, event: Event) -> None:
        if not self._loop.alive:
            return
        if self.ended:
            self._broken(f"got {event!r} after its last event")
        self._heard_at = self._loop.time()
        kind = event.kind
        if kind is EventKind.SEND:
            self._away += 1
        elif kind is not self._wanted and kind is not EventKind.UNLINK:
            self._broken(f"got {event!r}, which it does not wait for")
        if kind is self._wanted and not event.status:
            self._answered += 1
            self._refused += event.status != 0
        if event.status:
            self.failed = True
        if event.status and kind is not EventKind.UNLINK:
            self._end_one(event.status, event.reason)
        elif kind is self._wanted:
            self._end_one(0, "")
        if self._away > self._sent or self._answered > self._sent:
            self._broken("got more events than it has messages")
        if event.unlinked:
            self._last(event)
        elif event.status:  # as Node.put does: nothing more is wanted
            self._stop()
        else:
            self._more()

    def _end_one(self, status: int, reason: str) -> None:
        if self._open:
            operation = self._open.pop(0)
            operation.status, operation.reason, operation.ended = status, reason, True

    def _last(self, event: Event) -> None:
        self.ended = True
        self._md = None
        if self._away != self._sent:
            self._broken("ended before all that it sent had left")
        if self._wanted is EventKind.ACK and self._answered - self._refused > self.delivered:
            self._broken("has more answers than deliveries")
        while self._open:
            self._end_one(event.status or -1, event.reason)
        self._node.streams.pop(self, None)

    def _stop(self) -> None:
        md, self._md = self._md, None
        if md is not None:
            self._core.memory.md_unlink(md)

    def _broken(self, what: str) -> None:
        self._node.sim.broken(self._node, f"{self} {what}")
