"""RDMA devices on the simulator's network: reliable connected queue pairs, and their connection manager.

A queue pair does its work requests in order. What is not acknowledged is sent again after 0.5 s, as often as
its retry count says; a message that finds no receive buffer comes again after 10 ms, by its RNR count. Then
the pair breaks, and so does one that writes where it may not. Each pair has a protection domain: keys of
others' memory are void on it, though a device hands out released keys again. Each port is a device, which can
be removed.
"""

from __future__ import annotations

import errno
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ulnet.core.status import LNetError
from ulnet.lnd.o2ib.verbs import CmEvent, DeviceEvent, Send, Slot, Write

if TYPE_CHECKING:
    from ulnet.core.ni import NI
    from ulnet.lnd.o2ib.verbs import DeviceOwner, PairOwner, Shape, Work
    from ulnet.sim.cables import Fabric, Host, Port

__all__ = ["SimDevice", "SimPair", "SimVerbs"]

_SLOT: Final = 4096
_ACK_TIMEOUT: Final = 0.5
_RNR_PAUSE: Final = 0.01
_FOREVER: Final = 7
_CM_RETRY: Final = 1.0
_CM_RETRIES: Final = 15
_NO_NEIGHBOUR: Final = 3.0  # seconds until an address that nobody has counts as unreachable
_NO_SERVICE: Final = 8
_CONSUMER: Final = 28
_PAGE: Final = 4096
_DOMAINS: Final = 32768
_LANDED: Final = 256  # writes into one memory that are remembered


class SimDomain:
    """A protection domain, which is there until its queue pair is gone and all its memory is released."""

    __slots__ = ("_ended", "device", "regions")

    def __init__(self, device: SimDevice) -> None:
        """Raises LNetError(ENOMEM)."""
        if len(device.domains) >= device.most_domains:
            text = f"{device.name}: no protection domain for another connection: it has {device.most_domains}"
            raise LNetError(errno.ENOMEM, text)
        self.device: SimDevice = device
        self.regions: dict[SimRegion, None] = {}
        self._ended: bool = False
        device.domains[self] = None

    def end(self) -> None:
        """Its queue pair is gone."""
        self._ended = True
        self.forget_if_unused()

    def forget_if_unused(self) -> None:
        """Give it back, if nothing is in it."""
        if self._ended and not self.regions:
            self.device.domains.pop(self, None)


class SimRegion:
    """Registered memory of a domain. What has been released leaves its key and address to the next one."""

    __slots__ = ("address", "domain", "key", "remote", "view")

    def __init__(self, domain: SimDomain, key: int, address: int, view: memoryview, remote: bool) -> None:
        self.domain: SimDomain = domain
        self.key: int = key
        self.address: int = address
        self.view: memoryview = view
        self.remote: bool = remote
        domain.regions[self] = None
        domain.device.regions[key] = self

    def release(self) -> None:
        """Nobody writes there any more."""
        device = self.domain.device
        del self.domain.regions[self], device.regions[self.key]
        device.released.setdefault(self.view.nbytes, []).append((self.key, self.address))
        self.domain.forget_if_unused()


class SimRequest:
    """A call that has reached the called."""

    def __init__(self, device: SimDevice, caller: SimPair, private: bytes) -> None:
        self.private = private
        self.source: str = caller.device.address
        self._device = device
        self._caller = caller

    def accept(self, owner: PairOwner, private: bytes, shape: Shape) -> SimPair:
        """Let it connect. Raises LNetError(ENOMEM)."""
        pair = SimPair(self._device, owner, shape, SimDomain(self._device))
        pair.other, self._caller.other = self._caller, pair
        pair.travel(self._accepted, pair, private)
        return pair

    def _accepted(self, pair: SimPair, private: bytes) -> None:
        caller = self._caller
        if caller.open:
            caller.ready = True
            caller.tell(caller.owner.managed, CmEvent.ESTABLISHED, 0, private)
            caller.travel(self._joined, pair)
        else:
            pair.hung_up()

    @staticmethod
    def _joined(pair: SimPair) -> None:
        if pair.open:
            pair.ready = True
            pair.tell(pair.owner.managed, CmEvent.ESTABLISHED, 0, b"")

    def reject(self, private: bytes) -> None:
        """Do not."""
        self._device.travel_to(self._caller.device, self._caller.refused, _CONSUMER, private)


class SimPair:
    """One end of a connection."""

    def __init__(
        self, device: SimDevice, owner: PairOwner, shape: Shape, domain: SimDomain | None = None
    ) -> None:
        self.device = device
        self.domain = domain  # which a caller has once it knows the way
        self.owner = owner
        self.shape = shape
        self.fabric: Fabric = device.fabric
        self.other: SimPair | None = None
        self.open: bool = True
        self.ready = False
        self._failed = False
        self.free: list[Slot] = [Slot(bytearray(_SLOT), number=number) for number in range(shape.receives)]
        self.posted: int = 0  # works that are not completed
        self._queue: deque[tuple[float, Work]] = deque()  # and when each has left
        self._moving = False
        self._tries = self._rnr = self._ack_tries = 0
        self._acks: deque[object] = deque()  # tokens of messages whose acknowledgement is on its way
        self._last = 0.0  # when the last one arrived
        device.pairs[self] = None

    def tell(self, call: Callable[..., None], *args: Any) -> None:
        """Tell the owner, once its process runs."""
        self.device.tell(self._tell_open, call, *args)

    def _tell_open(self, call: Callable[..., None], *args: Any) -> None:
        if self.open:
            call(*args)

    def travel(self, call: Callable[..., None], *args: Any) -> None:
        """A message of the connection manager to the other side."""
        assert self.other is not None
        self.device.travel_to(self.other.device, call, *args)

    # Calling ------------------------------------------------------------------------------------------

    def call(self, address: str, private: bytes) -> None:
        """Call the device at that address."""
        scheduler, port = self.fabric.scheduler, self.device.port
        there = port.switch.ports.get(address)
        if there is None:
            scheduler.after(_NO_NEIGHBOUR, self._unreached, CmEvent.ADDR_ERROR)
            return
        scheduler.after(2 * self.fabric.latency(port, there), self._resolved, there, address, private, 0)

    def _resolved(self, there: Port, address: str, private: bytes, tries: int) -> None:
        fabric, port = self.fabric, self.device.port
        if not self.open:
            return
        if not port.live:
            self._unreached(CmEvent.ADDR_ERROR)
        elif fabric.blocked(port, there) or fabric.blocked(there, port):
            fabric.faults["calls failed"] += 1
            if tries >= _CM_RETRIES:
                self._unreached(CmEvent.UNREACHABLE)
            else:
                fabric.scheduler.after(_CM_RETRY, self._resolved, there, address, private, tries + 1)
        elif self._gets_domain():
            fabric.scheduler.after(fabric.latency(port, there), self._reached, address, private)

    def _gets_domain(self) -> bool:
        try:
            self.domain = SimDomain(self.device)
        except LNetError as failed:
            self.tell(self.owner.managed, CmEvent.CONNECT_ERROR, failed.errno, b"")
        return self.domain is not None

    def _reached(self, address: str, private: bytes) -> None:
        device = self.device.port.switch.devices.get(address)
        if not self.open:
            return
        if device is None:
            self.refused(_NO_SERVICE, b"")
        else:
            device.tell(device.requested, SimRequest(device, self, private))

    def _unreached(self, event: CmEvent) -> None:
        self.tell(self.owner.managed, event, errno.ETIMEDOUT, b"")

    def refused(self, status: int, private: bytes) -> None:
        """The other side does not want it."""
        self.tell(self.owner.managed, CmEvent.REJECTED, status, private)

    def hung_up(self) -> None:
        """The other side has gone."""
        self.tell(self.owner.managed, CmEvent.DISCONNECTED, 0, b"")

    # Working ------------------------------------------------------------------------------------------

    def register(self, view: memoryview, remote: bool) -> SimRegion:
        """Register memory in its domain."""
        assert self.open and self.domain is not None, "memory is registered for a connection that is none"
        assert not (remote and view.readonly)
        return SimRegion(self.domain, *self.device.place(view.nbytes), view, remote)

    def post(self, works: Sequence[Work]) -> None:
        """Do these in order."""
        assert self.open, "post on a closed queue pair"
        port, scheduler = self.device.port, self.fabric.scheduler
        for work in works:
            if isinstance(work, Send):
                data = b"".join(work.parts)
                assert len(data) <= _SLOT
                work = Send((data,), work.token)
                size = len(data)
                self.posted += 1
                self.fabric.under_way += 1
                assert self.posted <= self.shape.sends, "more messages posted than the queue pair holds"
            else:
                size = sum(piece.length for piece in work.pieces)
                assert len(work.pieces) <= self.device.pieces
                for piece in work.pieces:
                    assert isinstance(piece.region, SimRegion)
                    assert piece.region.domain is self.domain, "memory of another protection domain is sent"
            begins = max(scheduler.now, port.tx_free)
            port.tx_free = begins + (size / port.params.rate if port.params.rate else 0.0)
            port.sent += size
            self._queue.append((port.tx_free, work))
        self._move()

    def _move(self) -> None:
        """The next of them arrives."""
        if self._moving or not self._queue or self._failed:
            return
        assert self.other is not None
        self._moving = True
        ends, _ = self._queue[0]
        latency = self.fabric.latency(self.device.port, self.other.device.port)
        self._last = max(self._last, ends + latency)
        self.fabric.scheduler.at(self._last, self._arrive)

    def _arrive(self) -> None:
        self._moving = False
        other = self.other
        if not self.open or self._failed or other is None:
            return
        fabric, port = self.fabric, self.device.port
        lost = port.params.loss and fabric.random() < port.params.loss
        if lost or not other.open or other._failed or fabric.blocked(port, other.device.port):
            self._tries += not lost
            if self._tries > self.shape.retries:
                self.fail("transport retry counter exceeded")
                return
            self._again(_ACK_TIMEOUT)
            return
        self._tries = 0
        _, work = self._queue[0]
        if isinstance(work, Write):
            if not other.written(work):
                self.fail("remote access error")
                other.fail("local access error")
                return
        elif not other.receive(work.parts[0]):
            self._rnr += 1
            fabric.faults["receivers not ready"] += 1
            if self._rnr > self.shape.rnr_retries != _FOREVER:
                self.fail("RNR retry counter exceeded")
                return
            self._again(_RNR_PAUSE)
            return
        else:
            self._rnr = 0
            self._acks.append(work.token)
            fabric.scheduler.after(fabric.latency(other.device.port, port), self._acknowledged)
        self._queue.popleft()
        self._move()

    def _again(self, pause: float) -> None:
        self._moving = True
        self.fabric.scheduler.after(pause, self._arrive)

    def _acknowledged(self) -> None:
        other = self.other
        if not self.open or self._failed or other is None or not self._acks:
            return
        if self.fabric.blocked(other.device.port, self.device.port):
            self._ack_tries += 1
            if self._ack_tries > self.shape.retries:
                self.fail("transport retry counter exceeded")
            else:
                self.fabric.scheduler.after(_ACK_TIMEOUT, self._acknowledged)
            return
        self._ack_tries = 0
        tokens = list(self._acks)
        self._acks.clear()
        self.tell(self._sent, tokens)

    def _sent(self, tokens: list[object]) -> None:
        if not self._failed:
            self.posted -= len(tokens)
            self.fabric.under_way -= len(tokens)
            self.owner.sent(tokens)

    def written(self, work: Write) -> bool:
        """The other side writes to memory here; whether it may."""
        region = self.device.regions.get(work.key)
        data = b"".join(
            [piece.region.view[piece.offset : piece.offset + piece.length] for piece in work.pieces]  # type: ignore[attr-defined]
        )
        if region is None or not region.remote or region.domain is not self.domain:
            return False
        at = work.address - region.address
        if at < 0 or at + len(data) > region.view.nbytes:
            return False
        region.view[at : at + len(data)] = data
        landed = self.device.host.landed.setdefault(id(region.view.obj), deque(maxlen=_LANDED))
        landed.append(zlib.crc32(data))
        self.device.port.received += len(data)
        return True

    def receive(self, data: bytes | bytearray | memoryview) -> bool:
        """A message of the other side; whether there is a buffer for it."""
        if not self.free:
            return False
        slot = self.free.pop()
        slot.size = len(data)
        slot.buf[: len(data)] = data
        self.device.port.received += len(data)
        self.tell(self.owner.received, slot)
        return True

    def recycle(self, slot: Slot) -> None:
        """Post that receive buffer again."""
        assert slot not in self.free, "a receive buffer was posted twice"
        self.free.append(slot)

    # The end ------------------------------------------------------------------------------------------

    def fail(self, status: str) -> None:
        """A work request failed."""
        if self.open and not self._failed:
            self._failed = True
            self.fabric.faults["queue pairs broken"] += 1
            self.tell(self.owner.broken, status)

    def close(self) -> None:
        """End it at once."""
        self.cut()
        if self.other is not None and self.device.port.live:
            self.travel(self.other.hung_up)

    def cut(self) -> None:
        """It is gone, and nobody is told."""
        if self.open:
            self.open = False
            self.fabric.under_way -= self.posted
            self.posted = 0
            del self.device.pairs[self]
            if self.domain is not None:
                self.domain.end()


class SimDevice:
    """A port as RDMA device of one NI."""

    pieces = 2

    def __init__(self, host: Host, port: Port, address: str, owner: DeviceOwner) -> None:
        self.fabric: Fabric = host.fabric
        self.host = host
        self.port = port
        self.name: str = f"rdma-{port.name}"
        self.address = address
        self.owner = owner
        self.domains: dict[SimDomain, None] = {}
        self.most_domains: int = _DOMAINS
        self.regions: dict[int, SimRegion] = {}
        self.registered: int = 0  # regions that there were
        self.released: dict[int, list[tuple[int, int]]] = {}  # keys and addresses, by the regions' size
        self.pairs: dict[SimPair, None] = {}
        self._alive = True
        self._keys = 0
        self._next = _PAGE
        port.switch.devices[address] = self
        host.devices[self] = None

    def tell(self, call: Callable[..., None], *args: Any) -> None:
        """Tell somebody in its process, once that runs."""
        if not self._alive:
            return
        scheduler = self.fabric.scheduler
        if scheduler.now < self.host.awake_at:
            scheduler.at(self.host.awake_at, self.tell, call, *args)
            return
        self.host.touch()
        call(*args)

    def travel_to(self, other: SimDevice, call: Callable[..., None], *args: Any, tries: int = 0) -> None:
        """A message of the connection manager, which is sent again while it gets lost."""
        latency = self.fabric.latency(self.port, other.port)
        self.fabric.scheduler.after(latency, self._travelled, other, call, args, tries)

    def _travelled(self, other: SimDevice, call: Callable[..., None], args: Any, tries: int) -> None:
        if not self.fabric.blocked(self.port, other.port):
            call(*args)
        elif tries < _CM_RETRIES:
            self.fabric.scheduler.after(_CM_RETRY, self._travelled, other, call, args, tries + 1)

    def requested(self, request: SimRequest) -> None:
        """A peer calls."""
        self.owner.requested(request)

    def connect(self, address: str, owner: PairOwner, private: bytes, shape: Shape) -> SimPair:
        """Call the address."""
        pair = SimPair(self, owner, shape)
        pair.call(address, private)
        return pair

    def place(self, size: int) -> tuple[int, int]:
        """Key and address for memory: those that were released last, as drivers do that keep keys."""
        self.registered += 1
        released = self.released.get(size)
        if released:
            return released.pop()
        self._keys += 1
        address = self._next
        self._next += size + 2 * _PAGE
        return self._keys, address

    def link(self, up: bool) -> None:
        """The cable was pulled, or is back."""
        event = DeviceEvent.PORT_ACTIVE if up else DeviceEvent.PORT_ERR
        self.tell(self.owner.device_event, event, "")

    def remove(self) -> None:
        """The device vanishes: its NI has to let it go."""
        self.fabric.faults["devices removed"] += 1
        self.owner.device_event(DeviceEvent.DEVICE_REMOVAL, "")

    def die(self, tell_peers: bool) -> None:
        """Its process ends."""
        self._alive = False
        for pair in list(self.pairs):
            if tell_peers:
                pair.close()
            else:
                pair.cut()
        self.regions.clear()
        self.domains.clear()
        self._leave()

    def close(self) -> None:
        """Listen no more."""
        assert not self.pairs, "a device was closed with queue pairs open"
        assert not self.regions, "a device was closed with memory registered"
        assert not self.domains, "a device was closed with protection domains"
        self._leave()

    def _leave(self) -> None:
        if self.port.switch.devices.get(self.address) is self:
            del self.port.switch.devices[self.address]
        self.host.devices.pop(self, None)


class SimVerbs:
    """The RDMA devices of a host: its ports."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def open(self, ni: NI, service: int, owner: DeviceOwner) -> SimDevice:
        """Listen at the address of an NI. Raises LNetError(EADDRNOTAVAIL, EADDRINUSE, ENODEV)."""
        address = str(ni.nid).partition("@")[0]
        port = self._host.port_of(ni.nid)
        if port is None:
            raise LNetError(errno.EADDRNOTAVAIL, f"{ni.nid}: host {self._host.name} has no such address")
        if port in self._host.without_rdma:
            raise LNetError(errno.ENODEV, f"{ni.nid}: {port.name} has no RDMA device")
        if address in port.switch.devices:
            raise LNetError(errno.EADDRINUSE, f"{ni.nid} is in use on switch {port.switch.name}")
        return SimDevice(self._host, port, address, owner)

    def close(self) -> None:
        """Messages of the connection manager arrive or do not, whatever becomes of their sender."""

    def forked(self) -> None:
        """No process of a simulation is forked."""
