"""What this node tells of itself, and what peers push to it (spec wire-lnet.md §5, §6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ulnet.control.push_limits import PushLimits
from ulnet.control.reserved import ReservedBuffers
from ulnet.core.event import Event, EventKind
from ulnet.core.guard.identity import tag_of
from ulnet.core.md import MANAGE_REMOTE, OP_GET, TRUNCATE, Md
from ulnet.core.memory import Memory
from ulnet.core.msg import Incoming
from ulnet.core.state import NodeState
from ulnet.nid import LO_NID, NetType, Nid
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import PING_MATCH_BITS, PING_PORTAL
from ulnet.wire.ping import MAX_INFO_SIZE, MIN_INFO_SIZE, Feature, NiEntry, NiStatus, PingInfo

if TYPE_CHECKING:
    from ulnet.core.parts import Parts

__all__ = ["SelfInfo"]


class SelfInfo:
    """The ping buffer of one node, rebuilt with a higher sequence number whenever its NIs change.

    The router hears where a ping came in. Discovery hears of each push: its source and the info, or None
    where that is not whole or none at all.
    """

    def __init__(
        self, state: NodeState, memory: Memory, parts: Parts, give_up: Callable[[Incoming], bool]
    ) -> None:
        self._state = state
        self._memory = memory
        self._parts = parts
        self._ping: Md | None = None
        # Who pushes waits for its ACK, and is asked where its push was given up.
        # fmt: off
        self._pushes = ReservedBuffers(state, memory, give_up, self._pushed,
                                       match_bits=PING_MATCH_BITS, options=TRUNCATE, size=MIN_INFO_SIZE,
                                       ack=True)
        # fmt: on
        self.sequence: int = 0
        self.routes = False  # whether peers are told that this node routes
        self.silent_nids: frozenset[Nid] = frozenset()  # of a router: where nobody has pinged it for long
        self._started = False
        self._limits = PushLimits(state, parts)
        self.data: memoryview = memoryview(b"")  # what a ping gets and a push carries; renewed, never changed

    def start(self) -> None:
        """Attach the ping target and post the push buffer."""
        self._memory.set_lazy(PING_PORTAL)
        me = self._memory.me_attach(PING_PORTAL, match_bits=PING_MATCH_BITS)
        self._ping = self._memory.md_attach(
            me, b"", None, options=OP_GET | TRUNCATE | MANAGE_REMOTE, auto_unlink=False
        )
        self._started = True
        self.rebuild()
        self._pushes.open()

    def stop(self) -> None:
        """Answer no more."""
        self._started = False
        self._pushes.close()

    def info(self) -> PingInfo:
        """This node as a ping shows it."""
        entries = [
            NiEntry(ni.nid, NiStatus.UP if ni.up and ni.nid not in self.silent_nids else NiStatus.DOWN)
            for net in self._state.nets.values()
            for ni in net.nis
            if ni.listed and ni.nid != LO_NID and net.net.type != NetType.BOND  # which nobody discovers
        ]
        features = Feature.NI_STATUS | Feature.MULTI_RAIL
        if not self.routes:
            features |= Feature.RTE_DISABLED
        if self._state.settings.discovery:
            features |= Feature.DISCOVERY
        if any(entry.nid.is_large for entry in entries):
            features |= Feature.LARGE_ADDR
            if entries[0].nid.is_large:
                features |= Feature.PRIMARY_LARGE
        guard = tag_of(self._state.cookie) if self._state.guards else b""
        return PingInfo(int(features), self._state.pid, self.sequence, entries, guard=guard)

    def rebuild(self) -> None:
        """The NIs changed: renew the buffer if it tells of that. Replies under way keep the old one."""
        if not self._started or self._ping is None or self.info().pack() == self.data:
            return
        self.sequence += 1
        self.refresh()

    def has_other_statuses(self) -> bool:
        """Whether statuses of NIs differ from those last told, and nothing else."""
        if not self._started:
            return False
        told, now = PingInfo.unpack(self.data), self.info()
        before, after = dict(told.entries), dict(now.entries)
        return before != after and before.keys() == after.keys()

    def refresh(self) -> None:
        """Statuses changed, as routers tell of them: the same NIs under the same number."""
        if not self._started or self._ping is None:
            return
        data = self.data = memoryview(self.info().pack())
        self._ping.fragments = [data]
        self._ping.length = data.nbytes

    def _pushed(self, event: Event) -> None:
        if event.kind is EventKind.PUT and self._limits.take(event):
            info = self._read_push(event)
            self._parts.pushed(event.source, info if self._may_speak(event) else None, event.sender)

    def _may_speak(self, event: Event) -> bool:
        """Whether a push came from its source, from another NID of that peer, or by a gateway to its net.

        Whoever else sent it may have invented what it says: the peer itself is asked.
        """
        peer = self._state.peers.find(event.source)
        if peer is None or event.sender == event.source or peer.owns(event.sender):
            return True
        return self._parts.leads_over(event.sender, event.source.net)

    def _read_push(self, event: Event) -> PingInfo | None:
        """The info of a push, if it is whole; a buffer that is too small grows."""
        if event.status:
            return None
        if event.mlength < event.rlength:
            self._pushes.grow(min(event.rlength, MAX_INFO_SIZE))
            return None
        try:
            info = PingInfo.unpack(event.data)
        except WireError:
            self._state.stats.drops["push that is no ping info"] += 1
            return None
        return None if info.truncated else info
