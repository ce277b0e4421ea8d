"""Hosts, their ports, the switches between them, and which way nothing passes now."""

from __future__ import annotations

import errno
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from socket import AF_INET, AF_INET6
from typing import TYPE_CHECKING

from ulnet.core.status import LNetError
from ulnet.host import Address, Link
from ulnet.sim.attachment import Attachment
from ulnet.sim.errors import PlanError
from ulnet.sim.scheduler import Scheduler

if TYPE_CHECKING:
    from ulnet.lnd.sim import Station
    from ulnet.nid import Nid
    from ulnet.sim.verbs import SimDevice

__all__ = ["Cut", "Fabric", "Host", "LinkParams", "Port", "Switch"]


@dataclass(slots=True)
class LinkParams:
    """A cable: bytes per second each way (0: no limit), seconds of delay, most seconds of jitter on it.

    `loss` is how often a message must be sent again. Where not `ordered` (as on InfiniBand, for LNet),
    messages overtake each other freely.
    """

    rate: float = 1.25e9
    delay: float = 20e-6
    jitter: float = 10e-6
    loss: float = 0.0
    ordered: bool = True

    def __post_init__(self) -> None:
        if min(self.rate, self.delay, self.jitter) < 0 or not 0 <= self.loss < 1:
            raise PlanError("a link's rate, delay and jitter are not negative, and its loss is below 1")


class Switch:
    """Joins all ports that are on it. Nodes on different switches do not reach each other."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.attachments: dict[Nid, Attachment] = {}  # who listens here
        self.devices: dict[str, SimDevice] = {}  # … and by RDMA, by address
        self.ports: dict[str, Port] = {}  # by address


class Port:
    """A network interface and its cable."""

    __slots__ = (
        "addresses",
        "host",
        "live",
        "name",
        "params",
        "received",
        "rx_free",
        "sent",
        "switch",
        "tx_free",
        "up",
    )

    def __init__(
        self, host: Host, name: str, switch: Switch, addresses: tuple[str, ...], params: LinkParams
    ) -> None:
        self.host: Host = host
        self.name: str = name
        self.switch: Switch = switch
        self.addresses: tuple[str, ...] = addresses
        self.params: LinkParams = params
        self.up: bool = True  # the cable is in
        self.live: bool = host.powered  # … and the host has power
        self.tx_free: float = 0.0  # when its present work is done
        self.rx_free: float = 0.0
        self.sent: int = 0  # bytes
        self.received: int = 0

    def __str__(self) -> str:
        return f"{self.host.name}.{self.name}"

    def attachments(self) -> list[Attachment]:
        """The NIs on it."""
        return [attachment for attachment in self.host.attachments if attachment.port is self]


@dataclass(frozen=True, eq=False, slots=True)
class Cut:
    """Nothing passes from any of these ports to any of those; nobody is told."""

    src: frozenset[Port]
    dst: frozenset[Port]


class Fabric:
    """All cables of a simulation. `note` takes lines for the trace, where one is kept.

    A node reads what has arrived up to `lateness` seconds late; `reading` is the chance for that.
    """

    def __init__(self, scheduler: Scheduler, rng: Random, reading: Random, lateness: float) -> None:
        self.scheduler = scheduler
        self.random: Callable[[], float] = rng.random
        self.reading: Callable[[], float] = reading.random
        self.lateness = lateness
        self.switches: dict[str, Switch] = {}
        self.hosts: dict[str, Host] = {}
        self.cuts: dict[Cut, None] = {}
        self.faults: Counter[str] = Counter()  # that were played, by kind
        self.under_way = 0  # frames that their sender waits for, or that have not arrived
        self.note: Callable[[str], None] | None = None
        self.meter: Callable[[Port, float, float, int], None] | None = None  # is told of every arrival

    def switch(self, name: str) -> Switch:
        """The switch of that name, made on first use."""
        found = self.switches.get(name)
        if found is None:
            found = self.switches[name] = Switch(name)
        return found

    def blocked(self, src: Port, dst: Port) -> bool:
        """Whether what src sends to dst disappears now."""
        if not (src.live and dst.live):
            return True
        return bool(self.cuts) and any(src in cut.src and dst in cut.dst for cut in self.cuts)

    def latency(self, src: Port, dst: Port) -> float:
        """Seconds from one to the other, a little random."""
        a, b = src.params, dst.params
        jitter = a.jitter + b.jitter
        return a.delay + b.delay + (jitter * self.random() if jitter else 0.0)

    def cut(self, src: Iterable[Port], dst: Iterable[Port]) -> Cut:
        """From now on nothing passes from src to dst."""
        self.faults["cuts"] += 1
        made = Cut(frozenset(src), frozenset(dst))
        self.cuts[made] = None
        return made

    def heal(self, cut: Cut) -> None:
        """The cut ends."""
        self.cuts.pop(cut, None)


class Host:
    """The machine of one node: its ports, and who sits on them. It is its drivers' carrier."""

    def __init__(self, fabric: Fabric, name: str) -> None:
        self.fabric = fabric
        self.name = name
        self.powered: bool = True
        self.awake_at: float = 0.0  # until then its node's process does not run, and nothing is read or told
        self.deaths: int = 0
        self._lives: dict[Nid, tuple[str, int]] = {}  # of the hosts behind NIDs that were connected
        self.ports: dict[str, Port] = {}
        self.attachments: dict[Attachment, None] = {}
        self.devices: dict[SimDevice, None] = {}  # RDMA devices that are in use
        self.landed: dict[int, deque[int]] = {}  # checksums of what RDMA wrote, by the memory's identity
        self.without_rdma: dict[Port, None] = {}  # whose RDMA device was removed
        self.touch: Callable[[], None] = lambda: None  # its node did something
        fabric.hosts[name] = self

    def add_port(self, name: str, switch: str, addresses: Iterable[str], params: LinkParams) -> Port:
        """Put an interface with these addresses on a switch. Raises PlanError for one that is taken."""
        joined = self.fabric.switch(switch)
        port = Port(self, name, joined, tuple(addresses), params)
        for address in port.addresses:
            if address in joined.ports:
                raise PlanError(f"{address} is on switch {switch} already: {joined.ports[address]} has it")
        joined.ports.update(dict.fromkeys(port.addresses, port))
        self.ports[name] = port
        return port

    def port_of(self, nid: Nid) -> Port | None:
        """The port with the address of a NID."""
        address = str(nid).partition("@")[0]
        return next((port for port in self.ports.values() if address in port.addresses), None)

    def links(self) -> list[Link]:
        """The ports as the operating system lists them."""
        return [
            Link(
                port.name,
                index,
                carrier=port.up,
                speed_mbps=int(port.params.rate * 8 / 1e6) or None,
                addresses=tuple(
                    Address(ip, 64, AF_INET6) if ":" in ip else Address(ip, 16, AF_INET)
                    for ip in port.addresses
                ),
            )
            for index, port in enumerate(self.ports.values(), 2)
        ]

    # Carrier ------------------------------------------------------------------------------------------

    def open(self, station: Station) -> Attachment:
        """A station's place on the port with its address. Raises LNetError(EADDRNOTAVAIL, EADDRINUSE)."""
        port = self.port_of(station.nid)
        if port is None:
            raise LNetError(errno.EADDRNOTAVAIL, f"{station.nid}: host {self.name} has no such address")
        if station.nid in port.switch.attachments:
            raise LNetError(errno.EADDRINUSE, f"{station.nid} is in use on switch {port.switch.name}")
        attachment = Attachment(self.fabric, port, station)
        port.switch.attachments[station.nid] = attachment
        self.attachments[attachment] = None
        return attachment

    def soon(self, call: Callable[[], None]) -> None:
        """Call in a moment."""
        self.fabric.scheduler.after(0.0, call)

    # Faults -------------------------------------------------------------------------------------------

    def set_link(self, port: Port, up: bool) -> None:
        """Pull a cable, or put it back: the NIs on it are told."""
        if port.up == up:
            return
        port.up = up
        port.live = up and self.powered
        if not up:
            self.fabric.faults["cables pulled"] += 1
        for attachment in port.attachments():
            attachment.station.device(up)
            if not up:
                attachment.withdraw()
        for device in list(self.devices):
            if device.port is port:
                device.link(up)
        self.touch()

    def remove_device(self, port: Port) -> None:
        """The RDMA device of a port vanishes."""
        self.without_rdma[port] = None
        for device in list(self.devices):
            if device.port is port:
                device.remove()
        self.touch()

    def restore_device(self, port: Port) -> None:
        """It is there again."""
        self.without_rdma.pop(port, None)

    def die(self, silent: bool) -> None:
        """All connections end, the peers being told unless `silent`: then the power is off, too."""
        if silent:
            self.powered = False
            for port in self.ports.values():
                port.live = False
        for attachment in list(self.attachments):
            attachment.close(tell_peers=not silent, dies=True)
        for device in list(self.devices):
            device.die(tell_peers=not silent)
        self.awake_at = 0.0
        self.deaths += 1
        self.fabric.faults["deaths"] += 1
        self._lives.clear()

    def is_new_life(self, nid: Nid, host: Host) -> bool:
        """Whether another life of a host, or another host, was behind nid when it was last connected."""
        now = (host.name, host.deaths)
        before = self._lives.get(nid, now)
        self._lives[nid] = now
        return before != now

    def power_on(self) -> None:
        """The ports work again; RDMA devices that were removed are there, so that a node has all its NIs."""
        self.powered = True
        self.without_rdma.clear()
        for port in self.ports.values():
            port.live = port.up
