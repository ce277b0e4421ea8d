"""What the driver keeps of an NI over several devices, and what becomes of those.

Such an NI is up while one of its devices is; it is degraded while one is not.
"""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Final

from ulnet.core.lnd import NiEvent
from ulnet.core.ni import Place
from ulnet.core.status import HealthStatus, LNetError
from ulnet.lnd.base import Device
from ulnet.lnd.tcp.errors import Failure
from ulnet.lnd.tcp.nistate import NiState
from ulnet.lnd.tcp.peer import Peer
from ulnet.lnd.tcp.rail_conn import RailConn
from ulnet.lnd.tcp.rail_dialer import RailDialer
from ulnet.lnd.tcp.rail_peer import RailPeer
from ulnet.lnd.tcp.rails import MOST_ADDRESSES, Rail, believable
from ulnet.lnd.tcp.sockets import HIGHEST_RESERVED

if TYPE_CHECKING:
    from ulnet.core.ni import NI
    from ulnet.lnd.tcp.acceptor import Acceptor
    from ulnet.lnd.tcp.handshake import Identity
    from ulnet.lnd.tcp.shared import Shared
    from ulnet.nid import Nid
    from ulnet.wire.socklnd import ConnType, Hello

__all__ = ["RailState", "rails_of"]

_REMEMBERED: Final = 65536  # peers decide how many there are


def rails_of(ni: NI) -> list[Rail]:
    """The devices of an NI on a bonded net; none of any other. Raises LNetError."""
    if not ni.also:
        return []
    places = [Place(ni.nid, ni.interface or ""), *ni.also]
    if any(place.nid.is_large for place in places):
        raise LNetError(
            errno.EAFNOSUPPORT,
            f"{ni.nid}: one NI over several devices needs IPv4 addresses, for a HELLO can tell of no others; "
            "give them some, or switch use_tcp_bonding off",
        )
    if len(places) > MOST_ADDRESSES:
        raise LNetError(
            errno.EINVAL,
            f"{ni.nid}: {len(places)} devices are more than the {MOST_ADDRESSES} of one NI: name fewer",
        )
    return [Rail(place, place.interface or None) for place in places]


class RailState(NiState):
    """The driver's side of an NI over several devices."""

    __slots__ = ("_acceptor", "addresses", "rails")

    def __init__(
        self, shared: Shared, ni: NI, identity: Identity, conns: int, rails: list[Rail], acceptor: Acceptor
    ) -> None:
        super().__init__(shared, ni, identity, conns)
        self.conn_type = RailConn
        self.rails = {rail.ip: rail for rail in rails}
        self.addresses: dict[Nid, tuple[Nid, ...]] = {}  # of peers, also while they are not connected
        self._acceptor = acceptor

    def _new_peer(self, nid: Nid, pid: int, bucket: int) -> Peer:
        return RailPeer(self, nid, pid, bucket)

    def add_conn(
        self,
        peer: Peer,
        sock: socket.socket,
        hello: Hello,
        ctype: ConnType,
        *,
        rename: bool = False,
        source_port: int = 0,
    ) -> bool:
        if not rename and isinstance(peer, RailPeer):
            addresses = believable(self.identity.nid.net, self.identity.nid, peer.nid, hello.ips)
            if len(self.addresses) >= _REMEMBERED:
                self.addresses.clear()
            self.addresses[peer.nid] = addresses
            trusting = peer.trusting
            if hello.ips or source_port:  # it knows our addresses too, or we know from where we called
                trusting = bool(hello.ips) or source_port <= HIGHEST_RESERVED
            peer.learn(addresses, trusting)
        return super().add_conn(peer, sock, hello, ctype, rename=rename, source_port=source_port)

    def _who(self, hello: Hello, remote_ip: str, port: int) -> tuple[Nid, int, bool]:
        nid, pid, rename = super()._who(hello, remote_ip, port)
        if rename:  # the network vouches for it too at an address that a connected peer has told of
            peer = self.peers.get((hello.src_nid, hello.src_pid))
            known = peer.addresses if isinstance(peer, RailPeer) and peer.conns else ()
            if any(address.ip == remote_ip for address in known):
                return hello.src_nid, hello.src_pid, False
        return nid, pid, rename

    # The devices ------------------------------------------------------------------------------------

    def rail_changed(self, rail: Rail, device: Device) -> None:
        """A device failed, can be used again, or has another speed."""
        if device.failure:
            self._rail_failed(rail, device)
        elif rail.down and not self._rail_back(rail, device):
            return
        if device.slow != rail.slow:
            rail.slow = device.slow
            if not device.failure:
                words = device.slow or "it is as fast as it was"
                self.shared.report(f"{self.ni.nid}: interface {device.name}: {words}")
        self._rate()

    def _rail_failed(self, rail: Rail, device: Device) -> None:
        reason = f"{self.ni.nid}: interface {device.name}: {device.failure}"
        rail.down = f"{device.name}: {device.failure}"
        if device.gone:
            self._acceptor.close(self.ni.nid, rail.nid)
            rail.deaf = True
        self.shared.report(reason)
        last = all(one.down for one in self.rails.values())
        if last and not self.down:
            self.down = reason
            self.slow = ""
            self.shared.core.ni_event(self.ni, NiEvent.FATAL)
        if self.open:
            self._leave(rail, reason, device.gone)

    def _leave(self, rail: Rail, reason: str, gone: bool) -> None:
        for peer in list(self.peers.values()):
            assert isinstance(peer, RailPeer)
            if isinstance(peer.dialer, RailDialer):
                peer.dialer.leave(rail, reason)
            on_it = [conn for conn in peer.conns if conn.local_ip == rail.ip]
            if on_it or self.down:
                peer.shift()
            if gone and on_it:
                still = [conn for conn in on_it if conn in peer.conns]
                peer.close(still, Failure(errno.ENETDOWN, HealthStatus.LOCAL_ERROR, reason))
            self.forget_if_idle(peer)

    def _rail_back(self, rail: Rail, device: Device) -> bool:
        """Whether it can be used."""
        if rail.deaf:  # the listener was tied to a device that is gone; there is a new one
            try:
                self._acceptor.open(self.ni.nid, rail.device, rail.nid)
            except LNetError as refused:
                self.shared.report(f"{self.ni.nid}: interface {device.name} stays down: {refused.text}")
                return False
            rail.deaf = False
        rail.down = ""
        self.shared.report(f"{self.ni.nid}: interface {device.name} can be used again")
        if self.down:
            self.down = ""
            self.shared.core.ni_event(self.ni, NiEvent.RECOVERED)
        for peer in list(self.peers.values()):
            assert isinstance(peer, RailPeer)
            peer.carry_on()
            if isinstance(peer.dialer, RailDialer):
                peer.dialer.try_again()
        return self.open

    def _rate(self) -> None:
        """Tell the core whether the NI carries less than it should."""
        if self.down:
            return
        words = "; ".join(one.down or one.slow for one in self.rails.values() if one.down or one.slow)
        before, self.slow = self.slow, words
        if bool(before) != bool(words):
            self.shared.core.ni_event(self.ni, NiEvent.DEGRADED if words else NiEvent.RESTORED)
