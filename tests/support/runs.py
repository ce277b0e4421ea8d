"""Runs of messages that are alike, and programs whose handlers send while one is worked through."""

from __future__ import annotations

from collections.abc import Callable

from support.lanes import BITS, PORTAL, B, FastFabric, Watching, World
from ulnet.core.event import Event, EventKind
from ulnet.core.md import Md
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.outlet import Outlet


class RunFabric(FastFabric):
    """Gives what is alike to an inlet in one piece, as the TCP driver does."""

    runs = 0  # of two and more

    def _take(self, ni: NI, msg: Msg) -> bool:
        assert msg.next_nid is not None
        inlet, known, hdr = self._inlets.get((ni.nid, msg.next_nid), (None, b"", None))
        if inlet is None or hdr is None or inlet.named or msg.pack(False) != known:
            return super()._take(ni, msg)
        alike = 1
        while alike < len(self.wire) and self._is_like(self.wire[alike], ni, known):
            alike += 1
        if alike < 2:
            return super()._take(ni, msg)
        some = [self.wire.popleft() for _ in range(alike)]
        data = bytearray(b"".join(known + b"".join(one.payload) for _, one in some))
        size = len(data) // alike
        end = inlet.take_run(hdr, known, data, memoryview(data), 0, len(data))  # type: ignore[arg-type]
        inlet.settle()
        self.wire.extendleft(reversed(some[end // size :]))
        for owner, one in some[: end // size]:
            self._left.append((owner.lnd.core, one))  # type: ignore[attr-defined]
        self.taken += end // size
        self.runs += end > size
        return end > 0 or super()._take(ni, msg)

    @staticmethod
    def _is_like(one: tuple[NI, Msg], ni: NI, raw: bytes) -> bool:
        return one[0] is ni and one[1].pack(False) == raw


class Chain:
    """Memory whose events of one kind send again, as often as there is something left."""

    def __init__(self, world: World, left: int, kind: EventKind, each: int = 2) -> None:
        self.world = world
        self.left = left
        self.kind = kind
        self.each = each
        self.seen = Watching([])
        self.also: Callable[[], None] = lambda: None
        self.md: Md = world.a.memory.md_bind(b"c" * 64, self.handle)

    def send(self) -> None:
        self.world.put(self.md, B, PORTAL, BITS, ack=self.kind is EventKind.ACK)

    def handle(self, event: Event) -> None:
        self.seen(event)
        if event.kind is not self.kind:
            return
        for _ in range(min(self.left, self.each)):
            self.left -= 1
            self.send()
        self.also()


class WireOutlet(Outlet):
    """The queue of a connection that never is busy."""

    def __init__(self, fabric: RunFabric, ni: NI) -> None:
        super().__init__(72)
        self.sole = True
        self.fabric = fabric
        self.ni = ni

    def kick(self) -> None:
        while self.tx_queue:
            msg = self.tx_queue.popleft()
            self.tx_bytes -= 72 + msg.hdr.payload_length
            self.fabric.wire.append((self.ni, msg))
        assert not self.tx_bytes


def gathering(world: World) -> bool:
    return world.a._transmit.gathering is not None
