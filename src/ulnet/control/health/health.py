"""What becomes of both ends and of a message when it is done, well or not (spec health.md §3).

The healthy way asks only whether one of the ends is `unhealthy`: not wholly well, or never used.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from ulnet.control.health.classify import RULES, RULES_OF_ANSWERS, Rule
from ulnet.control.health.machines import Machines
from ulnet.control.health.paths import Paths
from ulnet.control.health.presence import Presence
from ulnet.control.health.rates import Rates
from ulnet.control.health.recovery import Recovery
from ulnet.control.health.resend import Resender
from ulnet.control.health.unanswered import Unanswered
from ulnet.control.health.values import Values
from ulnet.core.guard.sender import SenderGuard
from ulnet.core.lines import Line
from ulnet.core.lnd import NiEvent
from ulnet.core.md import Md
from ulnet.core.memory import Memory
from ulnet.core.msg import ANSWERS, Msg
from ulnet.core.ni import MAX_HEALTH, NI
from ulnet.core.notices import Notices
from ulnet.core.peer import PeerNi
from ulnet.core.routing.gateways import Gateways
from ulnet.core.sender import Sender
from ulnet.core.state import NodeState
from ulnet.core.states import NiInput, PeerNiInput
from ulnet.core.status import HealthStatus
from ulnet.nid import Nid
from ulnet.wire.lnet import PING_PORTAL

__all__ = ["Health"]

_LO_AND_ONE = 2
_TIMED_OUT = frozenset(
    {HealthStatus.LOCAL_TIMEOUT, HealthStatus.REMOTE_TIMEOUT, HealthStatus.NETWORK_TIMEOUT}
)
_DEVICE = "device"  # in `NI.degraded`
_INPUTS = {
    NiEvent.FATAL: NiInput.FATAL,
    NiEvent.RECOVERED: NiInput.RECOVERED,
    NiEvent.DEGRADED: NiInput.DEGRADED,
    NiEvent.RESTORED: NiInput.RESTORED,
}


class Health:
    """Health of one node: values, states, recovery, resends."""

    def __init__(
        self,
        state: NodeState,
        memory: Memory,
        sender: Sender,
        gateways: Gateways,
        status_changed: Callable[[], None],
    ) -> None:
        self._state = state
        self._memory = memory
        self._sender = sender
        self.presence: Presence = Presence(state, memory)
        self._gateways = gateways
        self._notices = Notices(state.clock, state.report)
        recovery = Recovery(
            state, memory, sender, self._ni_stays, self._peer_stays, self._ni_answered, self._ni_failed
        )
        self.recovery: Recovery = recovery
        self.values: Values = Values(state, recovery, status_changed)
        leave = sender.credits.leave
        self._machines = Machines(state, self._notices, status_changed, leave, recovery.admit_peer)
        self.rates: Rates = Rates(state, self._machines, Unanswered(memory, sender.uncork), sender.uncork)
        self.resender: Resender = Resender(state, self.send_again)
        self.again: SenderGuard = sender.guard
        self.paths: Paths = Paths(state, self._notices, sender)

    def follow_documents(self) -> None:
        """Recover as the Health design has it: a ping each second, each success raises by 1."""
        self.values.by_documents = True
        self.recovery.local.steady = self.recovery.peers.steady = True

    # Messages --------------------------------------------------------------------------------------

    def posted(self, pni: PeerNi) -> None:
        """A message sets out to a watched peer NI."""
        self._machines.peer_ni(pni, PeerNiInput.POSTED)

    def send_again(self, msg: Msg) -> None:
        """An attempt more. It is counted when it sets out: its peer may have to be discovered first."""
        self._sender.relaunch(msg)
        if msg.transit is not None and msg.committed:  # its path is no choice of the sender's
            self._state.stats.resend_count += 1

    def sent(self, ni: NI, pni: PeerNi) -> None:
        """A message left, and one of its ends is not well: that says nothing of the NI's health."""
        if pni.unhealthy:
            self._machines.peer_ni(pni, PeerNiInput.SENT)

    def heard(self, ni: NI, pni: PeerNi) -> None:
        """A message arrived, and one of its ends is not well. One between NIs of this node heals none."""
        if pni.nid not in self._state.nis:
            ni.health_stats.ping_count = 0
            self.values.raise_ni(ni)
        if pni.unhealthy:
            pni.health_stats.ping_count = 0
            self.presence.heard(pni)
            if self._state.forwards and not (self.values.by_documents or self._gateways.is_gateway(pni.peer)):
                self.values.set_peer(pni, MAX_HEALTH)
            else:
                self.values.raise_peer(pni)
            self._machines.peer_ni(pni, PeerNiInput.HEARD)

    def restarted(self, pni: PeerNi) -> None:
        """The new life of a peer NI was heard: what failed was the former one."""
        if pni.unhealthy:
            self.presence.heard(pni)
            self._machines.peer_ni(pni, PeerNiInput.HEARD)
        self.values.set_peer(pni, MAX_HEALTH)

    def failed(self, msg: Msg, status: HealthStatus, err: int, reason: str) -> bool:
        """An outgoing message failed: charge who is to blame (OK: nobody); whether it is to be sent again."""
        state = self._state
        ni, pni = msg.ni, msg.peer_ni
        if ni is None or pni is None or not state.running:
            return False
        rule = (RULES, RULES_OF_ANSWERS)[msg.template.type in ANSWERS][status]
        if msg.master is not None:
            msg.master.failed(msg, ni, pni.nid)
        if status:
            self._count(ni, pni, status)
        if status in _TIMED_OUT:
            text = f"message from {ni.nid} to {pni.nid} timed out ({status.name})"
            line = Line("message.timed_out", text, source=ni.nid, to=pni.nid, status=status.name)
            self._notices.say(("timed out", ni.nid, pni.nid), line)
        if err == errno.ECONNREFUSED:
            self.presence.refused(pni, reason)
        if state.clock() <= msg.queued_at + ni.patience:
            given_up = msg.unsent and msg.md is not None and msg.md.aborted
            if status and not (given_up and status in _TIMED_OUT):  # its owner's own time was over before
                self._charge(rule, ni, pni)
        elif msg.md is None or msg.md.timeout is None:
            return False  # past its deadline: nobody is charged
        left = not msg.unsent
        if msg.copied or not self._may_help(msg, rule, pni) or not self.resender.allows(msg, ni, pni):
            return False
        if left:
            self.again.mark(msg)
        ni.health_stats.resends[status] += 1
        pni.health_stats.resends[status] += 1
        return True

    def broken(self, ni: NI, hop: Nid, status: HealthStatus) -> None:
        """The payload of a message that a next hop sends never came; with status OK nobody is charged."""
        pni = self._state.peers.find_ni(hop)
        if pni is None or not status:
            return
        self._count(ni, pni, status)
        if self._state.running:
            self._charge(RULES[status], ni, pni)

    def overdue(self, md: Md) -> None:
        """No answer came in time: the next hop is charged, unless it was heard since.

        Then the path is well, and the request was dropped: LNet tells nobody that it found no memory. Not
        so with a gateway, which may answer itself and swallow what it is to pass on: its health falls, but
        it is not down, for the destination may be the silent one.
        """
        nid = md.next_nid
        pni = None if nid is None else self._state.peers.find_ni(nid)
        if pni is None:
            return
        asked, what = md.asked, "no response in time by way of"
        if pni.heard_at <= md.sent_at:
            self._accuse(pni.nid, what)
        elif asked is not None and self._gateways.leads_over(pni.peer, asked.nid.net):
            now, before = self._state.clock(), pni.failed_at
            self.values.lower_peer(pni)
            pni.failed_at = now
            if before < 0 or now - before > self._state.settings.transaction_timeout:  # not in doubt before
                line = Line("peer.doubted", f"{what} gateway {pni.nid}, which answers", nid=pni.nid)
                self._notices.say((what, pni.nid), line)

    def lost(self, nid: Nid) -> None:
        """The connections with a next hop broke: one that owes answers is charged, and so asked how it is."""
        pni = self._state.peers.find_ni(nid)
        if pni is not None:
            self.presence.lost(pni)
            self.recovery.peers.lost(pni)
        if self._memory.awaits(nid):
            self._accuse(nid, "connections broke, with answers due, to")

    def unconnected(self, ni: NI, nid: Nid, err: int) -> None:
        """A driver could not connect to a next hop; who is charged follows from what waited there."""
        pni = self._state.peers.find_ni(nid)
        if pni is not None:
            pni.health_stats.unconnected(err)

    def _accuse(self, nid: Nid, what: str) -> None:
        pni = self._state.peers.find_ni(nid)
        if pni is not None and nid not in self._state.nis:
            self._notices.say((what, nid), Line("peer.doubted", f"{what} {nid}", nid=nid))
            self.values.lower_peer(pni)
            self._machines.peer_ni(pni, PeerNiInput.FAILED)

    def _count(self, ni: NI, pni: PeerNi, status: HealthStatus) -> None:
        self._state.stats.by_status[status] += 1
        ni.health_stats.by_status[status] += 1
        pni.health_stats.by_status[status] += 1

    def set_patience(self, ni: NI) -> None:
        """How long a message may take on ni: the driver's time-out for each attempt, and a second."""
        settings = self._state.settings
        if ni.lnd.reports_timeout:
            timeout = ni.timeout = settings.timeout_of(ni.lnd_tunables)
            ni.patience = timeout * (settings.retry_count + 1) + 1.0
            fit = (settings.transaction_timeout - 1) // timeout
            if fit < settings.retry_count:
                told = f"retry_count {settings.retry_count} with a time-out of {timeout} s"
                within = f"in transaction_timeout {settings.transaction_timeout} s"
                line = f"{ni.nid}: {told}: {within} what times out is sent again {fit} times at most"
                self._notices.say(("retries", ni.nid, line), Line("retries.limited", line, nid=ni.nid))
        else:
            ni.patience = float(settings.transaction_timeout)

    def _charge(self, rule: Rule, ni: NI, pni: PeerNi) -> None:
        before = ni.health, pni.health, pni.state
        if rule.local and ni.active:
            self.values.lower_ni(self._state.nis.get(pni.nid, ni))  # the NI that another one asked
        if rule.peer and pni.nid not in self._state.nis:
            if len(pni.peer.members) > 1 or self._gateways.always_judged(pni):
                self.values.lower_peer(pni)
            self._machines.peer_ni(pni, PeerNiInput.FAILED)
        if pni.peer.multi_rail and before != (ni.health, pni.health, pni.state):  # else the choice stays
            self._sender.credits.leave(ni, pni)

    def _may_help(self, msg: Msg, rule: Rule, pni: PeerNi) -> bool:
        """Whether another attempt is safe, and there is another path: with one NI, or one NID, there is none.

        Whatever the status, it is safe where the driver is sure that nothing has left, or the peer notices.
        """
        if msg.master is not None:
            safe, msg.unsent = msg.unsent or rule.resend or self.again.is_safe(msg), False
            return safe
        if msg.unsent or (not rule.resend and self.again.is_safe(msg)):
            msg.unsent = False
            return self._has_other_path(msg, pni) or self._gateways.has_other(msg)
        if not rule.resend:
            return False
        if rule.local:
            return len(self._state.nis) > _LO_AND_ONE
        return len(pni.peer.members) > 1 or self._gateways.has_other(msg)

    def _has_other_path(self, msg: Msg, pni: PeerNi) -> bool:
        """Whether another pair than that of msg may carry it."""
        anywhere = msg.hdr.type in ANSWERS or (msg.hdr.portal == PING_PORTAL and msg.source is None)
        peer = pni.peer
        if not (peer.multi_rail or anywhere):
            return False  # it hears from one NI only
        paths = 0
        for target in peer.members.values() if peer.multi_rail else (pni,):
            net = self._state.nets.get(target.nid.net)
            if net is not None:
                paths += sum(ni.open and (anywhere or msg.source in (None, ni.nid)) for ni in net.nis)
        # What is gone was not counted: neither the pair of an NI, nor that of a peer NI.
        own = msg.ni is None or (msg.ni.open and peer.members.get(pni.nid) is pni)
        return paths > own

    def has_path_beside(self, msg: Msg, ni: NI, pni: PeerNi) -> bool:
        """Whether a pair that is not known to be broken may carry msg, which may be lost on that one.

        It may be that one, where msg was lost with its connections, and there are others.
        """
        if msg.master is not None:
            return msg.master.has_other_path(msg, ni, pni.nid)
        if self._gateways.has_other(msg) or (ni.also and ni.active and not ni.fatal):
            return True  # its driver has other devices
        peer = pni.peer
        is_back = msg.md is not None and self.presence.is_back(pni, msg.md.sent_at)
        for target in peer.members.values() if peer.multi_rail else ():
            net = self._state.nets.get(target.nid.net)
            for one in net.nis if net is not None and not target.said_down else ():
                path_load = target.path_loads.get(one)
                if (
                    (is_back or one is not ni or target is not pni)
                    and one.open
                    and not one.fatal
                    and msg.source in (None, one.nid)
                    and not (path_load is not None and path_load.stalled)
                ):
                    return True
        return False

    def switched(self, msg: Msg, ni: NI, pni: PeerNi) -> None:
        """A message that failed sets out again, on that pair."""
        attempts = msg.attempts
        if attempts is None or attempts.last is None:
            return
        old_ni, old_pni = attempts.last
        attempts.last = None
        self._state.stats.resend_count += 1
        if old_ni is not ni or old_pni is not pni:
            before = f"{old_ni.nid} -> {old_pni.nid}"
            text = f"resending over {ni.nid} -> {pni.nid}: {before} failed"
            line = Line("message.resent", text, source=ni.nid, to=pni.nid, before=before)
            self._notices.say(("switch", before, ni.nid, pni.nid), line, self._state.alarm)

    def moved(self, msg: Msg, old_ni: NI, old_pni: PeerNi) -> None:
        """A message that had not left yet set out anew from that pair: nothing is said if it is held back."""
        ni, pni = msg.ni, msg.peer_ni
        if ni is not None and pni is not None and (old_ni is not ni or old_pni is not pni):
            before = f"{old_ni.nid} -> {old_pni.nid}"
            text = f"sending over {ni.nid} -> {pni.nid}: left {before}"
            line = Line("message.moved", text, source=ni.nid, to=pni.nid, before=before)
            self._notices.say(("moved", before, ni.nid, pni.nid), line)

    # NIs and peers ---------------------------------------------------------------------------------

    def ni_added(self, ni: NI) -> None:
        """A local NI is there."""
        self._machines.ni(ni, NiInput.ADDED)

    def ni_deleted(self, ni: NI) -> None:
        """A local NI is gone from the tables; its messages go elsewhere, where there is an elsewhere."""
        self.recovery.release_ni(ni)
        self.rates.ni_deleted(ni)
        self._machines.ni(ni, NiInput.DELETED)
        self.again.lost(ni, None)

    def ni_event(self, ni: NI, event: NiEvent) -> None:
        """A driver tells of the device of ni."""
        if event is NiEvent.FATAL:
            self.rates.ni_failed(ni)
        elif event is NiEvent.DEGRADED and not ni.fatal:
            ni.degraded[_DEVICE] = "its device is slower than it was"
        elif event is NiEvent.RESTORED:
            ni.degraded.pop(_DEVICE, None)
            if ni.degraded:
                return
        self._machines.ni(ni, _INPUTS[event])
        if event is NiEvent.FATAL:
            self.again.lost(ni, None)

    def peer_told(self, pni: PeerNi, up: bool) -> None:
        """The peer itself says what has become of its NI: down is a failure, up heals one never heard of."""
        if not up:
            self.values.lower_peer(pni)
            self._machines.peer_ni(pni, PeerNiInput.FAILED)
            if pni.peer.multi_rail:
                self._sender.credits.leave(None, pni)  # only what has left is sent twice
            self.again.lost(None, pni.nid)
        elif pni.heard_at < 0:
            self.values.set_peer(pni, MAX_HEALTH)

    def peer_gone(self, pni: PeerNi) -> None:
        """A NID belongs to no peer, or to another one, from now on."""
        self.recovery.release_peer(pni)
        self.presence.forget(pni)
        if not pni.peer.gone and pni.peer.multi_rail:  # it lives on without that NID
            self._sender.credits.leave(None, pni)
            self.again.lost(None, pni.nid)

    def settings_changed(self) -> None:
        """Sensitivity may be 0 now, or not any more."""
        self.rates.settings_changed()
        if not self._state.settings.health_sensitivity:
            self.recovery.close()
            return
        for ni in self._state.nis.values():
            if ni.health < MAX_HEALTH:
                self.recovery.admit_ni(ni)
        for pni in self._state.peers.nis():
            if pni.health < MAX_HEALTH:
                self.recovery.admit_peer(pni)

    def close(self) -> None:
        """The node shuts down."""
        self.recovery.close()
        self.resender.close()
        self.rates.close()

    def _ni_answered(self, ni: NI) -> None:
        """A ping of it came back."""
        ni.health_stats.ping_count = 0
        self.values.raise_ni(ni)

    def _ni_failed(self, ni: NI, status: HealthStatus) -> None:
        """A ping of it was not answered, or could not be sent; some statuses have charged it already."""
        if ni.active and self._state.running and not RULES[status].local:
            self.values.lower_ni(ni)

    def _ni_stays(self, ni: NI) -> bool:
        return ni.health < MAX_HEALTH and ni.active and self._state.settings.health_sensitivity > 0

    def _peer_stays(self, pni: PeerNi) -> bool:
        settings = self._state.settings
        if pni.health == MAX_HEALTH or not settings.health_sensitivity or pni.heard_at < 0:
            return False
        if settings.recovery_limit and self._state.clock() - pni.heard_at > settings.recovery_limit:
            pni.health_stats.ping_count = 0
            return False
        return self._state.peers.find_ni(pni.nid) is pni
