"""Peers: peer, peer net, peer NI, and the flags of a peer (spec discovery.md §1, §2)."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from enum import IntFlag
from typing import TYPE_CHECKING, Final

from ulnet.core.event import Event, EventKind
from ulnet.core.generation import Generation
from ulnet.core.ni import MAX_HEALTH, NI, NO_PRIORITY, NO_WEIGHT
from ulnet.core.states import PeerNiState, PeerState
from ulnet.core.stats import HealthStats, Latency, MsgStats
from ulnet.nid import Net, NetType, Nid

if TYPE_CHECKING:
    from ulnet.core.md import Md
    from ulnet.core.msg import Msg
    from ulnet.core.path_load import PathLoad
    from ulnet.core.selection.descriptor import Descriptor
    from ulnet.core.selection.paths import Key, PathSet
    from ulnet.core.status import LNetError
    from ulnet.wire.ping import PingInfo

__all__ = [
    "Allowance",
    "Exchange",
    "Peer",
    "PeerFlag",
    "PeerNet",
    "PeerNi",
    "Waiter",
    "may_be_listed",
    "may_be_peer",
]

_NO_PATHWAYS: Mapping[Nid, int] = {}
_NONE_WAITS: Final[deque[Msg]] = deque()  # shared: an empty one takes 624 bytes, and most peers never need it


def may_be_peer(nid: Nid) -> bool:
    """Whether nid can name an interface of another node: it is no wildcard, not on lo, and has an address."""
    return not (nid.is_any or nid.is_malformed or nid.net.type == NetType.LO)


def may_be_listed(nid: Nid) -> bool:
    """Whether a peer with several NIDs can have nid: a bonding NID is a peer by itself."""
    return may_be_peer(nid) and nid.net.type != NetType.BOND


class PeerFlag(IntFlag):
    """The state word of spec discovery.md §2, as `peer show -v 3` prints it."""

    MULTI_RAIL = 0x1
    NO_DISCOVERY = 0x2
    ROUTER_ENABLED = 0x4
    CONFIGURED = 0x8
    DISCOVERED = 0x10  # a pass of discovery was completed
    REDISCOVER = 0x20  # discovery failed: look again
    DISCOVERING = 0x40  # queued, or waiting for an answer
    DATA_PRESENT = 0x80  # a ping reply or push waits to be merged
    NIDS_UPTODATE = 0x100
    PING_SENT = 0x200
    PUSH_SENT = 0x400
    PING_FAILED = 0x800
    PUSH_FAILED = 0x1000
    FORCE_PING = 0x2000
    FORCE_PUSH = 0x4000
    RTR_NI_FORCE_DEL = 0x8000
    RTR_DISCOVERY = 0x10000
    RTR_DISCOVERED = 0x20000
    MARK_DELETION = 0x40000
    MARK_DELETED = 0x80000
    LOCK_PRIMARY = 0x100000
    BAD_CONFIG = 0x200000


# Messages wait unless the first two are set and none of the others is.
_KNOWN = int(PeerFlag.DISCOVERED | PeerFlag.NIDS_UPTODATE)
_KNOWN_OR_NOT = _KNOWN | int(
    PeerFlag.REDISCOVER
    | PeerFlag.DATA_PRESENT
    | PeerFlag.FORCE_PING
    | PeerFlag.MARK_DELETION
    | PeerFlag.MARK_DELETED
)


class PeerNi:
    """One NID of a peer: transmit credits, the queue behind them, counters."""

    __slots__ = (
        "answers",
        "choices",
        "failed_at",
        "get_paths",
        "health",
        "health_stats",
        "heard_at",
        "latency_ack",
        "latency_egress",
        "latency_get",
        "listed",
        "max_rtr_credits",
        "max_tx_credits",
        "min_rtr_credits",
        "min_tx_credits",
        "net",
        "nid",
        "path_loads",
        "path_sets",
        "pathways",
        "peer",
        "preferred",
        "preferred_gateways",
        "preferred_nids",
        "priority",
        "put_paths",
        "refs",
        "rtr_credits",
        "said_down",
        "seq",
        "state",
        "stats",
        "turn_lengths",
        "tx_credits",
        "tx_queue",
        "tx_queued_bytes",
        "unhealthy",
        "vouches",
        "weight",
    )

    def __init__(self, nid: Nid, net: PeerNet, credits: int) -> None:
        self.nid: Nid = nid
        self.net: PeerNet = net
        self.peer: Peer = net.peer
        self.tx_credits: int = credits
        self.max_tx_credits: int = credits
        self.min_tx_credits: int = credits
        self.max_rtr_credits: int = credits
        self.rtr_credits: int = credits
        self.min_rtr_credits: int = credits
        self.tx_queue: deque[Msg] = _NONE_WAITS  # behind the credits; `wait` adds to it
        self.tx_queued_bytes: int = 0
        self.vouches: Callable[[Nid], bool] | None = None  # which NIDs its certificate is for, if it has one
        self.answers: int = 0  # our ACKs and REPLYs that hold its credits or wait for them
        self.preferred: Nid | None = None  # the local NID that a non-multi-rail peer hears from
        self.preferred_nids: frozenset[Nid] = frozenset()  # local NIDs, by policy
        self.preferred_gateways: tuple[Descriptor, ...] = ()  # of gateways on the way there, by policy
        self.pathways: Mapping[Nid, int] = _NO_PATHWAYS  # the priority of each of them
        self.turn_lengths: Mapping[Nid, int] = _NO_PATHWAYS  # by local NID, where a policy gives one
        self.priority: int = NO_PRIORITY
        self.weight: int = NO_WEIGHT
        self.path_loads: dict[NI, PathLoad] = {}  # from each local NI
        self.path_sets: dict[Key, PathSet] = {}  # of messages to it
        self.put_paths: PathSet | None = None  # the one of the last PUTs without special wishes …
        self.get_paths: PathSet | None = None  # … and of the last such GETs
        self.refs: int = 1
        self.seq: int = 0
        self.health: int = MAX_HEALTH
        self.state: PeerNiState = PeerNiState.CREATED
        self.unhealthy: bool = True  # or never used: health wants to know what becomes of messages
        self.heard_at: float = -1.0  # when the last message came from it; below 0: never
        # when the last message to it failed, or was not answered; below 0: never
        self.failed_at: float = -1.0
        self.said_down: bool = False  # what its peer last told of it
        self.listed: bool = False  # its peer says that it has it, and who is behind it has not said so yet
        self.stats: MsgStats = MsgStats()
        self.choices: defaultdict[str, int] = defaultdict(int)  # by the criterion that decided
        self.health_stats: HealthStats = HealthStats()
        self.latency_egress: Latency = Latency()
        self.latency_get: Latency = Latency()
        self.latency_ack: Latency = Latency()

    def __repr__(self) -> str:
        return f"<PeerNi {getattr(self, 'nid', '?')}>"

    def wait(self, msg: Msg) -> None:
        """Queue a message for which there is no credit."""
        if self.tx_queue is _NONE_WAITS:
            self.tx_queue = deque()
        self.tx_queue.append(msg)

    def close_paths(self) -> None:
        """Nothing is kept of the paths to it; what is under way goes on."""
        for paths in self.path_sets.values():
            paths.clear()
        self.path_sets = {}
        self.put_paths = self.get_paths = None

    def set_router_credits(self, count: int) -> None:
        """Have so many, of which messages that pass through this node may hold some."""
        self.rtr_credits += count - self.max_rtr_credits
        self.max_rtr_credits = count
        self.min_rtr_credits = self.rtr_credits


class PeerNet:
    """The NIDs of one peer on one net."""

    __slots__ = ("net", "nis", "peer", "priority", "seq", "weight")

    def __init__(self, net: Net, peer: Peer) -> None:
        self.net: Net = net
        self.peer: Peer = peer
        self.nis: list[PeerNi] = []
        self.priority: int = NO_PRIORITY
        self.weight: int = NO_WEIGHT
        self.seq: int = 0

    def __repr__(self) -> str:
        return f"<PeerNet {getattr(self, 'net', '?')}>"

    @property
    def health(self) -> int:
        """The health of its best NI."""
        return max((pni.health for pni in self.nis), default=0)


class Exchange:
    """A ping or push under way. `done` hears once of its answer or its failure, unless it is cancelled."""

    __slots__ = ("done", "kind", "md", "peer", "sequence")

    def __init__(self, peer: Peer, kind: str, sequence: int = 0) -> None:
        self.peer: Peer = peer
        self.kind = kind
        self.sequence: int = sequence  # of the info that a push carries
        self.md: Md | None = None
        self.done: Callable[[Exchange, Event], None] | None = None

    def handle(self, event: Event) -> None:
        """An event of its memory descriptor."""
        done = self.done
        if done is None or (event.kind is EventKind.SEND and not event.status):
            return
        self.done = None
        done(self, event)


class Waiter:
    """A caller of `discover`: `done` hears once of the error or the peer."""

    __slots__ = ("_done", "_mistake", "nid", "rounds")

    def __init__(
        self,
        nid: Nid,
        done: Callable[[LNetError | None, Peer | None], None],
        mistake: Callable[[BaseException, str], None],
    ) -> None:
        self.nid: Nid = nid
        self._done = done
        self._mistake = mistake
        self.rounds: int = 0  # how often its peer was replaced by another meanwhile

    def tell(self, error: LNetError | None, peer: Peer | None) -> None:
        """Tell the caller that the discovery is over."""
        try:
            self._done(error, peer)
        except BaseException as exc:  # a user's call must not break the node
            self._mistake(exc, f"who waited for the discovery of {self.nid} failed")


class Allowance:
    """What a peer may have this node do for it. A NID that leaves its peer brings it to the next one."""

    __slots__ = ("asked_at", "info_size", "pushed_nothing_at", "silent_at")

    def __init__(self) -> None:
        self.silent_at: float = 0.0  # when it may push as much as one that was silent; seconds
        self.info_size: int = 0  # the most its info took, bytes
        self.asked_at: float = 0.0  # whether it is another peer, as that says; seconds
        self.pushed_nothing_at: float = -math.inf  # when a push that told nothing last had it asked; seconds

    def limit(self, other: Allowance) -> None:
        """Be no more than that of another peer that the same node was."""
        self.silent_at = max(self.silent_at, other.silent_at)
        self.info_size = max(self.info_size, other.info_size)
        self.asked_at = max(self.asked_at, other.asked_at)
        self.pushed_nothing_at = max(self.pushed_nothing_at, other.pushed_nothing_at)


class Peer:
    """A node as we know it: its primary NID and all others, grouped by net."""

    # fmt: off
    __slots__ = ("allowance", "attempts", "check_nid", "check_timeout", "differences", "error",
                 "exchanges", "flags", "generation", "going", "gone", "guard", "heard_at", "heard_from",
                 "locked_at", "members", "merging", "nets", "news", "parked", "path_loads", "prefix",
                 "primary_nid", "pushed_sequence", "rates", "remote_sequence", "says", "seq", "settled",
                 "stale", "state", "turns", "waiters")
    # fmt: on

    def __init__(self, primary_nid: Nid, flags: int = 0) -> None:
        self.primary_nid: Nid = primary_nid
        self.flags: int = flags  # change them by `mark`
        self.settled: bool = False  # as the flags say; messages to a peer that is not must ask discovery
        self.gone: bool = False  # no longer in the table
        self.guard: bytes = b""  # what identities of PUTs to it hold, while it is known to keep them
        self.prefix: bytes = b""  # … and what they begin with, once there was one
        self.nets: dict[Net, PeerNet] = {}
        self.members: dict[Nid, PeerNi] = {}
        self.locked_at: int = 0  # when its primary NID was locked: the smaller, the earlier
        self.seq: int = 0
        self.state: PeerState = PeerState.ACTIVE  # or INACTIVE: all paths failed
        self.path_loads: dict[NI, PathLoad] = {}  # from each local NI, to any of its NIDs
        self.rates: Generation = Generation()  # of the rates of these loads and of those of its NIs
        self.generation: Generation = Generation()  # of its flags, its NIDs, and their state
        self.turns: dict[object, dict[object, int]] = {}  # of weighted ways: messages in this round
        # Of discovery:
        self.allowance: Allowance = Allowance()
        self.remote_sequence: int = 0  # of the last info it sent
        self.pushed_sequence: int = 0  # of the last push that it acknowledged
        self.heard_at: Nid | None = None  # our NID that its last ping reply came to
        self.heard_from: Nid | None = None  # its NID that sent it
        self.attempts: int = 0  # pings of this round
        self.check_nid: Nid | None = None  # of a gateway under check: its NID that is to answer
        self.check_timeout: float | None = None  # of a gateway: for all pings and pushes to it
        self.news: PingInfo | None = None  # to be merged
        self.merging: tuple[PingInfo, int] | None = None  # in several turns: and how many of their NIDs are
        self.stale: bool = False  # another one came while it was asked
        self.says: frozenset[Nid] = frozenset()  # of NIDs that other peers have, those that it last listed
        self.exchanges: dict[str, Exchange] = {}  # the ping and the push under way
        self.error: tuple[int, str] | None = None  # of the last round
        self.parked: list[Msg] = []
        self.going: bool = False  # these go on, in turns: what is sent meanwhile is behind them
        self.waiters: list[Waiter] = []
        self.differences: tuple[str, ...] = ()  # between what is configured and what it says

    def mark(self, add: int = 0, remove: int = 0) -> None:
        """Change flags; `settled` follows."""
        flags = self.flags = self.flags & ~remove | add
        self.generation.invalidate("flags")
        self.settled = flags & _KNOWN_OR_NOT == _KNOWN and not self.going

    def fall_apart(self) -> None:
        """It left the table: what nobody uses goes at once, and waits for no search for cycles."""
        if self.idle:
            for net in self.nets.values():
                net.nis = []
            self.nets = {}
            self.members = {}

    def __repr__(self) -> str:
        nid, members = getattr(self, "primary_nid", "?"), len(getattr(self, "members", ()))
        return f"<Peer {nid}, {members} NID{'s' * (members != 1)}>"

    @property
    def multi_rail(self) -> bool:
        """Whether any of its NIDs may be used for any message."""
        return bool(self.flags & 0x1)

    @property
    def configured(self) -> bool:
        """Whether an administrator made it."""
        return bool(self.flags & 0x8)

    @property
    def vouching(self) -> list[Callable[[Nid], bool]]:
        """What its certificates are for; many NIDs have the same one."""
        return list(dict.fromkeys(pni.vouches for pni in self.members.values() if pni.vouches is not None))

    @property
    def heard(self) -> bool:
        """Whether something came from it, over a connection of its own or an answer over a gateway."""
        return bool(self.flags & 0x10) or any(pni.heard_at >= 0 for pni in self.members.values())

    def nis(self) -> Iterator[PeerNi]:
        """All its NIDs, net by net; the primary first."""
        primary = next(
            (net for net in self.nets.values() if any(n.nid == self.primary_nid for n in net.nis)), None
        )
        if primary is not None:
            yield from sorted(primary.nis, key=lambda pni: pni.nid != self.primary_nid)
        for net in self.nets.values():
            if net is not primary:
                yield from net.nis

    def nids(self) -> Iterator[Nid]:
        """Its NIDs, the primary first."""
        yield self.primary_nid
        for net in self.nets.values():
            for pni in net.nis:
                if pni.nid != self.primary_nid:
                    yield pni.nid

    def net(self, net: Net) -> PeerNet:
        """Its NIDs on that net; made on first use."""
        found = self.nets.get(net)
        if found is None:
            found = self.nets[net] = PeerNet(net, self)
        return found

    def owns(self, nid: Nid) -> bool:
        """Whether nid is one of its NIDs."""
        return nid in self.members

    @property
    def idle(self) -> bool:
        """Whether no message refers to any of its NIDs, and nobody waits for its discovery."""
        return not self.parked and not self.waiters and all(pni.refs == 1 for pni in self.members.values())
