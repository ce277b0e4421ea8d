"""Listening, and inbound connections until their HELLO is answered (spec wire-socklnd.md §1, §2, §3.5)."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import Final

from ulnet.core.lines import Line
from ulnet.lnd.tcp import sockets
from ulnet.lnd.tcp.devices import Device
from ulnet.lnd.tcp.handshake import PassiveHandshake, Verdict
from ulnet.lnd.tcp.nistate import NiState
from ulnet.lnd.tcp.shared import Shared
from ulnet.nid import Nid

__all__ = ["Acceptor"]

_ACCEPTS: Final = 64  # per turn of a listener
_PAUSE: Final = 1.0  # seconds, when there are no more file descriptors


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
        self.pending: set[_Inbound] = set()

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
        for inbound in list(self.pending):
            if inbound.wanted == nid or not self._listeners:
                inbound.drop()
        if not self._listeners and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self, listener: _Listener) -> None:
        for sock in listener.socks:
            self._shared.selector.watch(sock.fileno(), partial(self._on_accept, listener, sock))

    def _on_accept(self, listener: _Listener, listening: socket.socket) -> None:
        for _ in range(_ACCEPTS):
            if len(self.pending) >= self._shared.params.max_handshakes:
                self._pause(listener)
                return
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                self._pause(listener)
                return
            if self._shared.params.accept == "secure" and address[1] > sockets.HIGHEST_RESERVED:
                sockets.reset(sock)
                who, why = f"{address[0]}:{address[1]}", "its source port is not below 1024 (accept=secure)"
                self._shared.report(_refusal(who, why))
                continue
            sock.setblocking(False)
            _Inbound(self, self._shared, sock, f"{address[0]}:{address[1]}")

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
        """A handshake is over: there may be room for another one."""
        if self._timer is not None:
            self._timer.cancel()
            self._resume()

    def find(self, nid: Nid) -> NiState | None:
        """Our NI of that name."""
        return self._by_nid.get(nid)


class _Inbound:
    """An accepted socket and its `PassiveHandshake`."""

    __slots__ = ("_acceptor", "_machine", "_shared", "_sock", "_state", "_timer", "_who", "wanted")

    def __init__(self, acceptor: Acceptor, shared: Shared, sock: socket.socket, who: str) -> None:
        self._acceptor = acceptor
        self._shared = shared
        self._sock = sock
        self._who = who
        self._machine = PassiveHandshake()
        self._state: NiState | None = None
        self.wanted: Nid | None = None
        self._timer = shared.loop.call_later(shared.params.accept_timeout, self._timed_out)
        acceptor.pending.add(self)
        shared.selector.watch(sock.fileno(), self._on_readable)

    def _release(self) -> socket.socket:
        self._timer.cancel()
        self._shared.selector.forget(self._sock.fileno())
        self._acceptor.pending.discard(self)
        self._acceptor.released()
        return self._sock

    def drop(self) -> None:
        """Hang up."""
        self._release().close()

    def _timed_out(self) -> None:
        what = "connection request" if self._state is None else "HELLO"
        text = f"closed {self._who}: it sent no whole {what} in time"
        self._shared.report(Line("connection.timed_out", text, peer=self._who))
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
                    self._shared.report(_refusal(self._who, machine.error))
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
            self._shared.report(_refusal(self._who, f"it wants {request.nid}, which is no NID of ours"))
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
