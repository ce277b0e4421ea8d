"""One bonding NI: its slaves, its peers, and which path each message takes (bonding design §2, §6, §7)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from ulnet.bond.balance import take
from ulnet.bond.config import BondConfig
from ulnet.bond.connect import PATIENCE, Connect
from ulnet.bond.data_server import DataServer
from ulnet.bond.handshake import Handshake
from ulnet.bond.hello import PeerState, next_incarnation
from ulnet.bond.monitor import Monitor
from ulnet.bond.peer_table import BondPeerTable
from ulnet.bond.servers import Servers
from ulnet.bond.slaves import Slaves
from ulnet.core.lines import Line
from ulnet.core.status import HealthStatus
from ulnet.nid import NetType, Nid
from ulnet.wire.bond import Mode, Policy
from ulnet.wire.lnet import HEADER_SIZE

if TYPE_CHECKING:
    from ulnet.bond.contract import MasterUpcalls
    from ulnet.bond.control import ControlChannel
    from ulnet.bond.paths import Path
    from ulnet.bond.peer import BondPeer
    from ulnet.core.msg import Msg
    from ulnet.core.ni import NI
    from ulnet.core.timers import Timer
    from ulnet.wire.lnet import Header

__all__ = ["BondNi"]

_MOST_STRANGERS: Final = 256  # handshakes under way, for one more with somebody of whom data came
_TOLD_AT_ONCE: Final = 64  # peers that hear of a change in one turn
_MOST_AT_ONCE: Final = 64  # messages that waited for their peers, and go or fail in one turn


class BondNi:
    """The master of its slaves (ulnet.core.lnd.Master). `changed` hears of a new incarnation."""

    def __init__(
        self,
        core: MasterUpcalls,
        ni: NI,
        config: BondConfig,
        control: ControlChannel,
        incarnation: int,
        changed: Callable[[], None],
    ) -> None:
        self.core = core
        self.ni = ni
        self.config: BondConfig = config
        self.control = control
        self.incarnation: int = incarnation
        self._changed = changed
        self.clock: Callable[[], float] = core.clock
        self._generation = core.generation
        self.report: Callable[[str], None] = core.report
        self.slaves: Slaves = Slaves(core, ni.nid, config)
        self.table: BondPeerTable = BondPeerTable()
        self.peers: dict[Nid, BondPeer] = self.table.peers
        self.path: Callable[[Nid, NI, Nid], tuple[BondPeer, Path] | None] = self.table.path
        self._connects: dict[BondPeer, Connect] = {}
        self._untold: dict[BondPeer, None] = {}  # that are to hear of a change
        self._going: dict[BondPeer, int] = {}  # how many of the messages that wait for them go or fail now
        self.handshake: Handshake = Handshake(self)
        self.data: DataServer = DataServer(self)
        self.servers: Servers = Servers(self)
        self.monitor: Monitor = Monitor(self)
        self._looked_at = -1
        self._to_look = False
        self.failovers: int = 0

    def start(self) -> None:
        """Register with the bonding data servers."""
        self.servers.replace(self.config.servers)

    def close(self) -> None:
        """The NI is shut down: messages that wait end."""
        self.servers.close()
        self.monitor.close()
        self.handshake.close()
        for connect in self._connects.values():
            connect.stop()
        self._connects.clear()
        self._going.clear()
        err, reason = errno.ESHUTDOWN, f"the local interface {self.ni.nid} has been shut down"
        for peer in self.peers.values():
            for _ in range(len(peer.waiting)):  # who hears of it may send anew
                self.core.completed([peer.waiting.popleft()[0]], HealthStatus.LOCAL_ERROR, err, reason)
        self.table.clear()

    # Time ------------------------------------------------------------------------------------------

    def after(self, seconds: float, call: Callable[[], None]) -> Timer:
        """Call later."""
        return self.core.timers.at(self.clock() + seconds, call)

    def cancel(self, timer: Timer | None) -> None:
        """Take such a call back."""
        self.core.timers.cancel(timer)

    def soon(self, call: Callable[[], None]) -> None:
        """Call outside the present stack."""
        self.core.defer(call)

    # Messages --------------------------------------------------------------------------------------

    def send(self, msg: Msg) -> None:
        """Pass msg on to a slave, now or when its peer is known."""
        nid = msg.next_nid
        assert nid is not None
        if nid.net.type != NetType.BOND or nid == self.ni.nid:
            self._send_to_slave(msg, nid)
            return
        if self._looked_at != self._generation.number:
            self.look()
        peer = self.peers.get(nid) or self.table.new(nid)
        if peer is None:
            self._fail(msg, errno.ENOMEM, "too many bonding peers", HealthStatus.LOCAL_ERROR)
            return
        now = peer.used_at = self.clock()
        if not peer.connected:
            peer.waiting.append((msg, now))
            self.connect(peer)
            return
        self.monitor.wanted()
        if peer in self._going:  # nothing overtakes what waited
            peer.waiting.append((msg, now))
            self._going[peer] += 1
            return
        self._send_on(peer, msg, now)

    def _send_to_slave(self, msg: Msg, nid: Nid) -> None:
        """To itself; or the answer to what a router passed on, which came from one of its slaves."""
        itself = nid == self.ni.nid
        for slave, off in zip(self.slaves.nis, self.slaves.off, strict=True):
            if slave.up and not off and (itself or slave.nid.net == nid.net):
                self._pass_on(msg, slave, slave.nid if itself else nid)
                return
        reason = f"no slave of {self.ni.nid} reaches {nid}"
        self._fail(msg, errno.EHOSTUNREACH, reason, HealthStatus.REMOTE_ERROR)

    def _send_on(self, peer: BondPeer, msg: Msg, since: float) -> None:
        """Pass msg, which came here at `since`, on to a slave that the peer knows, or let it wait."""
        slaves = self.slaves
        ways = peer.ways(self._generation.number, slaves.own, slaves.off, slaves.chosen)
        if not ways:
            reason = f"no slave of {self.ni.nid} reaches one of {peer.nid}"
            self._fail(msg, errno.EHOSTUNREACH, reason, HealthStatus.REMOTE_ERROR)
            return
        if not self.core.identify(msg, peer):
            reason = "the peer was restarted: its former life may have the message"
            self._fail(msg, errno.ECONNRESET, reason)
            return
        if msg.attempts is not None:
            failed = [(ni, pni.nid) for ni, pni in msg.attempts.tried]
            tried = {path for path in peer.paths if (path.ni, path.nid) in failed}
            ways = peer.untried(ways, self.slaves.off, tried)
        if msg.via is not None:
            ways = peer.back(ways, self.slaves.off, msg.via)
        path = ways[0]
        if len(ways) > 1:
            self.core.settle()  # what each has under way may decide
            path = take(self.policy, ways, HEADER_SIZE + msg.hdr.payload_length)
        if peer.told != self.incarnation and not peer.settling:
            self.handshake.send_hello(peer)
        if path.ni.nid in peer.knows or not peer.settling:
            self._pass_on(msg, path.ni, path.nid)
        else:
            peer.waiting.append((msg, since))  # until it knows that slave: it takes nothing from others

    def hello_ended(self, peer: BondPeer, taken: bool) -> None:
        """What waits goes; where the HELLO was not taken, what has waited for too long fails."""
        if not (peer.waiting and peer.connected):
            return
        if not taken:
            peer.takes_none = self.clock() - PATIENCE
        self.soon(partial(self.connected, peer))

    def _pass_on(self, msg: Msg, slave: NI, nid: Nid) -> None:
        pni, kind = msg.peer_ni, msg.hdr.type
        if not self.core.pass_on(msg, self, slave, nid):
            reason = f"too many unknown peers: cannot remember {nid}"
            self._fail(msg, errno.ENOMEM, reason, HealthStatus.LOCAL_ERROR)
            return
        for counted in (self.ni.stats,) if pni is None else (self.ni.stats, pni.stats):
            counted.sent[kind] += 1
            counted.sent_bytes += msg.hdr.payload_length

    def _fail(self, msg: Msg, err: int, reason: str, status: HealthStatus = HealthStatus.OK) -> None:
        """End msg with that errno, soon; with OK nobody is charged."""
        self.core.defer(self.core.completed, [msg], status, err, reason)

    def _let_go(self, peer: BondPeer) -> None:
        """What waits for a peer goes if that is connected, else it fails: some of it now."""
        begins = not self._going
        self._going[peer] = len(peer.waiting)
        if begins:
            self._let_some_go()

    def _let_some_go(self) -> None:
        """So many messages have their turn; peers with more of them come last next time."""
        room = _MOST_AT_ONCE
        try:
            for peer in list(islice(self._going, room)):
                if not room:  # who had no turn keeps its place
                    break
                while room and self._going.get(peer) and peer.waiting:
                    room -= 1
                    self._going[peer] -= 1
                    self._let_one_go(peer, *peer.waiting.popleft())
                left = self._going.pop(peer, 0)
                if left and peer.waiting:
                    self._going[peer] = left
                elif not peer.connected:
                    self._forget_idle(peer)
        finally:
            if self._going:
                self.soon(self._let_some_go)

    def _let_one_go(self, peer: BondPeer, msg: Msg, since: float) -> None:
        if not peer.connected:
            reason = f"{peer.nid}: no bonding data server knows it, and its first slave says no HELLO"
            self.core.completed([msg], HealthStatus.REMOTE_ERROR, errno.EHOSTUNREACH, reason)
        elif msg.md is not None and msg.md.aborted:
            reason = "the memory descriptor was unlinked before the message left"
            self._fail(msg, errno.ECANCELED, reason)
        elif since <= peer.takes_none:
            reason = f"{peer.nid} says HELLO, and takes none of ours in {PATIENCE:g} s: see what runs there"
            self._fail(msg, errno.EHOSTUNREACH, reason, HealthStatus.REMOTE_ERROR)
        else:
            self._send_on(peer, msg, since)

    def _forget_idle(self, peer: BondPeer) -> None:
        """Nobody wants that peer any more; copies of PUTs to it may be left, which its next life ends."""
        wanted = peer.waiting or peer in self._connects or peer.prefix
        if self.peers.get(peer.nid) is peer and not wanted:
            self.table.forget(peer)

    @property
    def policy(self) -> int:
        """How messages are shared among the paths that are left."""
        return self.config.policy if self.config.mode is Mode.LOADBALANCE else Policy.ROUND_ROBIN

    @property
    def in_hand(self) -> list[Msg]:
        """The messages that wait here for their peers."""
        return [msg for peer in self.peers.values() for msg, _ in peer.waiting]

    # Master ----------------------------------------------------------------------------------------

    def owns(self, ni: NI) -> bool:
        """Whether ni is a slave."""
        return ni in self.slaves

    def owns_nid(self, nid: Nid) -> bool:
        """Whether nid is that of a slave."""
        return nid in self.config.slaves

    def heard(self, ni: NI, hdr: Header, from_nid: Nid) -> None:
        """Messages for this NI come over a slave."""
        known = self.path(hdr.src_nid, ni, from_nid)
        if known is not None:
            peer, path = known
            self.alive(peer, path)
            if peer.told != self.incarnation and peer.connected and not peer.settling:
                self.handshake.send_hello(peer)
        elif hdr.src_nid.net == self.ni.nid.net and hdr.src_nid != self.ni.nid:
            self._ask(hdr.src_nid, (ni, from_nid))

    def _ask(self, nid: Nid, hint: tuple[NI, Nid] | None) -> None:
        """Something came in the name of nid: where it is not connected, it may know an earlier life."""
        if len(self._connects) >= _MOST_STRANGERS:
            return
        found = self.peers.get(nid) or self.table.new(nid)
        if found is not None and not found.connected:
            self.connect(found, hint)

    def received(self, kind: int, count: int, size: int) -> None:
        """Count messages for this NI that came over slaves, `size` bytes of payload together."""
        self.ni.stats.received[kind] += count
        self.ni.stats.received_bytes += size

    def slaves_changed(self) -> None:
        """The core knows better than before how slaves are."""
        self.look()
        self.monitor.try_again(self.peers.values())

    def failed(self, msg: Msg, ni: NI, nid: Nid) -> None:
        """A message failed on its path: it is avoided until something comes that way."""
        known = self.path(msg.hdr.dest_nid, ni, nid)
        if known is not None:
            self.suspect(*known)

    def has_other_path(self, msg: Msg, ni: NI, nid: Nid) -> bool:
        """Whether another path that works leads to whom msg is for."""
        known = self.path(msg.hdr.dest_nid, ni, nid)
        peer = known[0] if known is not None else self.peers.get(msg.hdr.dest_nid)
        if peer is None:
            return False
        return any((one.ni, one.nid) != (ni, nid) for one in peer.working(self.slaves.off))

    def path_broke(self, ni: NI, nid: Nid) -> None:
        """The last connection of a path broke: find out whether it works."""
        for peer, path in self.table.over(ni, nid):
            if peer.connected:
                self.monitor.check(peer, path)

    # Paths and slaves ------------------------------------------------------------------------------

    def alive(self, peer: BondPeer, path: Path) -> None:
        """Something came over a path."""
        path.heard_at = self.clock()
        if path.down:
            path.down = False
            peer.revision += 1
            self._look_soon()

    def suspect(self, peer: BondPeer, path: Path) -> None:
        """A message or a keepalive failed on a path."""
        if not path.down:
            path.down = True
            peer.revision += 1
            self._look_soon()
            self.core.path_doubted(path.ni, path.nid, peer.nid)
            if all(one.down for one in peer.paths):
                self.core.defer(self._lost_all, peer)
            self.monitor.doubted()
        self.monitor.wanted()

    def _lost_all(self, peer: BondPeer) -> None:
        """Nothing of the peer answers any more: perhaps it is gone, perhaps its slaves are others now."""
        if not peer.connected or self.peers.get(peer.nid) is not peer or not all(p.down for p in peer.paths):
            return
        self.report(Line("bond.peer_lost", f"bonding peer {peer.nid}: no path answers", peer=peer.nid))
        peer.state = PeerState.UNKNOWN
        peer.incarnation = 0  # so that the next HELLO asks for an answer
        self.handshake.settle(peer)
        self._going.pop(peer, None)  # it waits for the next HELLO
        peer.forgets()
        if peer.waiting or self.clock() - peer.used_at < PATIENCE:
            self.connect(peer)

    def _look_soon(self) -> None:
        """Once, however many paths to however many peers change at a time."""
        if not self._to_look:
            self._to_look = True
            self.soon(self._look_now)

    def _look_now(self) -> None:
        if self._to_look and self.core.masters.get(self.ni.nid) is self:
            self.look()

    def look(self) -> None:
        """Judge the slaves anew; who must know of a change hears of it."""
        self._to_look = False
        self._looked_at = self._generation.number
        before = self.slaves.active.nid
        changed, moved = self.slaves.look(self.peers.values())
        if moved:
            self.failovers += 1
            text = f"{self.ni.nid}: {self.slaves.active.nid} is the active slave now, no more {before}"
            self.report(Line("bond.failover", text, nid=self.ni.nid, slave=self.slaves.active.nid))
        if changed:
            self.renew()

    def renew(self) -> None:
        """Another configuration, another incarnation: in standby all hear of it now, else when in touch."""
        self.incarnation = next_incarnation(self.incarnation)
        telling = bool(self._untold)
        for peer in self.peers.values():
            peer.revision += 1
            if self.config.mode is Mode.STANDBY and peer.connected:
                self._untold[peer] = None
        if not telling:
            self._tell_some()
        self._changed()

    def _tell_some(self) -> None:
        """Of the peers that are to hear of a change, so many hear of it in one turn."""
        if self.core.masters.get(self.ni.nid) is not self:
            return
        for peer in list(islice(self._untold, _TOLD_AT_ONCE)):
            del self._untold[peer]
            known = self.peers.get(peer.nid) is peer
            if known and peer.connected and peer.told != self.incarnation:
                self.handshake.send_hello(peer)
        if self._untold:
            self.soon(self._tell_some)

    # Commands --------------------------------------------------------------------------------------

    def switch(self, index: int, on: bool) -> None:
        """Use a slave, or do not."""
        self.slaves.off[index] = not on
        self.look()

    def fail_over(self, index: int) -> None:
        """Make a slave the active one."""
        self.failovers += index != self.slaves.standby.active
        self.slaves.standby.force(index)
        for peer in self.peers.values():
            peer.revision += 1
        self.look()

    def reconfigure(self, config: BondConfig) -> None:
        """Another mode, other slaves, weights, servers: messages under way are not touched."""
        self.config = config
        self.slaves.replace(config)
        for peer in self.peers.values():
            self.lay_paths(peer)
        self.servers.replace(config.servers)
        self.look()
        self.servers.register_all()

    # Peers -----------------------------------------------------------------------------------------

    def comes_by(self, source: Nid, from_nid: Nid) -> bool:
        """Whether what a peer sends may come from that slave: the first one, or one that it has named.

        A peer that is not connected, and seems to have sent by another one, is asked which are its own.
        """
        peer = self.peers.get(source)
        if from_nid == self.guess(source) or (peer is not None and from_nid in peer.had):
            return True
        self._ask(source, None)
        return False

    def guess(self, nid: Nid) -> Nid:
        """The first slave of a bonding NI, as its NID tells (design §5.1)."""
        return Nid.of(self.config.slaves[0].net, nid.address)

    def connect(self, peer: BondPeer, hint: tuple[NI, Nid] | None = None) -> None:
        """Shake hands with a peer, if that is not under way."""
        if peer not in self._connects:
            connect = self._connects[peer] = Connect(self, peer, hint)
            self.soon(connect.begin)

    def connected(self, peer: BondPeer) -> None:
        """Both have said HELLO: what waited goes, unless the peer was lost again meanwhile."""
        if not peer.connected:
            return
        connect = self._connects.pop(peer, None)
        if connect is not None:
            connect.stop()
        peer.connecting = False
        self.monitor.wanted()
        self._let_go(peer)

    def unreachable(self, peer: BondPeer) -> None:
        """The time for an answer is over."""
        self._connects.pop(peer, None)
        self._let_go(peer)

    def lay_paths(self, peer: BondPeer) -> None:
        """The slaves of one side are others, or weigh something else."""
        self.table.take_out(peer)
        peer.lay_paths(self.slaves.nis, self.config.weights, self.core.peers)
        self.table.put_in(peer)
