"""What this node tells of itself, and the buffer for what peers push to it (spec wire-lnet.md §5, §6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ulnet.core.event import Event, EventKind
from ulnet.core.guard.identity import tag_of
from ulnet.core.md import MANAGE_REMOTE, OP_GET, OP_PUT, TRUNCATE, Md
from ulnet.core.memory import Memory
from ulnet.core.peer import PUSH_ROOM, PeerFlag
from ulnet.core.state import NodeState
from ulnet.nid import LO_NID, Net, NetType, Nid
from ulnet.wire.errors import WireError
from ulnet.wire.lnet import PING_MATCH_BITS, PING_PORTAL
from ulnet.wire.ping import Feature, NiEntry, NiStatus, PingInfo

if TYPE_CHECKING:
    from ulnet.core.parts import Parts

__all__ = ["MIN_INFO_SIZE", "SelfInfo"]

# Room for 16 NIs; what real nodes offer for pings and pushes before they know better.
MIN_INFO_SIZE = 272
_PUSH_RATE: Final = 4096  # bytes a second that a peer may push for long: fifteen times 16 NIDs
_RELAY_ROOM: Final = 2 * PUSH_ROOM  # bytes that a node may push for others at once: for 480 …
_RELAY_RATE: Final = 8 * _PUSH_RATE  # … and a second for long
_MOST_RELAYS: Final = 1024


class SelfInfo:
    """The ping buffer of one node, rebuilt with a higher sequence number whenever its NIs change.

    The router hears where a ping came in. Discovery hears of each push: its source and the info, or None
    where that is not whole or none at all.
    """

    def __init__(self, state: NodeState, memory: Memory, parts: Parts) -> None:
        self._state = state
        self._memory = memory
        self._parts = parts
        self._ping: Md | None = None
        self._push: Md | None = None
        self._push_buffer = bytearray(MIN_INFO_SIZE)
        self.sequence: int = 0
        self.routes = False  # whether peers are told that this node routes
        self.silent_nets: frozenset[Net] = frozenset()  # of a router: where nobody has pinged it for long
        self._started = False
        self._relays: dict[Nid, tuple[float, float]] = {}  # by next hop: bytes that it may relay, as of when
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
        self._post_push_buffer()

    def stop(self) -> None:
        """Answer no more."""
        self._started = False

    def info(self) -> PingInfo:
        """This node as a ping shows it."""
        entries = [
            NiEntry(ni.nid, NiStatus.UP if ni.up and net.net not in self.silent_nets else NiStatus.DOWN)
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

    def refresh(self) -> None:
        """Statuses changed, as routers tell of them: the same NIs under the same number."""
        if not self._started or self._ping is None:
            return
        data = self.data = memoryview(self.info().pack())
        self._ping.fragments = [data]
        self._ping.length = data.nbytes

    def _post_push_buffer(self) -> None:
        if not self._started:
            return
        me = self._memory.me_attach(PING_PORTAL, match_bits=PING_MATCH_BITS)
        self._push = self._memory.md_attach(
            me,
            self._push_buffer,
            self._pushed,
            options=OP_PUT | TRUNCATE,
            threshold=1,
        )

    def _pushed(self, event: Event) -> None:
        try:
            if event.kind is EventKind.PUT and self._may_push(event):
                self._parts.pushed(event.source, self._read_push(event))
        finally:
            if event.unlinked:
                self._post_push_buffer()

    def _may_push(self, event: Event) -> bool:
        """Whether that push is within what its sender may take of this node's time: a NID costs 20 µs.

        What is beyond it is asked for before the next message goes there.
        """
        peer = self._state.peers.find(event.source)
        if peer is None:
            return True
        now = self._state.clock()
        peer.push_room = min(peer.push_room + (now - peer.pushed_at) * _PUSH_RATE, PUSH_ROOM)
        peer.pushed_at = now
        size = min(max(event.rlength, MIN_INFO_SIZE), PUSH_ROOM)
        if peer.push_room >= size and self._may_relay(event, size, now):
            peer.push_room -= size
            return True
        self._state.stats.drops["more pushes than a peer may send"] += 1
        if peer.flags & PeerFlag.NIDS_UPTODATE:
            peer.mark(PeerFlag.FORCE_PING, PeerFlag.NIDS_UPTODATE)
        return False

    def _may_relay(self, event: Event, size: float, now: float) -> bool:
        """The same of who sent a push for another node: it may name ever new ones."""
        if event.sender == event.source:
            return True
        room, since = self._relays.pop(event.sender, (_RELAY_ROOM, now))
        room = min(room + (now - since) * _RELAY_RATE, _RELAY_ROOM)
        may = room >= size
        if len(self._relays) >= _MOST_RELAYS:
            self._relays.clear()
        self._relays[event.sender] = (room - size if may else room, now)
        return may

    def _read_push(self, event: Event) -> PingInfo | None:
        """The info of a push, if it is whole; a buffer that is too small grows."""
        if event.status:
            return None
        if event.mlength < event.rlength:
            self._push_buffer = bytearray(event.rlength)
            return None
        try:
            info = PingInfo.unpack(event.data)
        except WireError:
            self._state.stats.drops["push that is no ping info"] += 1
            return None
        return None if info.truncated else info
