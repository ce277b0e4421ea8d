"""What a simulated node asks of LNet, and what it gets: operations and inboxes that remember, and judge.

Every PUT carries a number of its own in its header data, so that both ends can tell what arrived, how often,
and whether the bytes are right.
"""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ulnet.core.event import Event, EventKind
from ulnet.core.status import HealthStatus
from ulnet.nid import Nid

if TYPE_CHECKING:
    from ulnet.core.md import Md

__all__ = ["Delivery", "Inbox", "Operation"]


_NAMES: Final = {kind: kind.name for kind in EventKind}


class Operation:
    """One PUT, GET or ping, from its beginning to the last event of its memory."""

    __slots__ = (
        "broken",
        "buffer",
        "ended",
        "events",
        "kind",
        "md",
        "number",
        "reason",
        "size",
        "status",
        "taken",
        "target",
        "wanted",
    )

    def __init__(self, kind: str, target: Nid, wanted: EventKind, number: int, size: int) -> None:
        self.kind: str = kind
        self.target: Nid = target
        self.wanted: EventKind = wanted
        self.number: int = number
        self.size: int = size
        self.md: Md | None = None
        self.buffer: bytearray = bytearray()  # what a GET brought
        self.events: list[str] = []
        self.status: int | None = None  # 0, or -errno of the first failure; None: not known yet
        self.reason = ""
        self.taken: int = 0  # bytes that the other side took, or gave
        self.ended: bool = False  # its memory is its owner's again
        self.broken: str = ""  # the promise that LNet did not keep

    def __repr__(self) -> str:
        return f"<{self.kind} {self.number} to {self.target}: status {self.status}, events {self.events}>"

    @property
    def ok(self) -> bool:
        """Whether it was done and answered."""
        return self.status == 0

    def handle(self, event: Event) -> None:
        """Take an event of its memory."""
        kind = event.kind
        name = _NAMES[kind]
        if self.ended:
            self.broken = f"{self} got {event!r} after its last event"
        if kind is not self.wanted and kind is not EventKind.SEND and kind is not EventKind.UNLINK:
            self.broken = f"{self} got {event!r}, which it does not wait for"
        if name in self.events and kind is not EventKind.UNLINK:
            self.broken = f"{self} got a second {event!r}"
        self.events.append(name)
        if event.status and self.status is None:
            self.status = event.status
            self.reason = event.reason
        elif kind is self.wanted and self.status is None:
            self.status = 0
            self.taken = event.mlength
        if event.unlinked:
            self.ended = True
            self.md = None  # a run may have thousands, and their payload
            if self.status is None and kind is EventKind.UNLINK:
                self.status = -errno.ECANCELED  # the node shut down
            elif self.status is None:
                self.broken = f"{self} ended without an answer and without a failure"

    def end(self, status: int, reason: str = "", taken: int = 0) -> None:
        """Its awaited call returned, or failed."""
        if self.ended:
            self.broken = f"{self} ended twice"
        if not status and taken > self.size and self.kind != "ping":
            self.broken = f"{self} moved {taken} of {self.size} bytes"
        self.status, self.reason, self.taken = status, reason, taken
        self.ended = True


@dataclass(slots=True)
class Delivery:
    """A message that reached an inbox."""

    at: float
    kind: EventKind
    initiator: Nid
    source: Nid
    number: int
    data: bytes
    status: int
    health: HealthStatus


class Inbox:
    """Memory that peers reach, and what they did with it."""

    def __init__(self, keep_data: bool) -> None:
        self.deliveries: list[Delivery] = []
        self.times: Counter[int] = Counter()  # how often each number was delivered whole
        self.md: Md | None = None
        self._keep_data = keep_data

    def __len__(self) -> int:
        return len(self.deliveries)

    def take(self, event: Event, now: float) -> None:
        """Take an event of its memory."""
        if event.kind is EventKind.UNLINK:
            return
        if event.kind is EventKind.PUT and not event.status:
            self.times[event.hdr_data] = self.times.get(event.hdr_data, 0) + 1
        data = bytes(event.data) if self._keep_data and event.kind is EventKind.PUT else b""
        self.deliveries.append(
            Delivery(
                now,
                event.kind,
                event.initiator,
                event.source,
                event.hdr_data,
                data,
                event.status,
                event.health,
            )
        )
