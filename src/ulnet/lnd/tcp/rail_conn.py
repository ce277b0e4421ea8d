"""A connection of an NI over several devices: its peer knows by which of them something came last."""

from __future__ import annotations

from ulnet.lnd.tcp.conn import Conn
from ulnet.lnd.tcp.rail_peer import RailPeer

__all__ = ["RailConn"]


class RailConn(Conn):
    """One of several between two nodes, each of which may be cut off while the others are not."""

    __slots__ = ()

    def read(self) -> bool:
        self._is_heard()
        return super().read()

    def resume(self) -> None:
        if self.sock is not None:
            self._is_heard()
        super().resume()

    def _is_heard(self) -> None:
        peer = self.peer
        if isinstance(peer, RailPeer) and peer.heard is not self:
            peer.hears(self)
