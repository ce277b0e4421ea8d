"""What was sent and what arrived, over all nodes: no wrong byte, and nothing twice that must not be."""

from __future__ import annotations

import zlib
from collections.abc import Container
from typing import TYPE_CHECKING

from ulnet.core.event import EventKind
from ulnet.core.md import Buffer
from ulnet.nid import LNET_PID

if TYPE_CHECKING:
    from ulnet.core.event import Event
    from ulnet.sim.node import SimNode
    from ulnet.sim.streaming import Streaming
    from ulnet.sim.traffic import Operation

__all__ = ["Ledger"]


class _Entry:
    """One PUT of this simulation."""

    __slots__ = ("checksum", "delivered", "node", "operation", "stream", "where")

    def __init__(
        self,
        node: SimNode,
        operation: Operation,
        checksum: int,
        where: tuple[int, int],
        stream: Streaming | None,
    ) -> None:
        self.node = node
        self.operation = operation
        self.checksum = checksum
        self.where = where  # its portal and match bits
        self.stream = stream
        self.delivered = 0


class Ledger:
    """The PUTs of all nodes, by their number."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._doubtful: dict[int, _Entry] = {}  # of which nobody knows yet whether what was promised is kept
        self._duplicates: dict[SimNode, int] = {}  # deliveries beyond the first, by sender

    def sent(
        self,
        node: SimNode,
        operation: Operation,
        data: Buffer,
        where: tuple[int, int],
        stream: Streaming | None = None,
    ) -> None:
        """A PUT to a portal and match bits begins, maybe one of a stream."""
        entry = _Entry(node, operation, zlib.crc32(data), where, stream)
        self._entries[operation.number] = entry
        if operation.wanted is EventKind.ACK:
            self._doubtful[operation.number] = entry

    def arrived(self, event: Event, landed: Container[int] = ()) -> None:
        """A node of ours was told of a PUT in its memory, into which RDMA wrote data with these checksums."""
        number = event.hdr_data
        entry = self._entries.get(number)
        if entry is None:
            return  # of a foreign node
        if (event.portal, event.match_bits) != entry.where or event.source_pid != LNET_PID:
            where = f"portal {event.portal}, bits {event.match_bits:#x}, pid {event.source_pid}"
            entry.node.sim.broken(entry.node, f"{entry.operation} arrived as another one: {where}")
        self.delivered(number, event.data, landed)

    def delivered(self, number: int, data: Buffer, landed: Container[int] = ()) -> None:
        """A PUT is in a node's memory. By RDMA the next one may be there, too, before that is told."""
        entry = self._entries.get(number)
        if entry is None:
            return  # of a foreign node
        entry.delivered += 1
        sender, operation = entry.node, entry.operation
        whole = len(data) == operation.size
        if whole and zlib.crc32(data) != entry.checksum and entry.checksum not in landed:
            sender.sim.broken(sender, f"{operation} arrived with other bytes than were sent")
        if entry.stream is not None and entry.delivered == 1:
            entry.stream.delivered += 1
        if entry.delivered > 1:
            self._duplicates[sender] = duplicates = self._duplicates.get(sender, 0) + 1
            if duplicates > sum(sender.resends):
                sender.sim.broken(sender, f"{operation} was delivered twice, and was not sent twice")

    @property
    def duplicates(self) -> int:
        """Deliveries beyond the first, of all PUTs."""
        return sum(self._duplicates.values())

    def check(self) -> str:
        """What is wrong with the finished PUTs; empty if nothing is."""
        for number, entry in list(self._doubtful.items()):
            operation = entry.operation
            if operation.ok and not entry.delivered:
                return f"{operation} was acknowledged, and never delivered"
            if entry.delivered or operation.ended:
                del self._doubtful[number]
        return ""
