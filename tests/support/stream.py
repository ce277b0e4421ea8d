"""A fabric that carries messages as a stream driver does: many by one call, and as one buffer."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field

from support.fabric import Fabric, MemLnd
from ulnet.core.msg import Incoming, Msg
from ulnet.core.ni import NI
from ulnet.core.status import HealthStatus
from ulnet.lnd.contract import Inbound
from ulnet.nid import Nid
from ulnet.wire.lnet import HEADER_SIZE, Header, unpack_header

__all__ = ["NO_PAYLOAD", "Connection", "StreamFabric"]


class NoPayload:
    """The `rx` of a message that ends with its header."""

    def take(self, incoming: Incoming | None, buffers: list[memoryview], mlen: int, rlen: int) -> None:
        raise AssertionError(f"{rlen} bytes are wanted, and none are there")

    def abandon(self, incoming: Incoming) -> bool:
        return False

    def unanswered(self) -> None:
        pass


NO_PAYLOAD = NoPayload()


@dataclass(eq=False)
class Whole:
    """The `rx` of a message whose payload has come with its header."""

    receiver: Inbound
    payload: memoryview

    def take(self, incoming: Incoming | None, buffers: list[memoryview], mlen: int, rlen: int) -> None:
        assert rlen == len(self.payload)
        at = 0
        for view in buffers:
            view[:] = self.payload[at : at + view.nbytes]
            at += view.nbytes
        assert at == mlen
        if incoming is not None:
            self.receiver.end(incoming)

    def abandon(self, incoming: Incoming) -> bool:
        return False

    def unanswered(self) -> None:
        pass


@dataclass
class Connection:
    """What comes by one connection. `runs` tells how many messages each `deliver` took, if it took any."""

    receiver: Inbound
    hdr: Header | None = None
    raw: bytes = b""
    runs: list[int] = field(default_factory=list)
    begun: list[Header] = field(default_factory=list)  # those that `begin` has looked at
    refused: list[int] = field(default_factory=list)
    ni: NI | None = None

    def feed(self, data: bytes) -> None:
        """Messages that have come whole."""
        buf = bytearray(data)
        view = memoryview(buf)
        pos, end = 0, len(buf)
        while pos < end:
            pos = self._deliver(buf, view, pos, end)
            if pos == end:
                break
            if not buf.startswith(self.raw, pos) or self.hdr is None:
                self.hdr = unpack_header(buf, pos)
                self.raw = bytes(view[pos : pos + HEADER_SIZE])
                behind = self._deliver(buf, view, pos, end)
                if behind > pos:
                    pos = behind
                    continue
            pos = self._begin(self.hdr, view, pos)

    def _deliver(self, buf: bytearray, view: memoryview, pos: int, end: int) -> int:
        while self.hdr is not None:
            behind = self.receiver.deliver(self.hdr, self.raw, buf, view, pos, end)
            if behind == pos:
                break
            taken, rest = divmod(behind - pos, len(self.raw) + self.hdr.payload_length)
            assert not rest
            self.runs.append(taken)
            pos = behind
        return pos

    def _begin(self, hdr: Header, view: memoryview, pos: int) -> int:
        at = pos + HEADER_SIZE
        end = at + hdr.payload_length
        self.begun.append(hdr)
        refused = self.receiver.begin(hdr, Whole(self.receiver, view[at:end]))
        if refused:
            self.refused.append(refused)
        return end


class StreamFabric(Fabric):
    """Messages that wait one behind the other for the same connection leave by one call to the kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.connections: dict[tuple[Nid, Nid], Connection] = {}

    def step(self, fault: Callable[[Msg], bool] = lambda msg: False) -> bool:
        for core in self.cores:
            core.tick(self.clock.now)
        if not self.wire:
            return False
        ni, first = self.wire[0]
        target = first.next_nid
        assert target is not None
        batch: list[Msg] = []
        while self.wire and self.wire[0][0] is ni and self.wire[0][1].next_nid == target:
            batch.append(self.wire.popleft()[1])
        driver = ni.lnd
        assert isinstance(driver, MemLnd)
        if target not in self.nis or any(map(fault, batch)):
            status = HealthStatus.REMOTE_DROPPED
            driver.core.completed(batch, status, errno.ECONNREFUSED, "nobody there")
            return True
        data = b"".join([msg.pack(False) + b"".join(msg.payload) for msg in batch])
        driver.core.completed(batch)
        if target in self.nis:
            self.connection(ni, target).feed(data)
        return True

    def connection(self, ni: NI, target: Nid) -> Connection:
        """From an NI to a NID."""
        found, core = self.nis[target]
        known = self.connections.get((ni.nid, target))
        if known is None or known.ni is not found:
            known = self.connections[ni.nid, target] = Connection(core.receiver(found, ni.nid), ni=found)
        return known
