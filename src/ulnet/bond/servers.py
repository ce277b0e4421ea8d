"""Bonding data servers as their clients see them: registered with all, asked in turn (design §5)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final

from ulnet.bond.connect import ANSWER_TIME
from ulnet.core.lines import Line
from ulnet.wire.bond import Answer, Beacon, Kind, Register, Resolve

if TYPE_CHECKING:
    from ulnet.bond.bondni import BondNi
    from ulnet.bond.peer import BondPeer
    from ulnet.core.ni import NI
    from ulnet.core.timers import Timer
    from ulnet.nid import Nid

__all__ = ["Server", "ServerState", "Servers"]

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
_CHECK: Final = 5.0  # seconds between looks whether a server is still there
_MAX_REQUESTS: Final = 1 << 32


class ServerState(Enum):
    """How far a server has come."""

    LOST = "lost"
    GREETING = "saying HELLO"
    REGISTERING = "registering"
    READY = "ready"


class Server:
    """One of them, known by the NID of one of its slaves."""

    __slots__ = ("incarnation", "lookups", "nid", "pause", "peer", "registrations", "state", "timer")

    def __init__(self, nid: Nid) -> None:
        self.nid: Nid = nid
        self.state: ServerState = ServerState.LOST
        self.peer: BondPeer | None = None  # its bonding NI, known once it has said HELLO
        self.incarnation: int = 0  # that it had when this node registered
        self.pause: float = _FIRST_PAUSE
        self.timer: Timer | None = None
        self.lookups: int = 0
        self.registrations: int = 0


class Servers:
    """The servers of one bonding NI."""

    def __init__(self, bond: BondNi) -> None:
        self._bond = bond
        self.all: dict[Nid, Server] = {}
        self._requests = 0
        self._waiting: dict[int, tuple[Server, Callable[[Answer | None], None], Timer]] = {}
        self._turn = 0

    def replace(self, nids: tuple[Nid, ...]) -> None:
        """Use these servers; those that were used before keep their state."""
        for nid in list(self.all):
            if nid not in nids:
                self._bond.cancel(self.all.pop(nid).timer)
        for nid in nids:
            if nid not in self.all and not self._bond.owns_nid(nid):
                server = self.all[nid] = Server(nid)
                self._later(server, 0.0)

    def close(self) -> None:
        """Ask nobody any more."""
        self.replace(())
        for _, _, timer in self._waiting.values():
            self._bond.cancel(timer)
        self._waiting.clear()

    # Being served ----------------------------------------------------------------------------------

    def _later(self, server: Server, pause: float) -> None:
        self._bond.cancel(server.timer)
        server.timer = self._bond.after(pause, lambda: self._look(server))

    def _look(self, server: Server) -> None:
        """Is it there, and the one that it was?"""
        server.timer = None
        way = self._way(server)
        if way is None:
            self._lose(server)
            return
        ni, nid = way
        self._bond.control.ask(ni, nid, ANSWER_TIME, lambda beacon: self._seen(server, way, beacon))

    def _way(self, server: Server) -> tuple[NI, Nid] | None:
        """A path to it: one that works, once its other slaves are known."""
        path = server.peer.best_for_control() if server.peer is not None else None
        if path is not None and server.state is not ServerState.LOST:
            return path.ni, path.nid
        ni = next((ni for ni in self._bond.slaves.nis if ni.nid.net == server.nid.net and ni.up), None)
        if ni is not None:
            return ni, server.nid
        return (path.ni, path.nid) if path is not None else None

    def _seen(self, server: Server, way: tuple[NI, Nid], beacon: Beacon | None) -> None:
        if self.all.get(server.nid) is not server:
            return
        if beacon is None:
            self._lose(server)
            return
        now = dict(beacon.incarnations).get(self._bond.ni.nid.net)
        if now is None:
            self._lose(server)
        elif server.state is ServerState.READY and now == server.incarnation:
            self._later(server, _CHECK)
        elif server.peer is not None and server.peer.connected and now == server.peer.incarnation:
            self.register(server)
        else:
            server.state = ServerState.GREETING
            self._bond.handshake.send_hello_to_stranger(way, server.peer)
            self._later(server, ANSWER_TIME)

    def heard(self, peer: BondPeer, source: Nid) -> None:
        """A HELLO came from the NID source: perhaps from a server, known by its own NID or by its name."""
        for server in self.all.values():
            has_it = source == server.nid
            if not has_it and peer.has_slave(server.nid):  # as it says: the slave itself is to say so once
                near = any(ni.nid.net == server.nid.net for ni in self._bond.slaves.nis)
                has_it = server.peer.nid == peer.nid if server.peer is not None else not near
                way = self._way(server)
                if not has_it and server.state is ServerState.GREETING and way is not None:
                    self._bond.handshake.send_hello_to_stranger(way, None)
            if has_it:
                server.peer = peer
                if server.state is ServerState.GREETING:
                    self.register(server)

    def _lose(self, server: Server) -> None:
        if server.state is ServerState.READY:
            text = f"bonding data server {server.nid} is lost"
            self._bond.report(Line("bond.server", text, nid=server.nid))
        server.state = ServerState.LOST
        self._later(server, server.pause)
        server.pause = min(server.pause * 2, _LONGEST_PAUSE)

    def register_all(self) -> None:
        """The configuration changed."""
        for server in self.all.values():
            if server.state in (ServerState.READY, ServerState.REGISTERING):
                self.register(server)

    def register(self, server: Server) -> None:
        """Tell a server what this bonding NI is."""
        server.state = ServerState.REGISTERING
        server.registrations += 1
        bond = self._bond

        def message(request: int) -> bytes:
            return Register(request, bond.incarnation, bond.slaves.own).pack()

        self._request(server, Kind.REGISTER, message, lambda answer: self._registered(server, answer))

    def _registered(self, server: Server, answer: Answer | None) -> None:
        if answer is None or server.peer is None:
            self._lose(server)
        elif answer.status == errno.EAGAIN:  # it does not know this node any more
            server.state = ServerState.GREETING
            way = self._way(server)
            if way is not None:
                self._bond.handshake.send_hello_to_stranger(way, server.peer)
            self._later(server, ANSWER_TIME)
        elif answer.status:
            text = f"bonding data server {server.nid} refuses {answer.nid}: status {answer.status}"
            self._bond.report(Line("bond.server", text, nid=server.nid))
            self._lose(server)
        else:
            server.state = ServerState.READY
            server.incarnation = server.peer.incarnation
            server.pause = _FIRST_PAUSE
            self._later(server, _CHECK)

    # Questions -------------------------------------------------------------------------------------

    def resolve(self, nid: Nid, done: Callable[[Answer | None], None]) -> None:
        """Ask for nid: `done` hears of the first server's answer that knows it, or None if none does."""
        ready = [server for server in self.all.values() if server.state is ServerState.READY]
        self._turn += 1
        at = self._turn % len(ready) if ready else 0
        self._ask_next(nid, [*ready[at:], *ready[:at]], done)

    def _ask_next(self, nid: Nid, left: list[Server], done: Callable[[Answer | None], None]) -> None:
        if not left:
            self._bond.soon(lambda: done(None))
            return
        server, *others = left
        server.lookups += 1

        def answered(answer: Answer | None) -> None:
            if answer is None:
                self._lose(server)
            if answer is not None and answer.configuration is not None and answer.nid == nid:
                done(answer)
            else:
                self._ask_next(nid, others, done)

        asker = self._bond.ni.nid
        self._request(server, Kind.RESOLVE, lambda request: Resolve(request, nid, asker).pack(), answered)

    def _request(
        self,
        server: Server,
        kind: Kind,
        message: Callable[[int], bytes],
        done: Callable[[Answer | None], None],
    ) -> None:
        way = self._way(server)
        if way is None:
            self._bond.soon(lambda: done(None))
            return
        self._requests = request = self._requests % (_MAX_REQUESTS - 1) + 1
        timer = self._bond.after(ANSWER_TIME, lambda: self._end(request, None))
        self._waiting[request] = (server, done, timer)
        ni, nid = way
        self._bond.control.tell(
            ni, nid, kind, message(request), ANSWER_TIME, lambda ok: None if ok else self._unsent(request)
        )

    def answered(self, answer: Answer, source: Nid) -> None:
        """An answer came from the NID source; only that of the server that was asked counts."""
        waiting = self._waiting.get(answer.request)
        if waiting is None:
            return
        server = waiting[0]
        known = server.peer.configuration if server.peer is not None else None
        if source == server.nid or (known is not None and any(one.nid == source for one in known.slaves)):
            self._end(answer.request, answer)

    def _unsent(self, request: int) -> None:
        self._end(request, None)

    def _end(self, request: int, answer: Answer | None) -> None:
        waiting = self._waiting.pop(request, None)
        if waiting is not None:
            self._bond.cancel(waiting[2])
            waiting[1](answer)
