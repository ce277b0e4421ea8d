"""One LNet instance: its nets and NIs, its users' calls, its drivers' calls, its clock."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from ulnet.control.discovery import Discovery
from ulnet.control.health import Health
from ulnet.control.leaving import Leaving
from ulnet.control.new_ni import check_new_ni, new_net
from ulnet.control.policy import Policies
from ulnet.control.reserved import ReservedBuffers, taken
from ulnet.control.routing import Routing
from ulnet.control.self_info import SelfInfo
from ulnet.core.access import EVERYBODY, Access
from ulnet.core.answers import Answers
from ulnet.core.completion import Completion
from ulnet.core.cpt import CptTable
from ulnet.core.delayed import Delayed
from ulnet.core.faults import FaultInjector
from ulnet.core.generation import Generation
from ulnet.core.guard.identity import Guarded
from ulnet.core.lnd import Drivers, Lnd, Master, NiEvent, Payload
from ulnet.core.md import EventHandler, Md
from ulnet.core.memory import Memory
from ulnet.core.msg import Msg
from ulnet.core.ni import NI, LocalNet, Place
from ulnet.core.parts import Parts
from ulnet.core.paths import PathFinder
from ulnet.core.peer import Peer, may_be_peer
from ulnet.core.peer_table import PeerTable
from ulnet.core.receiver import Receiver
from ulnet.core.reception import Reception
from ulnet.core.routing.choose import RoutedSelector
from ulnet.core.routing.gateways import Gateways
from ulnet.core.routing.router import Router
from ulnet.core.selection import Explanation, Selector
from ulnet.core.sender import Sender
from ulnet.core.state import NodeState
from ulnet.core.stats import GlobalStats
from ulnet.core.status import LNetError
from ulnet.core.timers import Timers
from ulnet.core.tunables import GlobalSettings, LndTunables, NetTunables
from ulnet.nid import LO_NET, LO_NID, Net, Nid

__all__ = ["LNet"]

_LONGEST_SECRET: Final = 64  # bytes: a key of blake2b


class LNet:
    """LNet, sans-I/O (docs/design/contracts.md).

    `clock` gives monotonic seconds; `cookie` is a number of 64 bits that no earlier life of this node
    used and nobody can guess; `secret` is up to 64 bytes that nobody is told;
    `wake` is called when `tick` has work now; `report` takes one line for the log,
    `alarm` one that tells of more than a warning, `notice` of less (by default they are the same);
    `node_of_memory` tells the NUMA node of memory (-1: not known);
    `chance` gives random numbers from 0 up to, but without, 1 (fault rules alone ask for them);
    `access` says who may do what here. Raises LNetError(EINVAL) for a secret that is too long.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        cookie: int,
        secret: bytes = b"",
        wake: Callable[[], None] = lambda: None,
        report: Callable[[str], None] = lambda line: None,
        alarm: Callable[[str], None] | None = None,
        notice: Callable[[str], None] | None = None,
        cpts: CptTable | None = None,
        current_cpu: Callable[[], int] = lambda: -1,
        node_of_memory: Callable[[memoryview], int] | None = None,
        chance: Callable[[], float] = lambda: 0.5,
        access: Access = EVERYBODY,
    ) -> None:
        if len(secret) > _LONGEST_SECRET:
            text = f"a secret of {len(secret)} bytes: it may have {_LONGEST_SECRET} at most, give fewer"
            raise LNetError(errno.EINVAL, text)
        # CPython finds attributes faster while an object has no more than 30: put and get are among these.
        parts = Parts()
        # fmt: off
        self.state: NodeState = NodeState(clock, cookie, secret, wake, report, cpts or CptTable(),
                               current_cpu, parts, alarm=alarm, notice=notice, node_of_memory=node_of_memory,
                               access=access)
        # fmt: on
        self.memory: Memory = Memory(self.state, parts)
        self.selector: Selector = Selector(self.state, parts)
        self.policies: Policies = Policies(self.state)
        self.faults: FaultInjector = FaultInjector(self.state, chance)
        self._drivers = Drivers()
        self.gateways: Gateways = Gateways(self.state, parts)
        routed = RoutedSelector(self.state, self.gateways, self.selector)
        self._finder = PathFinder(self.state, self.selector, routed, parts)
        self._sender = sender = Sender(self.state, self.memory, self._finder, self.faults, parts)
        self._completion = Completion(self.state, self.memory, sender, parts)
        answers = Answers(self.state, self._finder, sender)
        reception = Reception(self.state, self.faults, self.memory, sender, answers, parts)
        self._reception = reception
        self._delayed = Delayed(
            self.state,
            self.memory,
            reception.guard,
            reception.take,
            reception.end,
            reception.release,
            reception.drop_request,
        )
        self.put = sender.put
        self.get = sender.get
        self.cork: Callable[[], None] = sender.cork
        self.uncork: Callable[[], None] = sender.uncork_all
        self.completed = self._completion.completed
        self.take_back: Callable[[Msg], None] = sender.take_back
        self.pass_on: Callable[[Msg, Master, NI, Nid], bool] = sender.pass_on
        self.identify: Callable[[Msg, Guarded], bool] = sender.guard.identify
        self.info: SelfInfo = SelfInfo(self.state, self.memory, parts, self._delayed.give_up)
        self.health: Health = Health(self.state, self.memory, sender, self.gateways, self._nis_changed)
        self.discovery: Discovery = Discovery(
            self.state, self.memory, sender, self.info, self.gateways, self.health.peer_told
        )
        self.leaving: Leaving = Leaving(self.state, self.memory, sender, self.discovery, self._nis_changed)
        self.ni_event: Callable[[NI, NiEvent], None] = self.health.ni_event
        self.slept: Callable[[float], None] = self.health.rates.slept
        self.unconnected: Callable[[NI, Nid, int], None] = self.health.unconnected
        self.in_doubt: Callable[[NI, Nid, int], None] = self.state.drops.in_doubt
        self.path_stalled: Callable[[NI, Nid], None] = self.health.paths.stalled
        self.path_moving: Callable[[NI, Nid], None] = self.health.paths.moving
        self.routing: Routing = Routing(
            self.state,
            self.selector,
            self.gateways,
            routed,
            sender,
            self.discovery,
            self.info,
            self.health,
            self.memory,
        )
        self.router: Router = self.routing.router
        self._connect(parts)

    def _connect(self, parts: Parts) -> None:
        """All are there: what they call of each other."""
        sender, completion, delayed = self._sender, self._completion, self._delayed
        discovery, health, routing = self.discovery, self.health, self.routing
        parts.fail = sender.fail
        parts.set_out_anew = sender.set_out_anew
        parts.uncork = sender.uncork
        parts.completed = completion.completed
        parts.end = completion.end
        parts.match_delayed = delayed.match
        parts.drop_delayed = delayed.drop
        parts.may_wait = delayed.may_wait
        parts.expire = self.memory.expire
        parts.taken = taken
        parts.hold = discovery.hold
        parts.pushed = discovery.pushed
        parts.push_refused = discovery.push_refused
        parts.peer_removed = discovery.peer_removed
        parts.net_reached = discovery.net_reached
        parts.peer_deprived = discovery.peer_deprived
        parts.certified = discovery.certified
        parts.posted = health.posted
        parts.sent = health.sent
        parts.heard = health.heard
        parts.failed = health.failed
        parts.broken = health.broken
        parts.overdue = health.overdue
        parts.switched = health.switched
        parts.moved = health.moved
        parts.peer_ni_gone = health.peer_gone
        parts.path_load = health.rates.path_load
        parts.resend = health.resender.schedule
        parts.send_again = health.send_again
        parts.allows = health.resender.allows
        parts.has_path_beside = health.has_path_beside
        parts.peer_learned = discovery.ageing.learned
        parts.peer_ni_added = self.policies.peer_ni_added
        parts.needed_for = self.gateways.needed_for
        parts.router_credits = self.gateways.router_credits
        parts.forward = routing.forward
        parts.received = routing.received
        parts.relay = routing.relay
        parts.passed_on = routing.passed_on
        parts.last_hop = routing.last_hop
        parts.leads_over = routing.leads_over
        parts.check_gateway = routing.check_gateway
        parts.lost_behind = routing.lost_behind
        parts.pinged = routing.router.pinged

    # Tables ----------------------------------------------------------------------------------------

    @property
    def nets(self) -> dict[Net, LocalNet]:
        """The local nets in the order they were added; `lo` is first."""
        return self.state.nets

    @property
    def nis(self) -> dict[Nid, NI]:
        """The local NIs by NID."""
        self._sender.uncork()
        return self.state.nis

    @property
    def peers(self) -> PeerTable:
        """All known peers."""
        self._sender.uncork()
        return self.state.peers

    @property
    def stats(self) -> GlobalStats:
        """Node-wide counters."""
        return self.state.stats

    def reset_stats(self) -> None:
        """Zero what is counted of the node."""
        self.state.stats.reset()

    @property
    def cpts(self) -> CptTable:
        """The machine's CPTs."""
        return self.state.cpts

    @property
    def settings(self) -> GlobalSettings:
        """Node-wide settings."""
        return self.state.settings

    @property
    def access(self) -> Access:
        """Who may do what here."""
        return self.state.access

    @property
    def masters(self) -> dict[Nid, Master]:
        """The local NIs that are made of others."""
        return self.state.masters

    @property
    def generation(self) -> Generation:
        """Counts what voids choices: changes of NIs, their health, policies."""
        return self.state.generation

    @property
    def cookie(self) -> int:
        """A number that no other life of the node has."""
        return self.state.cookie

    @property
    def guards(self) -> bool:
        """Whether peers are told that identities of PUTs are kept."""
        return self.state.guards

    @property
    def clock(self) -> Callable[[], float]:
        """Seconds, monotonic."""
        return self.state.clock

    @property
    def timers(self) -> Timers:
        """What is due later."""
        return self.state.timers

    @property
    def defer(self) -> Callable[..., None]:
        """Calls something, with arguments, in the next tick."""
        return self.state.defer

    @property
    def report(self) -> Callable[[str], None]:
        """Takes lines for the log."""
        return self.state.report

    def why_denied(self, ni: NI, nid: Nid) -> str:
        """Why there are to be no connections between ni and nid; "" if they may be."""
        return self.state.access.why_denied(nid, ni)

    def set_access(self, access: Access) -> None:
        """Let others do what they may here from now on: connections of who may not connect any more end.

        What headers led to was judged by the former lists, and is judged anew.
        """
        self.settle()
        self.state.access = access
        self.state.generation.invalidate("access lists")
        for ni in list(self.state.nis.values()):
            ni.lnd.access_changed(ni)

    def settle(self) -> None:
        """Send what waits in the cork, before anybody looks at counts."""
        self._sender.uncork()

    def reserve(
        self, handler: EventHandler, *, match_bits: int, ignore_bits: int, size: int, ack: bool
    ) -> ReservedBuffers:
        """See `ulnet.bond.contract`."""
        # fmt: off
        return ReservedBuffers(self.state, self.memory, self._delayed.give_up, handler, match_bits=match_bits,
                               ignore_bits=ignore_bits, size=size, ack=ack)
        # fmt: on

    # Nets and NIs ----------------------------------------------------------------------------------

    def register_lnd(self, lnd: Lnd) -> None:
        """Make a driver available for its net type."""
        self._drivers.add(lnd)

    def start(self) -> None:
        """Bring up `0@lo`, answer pings, discover peers."""
        self.add_ni(LO_NET, LO_NID)
        self.info.start()
        self.discovery.start()

    def add_ni(
        self,
        net: Net,
        nid: Nid,
        *,
        interface: str | None = None,
        tunables: NetTunables | None = None,
        lnd_tunables: LndTunables | None = None,
        cpts: Iterable[int] | None = None,
        device_node: int = -1,
        also: Sequence[Place] | None = None,
    ) -> NI:
        """Add an NI, and its net if it is the first there; changes nothing when it raises.

        A net's tunables are fixed by its first NI. `cpts` are all unless given; `device_node` is the NUMA
        node of its device (-1: not known). With `also`, be it empty, the net becomes a bonded one: this NI
        has those devices too, and there will be no other. Raises LNetError: EINVAL (NID, no driver,
        credits), ERANGE (CPT), EEXIST (NID or interface), EADDRINUSE (a configured peer's NID), EPERM (bonded
        net), ENOSPC (too many NIs), ESHUTDOWN, or what the driver says.
        """
        lnd = check_new_ni(self.state, self._drivers, net, nid, interface)
        self.gateways.must_not_be_local(net)
        chosen = self.cpts.checked_list(cpts)
        local = self.state.nets.get(net)
        if local is None:
            local = new_net(net, lnd, tunables or NetTunables(), bonded=also is not None)
        ni = NI(
            local,
            nid,
            interface=interface,
            lnd_tunables=None if net == LO_NET else replace(lnd_tunables or LndTunables()),
            cpts=chosen,
            dev_cpt=self.cpts.of_node(device_node),
            also=tuple(also or ()),
        )
        self.health.set_patience(ni)
        lnd.startup(ni)
        ni.active = ni.open = True
        local.nis.append(ni)
        self.state.nis[nid] = ni
        self.state.peers.own_nids_changed(nid)
        if net not in self.state.nets:
            self.state.nets[net] = local
            self.state.peers.net_added(net)
        self.discovery.net_changed(local)
        self.health.ni_added(ni)
        self.policies.nis_changed()
        self._nis_changed()
        return ni

    def del_ni(self, nid: Nid) -> None:
        """Stop and remove an NI; its messages end with ENETDOWN. Raises LNetError(ENOENT, EINVAL)."""
        if nid == LO_NID:
            raise LNetError(errno.EINVAL, "0@lo cannot be deleted: it belongs to every node")
        ni = self.state.nis.get(nid)
        if ni is None:
            raise LNetError(errno.ENOENT, f"{nid} is not one of this node's NIDs: see 'lnetctl net show'")
        self.must_be_free(ni)
        self._remove_ni(ni)
        self.policies.nis_changed()
        self._nis_changed()

    def must_be_free(self, ni: NI) -> None:
        """Raises LNetError(EBUSY) for a slave, which cannot go before its master."""
        for nid, master in self.state.masters.items():
            if master.owns(ni):
                text = f"{ni.nid} is a slave of {nid}: delete that first, or take the slave away from it"
                raise LNetError(errno.EBUSY, text)

    def _remove_ni(self, ni: NI) -> None:
        ni.active = ni.open = False
        del self.state.nis[ni.nid]
        ni.net.nis.remove(ni)
        if not ni.net.nis:
            del self.state.nets[ni.net.net]
        self.state.generation.invalidate("an NI is gone")  # before handlers hear of it and send anew
        self.state.peers.ni_removed(ni)
        self.state.peers.own_nids_changed(ni.nid)
        self.faults.ni_removed(ni)
        self.health.ni_deleted(ni)
        ni.lnd.shutdown(ni)
        self.leaving.gone(ni)

    def set_cpts(self, nid: Nid, cpts: Iterable[int] | None) -> None:
        """Give an NI other CPTs, None for all. Raises LNetError: ENOENT, EINVAL (0@lo, none), ERANGE."""
        if nid == LO_NID:
            raise LNetError(errno.EINVAL, "0@lo has all CPTs: choose those of another NI")
        ni = self.state.nis.get(nid)
        if ni is None:
            raise LNetError(errno.ENOENT, f"{nid} is not one of this node's NIDs: see 'lnetctl net show'")
        self._sender.credits.change_cpts(ni, self.cpts.checked_list(cpts))

    def retune(self, ni: NI) -> None:
        """The driver's tunables of ni changed."""
        self.health.set_patience(ni)
        if ni.lnd_tunables is not None:
            ni.lnd.retune(ni, float(ni.timeout))
        self.discovery.net_changed(ni.net)

    def settings_changed(self) -> None:
        """Values of `settings` are others now: whoever depends on them follows."""
        self.state.generation.invalidate("settings")
        self.health.settings_changed()
        for ni in self.state.nis.values():
            before = ni.timeout
            self.health.set_patience(ni)
            if ni.timeout != before:
                self.retune(ni)

    def _nis_changed(self) -> None:
        self.state.generation.invalidate("NIs")
        self.routing.nis_changed()
        for master in self.state.masters.values():
            master.slaves_changed()

    def explain(
        self, target: Nid, *, source: Nid | None = None, size: int = 0, cpt: int | None = None
    ) -> Explanation:
        """Which path a request of `size` bytes to `target` would take now, and why. Nothing is sent.

        A NID that no peer has is taken for a new peer of that NID. Raises LNetError where the request would
        fail: EINVAL, EHOSTUNREACH, ENETDOWN.
        """
        if not may_be_peer(target) or target == LO_NID:
            raise LNetError(errno.EINVAL, f"{target} is no peer's interface: give the NID of one")
        dest = self.state.peers.find_ni(target) or self.state.peers.imagine(target)
        cpt = self.state.local_cpt() if cpt is None else self.cpts.checked(cpt)
        record = Explanation()
        self._finder.explain(dest, source, size, cpt, record)
        return record

    # Discovery -------------------------------------------------------------------------------------

    def discover(
        self, nid: Nid, *, force: bool = False, done: Callable[[LNetError | None, Peer | None], None]
    ) -> None:
        """Ask a peer anew who it is, and tell it our NIDs; `force`: even if it was told them already.

        `done` hears once, later, of the error or the peer. Raises LNetError: EINVAL, ENOMEM, ESHUTDOWN.
        """
        self.discovery.discover(nid, force=force, done=done)

    def set_discovery(self, mode: int) -> None:
        """0: off; 1: on; 2: only compare what peers tell with what is configured. Raises LNetError."""
        if mode not in (0, 1, 2):
            raise LNetError(errno.EINVAL, f"discovery {mode}: it is 0 (off), 1 (on) or 2 (verify)")
        before = self.settings.discovery
        self.settings.discovery = mode
        if bool(before) != bool(mode):
            self.info.rebuild()
        if before != mode:
            self.discovery.mode_changed(before)

    def shutdown(self) -> None:
        """End everything: drivers stop, messages are finalized, MDs get their last events. Once is enough."""
        if not self.state.running:
            return
        self.state.running = False
        self.state.generation.invalidate("the node shuts down")
        self.discovery.stop()
        self.routing.close()
        self.info.stop()
        self.faults.close()
        self.health.close()
        self._sender.credits.close()
        while self.state.nis:  # handlers may delete some too
            self._remove_ni(next(reversed(self.state.nis.values())))  # masters before their slaves
        self.memory.close()
        while self.state.work_pending:
            self.state.run_deferred()
        self.state.let_end()

    # Drivers ---------------------------------------------------------------------------------------

    def awaits_connection(self, msgs: list[Msg]) -> None:
        """See `Upcalls.awaits_connection`."""
        self._sender.credits.awaits_connection(msgs)

    def has_connection(self, msgs: list[Msg]) -> None:
        """See `Upcalls.has_connection`."""
        self._sender.credits.has_connection(msgs)

    def reclaim(self, md: Md) -> None:
        """Unlink md, and have nothing more come into its memory: what is on its way there is thrown away.

        Over o2ib a peer may write to it until its transfer ends.
        """
        self.memory.md_unlink(md)
        if md.linked:
            self._reception.reclaim(md)

    def give_up(self, md: Md) -> int:
        """End PUTs whose payload is still coming into md, for others need the memory; how many that were.

        Their senders are told that 0 bytes were taken. Over o2ib a peer may write there until its transfer
        ends: such stay.
        """
        given_up = 0
        for put in list(md.arriving or ()):
            length, put.mlength = put.mlength, 0
            if self._delayed.give_up(put):
                given_up += 1
            else:
                put.mlength = length
        return given_up

    def receiver(self, ni: NI, nid: Nid, vouches: Callable[[Nid], bool] | None = None) -> Receiver:
        """See `Upcalls.receiver`."""
        pni = self.peers.find_ni(nid)
        if pni is not None and pni.vouches != vouches:
            self.discovery.certified(pni, vouches)
        return Receiver(self._reception, ni, nid, vouches)

    def forget_rx(self, rx: Payload) -> None:
        """A connection died while the core still held its message."""
        self.routing.forget_rx(rx)
        self._reception.forget_rx(rx)
        self._delayed.forget_rx(rx)

    def path_lost(self, ni: NI, nid: Nid) -> None:
        """A driver tells that the last connection from ni to nid broke: who owes answers is asked after."""
        if not self.state.running:
            return
        self._sender.guard.lost(ni, nid)
        for master in self.state.masters.values():
            master.path_broke(ni, nid)
        self.health.lost(nid)
        self.discovery.path_lost(ni, nid)

    def path_doubted(self, ni: NI, nid: Nid, dest: Nid, leave: bool = True) -> None:
        """A master doubts a path to its peer dest: what waits there leaves, what has left may be lost.

        Without `leave` what waits there stays, as the path is good for what is sent from now on.
        """
        pni = self.peers.find_ni(nid)
        if pni is not None:
            if leave:
                self._sender.credits.leave(ni, pni)
            self._sender.guard.lost(ni, nid, dest)

    def peer_restarted(self, nid: Nid, heard: bool = True) -> None:
        """A driver tells that another life of a node, or another node, is behind nid; `heard`: nid tells."""
        pni = self.peers.find_ni(nid)
        if pni is not None:
            pni.peer.guard = b""  # until the new life says what it keeps
            if heard:
                self.health.restarted(pni)
        self.discovery.peer_restarted(nid)
        self.memory.forsake(nid)
        if pni is not None:
            for member in pni.peer.members.values():
                self._sender.credits.leave(None, member)  # named for the former life, and sent again perhaps
            self.state.defer(self._verify, pni.peer)

    def _verify(self, peer: Peer) -> None:
        """One NI of a peer has begun anew: see whether the others have. Unconnected ones answer no more."""
        nets = self.state.nets
        for nid in list(peer.members):
            net = nets.get(nid.net)
            nis = list(net.nis) if net is not None else []
            connected = [ni.lnd.verify(ni, nid) for ni in nis]
            if not any(connected):
                self.memory.forsake(nid)

    # Time ------------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what is due at `now` (seconds of the node's clock).

        Raises KeyboardInterrupt or SystemExit when a program's call has raised it since the last tick.
        """
        self.state.run_deferred()
        self.state.timers.run(now)
        self.state.let_end()

    def next_deadline(self) -> float | None:
        """When tick is wanted next; None: when `wake` says so."""
        return self.state.timers.next_deadline()
