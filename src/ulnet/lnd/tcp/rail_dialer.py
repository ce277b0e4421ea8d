"""Connecting an NI over several devices: each of its addresses to an address of the peer.

Every pair of addresses gets the bulk connections that an ordinary NI makes; one pair, any, has CONTROL.
What fails on one pair is not tried there for a while, and goes on at the others.
"""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Final

from ulnet.lnd.tcp.dialer import _MAX_RETRIES, Dialer
from ulnet.lnd.tcp.errors import why_connect_failed
from ulnet.lnd.tcp.rails import Rail, matched
from ulnet.nid import Nid
from ulnet.wire.socklnd import ConnType, Hello

if TYPE_CHECKING:
    from ulnet.lnd.tcp.rail_peer import RailPeer

__all__ = ["RailDialer"]

_PATIENCE: Final = 3.0  # seconds for an attempt while there are other ways


class _Pair:
    """An address of ours and one of the peer's."""

    __slots__ = ("content", "pause", "rail", "retry_at", "target")

    def __init__(self, rail: Rail, target: Nid) -> None:
        self.rail = rail
        self.target = target
        self.pause = 0.0  # after the last attempt, if that failed
        self.retry_at = 0.0
        self.content = False  # the peer wants no more connections there


class RailDialer(Dialer):
    """Makes the connections of one peer, pair by pair."""

    __slots__ = ("_at", "_pairs", "_rail_peer")

    def __init__(self, peer: RailPeer) -> None:
        super().__init__(peer)
        self._rail_peer = peer
        self._pairs: dict[tuple[Nid, Nid], _Pair] = {}
        self._at: _Pair | None = None  # where the present attempt is, or the last one was
        self.meet()

    def meet(self) -> None:
        """The peer's addresses are known, or others than before."""
        rails = self._rail_peer.rails[: None if self._rail_peer.trusting else 1]
        others = self._rail_peer.addresses
        met = {}
        for i, j in matched([rail.nid for rail in rails], others):
            key = rails[i].nid, others[j]
            met[key] = self._pairs.get(key) or _Pair(rails[i], others[j])
        self._pairs = met

    def try_again(self) -> None:
        """A device can be used again."""
        self._forgive()
        self.incomplete = True
        self._retry_at = 0.0
        self.poke()

    def leave(self, rail: Rail, reason: str) -> None:
        """A device failed: an attempt there is given up, and made elsewhere if there is an elsewhere."""
        if self._attempt is not None and self._at is not None and self._at.rail is rail:
            self._attempt.cancel()
            self.failed(errno.ENETDOWN, reason)

    def conns_lost(self) -> None:
        super().conns_lost()
        self._retry_at = 0.0  # each pair has its own: one that pauses holds up no other
        for pair in self._pairs.values():
            pair.content = False

    def _forgive(self) -> None:
        for pair in self._pairs.values():
            pair.retry_at = pair.pause = 0.0

    # What is missing, and where -----------------------------------------------------------------------

    def _wanted(self) -> ConnType | None:
        now = self._shared.loop.time()
        for pair in self._pairs.values():
            if pair.retry_at <= now:
                ctype = self._missing(pair)
                if ctype is not None:
                    self._at = pair
                    return ctype
        return None

    def _missing(self, pair: _Pair) -> ConnType | None:
        """The type of the next connection on a pair; None: it has all, or can have none now."""
        if pair.rail.down or pair.content:
            return None
        own, other = pair.rail.ip, pair.target.ip
        counts = dict.fromkeys(ConnType, 0)
        for conn in self._rail_peer.conns:
            if conn.local_ip == own and conn.remote_ip == other:
                if conn.stuck:
                    return None
                counts[conn.ctype] += 1
        if not self._shared.params.typed_conns:
            return ConnType.ANY if counts[ConnType.ANY] < self.limit else None
        if not any(conn.ctype is ConnType.CONTROL for conn in self._rail_peer.usable()):
            return ConnType.CONTROL
        inward, outward = counts[ConnType.BULK_IN], counts[ConnType.BULK_OUT]
        if inward < self.limit and inward <= outward:
            return ConnType.BULK_IN
        return ConnType.BULK_OUT if outward < self.limit else None

    def _ends(self) -> tuple[Nid, str | None, Nid]:
        assert self._at is not None
        return self._at.rail.nid, self._at.rail.device, self._at.target

    # What became of an attempt ------------------------------------------------------------------------

    def beat(self, now: float) -> bool:
        at = self._at
        if now - self._began < _PATIENCE or at is None or self._attempt is None or not self._others(at):
            return super().beat(now)
        self._attempt.cancel()
        where = f"{at.target.ip}:{self._shared.params.accept_port}"
        self.failed(errno.ETIMEDOUT, why_connect_failed(errno.ETIMEDOUT, where, at.rail.ip, _PATIENCE))
        return True

    def _others(self, at: _Pair) -> bool:
        """Whether there are ways beside that pair: connections, or pairs to be tried."""
        if self._rail_peer.usable():
            return True
        now = self._shared.loop.time()
        return any(
            pair is not at and pair.retry_at <= now and self._missing(pair) is not None
            for pair in self._pairs.values()
        )

    def established(self, sock: socket.socket, hello: Hello, ctype: ConnType) -> None:
        if self._at is not None:
            self._at.pause = self._at.retry_at = 0.0
        super().established(sock, hello, ctype)

    def _out_of_retries(self, text: str) -> bool:
        """The peer may be satisfied with this pair: the others may lack something still."""
        at = self._at
        if at is None or self._retries + 1 < _MAX_RETRIES or not self._others(at):
            return super()._out_of_retries(text)
        self._retries = 0
        at.content = True
        self._next_soon()
        return True

    def _complete(self) -> None:
        """Nothing is to be made now; pairs that failed are looked at again when their pause is over."""
        now = self._shared.loop.time()
        pausing = [pair.retry_at for pair in self._pairs.values() if pair.retry_at > now]
        if self._rail_peer.queue and not self._rail_peer.usable():
            super()._failed(errno.EHOSTUNREACH, self._last or f"no device can reach {self._rail_peer}")
            return
        super()._complete()
        if pausing:
            self.incomplete = True
            self._retry_at = min(pausing)

    def _failed(self, number: int, reason: str) -> None:
        at = self._at
        if at is not None:
            at.pause = self._next_pause(number, at.pause)
            at.retry_at = self._shared.loop.time() + at.pause
        self._last = reason
        if self._wanted() is not None:
            self._next_soon()
        elif self._rail_peer.usable():
            self._complete()
        else:
            super()._failed(number, reason)
            for pair in self._pairs.values():  # all of them are tried at the next call
                pair.retry_at = min(pair.retry_at, self._retry_at)
