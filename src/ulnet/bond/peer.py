"""What one bonding NI knows of another: state, configuration, paths, and the messages that wait for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Final

from ulnet.bond.balance import weights_of
from ulnet.bond.hello import PeerState
from ulnet.bond.paths import Path, allowed_of, choose_from, working_of
from ulnet.wire.bond import BondHello, Configuration

if TYPE_CHECKING:
    from ulnet.core.msg import Msg
    from ulnet.core.ni import NI
    from ulnet.core.peer_table import PeerTable
    from ulnet.core.timers import Timer
    from ulnet.nid import Nid

__all__ = ["BondPeer"]

_MOST_HAD: Final = 128  # slaves of one peer, twice as many as it may have


class BondPeer:
    """Another bonding NI. Incarnations: `incarnation` is its own, `told` ours that it heard of; 0: none."""

    __slots__ = (
        "_chosen",
        "_generation",
        "_revision",
        "answer_over",
        "asked",
        "asked_at",
        "capabilities",
        "configuration",
        "connecting",
        "doubt",
        "greeted",
        "greeting",
        "guard",
        "had",
        "incarnation",
        "knows",
        "nid",
        "paths",
        "prefix",
        "revision",
        "state",
        "takes_none",
        "told",
        "unconfirmed",
        "used_at",
        "version",
        "waiting",
    )

    def __init__(self, nid: Nid) -> None:
        self.nid: Nid = nid
        self.state: PeerState = PeerState.UNKNOWN
        self.incarnation: int = 0
        self.told: int = 0
        self.had: dict[Nid, None] = {}  # slaves that it names, or named: their messages may still come
        self.unconfirmed: bool = False  # another NID spoke for it while its first slave was silent
        self.knows: frozenset[Nid] = frozenset()  # the slaves of ours that it was told
        self.version: int = 0
        self.capabilities: int = 0
        self.guard: bytes = b""  # what identities of PUTs to it hold, while it is known to keep them
        self.prefix: bytes = b""  # … and what they begin with, once there was one
        self.configuration: Configuration | None = None
        self.paths: list[Path] = []
        self.waiting: deque[tuple[Msg, float]] = deque()  # … and since when each waits for this peer
        self.takes_none: float = -1.0  # of those that wait: what has waited since then, or before, fails
        self.connecting: bool = False
        self.greeting: bool = False
        self.asked_at: Nid | None = None  # the slave of ours that its last HELLO came to
        self.doubt: Timer | None = None  # a HELLO arrived, and it may be asking our first slave about it
        self.answer_over: tuple[NI, Nid] | None = None  # a HELLO, once the one under way has ended
        self.greeted: Nid | None = None  # the NID that a HELLO went to while it was not connected
        self.used_at: float = -1.0
        self.asked: int = 0  # keepalives under way on paths that were never heard, also of slaves it had
        self.revision: int = 0  # moves when a path changes
        self._revision = -1
        self._generation = -1
        self._chosen: list[Path] = []

    @property
    def connected(self) -> bool:
        """Whether both have said HELLO."""
        return self.state is PeerState.CONNECTED

    @property
    def settling(self) -> bool:
        """Whether a HELLO is under way to it, or may not be taken yet."""
        return self.greeting or self.doubt is not None

    def hears(self, stamp: int, own: Configuration) -> None:
        """It has taken a HELLO of ours with that incarnation and configuration."""
        self.told = stamp
        knows = frozenset(one.nid for one in own.slaves)
        if knows != self.knows:
            self.knows = knows
            self.revision += 1

    def forgets(self) -> None:
        """It may be another life, which knows nothing of this node."""
        self.told = 0
        self.knows = frozenset()
        self.asked_at = None
        self.revision += 1

    def trusts(self, slave: NI, first: bool) -> bool:
        """Whether it takes a HELLO from that slave of ours without a question to the first one."""
        return first or slave.nid in self.knows or slave.nid == self.asked_at

    @property
    def open_paths(self) -> list[Path]:
        """Those from slaves that it knows as ours; from others it takes nothing. All, if there are none."""
        return [path for path in self.paths if path.ni.nid in self.knows] or self.paths

    def has_slave(self, nid: Nid) -> bool:
        """Whether nid is a slave of it, as it last said."""
        found = self.configuration
        return found is not None and any(one.nid == nid for one in found.slaves)

    def learn(self, hello: BondHello, version: int, capabilities: int) -> None:
        """Keep what its HELLO says; the connection has the lower version of both ends."""
        self.incarnation = hello.source
        self.configuration = hello.configuration
        for one in hello.configuration.slaves:
            self.had.pop(one.nid, None)
            self.had[one.nid] = None
        while len(self.had) > _MOST_HAD:
            del self.had[next(iter(self.had))]
        self.version = min(version, len(hello.capabilities))
        self.capabilities = capabilities & hello.capabilities[self.version - 1]
        self.guard = hello.guard
        self.revision += 1

    def lay_paths(self, slaves: Sequence[NI], weights: Sequence[int], peers: PeerTable) -> None:
        """All pairs of a slave here and one there on the same net; those that were there keep their state."""
        known = {(path.ni, path.nid): path for path in self.paths}
        self.paths = []
        self.revision += 1
        if self.configuration is None:
            return
        there = self.configuration.slaves
        pairs = [
            (local, remote)
            for local, ni in enumerate(slaves)
            for remote, slave in enumerate(there)
            if slave.nid.net == ni.nid.net
        ]
        shares = weights_of(pairs, weights, [slave.weight for slave in there])
        for (local, remote), weight in zip(pairs, shares, strict=True):
            ni, nid = slaves[local], there[remote].nid
            path = known.get((ni, nid))
            if path is None:
                path = Path(peers, local, ni, remote, nid, weight)
            path.local, path.remote, path.weight = local, remote, weight
            self.paths.append(path)

    def ways(
        self, generation: int, own: Configuration, switched_off: Sequence[bool], chosen: bool
    ) -> list[Path]:
        """The paths that messages may take now; kept until the generation or a path changes."""
        if generation != self._generation or self.revision != self._revision:
            assert self.configuration is not None
            found = self.configuration
            self._chosen = choose_from(
                self.open_paths, own, found, switched_off, chosen=chosen
            ) or choose_from(self.paths, own, found, switched_off, chosen=chosen)
            self._generation = generation
            self._revision = self.revision
        return self._chosen

    def untried(self, ways: list[Path], switched_off: Sequence[bool], tried: Container[Path]) -> list[Path]:
        """The ways of a message that failed elsewhere before: not those again, if another one works."""
        left = [path for path in ways if path not in tried]
        return left or [path for path in self.working(switched_off) if path not in tried] or ways

    def back(self, ways: list[Path], switched_off: Sequence[bool], via: Nid) -> list[Path]:
        """The ways of an answer: back as its request came, also where other slaves are the active ones.

        What was sent again came over a path that works; that the active one does not may not be known here.
        """
        left = [path for path in ways if path.nid == via]
        return left or [path for path in self.working(switched_off) if path.nid == via] or ways

    def working(self, switched_off: Sequence[bool]) -> list[Path]:
        """All paths that work and may be used, the active slave's or not."""
        if self.configuration is None:
            return []
        allowed = allowed_of(self.open_paths, self.configuration, switched_off)
        return working_of(allowed, self.configuration)

    def best_for_control(self) -> Path | None:
        """A path for a message of our own: one that works, if there is one, from a slave that it trusts."""
        usable = [path for path in self.paths if path.ni.active]
        best = [path for path in usable if path.works] or usable
        return min(best, key=lambda path: not self.trusts(path.ni, not path.local), default=None)
