"""Two nodes that know each other, handlers that note what they hear, and what lnetctl could show."""

from __future__ import annotations

from typing import Any

from support.fabric import Fabric, MemLnd
from support.stream import StreamFabric
from ulnet.control.instance import LNet
from ulnet.core.event import Event
from ulnet.core.md import MANAGE_REMOTE, OP_GET, OP_PUT, TRUNCATE, Md
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi
from ulnet.core.tunables import NetTunables
from ulnet.nid import Nid

__all__ = ["BITS", "PORTAL", "A", "B", "Calls", "Pair", "Watching", "counters", "told"]

A, B = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.0.0.2@tcp")
PORTAL, BITS = 5, 7


def told(event: Event) -> tuple[Any, ...]:
    """What a program can see of an event."""
    return (
        event.kind.name,
        event.status,
        event.mlength,
        event.rlength,
        event.offset,
        event.match_bits,
        event.hdr_data,
        event.portal,
        event.initiator,
        event.source,
        event.sender,
        event.target,
        event.unlinked,
    )


class Watching:
    """A handler that notes what it hears, when it hears it."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def __call__(self, event: Event) -> None:
        self.seen.append(told(event))

    @property
    def kinds(self) -> list[str]:
        return [seen[0] for seen in self.seen]


class Calls:
    """Each call of a driver's `send`: so many messages."""

    def __init__(self, core: LNet, nid: Nid) -> None:
        lnd = core.nis[nid].lnd
        assert isinstance(lnd, MemLnd)
        self.sizes: list[int] = []
        self._send = lnd.send
        lnd.send = self.send  # type: ignore[method-assign]

    def send(self, ni: NI, msgs: list[Msg]) -> None:
        self.sizes.append(len(msgs))
        self._send(ni, msgs)


class Pair:
    """A sends, B lends memory; with `stream`, as drivers of streams do it, else message by message."""

    def __init__(self, *, stream: bool = False, credits: int = 128, discovery: bool = True) -> None:
        self.fabric = StreamFabric() if stream else Fabric()
        tunables = NetTunables(peer_credits=credits, credits=2 * credits)
        self.a = self.fabric.node(str(A), tunables=tunables, discovery=discovery)
        self.b = self.fabric.node(str(B), tunables=tunables, discovery=discovery)
        if not discovery:
            for core in (self.a, self.b):
                core.set_discovery(0)  # paths are looked at for each message: nobody is known for sure
        self.mds: list[Md] = []
        self._meet()

    def _meet(self) -> None:
        """After the first messages both know who the other one is."""
        md = self.a.memory.md_bind(bytearray(1))
        self.lend(bytearray(1), portal=PORTAL + 1, threshold=2)
        for _ in range(2):
            self.a.get(md, B, PORTAL + 1, BITS)
            self.fabric.run()
        self.a.memory.md_unlink(md)

    def lend(
        self,
        memory: bytearray,
        handler: Any = None,
        *,
        portal: int = PORTAL,
        bits: int = BITS,
        options: int = OP_PUT | OP_GET | MANAGE_REMOTE | TRUNCATE,
        **more: Any,
    ) -> Md:
        """Memory of B, for whoever sends or asks."""
        me = self.b.memory.me_attach(portal, match_bits=bits)
        return self.b.memory.md_attach(me, memory, handler, options=options, **more)

    def bind(self, memory: bytes | bytearray, handler: Any = None, **more: Any) -> Md:
        """Memory of A."""
        self.mds.append(self.a.memory.md_bind(memory, handler, **more))
        return self.mds[-1]

    def pni(self) -> PeerNi:
        """B, as A knows it."""
        found = self.a.peers.find_ni(B)
        assert found is not None
        return found

    def on_wire(self) -> list[Msg]:
        """What drivers hold now."""
        return [msg for _, msg in self.fabric.wire]

    def take_off(self) -> list[Msg]:
        """The same, and it is gone from there."""
        msgs = self.on_wire()
        self.fabric.wire.clear()
        return msgs


def counters(core: LNet) -> dict[str, object]:
    """All that lnetctl could show of a node."""
    stats = core.stats
    found: dict[str, object] = {
        "node": (stats.send_count, stats.send_length, stats.recv_count, stats.recv_length),
        "dropped": (stats.drop_count, stats.drop_length, dict(stats.drops)),
        "under way": (stats.msgs_alloc, core.state.answers, core.memory.count_awaited()),
    }
    for ni in core.nis.values():
        found[str(ni.nid)] = (
            *(list(ni.stats.sent), list(ni.stats.received), list(ni.stats.dropped), dict(ni.choices)),
            *(ni.tx_credits, ni.refs, ni.health, ni.latency_egress.samples, ni.latency_ack.samples),
            ni.latency_get.samples,
        )
    for peer in core.peers:
        for pni in peer.nis():
            found[f"to {pni.nid}"] = (
                *(list(pni.stats.sent), list(pni.stats.received), list(pni.stats.dropped)),
                *(dict(pni.choices), pni.tx_credits, pni.tx_queued_bytes, pni.refs, pni.answers),
                *(pni.latency_egress.samples, pni.latency_ack.samples, pni.latency_get.samples),
            )
    return found
