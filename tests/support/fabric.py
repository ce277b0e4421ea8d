"""Several cores on one in-memory wire, stepped by hand: the core's test bench."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ulnet.control.instance import LNet
from ulnet.core.access import EVERYBODY, Access
from ulnet.core.cpt import CptTable
from ulnet.core.event import Event
from ulnet.core.msg import Incoming, Msg
from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi
from ulnet.core.status import HealthStatus
from ulnet.core.tunables import LndTunables, NetTunables
from ulnet.lnd.contract import Inbound
from ulnet.lnd.lo import LoLnd
from ulnet.nid import LO_NID, NetType, Nid
from ulnet.wire.lnet import unpack_header


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass(eq=False)
class Delivery:
    """One message on the wire; it is the receiver's `rx`."""

    fabric: Fabric
    ni: NI
    msg: Msg
    target: NI
    target_core: LNet
    receiver: Inbound
    done: bool = False

    def take(self, incoming: Incoming | None, buffers: list[memoryview], mlen: int, rlen: int) -> None:
        assert not self.done, "take called twice for one message"
        assert sum(view.nbytes for view in buffers) == mlen <= rlen == self.msg.hdr.payload_length
        self.done = True
        fabric = self.fabric
        if self in fabric.delayed:
            fabric.delayed.remove(self)
        fabric.arriving.append((self, incoming, buffers))
        if not fabric.slow:
            fabric.arrive(fabric.arriving[-1])

    def abandon(self, incoming: Incoming) -> bool:
        return False

    def unanswered(self) -> None:
        pass


class MemLnd:
    """A driver over the fabric: headers go through the real codec, payload is copied once."""

    name = "tcp"
    net_type = int(NetType.TCP)
    reports_timeout = True

    def __init__(self, fabric: Fabric, core: LNet) -> None:
        self.fabric = fabric
        self.core = core

    def startup(self, ni: NI) -> None:
        self.fabric.nis[ni.nid] = (ni, self.core)
        self.fabric.all_nis.append(ni)

    def shutdown(self, ni: NI) -> None:
        del self.fabric.nis[ni.nid]
        for sent in [one for one in self.fabric.wire if one[0] is ni]:
            if sent not in self.fabric.wire:
                continue  # an event of the one before deleted this very NI
            self.fabric.wire.remove(sent)
            self.core.completed([sent[1]], HealthStatus.LOCAL_ERROR, errno.ENETDOWN, "shut down")
        for held in [one for one in self.fabric.delayed if ni in (one.ni, one.target)]:
            self.fabric.break_delivery(held)
        for arriving in [one for one in self.fabric.arriving if ni in (one[0].ni, one[0].target)]:
            self.fabric.arrive(arriving, broken=True)

    def retune(self, ni: NI, timeout: float) -> None:
        pass

    def access_changed(self, ni: NI) -> None:
        pass

    def verify(self, ni: NI, nid: Nid) -> bool:
        return True

    def send(self, ni: NI, msgs: list[Msg]) -> None:
        for msg in msgs:
            assert sum(view.nbytes for view in msg.payload) == msg.hdr.payload_length
            self.fabric.wire.append((ni, msg))


@dataclass
class Fabric:
    """The wire: messages in the order they were handed over, delivered one by one."""

    clock: Clock = field(default_factory=Clock)
    nis: dict[Nid, tuple[NI, LNet]] = field(default_factory=dict)
    wire: deque[tuple[NI, Msg]] = field(default_factory=deque)
    cores: list[LNet] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    delayed: list[Delivery] = field(default_factory=list)
    slow: bool = False  # payload arrives in later steps, not at once
    arriving: list[tuple[Delivery, Incoming | None, list[memoryview]]] = field(default_factory=list)
    all_nis: list[NI] = field(default_factory=list)  # also those that were deleted
    all_peer_nis: list[PeerNi] = field(default_factory=list)
    protocol_errors: list[int] = field(default_factory=list)
    silent: set[Nid] = field(default_factory=set)  # what is sent there is lost, and nobody says so
    lost: int = 0  # messages, for that
    certificates: dict[Nid, frozenset[Nid]] = field(default_factory=dict)  # by who shows one: its NIDs

    def node(
        self,
        *nids: str,
        tunables: NetTunables | None = None,
        cpts: CptTable | None = None,
        current_cpu: Callable[[], int] = lambda: -1,
        chance: Callable[[], float] = lambda: 0.5,
        discovery: bool = False,
        ageing: bool = False,
        lnd_tunables: LndTunables | None = None,
        access: Access = EVERYBODY,
    ) -> LNet:
        """A started core with these NIs; unless told, it discovers and forgets nobody (tests of the core)."""
        core = LNet(
            clock=self.clock,
            cookie=1000 + len(self.cores),
            report=self.reports.append,
            cpts=cpts,
            current_cpu=current_cpu,
            chance=chance,
            access=access,
        )
        core.register_lnd(LoLnd(core, core.state.defer))
        core.register_lnd(MemLnd(self, core))
        parts = core._sender._parts
        told = parts.peer_ni_added

        def recorded(pni: PeerNi) -> None:
            self.all_peer_nis.append(pni)
            told(pni)

        parts.peer_ni_added = recorded
        if not ageing:
            parts.peer_learned = lambda peer: None
        core.start()
        if not discovery:
            core.discovery.stop()
        for text in nids:
            nid = Nid.parse(text)
            core.add_ni(nid.net, nid, tunables=tunables, lnd_tunables=lnd_tunables)
        self.cores.append(core)
        return core

    def step(self, fault: Callable[[Msg], bool] = lambda msg: False) -> bool:
        """Deliver one message, or fail it where `fault` says so; False when nothing is on the wire."""
        for core in self.cores:
            core.tick(self.clock.now)
        if self.arriving and (not self.wire or len(self.arriving) > 3):
            self.arrive(self.arriving[0])
            return True
        if not self.wire:
            return False
        ni, msg = self.wire.popleft()
        if msg.next_nid in self.silent:
            self.lost += 1
            return True
        driver = ni.lnd
        assert isinstance(driver, MemLnd)
        sender = driver.core
        if fault(msg) or msg.next_nid not in self.nis:
            sender.completed([msg], HealthStatus.REMOTE_DROPPED, errno.ECONNREFUSED, "nobody there")
            return True
        assert msg.next_nid is not None
        target, core = self.nis[msg.next_nid]
        certificate = self.certificates.get(ni.nid)
        vouches = None if certificate is None else certificate.__contains__
        receiver = core.receiver(target, ni.nid, vouches)
        delivery = Delivery(self, ni, msg, target, core, receiver)
        hdr = unpack_header(msg.pack(ni.nid.is_large), 0, ni.nid.is_large)
        refused = receiver.begin(hdr, delivery)
        if refused:
            self.protocol_errors.append(refused)
            sender.completed([msg], HealthStatus.REMOTE_ERROR, -refused, "protocol error")
        elif not hdr.payload_length:
            self.sent(delivery)
        elif not delivery.done:
            self.delayed.append(delivery)
        return True

    def arrive(
        self, arriving: tuple[Delivery, Incoming | None, list[memoryview]], broken: bool = False
    ) -> None:
        """The payload is with the receiver, or its connection broke: both sides are done."""
        if arriving not in self.arriving:
            return
        self.arriving.remove(arriving)
        delivery, msg, buffers = arriving
        if not broken:
            data = memoryview(b"".join(delivery.msg.payload))
            at = 0
            for view in buffers:
                view[:] = data[at : at + view.nbytes]
                at += view.nbytes
        if msg is not None and broken:
            delivery.receiver.end(msg, HealthStatus.REMOTE_ERROR, errno.EIO, "connection lost")
        elif msg is not None:
            delivery.receiver.end(msg)
        self.sent(delivery, broken)

    def sent(self, delivery: Delivery, broken: bool = False) -> None:
        """The sender is done."""
        driver = delivery.ni.lnd
        assert isinstance(driver, MemLnd)
        if broken:
            driver.core.completed(
                [delivery.msg], HealthStatus.LOCAL_ERROR, errno.ECONNRESET, "connection lost"
            )
        else:
            driver.core.completed([delivery.msg])

    def break_delivery(self, delivery: Delivery) -> None:
        """The connection of a message that waits for a match dies."""
        if delivery not in self.delayed:
            return
        self.delayed.remove(delivery)
        delivery.done = True
        delivery.target_core.forget_rx(delivery)
        self.sent(delivery, broken=True)

    def run(self, limit: int = 10_000) -> None:
        """Step until nothing moves."""
        for _ in range(limit):
            if not self.step() and not any(core.state.work_pending for core in self.cores):
                return
        raise AssertionError("the fabric does not come to rest")

    @property
    def complaints(self) -> list[str]:
        """What a core reported of broken handlers and drivers; news of health is not among it."""
        return [line for line in self.reports if line.startswith(("event handler", "driver", "call failed"))]

    def assert_conserved(self) -> None:
        """Credits, queues, references and message counts are back where they began; no call broke."""
        assert not [line for line in self.reports if line.startswith("call failed")]
        for core in self.cores:
            assert core.stats.msgs_alloc == 0
            assert core.stats.drops["finalized twice"] == 0
            assert core.nis.keys() <= {LO_NID} or core.nis[LO_NID].refs == 0
            for md in core.memory.mds.values():
                assert md.refs == 0
        for ni in self.all_nis:
            assert ni.tx_credits == ni.max_tx_credits
            assert not any(queue.waiting or queue.answers for queue in ni.tx_queues)
            assert ni.refs == 0
        for pni in self.all_peer_nis:
            assert pni.tx_credits == pni.max_tx_credits
            assert not pni.tx_queue
            assert pni.tx_queued_bytes == 0
            assert pni.refs == 1
        assert not self.wire
        assert not self.delayed
        assert not self.arriving


class Recorder(list[Event]):
    """An event handler that keeps what it gets."""

    def __call__(self, event: Event) -> None:
        self.append(event)

    @property
    def kinds(self) -> list[str]:
        return [event.kind.name for event in self]
