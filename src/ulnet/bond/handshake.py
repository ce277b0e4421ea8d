"""HELLOs of one bonding NI: sent, taken, answered (bonding design §5.1, §7.1)."""

from __future__ import annotations

import errno
from collections.abc import Container
from functools import partial
from typing import TYPE_CHECKING, Final

from ulnet.bond.connect import ANSWER_TIME
from ulnet.bond.hello import INCOMING, Stamp, is_older, stamp_of
from ulnet.core.guard import AGAIN, tag_of
from ulnet.core.lines import Line
from ulnet.wire.bond import Beacon, BondHello, Capability, Configuration, Kind, Mode, SlaveStatus

if TYPE_CHECKING:
    from ulnet.bond.bondni import BondNi
    from ulnet.bond.peer import BondPeer
    from ulnet.core.ni import NI
    from ulnet.core.timers import Timer
    from ulnet.nid import Nid

__all__ = ["CAPABILITIES", "Handshake"]

CAPABILITIES: Final = int(Capability.WEIGHTS | Capability.BEACONS | Capability.GUARD)
_VERSION: Final = 1
_TAKEN_BY: Final = 2 * ANSWER_TIME  # what a peer asks about is believed then
_MOST_ASKED: Final = 8  # paths on which a peer is asked whether a new slave is its own
_MOST_CLAIMS: Final = 256  # slaves that are not known and wait to be believed, or were refuted
_PAUSE: Final = 2.0  # seconds without a question about the next claim of who was refuted
_MOST_REFUSED: Final = 1024  # names to remember, so that the log has each once


class Handshake:
    """Tells peers what is true of one bonding NI, and keeps what they say of themselves."""

    __slots__ = ("_bond", "_claims", "_refused", "_refuted", "_renewed")

    def __init__(self, bond: BondNi) -> None:
        self._bond = bond
        self._refused: set[Nid] = set()
        self._claims: dict[Nid, tuple[Nid, Timer]] = {}  # of slaves, by bonding NID, until believed
        self._renewed: dict[BondPeer, dict[Nid, None]] = {}  # other lives of peers, and where copies may be
        self._refuted: dict[Nid, float] = {}  # until when nobody is asked about what a NID says, oldest first

    def send_hello(self, peer: BondPeer) -> None:
        """Send a peer a HELLO, with what is true now."""
        path = peer.best_for_control()
        if path is not None and not peer.greeting:
            self.send_hello_over(peer, (path.ni, path.nid))

    def send_hello_over(self, peer: BondPeer, way: tuple[NI, Nid], sure: bool = True) -> None:
        """Greet a peer over a certain path; `sure`: who is there speaks for it."""
        bond = self._bond
        stamp, own = bond.incarnation, bond.slaves.own
        at_once = self._is_taken_at_once(peer, way[0])
        peer.greeting = True
        peer.greeted = way[1] if sure and not peer.connected else None

        def done(ok: bool) -> None:
            peer.greeting = False
            over, peer.answer_over = peer.answer_over, None
            if bond.peers.get(peer.nid) is not peer:
                return
            if ok and at_once:
                self._is_taken(peer, stamp, own)
            elif ok:
                self._may_ask(peer, stamp, own)
            elif (known := bond.path(peer.nid, *way)) is not None:
                bond.suspect(*known)
            bond.hello_ended(peer, ok)
            if over is not None and (over != way or not at_once):
                self.send_hello_over(peer, over)
                return
            late = peer.told != bond.incarnation and not peer.settling
            if peer.connected and late and bond.config.mode is Mode.STANDBY:
                other = peer.best_for_control()
                if ok or (other is not None and other.works):
                    bond.soon(lambda: self.send_hello(peer))
                else:
                    bond.monitor.wanted()

        bond.control.tell(*way, Kind.HELLO, self._hello(peer.incarnation), ANSWER_TIME, done)

    def _is_taken_at_once(self, peer: BondPeer, slave: NI) -> bool:
        return peer.trusts(slave, slave is self._bond.slaves.nis[0])

    def _is_taken(self, peer: BondPeer, stamp: int, own: Configuration) -> None:
        """A peer has taken the HELLO with that incarnation and configuration."""
        self.settle(peer)
        peer.hears(stamp, own)

    def settle(self, peer: BondPeer) -> None:
        """Wait no longer for a peer to take a HELLO."""
        self._bond.cancel(peer.doubt)
        peer.doubt = None

    def _may_ask(self, peer: BondPeer, stamp: int, own: Configuration) -> None:
        """A HELLO arrived, and the peer may be asking our first slave about it.

        Where messages wait, one from a slave that it trusts follows; where none of these works, the peer
        believes this one when its question has ended.
        """
        bond = self._bond
        best = peer.best_for_control()
        if not peer.connected or peer.told == stamp or peer.doubt is not None:
            return
        if best is not None and self._is_taken_at_once(peer, best.ni):
            return

        def over() -> None:
            peer.doubt = None
            peer.hears(stamp, own)
            bond.connected(peer)

        peer.doubt = bond.after(_TAKEN_BY, over)

    def _hello(self, target: int) -> bytes:
        bond = self._bond
        can, guard = CAPABILITIES, tag_of(bond.core.cookie)
        if not bond.core.guards:
            can, guard = CAPABILITIES & ~Capability.GUARD, b""
        return BondHello(bond.incarnation, target, bond.slaves.own, (can,), guard=guard).pack()

    def send_hello_to_stranger(self, way: tuple[NI, Nid], peer: BondPeer | None) -> None:
        """Begin a handshake with a server, whose bonding NID may not be known yet."""
        bond = self._bond
        if peer is not None:
            self.send_hello_over(peer, way)
            return
        bond.control.tell(*way, Kind.HELLO, self._hello(0), ANSWER_TIME, lambda ok: None)

    def take_hello(self, hello: BondHello, at: NI, source: Nid) -> None:
        """A HELLO came over a slave from the NID source."""
        bond = self._bond
        found = hello.configuration
        slaves = {one.nid for one in found.slaves}
        if found.nid == bond.ni.nid or source not in slaves or not slaves.isdisjoint(bond.core.nis):
            self._drop("bonding HELLO from somebody else")
            return
        if found.slaves[0].nid.net != bond.config.slaves[0].net:
            self._refuse(found)
            return
        sender = bond.core.peers.find_ni(source)
        vouches = sender.vouches if sender is not None else None
        if vouches is not None and not vouches(found.nid):
            self._drop("bonding HELLO that its sender's certificate is not for")
            return
        known = bond.peers.get(found.nid)
        if vouches is None and not self._may_speak(known, found.nid, source):
            self._drop("bonding HELLO from a slave that is not known yet")
            self._ask_about(known, hello, at, source)
            return
        peer = known or bond.table.new(found.nid)
        if peer is None:
            self._drop("too many bonding peers")
            return
        self._take(peer, hello, at, source)

    def _may_speak(self, peer: BondPeer | None, name: Nid, source: Nid) -> bool:
        """Whether the NID source is known to be one of that bonding NID.

        Where that is not connected, it has its address, or this node has greeted it there.
        """
        bond = self._bond
        if peer is not None and peer.connected:
            return peer.has_slave(source)
        greeted = peer.greeted if peer is not None else None
        return source in (bond.guess(name), greeted) or source in bond.servers.all

    def _ask_about(self, peer: BondPeer | None, hello: BondHello, at: NI, source: Nid) -> None:
        """A slave that is not known speaks for a bonding NI: believed if those that are say nothing else."""
        bond, name, refuted = self._bond, hello.configuration.nid, self._refuted
        now = bond.clock()
        while refuted and refuted[next(iter(refuted))] <= now:
            del refuted[next(iter(refuted))]
        if name in self._claims or source in refuted or any(source == by for by, _ in self._claims.values()):
            return
        if len(self._claims) + len(refuted) >= _MOST_CLAIMS:
            return

        def believe() -> None:
            del self._claims[name]
            found = bond.peers.get(name) or bond.table.new(name)
            if found is not None:
                found.unconfirmed = True
                self._take(found, hello, at, source)

        self._claims[name] = source, bond.after(ANSWER_TIME, believe)
        if peer is not None and peer.connected:
            self._greet_all(peer)
            return
        first = bond.guess(name)
        for ni in [ni for ni in bond.slaves.nis if ni.nid.net == first.net and ni.active][:_MOST_ASKED]:
            bond.control.ask(ni, first, ANSWER_TIME, partial(self._first_answered, name, ni, first))

    def _first_answered(self, name: Nid, ni: NI, first: Nid, beacon: Beacon | None) -> None:
        """The NID that has the address of a bonding NI, for which another one spoke, is there or is not."""
        if beacon is None or name not in self._claims:
            return
        if name.net in dict(beacon.incarnations):
            self.greet(ni, first)
        else:  # a node that has no such NI
            self._end_claim(name)

    def _end_claim(self, name: Nid, slaves: Container[Nid] = ()) -> None:
        """A bonding NI, or its first slave, has answered, and named these slaves."""
        source, timer = self._claims.pop(name, (None, None))
        self._bond.cancel(timer)
        if source is not None and source not in slaves:
            self._refuted[source] = self._bond.clock() + _PAUSE

    def _greet_all(self, peer: BondPeer) -> None:
        for path in [path for path in peer.paths if path.ni.active][:_MOST_ASKED]:
            self.greet(path.ni, path.nid)

    def greet(self, ni: NI, nid: Nid) -> None:
        """Ask a slave that knows bonding what is true there."""
        self._bond.control.tell(ni, nid, Kind.HELLO, self._hello(0), ANSWER_TIME, lambda ok: None)

    def close(self) -> None:
        """Believe nobody any more, and wait for nobody."""
        for peer in self._bond.peers.values():
            self.settle(peer)
        for name in list(self._claims):
            self._end_claim(name)

    def _take(self, peer: BondPeer, hello: BondHello, at: NI, source: Nid) -> None:
        bond = self._bond
        self._end_claim(peer.nid, [one.nid for one in hello.configuration.slaves])
        stamp = stamp_of(hello.target, bond.incarnation)
        first = source == bond.guess(peer.nid)
        overtaken = is_older(hello.source, peer.incarnation) and not (first and peer.unconfirmed)
        confirmed = first and peer.unconfirmed
        peer.unconfirmed &= not first
        if peer.connected and stamp is not Stamp.ZERO and overtaken:
            self._drop("bonding HELLO that was overtaken")
            return
        if stamp is Stamp.CURRENT:
            self._is_taken(peer, bond.incarnation, bond.slaves.own)
        elif stamp is Stamp.ZERO and peer.connected:  # it has restarted
            peer.forgets()
        peer.asked_at = at.nid
        reaction = INCOMING[peer.state, stamp]
        if reaction.save:
            self._learn(peer, hello, confirmed)
        was_connected, peer.state = peer.connected, reaction.next
        bond.table.spoke(peer, source)
        known = bond.path(peer.nid, at, source)
        if known is not None:
            bond.alive(peer, known[1])
        bond.monitor.try_again([peer])
        if reaction.answer and peer.greeting:
            peer.answer_over = (at, source)  # who asked may wait for an answer from the NID that it asked
        elif reaction.answer:
            self.send_hello_over(peer, (at, source))
        bond.servers.heard(peer, source)
        if not was_connected or peer.waiting:
            bond.connected(peer)

    def _learn(self, peer: BondPeer, hello: BondHello, confirmed: bool) -> None:
        """Take what a HELLO says of its peer; `confirmed`: others may have been believed for that before."""
        bond = self._bond
        before, tag, hops = peer.configuration, peer.guard, peer.had.copy()
        former = peer.paths if not peer.connected or _is_another(hello.source, peer.incarnation) else []
        if confirmed or not peer.connected:
            peer.had.clear()
        peer.learn(hello, _VERSION, CAPABILITIES)
        bond.lay_paths(peer)
        self._leave_lost(peer, before)
        for path in former if tag and peer.guard == tag else ():  # its NI was made anew: it took none then
            bond.core.path_doubted(path.ni, path.nid, peer.nid, leave=False)
        renewed = peer.guard != tag or confirmed
        if renewed and peer.prefix and not peer.unconfirmed:  # PUTs to it may have been sent again
            if peer not in self._renewed:
                bond.soon(partial(self._end_copies, peer))
            self._renewed.setdefault(peer, {}).update(hops | peer.had)

    def _leave_lost(self, peer: BondPeer, before: Configuration | None) -> None:
        """What was under way to slaves that are not up any more may be lost."""
        now = peer.configuration
        if before is None or now is None:
            return
        was_up = {one.nid for one in before.slaves if one.status == SlaveStatus.UP}
        for path in peer.paths:
            if path.nid in was_up and now.slaves[path.remote].status == SlaveStatus.DOWN:
                self._bond.core.path_doubted(path.ni, path.nid, peer.nid)

    def _end_copies(self, peer: BondPeer) -> None:
        """End PUTs that were sent again to the former life of a peer: the present one drops those.

        A PUT that was sent once is taken by whichever life it comes to.
        """
        memory = self._bond.core.memory
        for md in [md for nid in self._renewed.pop(peer) for md in memory.at_hop(nid)]:
            put = md.put
            if put is None or put.hdr.dest_nid != peer.nid or put.wmd[15] != AGAIN:
                continue
            if put.wmd[13:15] != peer.guard:
                memory.md_unlink(md, errno.ECONNRESET)

    def _refuse(self, found: Configuration) -> None:
        bond = self._bond
        self._drop("bonding HELLO with its first slave on another net")
        if found.nid not in self._refused and len(self._refused) < _MOST_REFUSED:
            self._refused.add(found.nid)
            text = (
                f"{found.nid} has its first slave on {found.slaves[0].nid.net}, {bond.ni.nid} on "
                f"{bond.config.slaves[0].net}: all of one bonding net must have it on the same net"
            )
            bond.report(Line("bond.odd", text))

    def _drop(self, why: str) -> None:
        self._bond.core.stats.drops[why] += 1


def _is_another(incarnation: int, known: int) -> bool:
    """Whether that is the incarnation of another NI of that name, and not the known one's after changes."""
    near = incarnation == known or is_older(incarnation, known) or is_older(known, incarnation)
    return bool(known) and not near
