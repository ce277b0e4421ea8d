"""HELLOs of one bonding NI: sent, taken, answered (bonding design §5.1, §7.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ulnet.lnd.bond.connect import ANSWER_TIME
from ulnet.lnd.bond.hello import INCOMING, Stamp, is_older, stamp_of
from ulnet.wire.bond import BondHello, Configuration, Kind, Mode

if TYPE_CHECKING:
    from ulnet.core.ni import NI
    from ulnet.lnd.bond.bondni import BondNi
    from ulnet.lnd.bond.peer import BondPeer
    from ulnet.nid import Nid

__all__ = ["CAPABILITIES", "Greetings"]

CAPABILITIES: Final = 0x3  # of version 1: weights; incarnations in beacons
_VERSION: Final = 1
_MOST_REFUSED: Final = 1024  # names to remember, so that the log has each once


class Greetings:
    """Tells peers what is true of one bonding NI, and keeps what they say of themselves."""

    __slots__ = ("_bond", "_refused")

    def __init__(self, bond: BondNi) -> None:
        self._bond = bond
        self._refused: set[Nid] = set()

    def greet(self, peer: BondPeer) -> None:
        """Send a peer a HELLO, with what is true now."""
        path = peer.best_for_control()
        if path is not None and not peer.greeting:
            self.greet_over(peer, (path.ni, path.nid))

    def greet_over(self, peer: BondPeer, way: tuple[NI, Nid]) -> None:
        """The same, over a certain path."""
        bond = self._bond
        stamp = bond.incarnation
        peer.greeting = True

        def done(ok: bool) -> None:
            peer.greeting = False
            if bond.peers.get(peer.nid) is not peer:
                return
            if ok:
                peer.told = stamp
            elif way in bond.ways:
                bond.suspect(*bond.ways[way])
            if peer.connected and peer.told != bond.incarnation and bond.config.mode is Mode.STANDBY:
                bond.soon(lambda: self.greet(peer) if ok else bond.monitor.wanted())

        hello = BondHello(stamp, peer.incarnation, bond.slaves.own, (CAPABILITIES,))
        bond.post.tell(*way, Kind.HELLO, hello.pack(), ANSWER_TIME, done)

    def greet_stranger(self, way: tuple[NI, Nid], peer: BondPeer | None) -> None:
        """Begin a handshake with a server, whose bonding NID may not be known yet."""
        bond = self._bond
        if peer is not None:
            self.greet_over(peer, way)
            return
        hello = BondHello(bond.incarnation, 0, bond.slaves.own, (CAPABILITIES,))
        bond.post.tell(*way, Kind.HELLO, hello.pack(), ANSWER_TIME, lambda ok: None)

    def take_hello(self, hello: BondHello, at: NI, source: Nid) -> None:
        """A HELLO came over a slave from the NID source."""
        bond = self._bond
        found = hello.configuration
        if found.nid == bond.ni.nid or all(one.nid != source for one in found.slaves):
            self._drop("bonding HELLO from somebody else")
            return
        if found.slaves[0].nid.net != bond.config.slaves[0].net:
            self._refuse(found)
            return
        peer = bond.peers.get(found.nid) or bond.new_peer(found.nid)
        if peer is None:
            self._drop("too many bonding peers")
            return
        stamp = stamp_of(hello.target, bond.incarnation)
        if peer.connected and stamp is not Stamp.ZERO and is_older(hello.source, peer.incarnation):
            self._drop("bonding HELLO that was overtaken")
            return
        if stamp is Stamp.CURRENT:
            peer.told = bond.incarnation
        elif stamp is Stamp.ZERO and peer.connected:  # it has restarted
            peer.told = 0
        reaction = INCOMING[peer.state, stamp]
        if reaction.save:
            peer.learn(hello, _VERSION, CAPABILITIES)
            bond.lay_paths(peer)
        was_connected, peer.state = peer.connected, reaction.next
        known = bond.ways.get((at, source))
        if known is not None:
            bond.alive(peer, known[1])
        bond.monitor.try_again([peer])
        if reaction.answer and not peer.greeting:
            self.greet_over(peer, (at, source))
        bond.servers.heard(peer)
        if not was_connected or peer.waiting:
            bond.connected(peer)

    def _refuse(self, found: Configuration) -> None:
        bond = self._bond
        self._drop("bonding HELLO with its first slave on another net")
        if found.nid not in self._refused and len(self._refused) < _MOST_REFUSED:
            self._refused.add(found.nid)
            bond.report(
                f"{found.nid} has its first slave on {found.slaves[0].nid.net}, {bond.ni.nid} on "
                f"{bond.config.slaves[0].net}: all of one bonding net must have it on the same net"
            )

    def _drop(self, why: str) -> None:
        self._bond.core.stats.drops[why] += 1
