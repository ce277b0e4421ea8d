"""Local nets and network interfaces (NIs)."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from ulnet.core.cpt import ANY_CPT, share_of_nid
from ulnet.core.states import NetState, NiState
from ulnet.core.stats import HealthStats, Latency, MsgStats
from ulnet.core.tunables import DEFAULT_TIMEOUT, SECURED, LndTunables, NetTunables
from ulnet.nid import Net, Nid

if TYPE_CHECKING:
    from ulnet.core.lnd import Lnd
    from ulnet.core.msg import Msg

__all__ = ["MAX_HEALTH", "NI", "NO_LIMIT", "NO_PRIORITY", "NO_WEIGHT", "LocalNet", "Place", "TxQueue"]

MAX_HEALTH = 1000
NO_PRIORITY = 0xFFFFFFFF  # no policy gave one: the lowest
NO_WEIGHT = 0  # no policy gave one
NO_LIMIT = 1 << 30  # credits where nobody counts them: those of loopback


class Place(NamedTuple):
    """An address on a net, and the device that has it."""

    nid: Nid
    interface: str


class LocalNet:
    """A net this node is on, with its NIs in the order they were added.

    A `bonded` one has a single NI, which its driver spreads over several devices (`use_tcp_bonding`).
    """

    __slots__ = ("bonded", "lnd", "net", "nis", "priority", "seq", "state", "tunables", "weight")

    def __init__(self, net: Net, lnd: Lnd, tunables: NetTunables) -> None:
        self.net: Net = net
        self.lnd: Lnd = lnd
        self.tunables: NetTunables = tunables
        self.nis: list[NI] = []
        self.priority: int = NO_PRIORITY
        self.weight: int = NO_WEIGHT
        self.seq: int = 0
        self.bonded: bool = False
        self.state: NetState = NetState.INIT

    def __repr__(self) -> str:
        count = len(getattr(self, "nis", ()))
        return f"<LocalNet {getattr(self, 'net', '?')}, {count} NI{'s' * (count != 1)}>"

    @property
    def needs_certificates(self) -> bool:
        """Whether all who send by this net must have one."""
        return any(ni.lnd_tunables is not None and ni.lnd_tunables.security == SECURED for ni in self.nis)

    @property
    def health(self) -> int:
        """The health of its best usable NI."""
        return max((ni.health for ni in self.nis if not ni.fatal), default=0)


class TxQueue:
    """Transmit credits of one CPT of an NI; messages without one wait here (then `credits` is negative)."""

    __slots__ = ("answers", "credits", "most_answers", "waiting")

    def __init__(self, credits: int) -> None:
        self.credits: int = credits
        self.answers: int = 0  # ACKs and REPLYs that its driver has …
        self.most_answers: int = credits // 2  # … of which so many hold credits
        self.waiting: deque[Msg] = deque()


class NI:
    """One local interface on one net: credits, queues, counters, state.

    `tx_credits` is the sum over the queues of its CPTs; `dev_cpt` is the CPT of its device's NUMA node.
    `interface` is the device's name (None where there is none: `0@lo`, or an address given alone);
    `also` are the further devices of one on a bonded net; `lnd_data` belongs to the driver.
    """

    __slots__ = (
        "active",
        "also",
        "batches",
        "choices",
        "cpts",
        "degraded",
        "dev_cpt",
        "drained",
        "fatal",
        "health",
        "health_stats",
        "interface",
        "latency_ack",
        "latency_egress",
        "latency_get",
        "link_rate",
        "listed",
        "lnd",
        "lnd_data",
        "lnd_tunables",
        "max_tx_credits",
        "min_tx_credits",
        "net",
        "nid",
        "open",
        "patience",
        "priority",
        "refs",
        "reported_down",
        "secured_until",
        "seq",
        "state",
        "stats",
        "timeout",
        "tunables",
        "tx_credits",
        "tx_queues",
        "unhealthy",
        "weight",
    )

    def __init__(
        self,
        net: LocalNet,
        nid: Nid,
        *,
        interface: str | None = None,
        lnd_tunables: LndTunables | None = None,
        cpts: tuple[int, ...] = (0,),
        dev_cpt: int = ANY_CPT,
        also: tuple[Place, ...] = (),
    ) -> None:
        self.net: LocalNet = net
        self.lnd: Lnd = net.lnd
        self.nid: Nid = nid
        self.interface: str | None = interface
        self.also: tuple[Place, ...] = also
        self.tunables: NetTunables = replace(net.tunables)
        self.lnd_tunables: LndTunables | None = lnd_tunables
        self.cpts: tuple[int, ...] = cpts
        self.dev_cpt: int = dev_cpt
        self.priority: int = NO_PRIORITY
        self.weight: int = NO_WEIGHT
        self.tx_queues: list[TxQueue] = self._new_queues()
        self.max_tx_credits: int = sum(queue.credits for queue in self.tx_queues)
        self.tx_credits: int = self.max_tx_credits
        self.min_tx_credits: int = self.max_tx_credits
        self.batches: bool = False  # set by its driver: what is sent together is written by one call
        self.seq: int = 0
        self.refs: int = 0  # messages that use this NI now
        self.timeout: int = DEFAULT_TIMEOUT  # seconds that its driver may take for an attempt
        self.patience: float = inf  # seconds after which a message on it is past its deadline
        self.active: bool = False
        self.open: bool = False  # active, and takes new messages: not about to go
        self.listed: bool = True  # peers are told of it
        self.drained: bool = False  # stays closed and unlisted until somebody says otherwise
        self.state: NiState = NiState.INIT
        self.fatal: bool = False  # its state is FAILED
        self.degraded: dict[str, str] = {}  # why it carries less than it should, by what is the matter
        self.link_rate: float = 0.0  # bytes per second, as its device tells; 0: it does not
        self.health: int = MAX_HEALTH
        self.reported_down: bool = False  # health fell to 0 and is not whole again
        self.unhealthy: bool = False  # not wholly well: health wants to know what becomes of messages
        self.stats: MsgStats = MsgStats()
        self.choices: defaultdict[str, int] = defaultdict(int)  # by the criterion that decided
        self.health_stats: HealthStats = HealthStats()
        self.latency_egress: Latency = Latency()
        self.latency_get: Latency = Latency()
        self.latency_ack: Latency = Latency()
        self.secured_until: float = 0.0  # its certificate is good, seconds since 1970; 0: it has none
        self.lnd_data: object = None

    def __repr__(self) -> str:
        return f"<NI {getattr(self, 'nid', '?')}>"

    def _new_queues(self) -> list[TxQueue]:
        """One queue a CPT (spec selection.md §8)."""
        count, credits = len(self.cpts), self.tunables.credits or NO_LIMIT
        share = credits if count == 1 else min(max(credits // count, 8 * self.tunables.peer_credits), credits)
        return [TxQueue(share) for _ in self.cpts]

    def replace_cpts(self, cpts: tuple[int, ...]) -> None:
        """Use other CPTs, with fresh queues; no message waits in the old ones any more.

        Messages under way give their credits back to the queue that they came from.
        """
        under_way = self.max_tx_credits - self.tx_credits
        self.cpts = cpts
        self.tx_queues = self._new_queues()
        self.max_tx_credits = sum(queue.credits for queue in self.tx_queues)
        self.tx_credits = self.max_tx_credits - under_way
        self.min_tx_credits = self.tx_credits

    def queue_for(self, next_nid: Nid) -> TxQueue:
        """The queue of messages to a next hop: always the same, so that they stay in order."""
        queues = self.tx_queues
        return queues[0] if len(queues) == 1 else queues[share_of_nid(next_nid, len(queues))]

    @property
    def up(self) -> bool:
        """Whether ping info reports this NI as UP."""
        return not (self.fatal or self.reported_down)
