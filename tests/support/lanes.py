"""Two nodes that know each other, and a fabric that carries small messages as the TCP driver does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from support.fabric import Delivery, Fabric, MemLnd
from ulnet.core.bulk_inlet import BulkInlet
from ulnet.core.event import Event
from ulnet.core.instance import LNet
from ulnet.core.lane import LIGHT
from ulnet.core.md import MANAGE_REMOTE, OP_PUT, TRUNCATE, Md
from ulnet.core.msg import Msg
from ulnet.core.ni import NI
from ulnet.core.selection import Balance
from ulnet.core.status import HealthStatus
from ulnet.core.tunables import NetTunables
from ulnet.nid import Nid
from ulnet.wire.lnet import Header, unpack_header

A, A1 = Nid.parse("10.0.0.1@tcp"), Nid.parse("10.1.0.1@tcp1")
B, B1 = Nid.parse("10.0.0.2@tcp"), Nid.parse("10.1.0.2@tcp1")
PORTAL, BITS = 5, 7
NAME, NAME_END = 32, 48  # where the handle of a PUT, or of its ACK, is in a header


class FastFabric(Fabric):
    """Delivers small messages by inlets, and tells of sent ones in batches, as the TCP driver does."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0  # by inlets
        self._inlets: dict[tuple[Nid, Nid], tuple[BulkInlet, bytes, object]] = {}
        self._left: list[tuple[LNet, Msg]] = []

    def step(self, fault: Callable[[Msg], bool] = lambda msg: False) -> bool:
        if self.wire and not self.arriving:
            ni, msg = self.wire[0]
            if not fault(msg) and msg.next_nid in self.nis and self._take(ni, msg):
                return True
        self.tell()
        return super().step(fault) or bool(self._left)

    def _take(self, ni: NI, msg: Msg) -> bool:
        assert msg.next_nid is not None
        target, core = self.nis[msg.next_nid]
        raw = msg.pack(False)
        inlet, known, hdr = self._inlets.get((ni.nid, target.nid), (None, b"", None))
        if inlet is None:
            inlet = core.inlet(target, ni.nid)
        name = b""
        if hdr is not None and inlet.named and raw[:NAME] + raw[NAME_END:] == known[:NAME] + known[NAME_END:]:
            name = raw[NAME:NAME_END]
        elif raw != known:
            hdr = unpack_header(raw)
        view = memoryview(b"".join(msg.payload))
        self._inlets[ni.nid, target.nid] = (inlet, raw, hdr)
        before = self.wire[0]
        self.wire.popleft()
        if len(view) > LIGHT:
            taken = self._take_large(inlet, core, hdr, view)  # type: ignore[arg-type]
        else:
            taken = inlet.take(hdr, view, 0, name)  # type: ignore[arg-type]
        if not taken:
            self._inlets[ni.nid, target.nid] = (inlet, b"", None)
            self.wire.appendleft(before)
            return False
        inlet.settle()
        self.taken += 1
        driver = ni.lnd
        assert isinstance(driver, MemLnd)
        self._left.append((driver.core, msg))
        return True

    @staticmethod
    def _take_large(inlet: BulkInlet, core: LNet, hdr: Header, view: memoryview) -> bool:
        msg = inlet.begin(hdr)
        if msg is None:
            return False
        at = 0
        for piece in msg.payload:
            piece[:] = view[at : at + len(piece)]
            at += len(piece)
        assert at == len(view)
        if not inlet.end(msg):
            core.finalize(msg, HealthStatus.OK)
        return True

    def reconnect(self) -> None:
        """All connections close; new ones take their place."""
        for inlet, _, _ in self._inlets.values():
            inlet.close()
        self._inlets.clear()

    def tell(self) -> None:
        """All that has left was sent."""
        left, self._left = self._left, []
        for core in dict.fromkeys(core for core, _ in left):
            core.sent([msg for owner, msg in left if owner is core])

    def sent(self, delivery: Delivery, broken: bool = False) -> None:
        self.tell()
        super().sent(delivery, broken)


def told(event: Event) -> tuple[Any, ...]:
    """What a program can see of an event."""
    return (
        event.kind,
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


@dataclass
class Watching:
    """A handler that notes what it sees, when it sees it."""

    seen: list[tuple[Any, ...]]

    def __call__(self, event: Event) -> None:
        self.seen.append(told(event))


class World:
    """Two nodes that know each other, with lanes or without."""

    def __init__(self, lanes: bool, *, moving: bool = False, credits: int = 4) -> None:
        self.fabric = FastFabric() if lanes else Fabric()
        tunables = NetTunables(peer_credits=credits, credits=2 * credits)
        self.a = self.fabric.node(str(A), tunables=tunables, discovery=True)
        self.b = self.fabric.node(str(B), tunables=tunables, discovery=True)
        self.fabric.run()
        self.put = self.a.put if lanes else self.a._initiate.put
        self.inbox = bytearray(1 << 14)
        self.arrived = Watching([])
        me = self.b.memory.me_attach(PORTAL, match_bits=BITS)
        options = OP_PUT | TRUNCATE | (0 if moving else MANAGE_REMOTE)
        self.b.memory.md_attach(me, self.inbox, self.arrived, options=options)
        self.mds: list[Md] = []
        self.events: list[Watching] = []

    def bind(self, data: bytes) -> Md:
        watching = Watching([])
        self.events.append(watching)
        self.mds.append(self.a.memory.md_bind(data, watching))
        return self.mds[-1]

    def warm(self) -> None:
        """The first messages find out who the peer is, and that there is one way only."""
        md = self.a.memory.md_bind(b"warm", None)
        for _ in range(3):
            self.put(md, B, PORTAL, BITS, ack=False)
            self.fabric.run()
        self.a.memory.md_unlink(md)

    def counters(self) -> dict[str, object]:
        """All that lnetctl could show."""
        found: dict[str, object] = {}
        for name, core, other in (("a", self.a, B), ("b", self.b, A)):
            pni = core.peers.find_ni(other)
            ni = next(ni for ni in core.nis.values() if ni.nid in (A, B))
            assert pni is not None
            stats = core.stats
            found[name] = (
                stats.send_count,
                stats.send_length,
                stats.recv_count,
                stats.recv_length,
                stats.drop_count,
                stats.rst_alloc,
                ni.stats.sent,
                ni.stats.received,
                ni.stats.dropped,
                pni.stats.sent,
                pni.stats.received,
                dict(ni.choices),
                dict(pni.choices),
                ni.latency_egress.samples,
                ni.latency_ack.samples,
                pni.latency_ack.samples,
                pni.seq,
            )
        return found


class RailWorld(World):
    """Two nodes with several rails; only the way of A's PUTs through the core differs."""

    def __init__(
        self, lanes: bool, rails: int, nets: int, balance: Balance, credits: int = 4, batches: bool = False
    ) -> None:
        super().__init__(True, credits=credits)
        a, b = self.a, self.b
        if not lanes:
            self.put = a._initiate.put
        for nth in range(1, rails):
            net = nth % nets
            for core, host in ((a, 1), (b, 2)):
                nid = Nid.parse(f"10.{net}.{nth}.{host}@tcp{net}")
                core.add_ni(nid.net, nid, tunables=NetTunables(peer_credits=credits, credits=2 * credits))
        for ni in a.nis.values():
            ni.batches = batches
        a.selector.balance = b.selector.balance = balance
        self.fabric.run()
        self.warm()
        md = a.memory.md_bind(b"warm", None)
        for _ in range(8 * rails):  # all ways are used once
            self.put(md, B, PORTAL, BITS, ack=False)
            self.fabric.run()
        a.memory.md_unlink(md)

    def rails_in_use(self) -> bool:
        pni = self.a.peers.find_ni(B)
        return pni is not None and pni.rails is not None and bool(pni.rails.ways)

    def seen(self, turns: bool) -> dict[str, object]:
        """All that tells one choice from another, of each NI."""
        found: dict[str, object] = {}
        for name, core in (("a", self.a), ("b", self.b)):
            for ni in core.nis.values():
                found[f"{name} {ni.nid}"] = (
                    *(dict(ni.choices), ni.seq if turns else 0, list(ni.stats.sent), list(ni.stats.received)),
                    *(ni.tx_credits, ni.min_tx_credits, ni.latency_egress.samples, ni.latency_ack.samples),
                )
            for peer in core.peers:
                for pni in peer.nis():
                    loads = {str(ni.nid): (flow.outstanding, flow.rate) for ni, flow in pni.flows.items()}
                    found[f"{name} to {pni.nid}"] = (
                        *(
                            dict(pni.choices),
                            pni.seq if turns else 0,
                            list(pni.stats.sent),
                            list(pni.stats.received),
                            loads,
                        ),
                        *(pni.tx_credits, pni.min_tx_credits, pni.health, pni.latency_egress.samples),
                    )
                ways = {str(ni.nid): (flow.outstanding, flow.rate) for ni, flow in peer.flows.items()}
                found[f"{name} peer"] = ways
            stats = core.stats
            found[name] = (stats.send_count, stats.send_length, stats.recv_count, stats.drop_count)
        return found


def small_puts(world: World, count: int, *, ack: bool = False, size: int = 64) -> Md:
    md = world.bind(b"s" * size)
    for _ in range(count):
        world.put(md, B, PORTAL, BITS, ack=ack)
    world.fabric.run()
    return md


def lane_is_open(world: World) -> bool:
    pni = world.a.peers.find_ni(B)
    assert pni is not None
    lane = pni.lane
    return lane is not None and (lane.epoch, lane.changes) == (world.a.state.epoch, pni.peer.paces.changes)
