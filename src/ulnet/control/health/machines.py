"""Drives the state machines of core.states: inputs in, next states and their actions out."""

from __future__ import annotations

from collections.abc import Callable

from ulnet.core.lines import Line
from ulnet.core.ni import MAX_HEALTH, NI, LocalNet
from ulnet.core.notices import Notices
from ulnet.core.peer import Peer, PeerNi
from ulnet.core.state import NodeState
from ulnet.core.states import (
    LOCAL_NET,
    LOCAL_NI,
    PEER,
    PEER_NI,
    Action,
    NetInput,
    NiInput,
    NiState,
    PeerInput,
    PeerNiInput,
    PeerNiState,
    PeerState,
)

__all__ = ["Machines"]


class Machines:
    """All machines of one node. `status_changed`, `leave`, `admit_peer` do what the actions ask for."""

    __slots__ = ("_notices", "_state", "admit_peer", "leave", "status_changed")

    def __init__(
        self,
        state: NodeState,
        notices: Notices,
        status_changed: Callable[[], None],
        leave: Callable[[NI | None, PeerNi | None], None],
        admit_peer: Callable[[PeerNi], None],
    ) -> None:
        self._state = state
        self._notices = notices
        self.status_changed: Callable[[], None] = status_changed
        self.leave: Callable[[NI | None, PeerNi | None], None] = leave
        self.admit_peer: Callable[[PeerNi], None] = admit_peer

    def ni(self, ni: NI, what: NiInput, why: str = "") -> None:
        """Something happened to a local NI; its net follows."""
        step = LOCAL_NI.get((ni.state, what))
        if step is None:
            return
        action, ni.state = step
        ni.fatal = ni.state is NiState.FAILED
        unhealthy = ni.health < MAX_HEALTH or ni.state is not NiState.ACTIVE
        if unhealthy != ni.unhealthy:
            ni.unhealthy = unhealthy
            self._state.generation.invalidate("an NI is well, or not")
        if action is not Action.NOTHING and what is not NiInput.DELETED:
            told = f"{what.value} ({why})" if why else what.value
            tell = self._state.notice if ni.state is NiState.ACTIVE else self._state.alarm
            text, state = f"local NI {ni.nid}: {told}, {ni.state.value} now", ni.state.value
            tell(Line("ni.state", text, nid=ni.nid, state=state))
        if action is Action.LEAVE:
            if what is NiInput.FATAL:
                ni.health_stats.down_events += 1
                self.status_changed()
            self.leave(ni, None)
        elif action is Action.RETURN:
            ni.health_stats.up_events += 1
            self.status_changed()
        self._follow_net(ni.net)

    def _follow_net(self, net: LocalNet) -> None:
        if not net.nis:
            what = NetInput.LAST_DELETED
        elif all(ni.fatal for ni in net.nis):
            what = NetInput.ALL_FAILED
        else:
            what = NetInput.NI_USABLE
        step = LOCAL_NET.get((net.state, what))
        if step is not None:
            action, net.state = step
            if action is Action.REPORT:
                tell = self._state.notice if what is NetInput.NI_USABLE else self._state.alarm
                text, state = f"net {net.net}: {what.value}, {net.state.value} now", net.state.value
                tell(Line("net.state", text, net=net.net, state=state))

    def peer_ni(self, pni: PeerNi, what: PeerNiInput) -> None:
        """Something became of a message to or from a peer NI; its peer follows."""
        step = PEER_NI.get((pni.state, what))
        if step is None:
            return
        action, state = step
        if what is PeerNiInput.FAILED:
            pni.failed_at = self._state.clock()
        before = pni.state
        changed = state is not before
        pni.state = state
        unhealthy = pni.health < MAX_HEALTH or state is not PeerNiState.CONNECTED
        failed = changed and PeerNiState.FAILED in (before, state)
        if unhealthy != pni.unhealthy or failed:
            pni.unhealthy = unhealthy
            pni.peer.generation.invalidate("a peer NI is well, or not")
        if action is Action.RECOVER:
            self.admit_peer(pni)
        if failed and len(pni.peer.members) > 1:
            kind = ("peer NI", pni.nid, state)
            text = f"peer NI {pni.nid}: {what.value}, {state.value} now"
            self._notices.say(kind, Line("peer_ni.state", text, nid=pni.nid, state=state.value))
        if changed and (state is PeerNiState.FAILED or pni.peer.state is PeerState.INACTIVE):
            self._follow_peer(pni.peer)

    def _follow_peer(self, peer: Peer) -> None:
        every = all(pni.state is PeerNiState.FAILED for net in peer.nets.values() for pni in net.nis)
        what = PeerInput.ALL_FAILED if every else PeerInput.PATH_RECOVERED
        step = PEER.get((peer.state, what))
        if step is not None:
            _, peer.state = step
            name, state = peer.primary_nid, peer.state.value
            line = Line("peer.state", f"peer {name}: {what.value}, {state} now", peer=name, state=state)
            self._notices.say(("peer", name, peer.state), line)
