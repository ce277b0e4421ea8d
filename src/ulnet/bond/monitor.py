"""Keepalives: paths to peers in use are tried when nothing came over them for a while (bonding design §3).

A path is a local slave and a slave of the peer, so one that is dead here may be alive from another slave.
Without peers in use there is no timer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ulnet.bond.connect import ANSWER_TIME
from ulnet.bond.hello import is_older
from ulnet.wire.bond import Beacon, Mode

if TYPE_CHECKING:
    from ulnet.bond.bondni import BondNi
    from ulnet.bond.paths import Path
    from ulnet.bond.peer import BondPeer
    from ulnet.core.timers import Timer

__all__ = ["IN_USE", "Monitor"]

_EARLY: Final = 0.01  # seconds: clocks of timers and of messages differ a little
_LONGEST: Final = 4  # keepalive times between tries of a path that does not answer, at most
_SHORTEST: Final = 0.25  # and at least; in between, as much of the time since it last answered
IN_USE: Final = 30.0  # seconds after its last message until a peer is left alone
_MOST_ASKED: Final = 8  # paths of a peer that were never heard: it may name slaves that are not there


class Monitor:
    """Of one bonding NI."""

    __slots__ = ("_bond", "_early", "_timer", "keepalives")

    def __init__(self, bond: BondNi) -> None:
        self._bond = bond
        self._timer: Timer | None = None
        self._early = False  # it runs for a path that does not answer
        self.keepalives: int = 0

    def wanted(self) -> None:
        """A peer is in use, or a path is in doubt."""
        if self._timer is None:
            self._early = False
            self._timer = self._bond.after(self._bond.config.keepalive, self._look)

    def doubted(self) -> None:
        """A path does not answer any more: it may be back soon."""
        if self._timer is not None and self._early:
            return  # where many fall silent, one after the other, none puts off the look at all
        self._bond.cancel(self._timer)
        self._early = True
        self._timer = self._bond.after(self._bond.config.keepalive * _SHORTEST, self._look)

    def try_again(self, peers: Iterable[BondPeer]) -> None:
        """Slaves are said to be up again: find out now."""
        for peer in peers:
            for path in self._in_turn(peer) if peer.connected else ():
                if path.down and path.ni.up:
                    path.again = path.probing  # what set out before may be lost: then once more
                    if not path.probing:
                        self._try(peer, path)

    def check(self, peer: BondPeer, path: Path) -> None:
        """The last connection of a path broke: find out whether it works."""
        path.again = path.probing  # a keepalive under way may be lost with it
        if not path.probing and path.ni.active:
            self._try(peer, path)

    def close(self) -> None:
        """Watch nothing any more."""
        self._bond.cancel(self._timer)
        self._timer = None

    def _look(self) -> None:
        self._timer = None
        bond = self._bond
        now, pause = bond.clock(), bond.config.keepalive
        busy = silent = False
        for peer in list(bond.peers.values()):
            if not peer.connected or now - peer.used_at > IN_USE:
                continue
            busy = True
            if peer.told != bond.incarnation and bond.config.mode is Mode.STANDBY:
                bond.handshake.send_hello(peer)
            for path in self._in_turn(peer):
                silent = silent or path.down
                if not path.probing and path.ni.active and now + _EARLY >= self._due(path, pause):
                    self._try(peer, path)
        bond.look()
        if busy and silent:
            self.doubted()
        elif busy:
            self.wanted()

    @staticmethod
    def _in_turn(peer: BondPeer) -> list[Path]:
        """Its paths: who was not tried for longest comes first, as not all may have their turn."""
        return sorted(peer.paths, key=lambda path: path.tried_at)

    @staticmethod
    def _due(path: Path, pause: float) -> float:
        """When a path is to be tried: once it was quiet; less and less often while it does not answer."""
        if not path.down:
            return max(path.heard_at, path.tried_at) + pause
        longest = pause * _LONGEST
        if path.heard_at < 0:
            return path.tried_at + longest
        return path.tried_at + min(max(path.tried_at - path.heard_at, pause) * _SHORTEST, longest)

    def _try(self, peer: BondPeer, path: Path) -> None:
        unheard = path.heard_at < 0
        if unheard and peer.asked >= _MOST_ASKED:
            return  # its turn comes with another look
        peer.asked += unheard
        path.probing = True
        path.tried_at = self._bond.clock()
        self.keepalives += 1

        def tried(beacon: Beacon | None) -> None:
            peer.asked -= unheard
            self._tried(peer, path, beacon)

        self._bond.control.ask(path.ni, path.nid, ANSWER_TIME, tried)

    def _tried(self, peer: BondPeer, path: Path, beacon: Beacon | None) -> None:
        path.probing = False
        bond = self._bond
        if path not in peer.paths or bond.peers.get(peer.nid) is not peer:
            return
        path.tries = path.tries + 1 if beacon is None else 0
        if beacon is None:
            if path.again:  # it may have been lost, and tells nothing
                path.again = False
                self._try(peer, path)
            else:
                bond.suspect(peer, path)
            return
        bond.alive(peer, path)
        if peer.unconfirmed and path.nid == bond.guess(peer.nid):
            bond.handshake.greet(path.ni, path.nid)
        now = dict(beacon.incarnations).get(bond.ni.nid.net)
        if now is not None and now != peer.incarnation and peer.connected:
            # It sees which incarnation is known here, and answers with what is true.
            if not is_older(peer.incarnation, now):
                peer.forgets()
            bond.handshake.send_hello(peer)
