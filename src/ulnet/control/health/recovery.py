"""Recovery: who is not well is pinged until it is, less and less often (spec health.md §4).

A local NI is pinged by itself, down through its driver, and when that was not answered by the best NI on
its net; a peer NI is pinged at exactly that NID. A ping that is not answered until the next one is due has
failed. Without anybody to recover there is no timer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from ulnet.core.event import Event, EventKind
from ulnet.core.lines import Line
from ulnet.core.md import TRUNCATE, Md
from ulnet.core.memory import Memory
from ulnet.core.ni import NI
from ulnet.core.peer import PeerNi
from ulnet.core.sender import Sender
from ulnet.core.state import NodeState
from ulnet.core.status import HealthStatus, LNetError
from ulnet.core.timers import Timer
from ulnet.nid import Nid
from ulnet.wire.lnet import PING_MATCH_BITS, PING_PORTAL

__all__ = ["Recovery", "RecoveryQueue"]

_INFO_SIZE = 272
_MOST_DOUBLINGS = 31
_FIRST_SUMMARY = 60.0
_MOST_BETWEEN_SUMMARIES = 300.0
_SHOWN = 10

Patient = TypeVar("Patient", NI, PeerNi)


class RecoveryQueue(Generic[Patient]):
    """NIs of one side under recovery, longest first.

    `stays` tells who is to be pinged further, `source` from which NI; `answered`, `failed` and `released` are
    called. `failed` hears with which status a ping could not be sent, OK if it was not answered.
    """

    __slots__ = (
        "_memory",
        "_sender",
        "_state",
        "_waiting",
        "answered",
        "failed",
        "released",
        "source",
        "stays",
        "steady",
    )

    def __init__(
        self,
        state: NodeState,
        memory: Memory,
        sender: Sender,
        stays: Callable[[Patient], bool],
        source: Callable[[Patient], Nid | None],
        answered: Callable[[Patient], None],
        failed: Callable[[Patient, HealthStatus], None],
        released: Callable[[], None],
    ) -> None:
        self._state = state
        self._memory = memory
        self._sender = sender
        self._waiting: dict[Patient, Timer | Md] = {}  # for the next ping, or for the answer to one
        self.stays: Callable[[Patient], bool] = stays
        self.source: Callable[[Patient], Nid | None] = source
        self.answered: Callable[[Patient], None] = answered
        self.failed: Callable[[Patient, HealthStatus], None] = failed
        self.released: Callable[[], None] = released
        self.steady: bool = False  # a ping each recovery_interval, as the Health design has it

    def __len__(self) -> int:
        return len(self._waiting)

    def patients(self) -> list[Patient]:
        """All of them."""
        return list(self._waiting)

    def admit(self, who: Patient) -> bool:
        """Recover who, unless it is well, beyond hope, or here already; whether it is new here."""
        if not self.stays(who):
            return False
        waits_for = self._waiting.get(who)
        if waits_for is None:
            self._plan(who)
            return True
        stats = who.health_stats
        if isinstance(waits_for, Timer) and stats.next_ping > self._state.clock() + self._pause(who):
            self._state.timers.cancel(waits_for)
            self._plan(who)
        return False

    def release(self, who: Patient) -> None:
        """Release one that is well, or gone."""
        waited_for = self._waiting.pop(who, None)
        if waited_for is None:
            return
        if isinstance(waited_for, Timer):
            self._state.timers.cancel(waited_for)
        self.released()

    def lost(self, who: Patient) -> None:
        """Its connections broke: a ping that was under way there gets no answer, and the next one is due."""
        waits_for = self._waiting.get(who)
        if isinstance(waits_for, Md):
            self._memory.md_unlink(waits_for)

    def close(self) -> None:
        """Ping nobody any more."""
        for who in self.patients():
            self.release(who)

    def _pause(self, who: Patient) -> int:
        """Seconds from its last ping to the next."""
        settings = self._state.settings
        if self.steady:
            return settings.recovery_interval
        doublings = min(max(who.health_stats.ping_count - 1, 0), _MOST_DOUBLINGS)
        return min(1 << doublings, settings.max_recovery_ping_interval)

    def _plan(self, who: Patient) -> None:
        """Ping who when its pause is over; it may have become shorter since the last ping."""
        stats, now = who.health_stats, self._state.clock()
        stats.next_ping = min(stats.next_ping, now + self._pause(who))
        self._waiting[who] = self._state.timers.at(max(now, stats.next_ping), lambda: self._ping(who))

    def _ping(self, who: Patient) -> None:
        if not self.stays(who):
            self.release(who)
            return
        stats = who.health_stats
        stats.ping_count += 1
        pause = self._pause(who)
        stats.next_ping = self._state.clock() + pause
        md = self._memory.md_bind(
            bytearray(_INFO_SIZE),
            lambda event: self._heard(who, event),
            threshold=2,
            options=TRUNCATE,
            timeout=min(pause, self._state.settings.transaction_timeout),
        )
        self._waiting[who] = md
        try:
            self._sender.get(md, who.nid, PING_PORTAL, PING_MATCH_BITS, source=self.source(who), exact=True)
        except LNetError:
            self._memory.md_unlink(md)

    def _heard(self, who: Patient, event: Event) -> None:
        if event.kind is EventKind.REPLY and not event.status:
            self.answered(who)
        elif event.status and event.md.user_ptr is None and self._waiting.get(who) is event.md:
            event.md.user_ptr = event.status  # several events may tell of one failure
            self.failed(who, event.health)
        if event.unlinked:
            if self._waiting.get(who) is event.md and self._state.running:
                if self.stays(who):
                    self._plan(who)
                else:
                    self.release(who)
        elif event.status:
            self._memory.md_unlink(event.md)


def _any(pni: PeerNi) -> None:
    return None


def _nothing(pni: PeerNi, status: HealthStatus = HealthStatus.OK) -> None:
    """What becomes of messages to and from peers, pings too, is judged by `Health`."""


class Recovery:
    """Both queues, and the line in the log while somebody is there."""

    __slots__ = ("_state", "_summary", "_wait", "local", "peers")

    def __init__(
        self,
        state: NodeState,
        memory: Memory,
        sender: Sender,
        ni_stays: Callable[[NI], bool],
        peer_stays: Callable[[PeerNi], bool],
        ni_answered: Callable[[NI], None],
        ni_failed: Callable[[NI, HealthStatus], None],
    ) -> None:
        self._state = state
        self.local: RecoveryQueue[NI] = RecoveryQueue(
            state, memory, sender, ni_stays, self._source, ni_answered, ni_failed, self._stop_summaries
        )
        self.peers: RecoveryQueue[PeerNi] = RecoveryQueue(
            state, memory, sender, peer_stays, _any, _nothing, _nothing, self._stop_summaries
        )
        self._summary: Timer | None = None
        self._wait = _FIRST_SUMMARY

    def _source(self, ni: NI) -> Nid | None:
        """By turns itself, and any NI; as the Health design has it, itself."""
        return ni.nid if self.local.steady or ni.health_stats.ping_count % 2 else None

    def admit_ni(self, ni: NI) -> None:
        """Recover a local NI."""
        if self.local.admit(ni):
            self._start_summaries()

    def admit_peer(self, pni: PeerNi) -> None:
        """Recover a peer NI."""
        if self.peers.admit(pni):
            self._start_summaries()

    def release_ni(self, ni: NI) -> None:
        """A local NI is well, or gone."""
        self.local.release(ni)

    def release_peer(self, pni: PeerNi) -> None:
        """A peer NI is well, or gone."""
        self.peers.release(pni)

    @property
    def busy(self) -> bool:
        """Whether anybody is here."""
        return bool(self.local) or bool(self.peers)

    def close(self) -> None:
        """Ping nobody any more."""
        self.local.close()
        self.peers.close()

    def _start_summaries(self) -> None:
        if self._summary is None:
            self._wait = _FIRST_SUMMARY
            self._summary = self._state.timers.at(self._state.clock() + self._wait, self._summarize)

    def _stop_summaries(self) -> None:
        if self._summary is not None and not self.busy:
            self._state.timers.cancel(self._summary)
            self._summary = None

    def _summarize(self) -> None:
        self._summary = None
        for kind, nids in (
            ("local", [ni.nid for ni in self.local.patients()]),
            ("peer", [pni.nid for pni in self.peers.patients()]),
        ):
            if nids:
                shown = ", ".join(map(str, nids[:_SHOWN]))
                showing = min(len(nids), _SHOWN)
                text = f"{len(nids)} {kind} NIs in recovery (showing {showing}): {shown}"
                self._state.report(Line("recovery.waiting", text, of=kind, count=len(nids)))
        if self.busy:
            self._wait = min(self._wait * 2, _MOST_BETWEEN_SUMMARIES)
            self._summary = self._state.timers.at(self._state.clock() + self._wait, self._summarize)
