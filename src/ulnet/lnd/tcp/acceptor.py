"""Listening, and inbound connections until their HELLO is answered (spec wire-socklnd.md §1, §2, §3.5)."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from ulnet.core.lines import Line
from ulnet.lnd.forks import of_this_process
from ulnet.lnd.tcp import sockets
from ulnet.lnd.tcp.devices import Device
from ulnet.lnd.tcp.handshake import PassiveHandshake, Verdict
from ulnet.lnd.tcp.nistate import NiState
from ulnet.lnd.tcp.secure import FIRST_BYTE, Security
from ulnet.lnd.tcp.secure_socket import SecureSocket
from ulnet.lnd.tcp.shakes import Shakes
from ulnet.lnd.tcp.shared import Shared
from ulnet.nid import Nid
from ulnet.wire.acceptor import TLS_WAY_OUT

__all__ = ["Acceptor"]

_ACCEPTS: Final = 4  # per turn of a listener
_PAUSE: Final = 1.0  # seconds, when there are no more file descriptors
_KEPT: Final = 64  # descriptors that are not for those who call: an eighth, where there are few


class _Listener:
    """The listening sockets of an address, used by all NIs that have it."""

    __slots__ = ("nis", "paused", "socks")

    def __init__(self, socks: list[socket.socket]) -> None:
        self.socks = socks
        self.nis: set[Nid] = set()
        self.paused = False


class Acceptor:
    """The listeners of one driver; which NI is wanted is told by the connection request alone."""

    def __init__(self, shared: Shared, by_nid: dict[Nid, NiState]) -> None:
        self._shared = shared
        self._by_nid = by_nid
        self._listeners: dict[tuple[bytes, int], _Listener] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.shakes: Shakes = Shakes(shared.loop)
        self._most_files = 0  # a descriptor from there on is kept for others than those who call

    def open(self, nid: Nid, device: Device) -> None:
        """Listen for nid on a device's address. Raises LNetError and leaves no listener of nid."""
        params = self._shared.params
        if not params.listen or params.accept == "none":
            sockets.check_address(device.nid, device.interface, params)
            return
        try:
            for port in dict.fromkeys((params.accept_port, params.bulk_port)):
                self._open_port(nid, device, port)
        except BaseException:
            self.close(nid)
            raise

    def _open_port(self, nid: Nid, device: Device, port: int) -> None:
        key = (device.nid.address, port)
        listener = self._listeners.get(key)
        self._most_files = _files_for_callers()
        if listener is None:
            listener = _Listener(sockets.listen(device.nid, port, device.interface, self._shared.params))
            self._listeners[key] = listener
            self._watch(listener)
        listener.nis.add(nid)

    def close(self, nid: Nid, device: Device | None = None) -> None:
        """Stop listening for nid (on that device alone), and drop what is in progress for it."""
        for key, listener in list(self._listeners.items()):
            if device is not None and key[0] != device.nid.address:
                continue
            listener.nis.discard(nid)
            if not listener.nis:
                del self._listeners[key]
                for sock in listener.socks:
                    self._shared.selector.forget(sock.fileno())
                    sock.close()
        for inbound in list(self._shared.callers.half_open):
            if inbound.wanted == nid or not self._listeners:
                inbound.drop()
        if not self._listeners:
            self.shakes.close()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    def _watch(self, listener: _Listener) -> None:
        for sock in listener.socks:
            self._shared.selector.watch(sock.fileno(), partial(self._on_accept, listener, sock))

    def _on_accept(self, listener: _Listener, listening: socket.socket) -> None:
        for turn in range(_ACCEPTS):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:  # told also where nobody calls: the first one surely does
                if turn:
                    return
                if not self._shared.callers.end_oldest_handshake():
                    self._pause(listener)
                    return
                continue
            low = self._shared.params.accept != "secure" or address[1] <= sockets.HIGHEST_RESERVED
            secures = self._secures(listener)
            if not (low or secures):
                sockets.reset(sock)
                who, why = f"{address[0]}:{address[1]}", "its source port is not below 1024 (accept=secure)"
                self._shared.report(_refusal(who, why))
                continue
            if sock.fileno() >= self._most_files:
                freed = self._free_a_file(sock, address[0])
                if freed is None:
                    text = "this process has nearly no file descriptors left: raise `ulimit -n`"
                    self._shared.report(_refusal(address[0], text))
                    continue
                sock = freed
            sock.setblocking(False)
            of_this_process(sock)
            self._shared.callers.bound_handshakes(address[0], self._shared.params.max_handshakes)
            _Inbound(self, self._shared, sock, address[0], address[1], low, secures)

    def _secures(self, listener: _Listener) -> bool:
        """Whether any net that is called there has secured connections."""
        if self._shared.credentials is None:
            return False
        states = [self._by_nid.get(nid) for nid in listener.nis]
        return any(state is not None and state.security is not Security.OFF for state in states)

    def _free_a_file(self, sock: socket.socket, address: str) -> socket.socket | None:
        """sock with the descriptor of another one, which gives way; None: none has to, and sock is closed."""
        if self._shared.callers.make_way(address, self._shared.loop.time()):
            with suppress(OSError):  # what heard of the end may have taken the descriptor
                lower = sock.dup()
                sock.close()
                sock = lower
        if sock.fileno() < self._most_files:
            return sock
        sockets.reset(sock)
        return None

    def _pause(self, listener: _Listener) -> None:
        """No resources for one more: the listener would only spin."""
        listener.paused = True
        for sock in listener.socks:
            self._shared.selector.forget(sock.fileno())
        if self._timer is None:
            self._timer = self._shared.loop.call_later(_PAUSE, self._resume)

    def _resume(self) -> None:
        self._timer = None
        for listener in self._listeners.values():
            if listener.paused:
                listener.paused = False
                self._watch(listener)

    def released(self) -> None:
        """A handshake is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._resume()

    def find(self, nid: Nid) -> NiState | None:
        """Our NI of that name."""
        return self._by_nid.get(nid)


def _files_for_callers() -> int:
    """How many descriptors those who call may have: some are kept for our own calls, and lnetctl's."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most - min(_KEPT, most // 8)


class _Inbound:
    """An accepted socket and its `PassiveHandshake`."""

    __slots__ = (
        "_acceptor",
        "_low",
        "_machine",
        "_queue",
        "_secures",
        "_shared",
        "_sock",
        "_state",
        "_timer",
        "wanted",
        "who",
    )

    def __init__(
        self,
        acceptor: Acceptor,
        shared: Shared,
        sock: socket.socket,
        address: str,
        port: int,
        low: bool,
        secures: bool,
    ) -> None:
        self._acceptor = acceptor
        self._shared = shared
        self._sock = sock
        # In which it waits for its turn: who cannot call from ports below 1024 keeps nobody waiting who can.
        self._queue = address if port <= sockets.HIGHEST_RESERVED else f"{address}:*"
        self.who: str = f"{address}:{port}"
        self._low = low  # its port may be that of a plain connection
        self._secures = secures  # it may be a secured one
        self._machine = PassiveHandshake()
        self._state: NiState | None = None
        self.wanted: Nid | None = None
        self._timer = shared.loop.call_later(shared.params.accept_timeout, self._timed_out)
        shared.callers.begins(self, address)
        shared.selector.watch(sock.fileno(), self._on_first if secures else self._on_readable)

    def _on_first(self) -> None:
        """The first byte tells whether the connection is to be secured."""
        try:
            first = self._sock.recv(1, socket.MSG_PEEK)
            if first == FIRST_BYTE:
                self._on_shake()
                return
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.drop()
            return
        if not self._low:
            self._shared.report(_refusal(self.who, "its source port is not below 1024, nor is it secured"))
            self.drop()
            return
        self._watch(self._on_readable)
        self._on_readable()

    def _on_shake(self) -> None:
        """The handshake of TLS can go on: it waits for its turn."""
        self._shared.selector.forget(self._sock.fileno())
        self._shared.selector.forget_room(self._sock.fileno())
        self._acceptor.shakes.later(self._queue, self._go_on)

    def _go_on(self) -> SecureSocket | None:
        """Go on with the handshake of TLS; the socket, if it has a long step to take."""
        sock = self._sock
        if sock.fileno() < 0:  # dropped meanwhile
            return None
        try:
            if not isinstance(sock, SecureSocket):
                credentials = self._shared.credentials
                assert credentials is not None
                credentials.refresh()
                self._sock = sock = credentials.secure(sock, listening=True)
            waits = sock.shake()
        except OSError as error:
            self._shared.report(_refusal(self.who, error.strerror or "it broke off the TLS handshake"))
            self.drop()
            return None
        if waits == "work":
            return sock
        if waits == "write":
            self._shared.selector.watch_room(sock.fileno(), self._on_shake)
        elif waits:
            self._watch(self._on_shake)
        else:
            self._watch(self._on_readable)
            self._on_readable()
        return None

    def _watch(self, reader: Callable[[], None]) -> None:
        self._shared.selector.watch(self._sock.fileno(), reader)

    def _release(self) -> socket.socket:
        self._timer.cancel()
        self._shared.selector.forget(self._sock.fileno())
        self._shared.selector.forget_room(self._sock.fileno())
        self._acceptor.shakes.forget(self._queue, self._go_on)
        if self._shared.callers.ended(self):  # else it ended while it was being answered
            self._acceptor.released()
        return self._sock

    def give_way(self) -> None:
        """Others call."""
        why = "it took long over its handshake, and others call"
        self._shared.report(Line("connection.refused", f"closed {self.who}: {why}", source=self.who, why=why))
        self.drop()

    def drop(self) -> None:
        """Hang up."""
        self._release().close()

    def _timed_out(self) -> None:
        what = "connection request" if self._state is None else "HELLO"
        text = f"closed {self.who}: it sent no whole {what} in time"
        self._shared.report(Line("connection.timed_out", text, peer=self.who))
        self.drop()

    def _on_readable(self) -> None:
        machine = self._machine
        try:
            while True:
                piece = self._sock.recv(machine.want)
                verdict = machine.feed(piece) if piece else Verdict.REFUSED
                if verdict is Verdict.REQUEST:
                    verdict = self._take_request()
                if verdict is Verdict.MORE:
                    continue
                if verdict is Verdict.HELLO and self._state is not None:
                    self._state.admit(self._release(), machine)
                    return
                if machine.error:
                    self._shared.report(_refusal(self.who, machine.error))
                if machine.reply:
                    self._sock.send(machine.reply)
                break
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            pass
        self.drop()

    def _take_request(self) -> Verdict:
        request = self._machine.request
        assert request is not None
        state = self._acceptor.find(request.nid)
        if state is None:
            self._shared.report(_refusal(self.who, f"it wants {request.nid}, which is no NID of ours"))
            return Verdict.REFUSED
        if isinstance(self._sock, SecureSocket) and state.security is Security.OFF:
            why = f"a TLS connection came to {request.nid}, a net without security: {TLS_WAY_OUT}"
            self._shared.report(_refusal(self.who, why))
            return Verdict.REFUSED
        self._state = state
        self.wanted = request.nid
        self._machine.accept_request(state.identity)
        # The HELLO has its own time.
        self._timer.cancel()
        self._timer = self._shared.loop.call_later(self._shared.params.accept_timeout, self._timed_out)
        return Verdict.MORE


def _refusal(who: str, why: str) -> Line:
    return Line("connection.refused", f"refused {who}: {why}", source=who, why=why)
