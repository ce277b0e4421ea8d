"""The state of one NI: identity, devices, peers and their deadlines (spec wire-socklnd.md §3.5, §6)."""

from __future__ import annotations

import errno
import logging
import socket
from typing import TYPE_CHECKING, Final, TypeVar

from ulnet.core.lines import Line
from ulnet.core.status import HealthStatus, LNetError
from ulnet.lnd.base import DeviceNews, Failures
from ulnet.lnd.contract import NiEvent
from ulnet.lnd.tcp import sockets
from ulnet.lnd.tcp.conn import Conn
from ulnet.lnd.tcp.devices import Device, believable
from ulnet.lnd.tcp.errors import Failure
from ulnet.lnd.tcp.handshake import Identity, PassiveHandshake
from ulnet.lnd.tcp.peer import Peer
from ulnet.lnd.tcp.secure import Security
from ulnet.lnd.tcp.secure_socket import SecureSocket
from ulnet.lnd.tcp.shared import Shared
from ulnet.nid import PID_USER_FLAG, Nid
from ulnet.wire.socklnd import KEEPALIVE_COOKIE, ConnType, Hello

if TYPE_CHECKING:
    from ulnet.core.msg import Msg
    from ulnet.core.ni import NI
    from ulnet.lnd.tcp.acceptor import Acceptor

__all__ = ["REMEMBERED", "NiState", "keep"]

T = TypeVar("T")
_log = logging.getLogger("ulnet.tcp")
_KEEPALIVE_PAUSE: Final = 10.0  # seconds between two NOOPs at least
REMEMBERED: Final = 65536  # peers decide how many there are
_REFUSED: Final = "its certificate is revoked: to let it in, make it another by `ulnet pki node`"
_PLAIN: Final = 300.0  # seconds for which a peer that knows no TLS is called without it


class NiState:
    """The driver's side of an NI; kept in `ni.lnd_data`.

    The NI is up while one of its devices is, and degraded while one of several is not.
    """

    __slots__ = (
        "_acceptor",
        "_buckets",
        "_placed",
        "_sweeps",
        "addresses",
        "callers",
        "conns_per_peer",
        "devices",
        "down",
        "failures",
        "identity",
        "min_bulk",
        "ni",
        "nonblk_zcack",
        "open",
        "peers",
        "plain",
        "secured",
        "security",
        "shared",
        "slow",
        "timeout",
    )

    def __init__(
        self,
        shared: Shared,
        acceptor: Acceptor,
        ni: NI,
        identity: Identity,
        devices: list[Device],
        conns_per_peer: int,
    ) -> None:
        params = shared.params
        tunables = ni.lnd_tunables
        self._acceptor = acceptor
        self.shared: Shared = shared
        self.ni: NI = ni
        self.identity: Identity = identity
        self.devices: list[Device] = devices
        self.down: str = ""  # why none of them can carry anything now
        self.slow: str = ""  # why they carry less than they should
        self.timeout: float = params.sock_timeout
        if tunables is not None:
            self.timeout = float(tunables.timeout if tunables.timeout > 0 else ni.timeout)
        self.conns_per_peer: int = conns_per_peer
        self.min_bulk: int = params.min_bulk
        self.nonblk_zcack: bool = params.nonblk_zcack
        self.open: bool = True
        self.peers: dict[tuple[Nid, int], Peer] = {}
        self.addresses: dict[Nid, tuple[Nid, ...]] = {}  # of peers, also while they are not connected
        self.security: Security = Security.OFF
        self.plain: dict[Nid, float] = {}  # peers that know no TLS, until then
        if tunables is not None:
            self.security = Security(tunables.security)
            self._note_certificate()
        self.callers: dict[Nid, tuple[bytes, ...]] = {}  # addresses that peers have beside that of their NID
        self.failures: Failures = Failures(shared.core, self._drain_soon)
        self._buckets: list[dict[Peer, None]] = [{}]
        self._placed = 0
        self._sweeps = 0

    def _drain_soon(self) -> None:
        self.shared.loop.call_soon(self.failures.drain)

    def fail_unsent(self, msg: Msg, failure: Failure) -> None:
        """End a message of which nothing has left, soon."""
        msg.unsent = True
        self.failures.add(msg, failure.status, failure.errno, failure.reason)

    @property
    def tos(self) -> int:
        """The type of service of new connections."""
        tunables = self.ni.lnd_tunables
        return self.shared.params.tos if tunables is None or tunables.tos < 0 else tunables.tos

    def set_timeout(self, seconds: float) -> None:
        """The time-out of all that is under way, and of what comes."""
        self.timeout = seconds
        for peer in self.peers.values():
            peer.set_timeout(seconds)

    def set_security(self) -> None:
        """The tunable may be another: new connections follow it, and plain ones end where none may be."""
        tunables = self.ni.lnd_tunables
        security = Security(tunables.security) if tunables is not None else Security.OFF
        if security is self.security:
            return
        if security is not Security.OFF:
            self.shared.need_credentials(self.identity.nid)
        self.security = security
        self._note_certificate()
        if security is not Security.REQUIRE:
            return
        reason = f"{self.identity.nid} takes secured connections only"
        failure = Failure(errno.EACCES, HealthStatus.OK, reason)  # nobody's health suffers
        for peer in list(self.peers.values()):
            peer.close([conn for conn in peer.conns if not conn.rx.secure], failure)

    def end_revoked(self) -> None:
        """End the connections whose certificates are revoked by now."""
        for peer in list(self.peers.values()):
            doomed = [conn for conn in peer.conns if conn.sock is not None and self._is_revoked(conn.sock)]
            if doomed:
                reason = f"{peer.nid}: {_REFUSED}"
                peer.close(doomed, Failure(errno.EACCES, HealthStatus.REMOTE_ERROR, reason))

    def _is_revoked(self, sock: socket.socket) -> bool:
        credentials = self.shared.credentials
        return (
            isinstance(sock, SecureSocket)
            and credentials is not None
            and credentials.is_revoked(sock.certificate)
        )

    def end_denied(self) -> None:
        """End all that there is with peers that are denied. Nothing more is queued for them meanwhile."""
        for peer in list(self.peers.values()):
            denied = self.shared.core.why_denied(self.ni, peer.nid)
            if denied:
                self._forget(peer)
                peer.end(Failure(errno.EACCES, HealthStatus.REMOTE_ERROR, denied))

    def _note_certificate(self) -> None:
        """Show until when the certificate is good; tell whether this NI needs one that is for its NID."""
        credentials = self.shared.credentials
        self.ni.secured_until = 0.0
        if credentials is None:
            return
        if self.security is Security.OFF or not self.open:
            credentials.needed.discard(self.identity.nid)
        else:
            credentials.needed.add(self.identity.nid)
            self.ni.secured_until = credentials.own.expires

    def secures(self, nid: Nid) -> bool:
        """Whether a peer is called by a secured connection."""
        if self.security is Security.OFFER:
            return nid in self.shared.secured or self.plain.get(nid, 0.0) <= self.shared.loop.time()
        return self.security is Security.REQUIRE

    def fall_back(self, nid: Nid) -> bool:
        """A peer hung up when it heard of TLS: whether it may be called without."""
        if self.security is not Security.OFFER or nid in self.shared.secured:
            return False
        keep(self.plain, nid, self.shared.loop.time() + _PLAIN)
        text = f"{self.identity.nid}: {nid} hung up on TLS, and is called without for {_PLAIN:g} s"
        self.shared.report(Line("connection.plain", text, nid=self.identity.nid, peer=nid))
        return True

    def why_not_plain(self, nid: Nid) -> str:
        """Why a plain connection with that peer is refused; "" if it is not."""
        if self.security is Security.REQUIRE:
            return (
                f"{nid} calls without TLS, and this net takes secured connections only: give it a certificate"
            )
        if self.security is Security.OFFER and nid in self.shared.secured:
            return f"connections with {nid} were secured, and this one is not: see to its certificate"
        return ""

    def divide(self) -> None:
        """Fit the buckets to the pace of sweeps, each of which looks at one: all have their turn in time."""
        count = max(1, int(self.timeout / 4 / self.shared.sweep_interval))
        if count == len(self._buckets):
            return
        self._buckets = [{} for _ in range(count)]
        for place, peer in enumerate(self.peers.values()):
            peer.bucket = place % count
            self._buckets[peer.bucket][peer] = None

    # Peers ------------------------------------------------------------------------------------------

    def peer(self, nid: Nid, pid: int) -> Peer:
        """The peer of that name, made if need be."""
        peer = self.peers.get((nid, pid))
        if peer is None:
            peer = self.peers[nid, pid] = Peer(self, nid, pid, self._placed % len(self._buckets))
            self._buckets[peer.bucket][peer] = None
            self._placed += 1
        return peer

    def forget_if_idle(self, peer: Peer) -> None:
        """Drop a peer of which nothing is left, not even a pause before the next attempt."""
        if peer.conns or peer.queue:
            return
        dialer = peer.dialer
        if dialer is not None and not dialer.forgettable(self.shared.loop.time()):
            return
        self._forget(peer)
        peer.dialer = None  # which has the peer, too: no cycle is left of the two

    def _forget(self, peer: Peer) -> None:
        key = (peer.nid, peer.pid)
        if self.peers.get(key) is peer:
            del self.peers[key]
            del self._buckets[peer.bucket][peer]

    # Connections ------------------------------------------------------------------------------------

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
        """A handshake is through: the connection joins its peer's. False if it is gone already."""
        if self._is_revoked(sock):  # since its handshake began
            self.shared.report(f"refused {peer.nid}: {_REFUSED}")
            sock.close()
            return False
        if isinstance(sock, SecureSocket):
            keep(self.shared.secured, peer.nid, None)
            self.plain.pop(peer.nid, None)
        if hello.ips and not rename:
            keep(self.callers, peer.nid, tuple([ip.to_bytes(4, "big") for ip in hello.ips]))
        if self.identity.ips and not rename:
            self._learn(peer, hello, source_port)
        try:
            sockets.tune(sock, self.shared.params, self.tos)
            conn = Conn(
                self.shared,
                sock,
                peer,
                ctype,
                hello.version,
                big_endian=hello.byteorder == "big",
                rename=rename,
                source_port=source_port,
            )
        except OSError:
            sock.close()
            return False
        if not source_port:
            self.shared.callers.entered(conn, conn.remote_ip)
        if not rename and self.shared.is_new_life(peer.nid, peer.pid, hello.src_incarnation):
            self.shared.core.peer_restarted(peer.nid)
            peer.withdraw()  # what waits was for the former life: the core finds out first who is there now
        if _log.isEnabledFor(logging.DEBUG):
            what = f"{ctype.name.lower()} connection with {peer} from {conn.local_ip} to {conn.remote_ip}"
            who = "dialled by us" if source_port else "dialled by it"
            how = "secured" if conn.rx.secure else "plain"
            _log.debug("%s: %s, protocol %d, %s, %s", self.identity.nid, what, hello.version, how, who)
        peer.attach(conn, hello.src_incarnation)
        return True

    def _learn(self, peer: Peer, hello: Hello, source_port: int) -> None:
        """Take the peer's addresses from its HELLO: who tells no addresses heeds none."""
        addresses = believable(self.identity.nid.net, self.identity.nid, peer.nid, hello.ips)
        keep(self.addresses, peer.nid, addresses)
        trusting = peer.trusting
        if hello.ips or source_port:  # it knows our addresses too, or we know from where we called
            trusting = bool(hello.ips) or source_port <= sockets.HIGHEST_RESERVED
        peer.learn(addresses, trusting)

    def admit(self, sock: socket.socket, machine: PassiveHandshake) -> None:
        """A peer's HELLO is in: answer it, and take the connection or close it."""
        hello = machine.hello
        assert hello is not None
        ctype = machine.ctype
        remote_ip, port = sock.getpeername()[:2]
        local_ip = sock.getsockname()[0]
        secured = isinstance(sock, SecureSocket)
        who = self._who(hello, remote_ip, port, sock)
        if who is None:
            why = "which is another address"
            if isinstance(sock, SecureSocket):
                why = f"which its certificate is not for{sock.certificate.hint}"
            self.shared.report(f"refused {remote_ip}: it calls itself {hello.src_nid}, {why}")
            sock.close()
            return
        nid, pid, rename = who
        denied = _REFUSED if self._is_revoked(sock) else self.shared.core.why_denied(self.ni, nid)
        if denied:
            text = f"refused {remote_ip}: {denied}"
            self.shared.report(Line("connection.refused", text, source=remote_ip, why="denied"))
            sock.close()
            return
        plain = "" if secured else self.why_not_plain(nid)
        if plain:
            text = f"refused {remote_ip}: {plain}"
            self.shared.report(Line("connection.refused", text, source=remote_ip, why="plain"))
            sock.close()
            return
        peer = self.peers.get((nid, pid))
        if peer is not None and self._refuses(peer, hello, ctype, local_ip, remote_ip):
            ctype = ConnType.NONE
        answer = machine.answer(ctype)
        if sock.send(answer) != len(answer) or ctype is ConnType.NONE:
            sock.close()
            return
        peer = self.peer(nid, pid)
        if not self.add_conn(peer, sock, hello, ctype, rename=rename):
            self.forget_if_idle(peer)

    def _who(
        self, hello: Hello, remote_ip: str, port: int, sock: socket.socket
    ) -> tuple[Nid, int, bool] | None:
        """The identity of the peer, and whether it is made from its socket; None: it is refused.

        The network vouches for who names the very address that it comes from, or one that the node of that
        address has told of. Kernel nodes believe all whose port is privileged. The others get their name from
        their socket, as there; unless we are unprivileged ourselves, which could not work otherwise. On a
        secured connection the certificate says who it is, and nothing else.
        """
        if isinstance(sock, SecureSocket):
            covered = sock.certificate.covers(hello.src_nid)
            return (hello.src_nid, hello.src_pid, False) if covered else None
        params = self.shared.params
        privileged = port <= sockets.HIGHEST_RESERVED
        address = socket.inet_pton(sockets.address_family(self.identity.nid), remote_ip.partition("%")[0])
        known = hello.src_nid.address == address or address in self.callers.get(hello.src_nid, ())
        if ((privileged or self.shared.unprivileged) and known) or (privileged and not params.check_source):
            return hello.src_nid, hello.src_pid, False
        if privileged:
            return None
        return Nid.of(self.identity.nid.net, address), port | PID_USER_FLAG, True

    def _refuses(self, peer: Peer, hello: Hello, ctype: ConnType, local_ip: str, remote_ip: str) -> bool:
        """Whether this connection loses a race, belongs to another life of the peer, or is one too many."""
        dialer = peer.dialer
        if dialer is not None and dialer.connecting:
            if not dialer.reached and dialer.pair == (sockets.packed(local_ip), sockets.packed(remote_ip)):
                dialer.give_way()  # nothing answers it, and the peer is there
            elif peer.nid < self.identity.nid:
                return True
        if peer.conns and (peer.incarnation, peer.version) != (hello.src_incarnation, hello.version):
            same_life = peer.incarnation == hello.src_incarnation
            peer.end_former_life()
            return same_life or not self.open  # a handler had enough
        return peer.full(ctype, local_ip, remote_ip)

    # Deadlines --------------------------------------------------------------------------------------

    def sweep(self, now: float) -> None:
        """Look at a part of the peers."""
        self._note_certificate()
        self._sweeps += 1
        # Deadlines were reckoned from the sweep before: none may come too early.
        past = now - self.shared.sweep_interval
        for peer in list(self._buckets[self._sweeps % len(self._buckets)]):
            self._check_queue(peer, past)
            conns = list(peer.conns)  # one that is late closes others
            late = [conn for conn in conns if conn.sock is not None and not conn.check_receiving(past)]
            if not late:
                self._keep_alive(peer, now)
            self.forget_if_idle(peer)

    def _check_queue(self, peer: Peer, past: float) -> None:
        while peer.queue and peer.queue[0][0] <= past:
            _, msg = peer.queue.pop(0)
            msg.unsent = True
            reason = f"timed out after {self.timeout:g} s without a connection to {peer}"
            self.shared.core.completed([msg], HealthStatus.NETWORK_TIMEOUT, errno.ETIMEDOUT, reason)

    def _keep_alive(self, peer: Peer, now: float) -> None:
        """A NOOP after a long silence, on the connection for acknowledgements if nothing waits there."""
        keepalive = self.shared.params.keepalive
        due = max(peer.last_alive + keepalive, peer.next_keepalive)
        if keepalive <= 0 or peer.version < 3 or now < due:
            return
        conn = peer.ack_conn()
        if conn is not None and conn.tx.idle:
            peer.next_keepalive = now + _KEEPALIVE_PAUSE
            conn.tx.acknowledge(KEEPALIVE_COOKIE)

    # Devices ----------------------------------------------------------------------------------------

    def device_at(self, address: bytes) -> Device:
        """The device that has an address."""
        for device in self.devices:
            if device.nid.address == address:
                return device
        return self.devices[0]

    def device_changed(self, device: Device, news: DeviceNews) -> None:
        """A device failed, can be used again, or has another speed."""
        if news.failure:
            self._device_failed(device, news)
        elif device.down and not self._device_back(device, news):
            return
        if news.slow != device.slow:
            device.slow = news.slow
            if not news.failure:
                words = news.slow or "it is as fast as it was"
                self._tell("interface.speed", news.name, f": {words}", why=words)
        self._rate()

    def _tell(self, event: str, interface: str, text: str, **about: str) -> None:
        line = f"{self.ni.nid}: interface {interface}{text}"
        self.shared.report(Line(event, line, nid=self.ni.nid, interface=interface, **about))

    def _device_failed(self, device: Device, news: DeviceNews) -> None:
        """Nothing can leave there now: what has not begun to leave goes elsewhere, if there is an elsewhere.

        Connections stay, for they go on when the device is back within their time-outs, with all that the
        kernel holds; those of a device that is gone for good are closed.
        """
        reason = f"{self.ni.nid}: interface {news.name}: {news.failure}"
        device.down = f"{news.name}: {news.failure}"
        if news.gone:
            self._acceptor.close(self.ni.nid, device)
            device.deaf = True
        self._tell("interface.down", news.name, f": {news.failure}", why=news.failure)
        if all(one.down for one in self.devices):
            was_up = not self.down
            self.down = reason
            self.slow = ""
            if was_up:
                self.shared.core.ni_event(self.ni, NiEvent.FATAL)
        if not self.open:
            return
        for peer in list(self.peers.values()):
            self._leave(peer, device, reason, news.gone)

    def _leave(self, peer: Peer, device: Device, reason: str, gone: bool) -> None:
        if self.down:
            if peer.dialer is not None:
                peer.dialer.cancel()
            peer.withdraw()
        elif peer.dialer is not None:
            peer.dialer.leave(device, reason)
        peer.look()
        doomed = [conn for conn in peer.conns if conn.device is device] if gone else []
        if doomed:
            peer.close(doomed, Failure(errno.ENETDOWN, HealthStatus.LOCAL_ERROR, reason))
        self.forget_if_idle(peer)

    def _device_back(self, device: Device, news: DeviceNews) -> bool:
        """Whether the device can be used."""
        if device.deaf:  # the listener was tied to an interface that is gone; there is a new one
            try:
                self._acceptor.open(self.ni.nid, device)
            except LNetError as refused:
                text = f" stays down: {refused.text}"
                self._tell("interface.down", news.name, text, why=refused.text)
                return False
            device.deaf = False
        device.down = ""
        was_down, self.down = self.down, ""
        self._tell("interface.up", news.name, " can be used again")
        for peer in list(self.peers.values()):  # first: what hears of the event sends at once
            peer.look()
            if peer.dialer is not None:
                peer.dialer.try_again()
        if was_down:
            self.shared.core.ni_event(self.ni, NiEvent.RECOVERED)
        return self.open

    def _rate(self) -> None:
        """Tell the core whether the NI carries less than it should."""
        if self.down or not self.open:
            return
        words = "; ".join(one.down or one.slow for one in self.devices if one.down or one.slow)
        before, self.slow = self.slow, words
        if bool(before) != bool(words):
            self.shared.core.ni_event(self.ni, NiEvent.DEGRADED if words else NiEvent.RESTORED)

    # The end ----------------------------------------------------------------------------------------

    def queued(self) -> int:
        """Messages that wait here, on any connection or for one."""
        waiting = len(self.failures)
        for peer in self.peers.values():
            waiting += len(peer.queue)
            for conn in peer.conns:
                waiting += len(conn.tx.waiting) + len(conn.tx.batch)
        return waiting

    def shut(self) -> None:
        """Close everything at once and finalize all messages."""
        self.open = False
        self._note_certificate()
        reason = f"the local interface {self.identity.nid} has been shut down"
        failure = Failure(errno.ESHUTDOWN, HealthStatus.LOCAL_ERROR, reason)
        for peer in list(self.peers.values()):
            peer.end(failure)
        self.peers.clear()
        for bucket in self._buckets:
            bucket.clear()
        self.failures.drain()


def keep(table: dict[Nid, T], nid: Nid, what: T) -> None:
    """Remember something of a peer; of too many of them, who was heard longest ago is forgotten."""
    table.pop(nid, None)
    while len(table) >= REMEMBERED:
        del table[next(iter(table))]
    table[nid] = what
