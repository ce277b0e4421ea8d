"""Rare turns: sockets that fail in odd ways, handlers that close what they are called from."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import ClassVar

import pytest

from lnd.conftest import Addresses
from lnd.kit import (
    Arrival,
    RawListener,
    Side,
    connect,
    hello_bytes,
    linked,
    lnet_frame,
    put_header,
    turns,
    until,
)
from ulnet.core.status import HealthStatus
from ulnet.lnd.tcp import errors, sockets
from ulnet.lnd.tcp.params import TcpParams
from ulnet.nid import Nid
from ulnet.wire.socklnd import ConnType

Make = Callable[..., Side]
CONTROL = ConnType.CONTROL


class Failing:
    """A socket that cannot send; all else is the real one's."""

    def __init__(self, real: socket.socket, number: int) -> None:
        self.real = real
        self.number = number

    def sendmsg(self, iov: list[bytes]) -> int:
        raise OSError(self.number, "as the test wants")

    def send(self, data: bytes, flags: int = 0) -> int:
        raise OSError(self.number, "as the test wants")

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (errno.ETIMEDOUT, HealthStatus.REMOTE_TIMEOUT),
        (errno.EPIPE, HealthStatus.REMOTE_ERROR),
        (errno.ECONNRESET, HealthStatus.REMOTE_ERROR),
        (errno.ENETUNREACH, HealthStatus.LOCAL_ERROR),
        (errno.ENETDOWN, HealthStatus.LOCAL_ERROR),
        (errno.EHOSTUNREACH, HealthStatus.LOCAL_ERROR),
    ],
)
async def test_sending_fails(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch, number: int, status: HealthStatus
) -> None:
    a = make(at.nid(1))
    await connect(a, at.nid(2), CONTROL)
    (conn,) = a.peer(at.nid(2)).conns
    assert conn.sock is not None
    monkeypatch.setattr(conn.tx, "sock", Failing(conn.sock, number))
    msgs = [a.put(at.nid(2), bytes(size)) for size in (10, 2000, 10)]
    for msg in msgs:
        outcome = await a.ended(msg)
        assert (outcome.status, outcome.errno) == (status, number)
    assert not a.state().peers
    monkeypatch.undo()
    conn.tx.sock = None


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (errno.ENETDOWN, HealthStatus.REMOTE_DROPPED),
        (errno.EHOSTUNREACH, HealthStatus.REMOTE_DROPPED),
        (errno.ENETUNREACH, HealthStatus.REMOTE_DROPPED),
        (errno.ECONNREFUSED, HealthStatus.REMOTE_DROPPED),
        (errno.ECONNRESET, HealthStatus.REMOTE_DROPPED),
        (errno.ETIMEDOUT, HealthStatus.NETWORK_TIMEOUT),
        (errno.EADDRINUSE, HealthStatus.LOCAL_ERROR),
        (errno.EADDRNOTAVAIL, HealthStatus.LOCAL_ERROR),
        (errno.EMFILE, HealthStatus.LOCAL_ERROR),
        (errno.EPROTO, HealthStatus.REMOTE_ERROR),
        (errno.EALREADY, HealthStatus.REMOTE_ERROR),  # it does not accept our connections
        (errno.EACCES, HealthStatus.REMOTE_DROPPED),  # its certificate is not for the NID that was called
        (errno.EINVAL, HealthStatus.REMOTE_DROPPED),  # fe80:: addresses that it lists
        (errno.EAFNOSUPPORT, HealthStatus.REMOTE_DROPPED),
    ],
)
def test_every_error_has_its_status_and_names_the_target(number: int, status: HealthStatus) -> None:
    assert errors.connect_status(number) is status
    assert "10.0.0.1:988" in errors.why_connect_failed(number, "10.0.0.1:988", "10.0.0.2", 50)


@pytest.mark.pure
async def test_all_reserved_ports_in_use(make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*args: object) -> socket.socket:
        raise OSError(errno.EADDRINUSE, "in use")

    monkeypatch.setattr(sockets, "_bound", none_left)
    a = make(at.nid(1))
    outcome = await a.ended(a.put(at.nid(2), b"x"))
    assert (outcome.status, outcome.errno) == (HealthStatus.LOCAL_ERROR, errno.EADDRINUSE)
    assert "512 to 1023" in outcome.reason


@pytest.mark.pure
async def test_our_address_is_gone(make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*args: object) -> socket.socket:
        raise OSError(errno.EADDRNOTAVAIL, "gone")

    monkeypatch.setattr(sockets, "_bound", gone)
    a = make(at.nid(1))
    outcome = await a.ended(a.put(at.nid(2), b"x"))
    assert outcome.status is HealthStatus.LOCAL_ERROR
    assert f"{at.ip(1)} is no address of this host any more" in outcome.reason


async def test_a_source_port_in_use_towards_the_same_target(make: Make, at: Addresses) -> None:
    """Two sockets may share a source port, but not towards one target."""
    a = make(at.nid(1), reserved_ports=False)
    params = TcpParams(accept_port=a.params.accept_port)
    target = Nid.parse(at.nid(1))
    own = Nid.parse(at.nid(2))
    ports = set()
    kept = []
    for _ in range(3):
        sock = sockets.dial(own, None, target, a.params.accept_port, params, taken=())
        ports.add(sock.getsockname()[1])
        kept.append(sock)
    assert len(ports) == 3
    for sock in kept:
        sock.close()


async def test_an_inbound_connection_overtakes_our_own(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), min_reconnectms=5)
    listener = RawListener(at.ip(2), a.params.accept_port)
    try:
        a.put(at.nid(2), b"x")
        called, _, _ = await listener.accept_hello()
        raw = await connect(a, at.nid(2), CONTROL)
        assert (await raw.frame())[5] == b"x"
        await called.send(hello_bytes(Nid.parse(at.nid(2)), a.ni.nid))
        assert await called.rest() == (b"", "EOF"), "ours is one too many now"
        _, _, hello = await listener.accept_hello()
        assert hello.ctype == ConnType.BULK_IN
    finally:
        listener.close()


async def test_a_peer_restarts_while_we_call_it(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    listener = RawListener(at.ip(2), a.params.accept_port)
    try:
        a.put(at.nid(2), b"x")
        called, _, _ = await listener.accept_hello()
        old = await connect(a, at.nid(2), CONTROL, incarnation=7)
        assert (await old.frame())[5] == b"x"
        await called.send(hello_bytes(Nid.parse(at.nid(2)), a.ni.nid, incarnation=8))
        assert await old.rest() == (b"", "EOF")
        a.put(at.nid(2), b"y")
        assert (await called.frame())[5] == b"y"
    finally:
        listener.close()


async def test_shutdown_from_inside_parse(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    raw = await connect(a, at.nid(2), CONTROL)

    def stop(arrival: Arrival) -> None:
        if a.nis:
            a.lnd.shutdown(a.nis.pop(a.ni.nid))

    a.core.on_parse = stop
    ni = a.ni
    await raw.send(lnet_frame(put_header(ni.nid, Nid.parse(at.nid(2)), 10), bytes(10)) * 3)
    await until(lambda: not a.nis)
    await turns()
    (arrival,) = a.core.arrivals
    assert a.core.outcome(arrival.msg) is not None
    assert not a.core.open


async def test_shutdown_from_inside_parse_of_a_payload_that_waits(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    raw = await connect(a, at.nid(2), CONTROL)
    a.core.hold = True
    a.core.on_parse = lambda arrival: a.lnd.shutdown(a.nis.pop(a.ni.nid))
    ni = a.ni
    await raw.send(lnet_frame(put_header(ni.nid, Nid.parse(at.nid(2)), 10), bytes(10)))
    await until(lambda: a.core.forgotten)
    assert not a.core.held


async def test_what_is_short_ends_a_record_and_bulk_ends_none(make: Make, at: Addresses) -> None:
    """Else Linux keeps it while something of this connection is queued below TCP (tcp_autocorking)."""
    a = make(at.nid(1))
    raw = await connect(a, at.nid(2), ConnType.BULK_IN)
    (conn,) = a.peer(at.nid(2)).conns
    assert conn.sock is not None
    real: socket.socket = conn.sock

    class Watched:
        """What is sent by one call, and whether that ends a record."""

        sent: ClassVar[list[tuple[bool, bool]]] = []

        def sendmsg(self, iov: list[bytes], ancdata: object = (), flags: int = 0) -> int:
            return self.send(b"".join(iov), flags)

        def send(self, data: bytes, flags: int = 0) -> int:
            self.sent.append((len(data) <= 4096, bool(flags & socket.MSG_EOR)))
            return real.send(data, flags)

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

    conn.tx.sock = Watched()  # type: ignore[assignment]
    for size in (0, 100, 70_000, 3000, 20_000):
        msg = a.put(at.nid(2), bytes(size))
        assert len((await raw.frame())[5]) == size
        assert (await a.ended(msg)).status is HealthStatus.OK
    assert {short for short, _ in Watched.sent} == {True, False}
    assert all(short is ends for short, ends in Watched.sent)
    conn.tx.sock = real


async def test_many_cuts_in_one_batch_are_finished_one_by_one(make: Make, at: Addresses) -> None:
    """Partial writes end in the middle of messages and exactly between them."""
    a = make(at.nid(1))
    raw = await connect(a, at.nid(2), ConnType.BULK_IN)
    (conn,) = a.peer(at.nid(2)).conns
    assert conn.sock is not None
    real: socket.socket = conn.sock

    class Miser:
        """Takes few bytes at a time, and nothing every other time."""

        sizes = (1, 95, 96, 100, 4096, 70_000, 97)
        turn = 0

        def sendmsg(self, iov: list[bytes]) -> int:
            self.turn += 1
            if self.turn % 3 == 0:
                raise BlockingIOError
            size = self.sizes[self.turn % len(self.sizes)]
            return real.send(b"".join(iov)[:size])

        def send(self, data: bytes, flags: int = 0) -> int:
            return self.sendmsg([data])

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

    conn.tx.sock = Miser()  # type: ignore[assignment]
    sizes = [0, 4000, 1, 0, 70_000, 96, 0, 5000]
    msgs = [a.put(at.nid(2), bytes([tag]) * size, tag=tag, pieces=3) for tag, size in enumerate(sizes)]
    for tag, size in enumerate(sizes):
        _, _, _, _, hdr, payload = await raw.frame()
        assert hdr is not None and hdr.match_bits == tag
        assert payload == bytes([tag]) * size
    for msg in msgs:
        assert (await a.ended(msg)).status is HealthStatus.OK
    assert [one.msg for one in a.core.outcomes] == msgs, "in order"
    assert conn.tx.waiting_bytes == 0
    conn.tx.sock = real


async def test_eager_ack(make: Make, at: Addresses) -> None:
    a, b = make(at.nid(1)), make(at.nid(2), eager_ack=True)
    a.put(at.nid(2), b"x")
    await until(b.core.complete(1))
    await linked(a, b)


@pytest.mark.pure
@pytest.mark.parametrize("queued", [True, False])
async def test_a_connection_that_is_gone_when_it_is_made(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch, queued: bool
) -> None:
    """Nothing of it is left, and no peer that nobody knows goes on calling."""
    a = make(at.nid(1), min_reconnectms=1)
    listener = RawListener(at.ip(2), a.params.accept_port)

    def gone(*args: object) -> None:
        raise OSError(errno.EINVAL, "reset meanwhile")

    try:
        msg = a.put(at.nid(2), b"x")
        called, _, _ = await listener.accept_hello()
        if not queued:
            a.peer(at.nid(2)).fail_queue(
                errors.Failure(errno.EIO, HealthStatus.LOCAL_ERROR, "a test says so")
            )
        monkeypatch.setattr(sockets, "tune", gone)
        await called.send(hello_bytes(Nid.parse(at.nid(2)), a.ni.nid))
        assert await called.rest() == (b"", "EOF")
        assert (await a.ended(msg)).errno == (errno.ECONNRESET if queued else errno.EIO)
        assert a.lnd.open_connections == a.lnd.pending_handshakes == 0
        inbound = await connect(a, at.nid(3), CONTROL)
        assert await inbound.rest() == (b"", "EOF")
        assert Nid.parse(at.nid(3)) not in {nid for nid, _ in a.state().peers}
    finally:
        listener.close()


class NotConnected:
    """A socket whose peer is gone: its name cannot be asked for any more."""

    def __init__(self, real: socket.socket) -> None:
        self.real = real

    def getpeername(self) -> object:
        raise OSError(errno.ENOTCONN, "gone")

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)


@pytest.mark.pure
@pytest.mark.parametrize("when", ["connected", "HELLO"])
async def test_a_reset_between_two_looks_at_our_own_call(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    a = make(at.nid(1), min_reconnectms=1)
    listener = RawListener(at.ip(2), a.params.accept_port)
    real_dial = sockets.dial

    def dial_badly(*args: object, **kwargs: object) -> object:
        return NotConnected(real_dial(*args, **kwargs))  # type: ignore[arg-type]

    try:
        if when == "connected":
            monkeypatch.setattr(sockets, "dial", dial_badly)
        msg = a.put(at.nid(2), b"x")
        called = await listener.accept()
        if when == "HELLO":
            await called.read(16 + 56)
            attempt = a.dialer(at.nid(2))._attempt
            assert attempt is not None and attempt._sock is not None
            monkeypatch.setattr(attempt, "_sock", NotConnected(attempt._sock))
            await called.send(hello_bytes(Nid.parse(at.nid(2)), a.ni.nid))
        outcome = await a.ended(msg)
        assert (outcome.status, outcome.errno) == (HealthStatus.REMOTE_DROPPED, errno.ECONNRESET)
        assert a.lnd.pending_handshakes == a.lnd.open_connections == 0
    finally:
        listener.close()


async def test_a_handler_shuts_down_while_a_restarted_peer_is_taken(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    listener = RawListener(at.ip(2), a.params.accept_port)
    try:
        a.put(at.nid(2), b"x")
        called, _, _ = await listener.accept_hello()
        old = await connect(a, at.nid(2), CONTROL, incarnation=7)
        await old.frame()
        await old.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 10), b"half"))
        await until(lambda: a.core.arrivals)
        a.core.on_finalize = lambda outcome: a.lnd.shutdown(a.nis.pop(a.ni.nid)) if a.nis else None
        await called.send(hello_bytes(Nid.parse(at.nid(2)), a.ni.nid, incarnation=8))
        await until(lambda: not a.nis)
        assert await called.rest() == (b"", "EOF")
    finally:
        listener.close()
