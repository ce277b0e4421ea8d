"""The peers of one bonding NI: by NID, by their paths, by the slaves that they speak from.

A peer says itself which slaves it has, and may lie. So a path is looked up with the name of its peer, and a
slave speaks for one peer only: for the one that it named last.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ulnet.bond.peer import BondPeer

if TYPE_CHECKING:
    from ulnet.bond.paths import Path
    from ulnet.core.ni import NI
    from ulnet.nid import Nid

__all__ = ["MAX_PEERS", "BondPeerTable"]

MAX_PEERS: Final = 65536  # strangers may say HELLO


class BondPeerTable:
    """Of one bonding NI. `paths` are by slave here and NID there, whosever that NID is."""

    __slots__ = ("_paths", "_spoke", "peers")

    def __init__(self) -> None:
        self.peers: dict[Nid, BondPeer] = {}
        self._paths: dict[tuple[NI, Nid], dict[Nid, tuple[BondPeer, Path]]] = {}
        self._spoke: dict[Nid, BondPeer] = {}

    def new(self, nid: Nid) -> BondPeer | None:
        """Remember another bonding NI; None if there are too many."""
        if len(self.peers) >= MAX_PEERS:
            idle = next(
                (one for one in self.peers.values() if not one.connected and not one.connecting), None
            )
            if idle is None or idle.waiting:
                return None
            self.forget(idle)
        peer = self.peers[nid] = BondPeer(nid)
        return peer

    def forget(self, peer: BondPeer) -> None:
        """Know it no more."""
        del self.peers[peer.nid]
        self.take_out(peer)
        for nid in [nid for nid in self._slaves(peer) if self._spoke.get(nid) is peer]:
            del self._spoke[nid]

    def clear(self) -> None:
        """Know nobody."""
        self.peers.clear()
        self._paths.clear()
        self._spoke.clear()

    def spoke(self, peer: BondPeer, nid: Nid) -> None:
        """A slave spoke for that peer: who it spoke for before is nobody, unless messages wait for that."""
        before = self._spoke.get(nid)
        self._spoke[nid] = peer
        if before is None or before is peer or self.peers.get(before.nid) is not before:
            return
        if not before.waiting and not before.connecting:
            self.forget(before)

    # Paths -----------------------------------------------------------------------------------------

    def take_out(self, peer: BondPeer) -> None:
        """The paths of a peer are about to be others."""
        for path in peer.paths:
            here = self._paths.get((path.ni, path.nid))
            if here is not None:
                here.pop(peer.nid, None)
                if not here:
                    del self._paths[path.ni, path.nid]

    def put_in(self, peer: BondPeer) -> None:
        """Enter the paths of a peer."""
        for path in peer.paths:
            self._paths.setdefault((path.ni, path.nid), {})[peer.nid] = (peer, path)

    def path(self, name: Nid, ni: NI, nid: Nid) -> tuple[BondPeer, Path] | None:
        """The path from ni to nid of the peer of that name; of any, where it names nobody who has it."""
        here = self._paths.get((ni, nid))
        if here is None:
            return None
        return here.get(name) or next(iter(here.values()))

    def over(self, ni: NI, nid: Nid) -> list[tuple[BondPeer, Path]]:
        """All paths from ni to nid, whosever they are."""
        return list(self._paths.get((ni, nid), {}).values())

    @staticmethod
    def _slaves(peer: BondPeer) -> Iterable[Nid]:
        return [one.nid for one in peer.configuration.slaves] if peer.configuration is not None else ()
