"""From a bonding NID to a connection: resolve it, find a path that answers, say HELLO (design §5, §5.1.1)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from ulnet.bond.hello import PeerState
from ulnet.wire.bond import Answer, Beacon

if TYPE_CHECKING:
    from ulnet.bond.bondni import BondNi
    from ulnet.bond.peer import BondPeer
    from ulnet.core.ni import NI
    from ulnet.core.timers import Timer
    from ulnet.nid import Nid

__all__ = ["ANSWER_TIME", "PATIENCE", "Connect"]

PATIENCE: Final = 10.0  # seconds until the messages that wait fail
ANSWER_TIME: Final = 2.0  # for one question
_PAUSE: Final = 1.0
_MOST_PROBED: Final = 16


class Connect:
    """One attempt. `hint` is a path by which the peer was heard.

    Bonding data servers are asked first; then what the peer itself once said is tried, and at last the first
    slave, taken for the one with its address on our first slave's net: the degraded mode.
    """

    __slots__ = (
        "_bond",
        "_deaf",
        "_greeted",
        "_heard",
        "_hint",
        "_over",
        "_peer",
        "_pending",
        "_timer",
        "_until",
    )

    def __init__(self, bond: BondNi, peer: BondPeer, hint: tuple[NI, Nid] | None) -> None:
        self._bond = bond
        self._peer = peer
        self._hint = hint
        self._heard = hint  # by which perhaps somebody else was heard
        self._over = False
        self._greeted: tuple[NI, Nid] | None = None
        self._deaf: set[tuple[NI, Nid]] = set()  # answered a BEACON and no HELLO: it is somebody else
        self._pending = 0
        self._timer: Timer | None = None
        self._until = bond.clock() + PATIENCE
        peer.connecting = True

    def begin(self) -> None:
        """Start, or start again after a pause."""
        self._timer = None
        if self._finished():
            return
        if self._bond.clock() >= self._until:
            self._give_up()
            return
        if self._hint is not None:
            self._probe(None)
        else:
            self._bond.servers.resolve(self._peer.nid, self._probe)

    def stop(self) -> None:
        """The bonding NI is gone."""
        self._over = True
        self._bond.cancel(self._timer)

    def _finished(self) -> bool:
        if self._over:
            return True
        if self._peer.connected:
            self._over = True
            self._peer.connecting = False
            self._bond.connected(self._peer)
        return self._over

    def _targets(self, answer: Answer | None) -> list[tuple[NI, Nid]]:
        """Where to look for the peer, most likely first."""
        bond, peer = self._bond, self._peer
        nids = [bond.guess(peer.nid)]
        found = answer.configuration if answer is not None else peer.configuration
        if found is not None:
            nids = [found.slaves[found.active].nid, *(one.nid for one in found.slaves), *nids]
        pairs = [] if self._hint is None else [self._hint]
        self._hint = None
        for nid in nids:
            pairs += [(ni, nid) for ni in bond.slaves.nis if ni.nid.net == nid.net and ni.active]
        chosen = [pair for pair in dict.fromkeys(pairs) if pair not in self._deaf]
        return (chosen or list(dict.fromkeys(pairs)))[:_MOST_PROBED]

    def _probe(self, answer: Answer | None) -> None:
        if self._finished():
            return
        targets = self._targets(answer)
        self._pending = len(targets)
        if not targets:
            self._pause()
        for ni, nid in targets:
            self._bond.control.ask(ni, nid, ANSWER_TIME, partial(self._answered, (ni, nid)))

    def _answered(self, way: tuple[NI, Nid], beacon: Beacon | None) -> None:
        self._pending -= 1
        if self._over:
            return
        if beacon is not None and self._peer.state is PeerState.UNKNOWN:
            self._peer.state = PeerState.WAITING
            self._greeted = way
            self._bond.handshake.send_hello_over(self._peer, way, sure=way != self._heard)
            self._timer = self._bond.after(ANSWER_TIME, self._again)
        elif not self._pending and self._timer is None:
            self._pause()

    def _pause(self) -> None:
        self._timer = self._bond.after(_PAUSE, self._again)

    def _again(self) -> None:
        """No HELLO came: from the beginning."""
        if self._peer.state is PeerState.WAITING:
            self._peer.state = PeerState.UNKNOWN
        if self._greeted is not None:
            self._deaf.add(self._greeted)
            self._greeted = None
        self.begin()

    def _give_up(self) -> None:
        self._over = True
        self._peer.connecting = False
        self._bond.unreachable(self._peer)
