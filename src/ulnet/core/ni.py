"""Local nets and network interfaces (NIs)."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from ulnet.core.stats import HealthStats, Latency, MsgStats
from ulnet.core.tunables import LndTunables, NetTunables
from ulnet.nid import Net, Nid

if TYPE_CHECKING:
    from ulnet.core.lnd import Lnd
    from ulnet.core.msg import Msg

__all__ = ["MAX_HEALTH", "NI", "NO_PRIORITY", "LocalNet"]

MAX_HEALTH = 1000
NO_PRIORITY = 0xFFFFFFFF  # no policy gave one: the lowest


class LocalNet:
    """A net this node is on, with its NIs in the order they were added."""

    __slots__ = ("lnd", "net", "nis", "priority", "seq", "tunables")

    def __init__(self, net: Net, lnd: Lnd, tunables: NetTunables) -> None:
        self.net = net
        self.lnd = lnd
        self.tunables = tunables
        self.nis: list[NI] = []
        self.priority = NO_PRIORITY
        self.seq = 0

    @property
    def health(self) -> int:
        """That of its best usable NI."""
        return max((ni.health for ni in self.nis if not ni.fatal), default=0)


class NI:
    """One local interface on one net: credits, queue, counters, state.

    `interface` is the device's name (None where there is none: `0@lo`, or an address given alone);
    `lnd_data` belongs to the driver.
    """

    __slots__ = (
        "active",
        "cpts",
        "dev_cpt",
        "fatal",
        "health",
        "health_stats",
        "interface",
        "latency_ack",
        "latency_egress",
        "latency_get",
        "lnd",
        "lnd_data",
        "lnd_tunables",
        "max_tx_credits",
        "min_tx_credits",
        "net",
        "nid",
        "priority",
        "refs",
        "seq",
        "stats",
        "tunables",
        "tx_credits",
        "tx_queue",
    )

    def __init__(
        self,
        net: LocalNet,
        nid: Nid,
        *,
        interface: str | None = None,
        lnd_tunables: LndTunables | None = None,
        cpts: tuple[int, ...] = (0,),
    ) -> None:
        self.net = net
        self.lnd = net.lnd
        self.nid = nid
        self.interface = interface
        self.tunables = replace(net.tunables)
        self.lnd_tunables = lnd_tunables
        self.cpts = cpts
        self.dev_cpt = -1
        self.priority = NO_PRIORITY
        self.tx_credits = self.max_tx_credits = self.min_tx_credits = self.tunables.credits
        self.tx_queue: deque[Msg] = deque()
        self.seq = 0
        self.refs = 0  # messages that use this NI now
        self.active = False
        self.fatal = False
        self.health = MAX_HEALTH
        self.stats = MsgStats()
        self.health_stats = HealthStats()
        self.latency_egress = Latency()
        self.latency_get = Latency()
        self.latency_ack = Latency()
        self.lnd_data: object = None

    @property
    def up(self) -> bool:
        """Whether ping info reports this NI as UP."""
        return not self.fatal and self.health > 0
