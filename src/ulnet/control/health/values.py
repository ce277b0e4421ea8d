"""Health values of local and peer NIs: up, down, and what follows from a change (spec health.md §1)."""

from __future__ import annotations

from collections.abc import Callable

from ulnet.control.health.recovery import Recovery
from ulnet.core.lines import Line
from ulnet.core.ni import MAX_HEALTH, NI
from ulnet.core.peer import PeerNi
from ulnet.core.state import NodeState
from ulnet.core.states import NiState, PeerNiState

__all__ = ["Values"]


class Values:
    """Changes values. Kept choices are void then; who is not well is recovered, who is well is released.

    `status_changed` is called when ping info must tell another status of an NI. `by_documents`: a success
    raises by 1, as the Health design has it, where today's LNet raises by as much as a failure lowers.
    """

    __slots__ = (
        "_recovery",
        "_state",
        "by_documents",
        "status_changed",
    )

    def __init__(self, state: NodeState, recovery: Recovery, status_changed: Callable[[], None]) -> None:
        self._state = state
        self._recovery = recovery
        self.status_changed: Callable[[], None] = status_changed
        self.by_documents: bool = False

    @property
    def step(self) -> int:
        """By how much one failure or success changes a value; 0: health is off."""
        return self._state.settings.health_sensitivity

    def _raised(self, value: int) -> int:
        step = self.step
        return min(value + (min(step, 1) if self.by_documents else step), MAX_HEALTH)

    def lower_ni(self, ni: NI) -> None:
        """A failure was the local side's."""
        if self.step:
            self.set_ni(ni, max(ni.health - self.step, 0))

    def raise_ni(self, ni: NI) -> None:
        """The local side did well."""
        if ni.health < MAX_HEALTH:
            self.set_ni(ni, self._raised(ni.health))

    def set_ni(self, ni: NI, value: int) -> None:
        """An NI is reported as down from 0 on, until it is wholly well."""
        if value != ni.health:
            ni.health = value
            self._state.generation.invalidate("health of an NI")
            ni.unhealthy = value < MAX_HEALTH or ni.state is not NiState.ACTIVE
            down = value == 0 or (ni.reported_down and value < MAX_HEALTH)
            if down != ni.reported_down:
                ni.reported_down = down
                if down:
                    text = f"local NI {ni.nid}: health is 0: it is reported as down"
                    self._state.alarm(Line("ni.down", text, nid=ni.nid))
                else:
                    text = f"local NI {ni.nid}: health is {MAX_HEALTH}: it is reported as up"
                    self._state.notice(Line("ni.up", text, nid=ni.nid))
                self.status_changed()
        if value == MAX_HEALTH:
            ni.health_stats.ping_count = 0
            self._recovery.release_ni(ni)
        else:
            self._recovery.admit_ni(ni)

    def lower_peer(self, pni: PeerNi) -> None:
        """A failure was the peer's, or the way's to it."""
        if self.step:
            self.set_peer(pni, max(pni.health - self.step, 0))

    def raise_peer(self, pni: PeerNi) -> None:
        """The peer did well."""
        if pni.health < MAX_HEALTH:
            self.set_peer(pni, self._raised(pni.health))

    def set_peer(self, pni: PeerNi, value: int) -> None:
        """A value as it is."""
        if value != pni.health:
            pni.health = value
            self._state.ways_changed(pni.peer, "health of a peer NI")
            pni.unhealthy = value < MAX_HEALTH or pni.state is not PeerNiState.CONNECTED
        if value == MAX_HEALTH:
            pni.health_stats.ping_count = 0
            self._recovery.release_peer(pni)
        else:
            self._recovery.admit_peer(pni)
