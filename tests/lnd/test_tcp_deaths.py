"""Connections that end, and what becomes of their messages (spec wire-socklnd.md §5, §6, §8)."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

import pytest

from lnd.conftest import Addresses
from lnd.kit import (
    RawListener,
    RawPeer,
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
from ulnet.lnd.tcp.errors import Failure
from ulnet.nid import Nid
from ulnet.wire.socklnd import ConnType, FrameType, pack_frame_header

Make = Callable[..., Side]
CONTROL, IN, OUT = ConnType.CONTROL, ConnType.BULK_IN, ConnType.BULK_OUT
QUICK = {"sweep_interval": 0.01, "sock_timeout": 0.1}


def quick(make: Make, nid: str) -> Side:
    """A node whose time-outs are a tenth of a second."""
    return make(nid, tunables={"timeout": 0}, **QUICK)


async def stuffed(side: Side, nid: str, *kinds: ConnType) -> list[RawPeer]:
    """A raw peer that reads nothing; its connections take little."""
    raws = []
    for kind in kinds:
        raw = await connect(side, nid, kind)
        raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        raws.append(raw)
    for conn in side.peer(nid).conns:
        assert conn.sock is not None
        conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
    return raws


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_what_a_dead_connection_had_not_sent_fails(make: Make, at: Addresses, how: str) -> None:
    a = make(at.nid(1))
    (raw,) = await stuffed(a, at.nid(2), CONTROL)
    msgs = [a.put(at.nid(2), bytes(1_000_000)) for _ in range(20)]
    await turns()
    assert a.lnd.queued_messages == 20
    raw.close() if how == "close" else raw.reset()
    for msg in msgs:
        outcome = await a.ended(msg)
        assert outcome.status is HealthStatus.REMOTE_ERROR
        assert at.nid(2) in outcome.reason or "sending failed" in outcome.reason
    assert not a.state().peers


async def test_messages_not_begun_move_to_another_connection(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    control, bulk = await stuffed(a, at.nid(2), CONTROL, IN)
    msgs = [a.put(at.nid(2), bytes([tag]) * 1_000_000, tag=tag) for tag in range(10)]
    await turns()
    begun = await bulk.read(1000)
    assert begun[:4] == b"\xc1\0\0\0"
    bulk.sock.shutdown(socket.SHUT_WR)  # only an end of file: the other connection stays
    seen = [await control.frame() for _ in range(9)]
    assert [frame[4].match_bits for frame in seen if frame[4] is not None] == list(range(1, 10))
    assert (await a.ended(msgs[0])).status is HealthStatus.REMOTE_ERROR
    for msg in msgs[1:]:
        assert (await a.ended(msg)).status is HealthStatus.OK


@pytest.mark.requirement("dyn-065")
async def test_another_life_of_a_peer_is_told_of_once(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    first = await connect(a, at.nid(2), CONTROL, incarnation=7)
    again = await connect(a, at.nid(2), OUT, incarnation=7)
    first.close()
    again.close()
    await until(lambda: not a.state().peers)
    third = await connect(a, at.nid(2), CONTROL, incarnation=7)
    assert not a.core.restarted
    third.close()
    await until(lambda: not a.state().peers)
    fourth = await connect(a, at.nid(2), CONTROL, incarnation=8)
    fifth = await connect(a, at.nid(2), OUT, incarnation=8)
    assert a.core.restarted == [Nid.parse(at.nid(2))]
    fourth.close()
    fifth.close()


async def test_the_last_connection_that_breaks_is_told_of(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    control = await connect(a, at.nid(2), CONTROL)
    out = await connect(a, at.nid(2), OUT)
    control.close()
    await until(lambda: a.lnd.open_connections == 1)
    assert not a.core.lost
    out.reset()
    await until(lambda: a.core.lost)
    assert a.core.lost == [(a.ni, Nid.parse(at.nid(2)))]


async def test_a_connection_of_another_program_there_is_none_of_these(make: Make, at: Addresses) -> None:
    """Its end is no end of the path: what is under way would be sent again, and a discovery given up."""
    a = make(at.nid(1))
    control = await connect(a, at.nid(2), CONTROL)
    other = await connect(a, at.nid(2), CONTROL, pid=77)
    assert a.lnd.open_connections == 2
    other.reset()
    await until(lambda: a.lnd.open_connections == 1)
    assert not a.core.lost
    alone = await connect(a, at.nid(2), CONTROL, pid=78)
    control.reset()
    await until(lambda: a.core.lost)
    assert a.core.lost == [(a.ni, Nid.parse(at.nid(2)))]
    alone.close()


async def test_connections_that_break_are_told_of_while_others_are_being_made(
    make: Make, at: Addresses
) -> None:
    a = make(at.nid(1), min_reconnectms=60_000)
    listener = RawListener(at.ip(2), a.params.accept_port)
    a.put(at.nid(2), b"1")
    control, _, _ = await listener.accept_hello()
    await control.send(hello_bytes(Nid.parse(at.nid(2)), a.ni.nid, CONTROL))
    later, _, _ = await listener.accept_hello()
    await later.send(hello_bytes(Nid.parse(at.nid(2)), a.ni.nid, ConnType.NONE))  # "not now"
    await until(lambda: a.dialer(at.nid(2)).busy and not a.dialer(at.nid(2)).connecting)
    control.reset()
    await until(lambda: a.core.lost)
    assert a.core.lost == [(a.ni, Nid.parse(at.nid(2)))]
    listener.close()
    later.close()


@pytest.mark.pure
async def test_only_so_many_lives_are_remembered(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ulnet.lnd.tcp.shared._LIVES", 3)
    a = make(at.nid(1))
    for number in range(2, 9):
        raw = await connect(a, at.nid(number), CONTROL)
        assert len(a.lnd._shared.lives) <= 3
        raw.close()


async def test_an_idle_end_of_file_closes_one_connection(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    control = await connect(a, at.nid(2), CONTROL)
    out = await connect(a, at.nid(2), OUT)
    control.close()
    await until(lambda: a.lnd.open_connections == 1)
    await out.silent()
    out.close()
    await until(lambda: not a.state().peers)


@pytest.mark.parametrize("cut", [1, 23, 24, 50, 95, 96, 100, 5000])
async def test_an_end_in_the_middle_of_a_message(make: Make, at: Addresses, cut: int) -> None:
    a = make(at.nid(1))
    control = await connect(a, at.nid(2), CONTROL)
    out = await connect(a, at.nid(2), OUT)
    frame = lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 6000), bytes(6000))
    await control.send(frame[:cut])
    control.sock.shutdown(socket.SHUT_WR)
    assert (await control.rest())[0] == b""
    assert (await out.rest())[0] == b"", "the others of that peer go too"
    if cut >= 96:
        (outcome,) = a.core.outcomes
        assert (outcome.status, outcome.errno) == (HealthStatus.REMOTE_ERROR, errno.EIO)
    else:
        assert not a.core.arrivals


async def test_a_refused_header_closes_the_peer_and_nobody_else(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    control = await connect(a, at.nid(2), CONTROL)
    out = await connect(a, at.nid(2), OUT)
    other = await connect(a, at.nid(3), CONTROL)
    await control.send(lnet_frame(put_header(Nid.parse(at.nid(99)), Nid.parse(at.nid(2)), 0)))
    assert await control.rest() == (b"", "EOF")
    assert await out.rest() == (b"", "EOF")
    await other.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(3)), 2), b"ok"))
    await until(a.core.complete(1))


@pytest.mark.parametrize(("unread", "how"), [(0, "EOF"), (72, "RESET")])
async def test_unread_bytes_make_it_a_reset(make: Make, at: Addresses, unread: int, how: str) -> None:
    a = make(at.nid(1))
    raw = await connect(a, at.nid(2), CONTROL)
    await raw.send(pack_frame_header(0xC5) + bytes(unread))
    assert await raw.rest() == (b"", how)


async def test_a_peer_that_goes_quiet_in_a_message(make: Make, at: Addresses) -> None:
    a = quick(make, at.nid(1))
    raw = await connect(a, at.nid(2), CONTROL)
    idle = await connect(a, at.nid(3), CONTROL)
    frame = lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 100), bytes(100))
    await raw.send(frame[:150])
    assert (await raw.rest())[0] == b""
    (outcome,) = a.core.outcomes
    assert outcome.status is HealthStatus.REMOTE_ERROR
    assert "timed out" in outcome.reason
    assert a.lnd.open_connections == 1
    await idle.silent(0.01)


async def test_a_slow_peer_is_not_a_quiet_one(make: Make, at: Addresses) -> None:
    a = quick(make, at.nid(1))
    raw = await connect(a, at.nid(2), CONTROL)
    frame = lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 10), bytes(10))
    for at_once in range(0, len(frame), 5):
        await raw.send(frame[at_once : at_once + 5])
        await asyncio.sleep(0.01)
    await until(a.core.complete(1))


async def test_a_peer_that_takes_nothing(make: Make, at: Addresses) -> None:
    a = quick(make, at.nid(1))
    (raw,) = await stuffed(a, at.nid(2), CONTROL)
    msgs = [a.put(at.nid(2), bytes(1 << 20)) for _ in range(3)]
    for msg in msgs:
        outcome = await a.ended(msg)
        assert (outcome.status, outcome.errno) == (HealthStatus.NETWORK_TIMEOUT, errno.ETIMEDOUT)
        assert "took none of our data" in outcome.reason
    # What is reported is not sent on, and to the peer a new connection is no duplicate.
    assert (await raw.rest())[1] == "RESET"


async def test_a_peer_whose_host_acknowledges_nothing(make: Make, at: Addresses) -> None:
    """All is with our kernel, which cannot get rid of it."""
    a = quick(make, at.nid(1))
    raw = await connect(a, at.nid(2), CONTROL)
    raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    (conn,) = a.peer(at.nid(2)).conns
    assert conn.sock is not None
    conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2_000_000)
    msg = a.put(at.nid(2), bytes(1 << 20))
    assert (await a.ended(msg)).status is HealthStatus.OK
    await until(lambda: not a.lnd.open_connections)


async def test_a_peer_that_takes_a_little_is_waited_for(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), tunables={"timeout": 0}, sweep_interval=0.01, sock_timeout=0.5)
    (raw,) = await stuffed(a, at.nid(2), CONTROL)
    size = 2_000_000
    msg = a.put(at.nid(2), bytes(size))
    for _ in range(16):
        await raw.read(100_000)
        await asyncio.sleep(0.05)
    await raw.read(96 + size - 1_600_000)
    assert (await a.ended(msg)).status is HealthStatus.OK


async def test_messages_do_not_wait_for_a_connection_for_ever(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), tunables={"timeout": 0}, min_reconnectms=60_000, **QUICK)
    b = make(at.nid(2))
    a.put(at.nid(2), b"x")
    await linked(a, b)
    peer = a.peer(at.nid(2))
    dialer = peer.dialer
    assert dialer is not None
    dialer.postponed(None)  # as if the peer had said "not now"
    closed = Failure(errno.ECONNRESET, HealthStatus.LOCAL_ERROR, "a test closed it")
    peer.close(list(peer.conns), closed)
    msg = a.put(at.nid(2), b"y")
    outcome = await a.ended(msg)
    assert (outcome.status, outcome.errno) == (HealthStatus.NETWORK_TIMEOUT, errno.ETIMEDOUT)
    assert "without a connection" in outcome.reason


async def test_a_paused_connection_that_is_reset_is_noticed(make: Make, at: Addresses) -> None:
    a = quick(make, at.nid(1))
    a.core.hold = True
    raw = await connect(a, at.nid(2), CONTROL)
    await raw.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 10), bytes(10)))
    await until(lambda: a.core.held)
    raw.reset()
    await until(lambda: a.core.forgotten)
    assert not a.lnd.open_connections


async def test_a_paused_connection_may_wait_long(make: Make, at: Addresses) -> None:
    a = quick(make, at.nid(1))
    a.core.hold = True
    raw = await connect(a, at.nid(2), CONTROL)
    await raw.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 10), b"0123456789"))
    await until(lambda: a.core.held)
    await asyncio.sleep(0.3)
    a.core.take(a.core.held.pop())
    await until(a.core.complete(1))
    assert a.core.arrivals[0].memory == b"0123456789"


async def test_without_kernel_memory_sending_waits(
    make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = make(at.nid(1), sweep_interval=0.01)
    raw = await connect(a, at.nid(2), CONTROL)
    conn = a.peer(at.nid(2)).conns[0]
    assert conn.sock is not None
    real: socket.socket = conn.sock

    class Starved:
        """The socket, on a host that has run out of memory twice."""

        left = 2

        def sendmsg(self, iov: list[bytes]) -> int:
            if self.left:
                self.left -= 1
                raise OSError(errno.ENOBUFS, "no buffer space")
            return real.sendmsg(iov)

        def send(self, data: bytes, flags: int = 0) -> int:
            return self.sendmsg([data])

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

    monkeypatch.setattr(conn.tx, "sock", Starved())
    msg = a.put(at.nid(2), b"payload")
    assert (await raw.frame())[5] == b"payload"
    assert (await a.ended(msg)).status is HealthStatus.OK
    conn.tx.sock = real


async def test_noops_alone_keep_nothing_open(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    raw = await connect(a, at.nid(2), CONTROL)
    await raw.send(pack_frame_header(FrameType.NOOP, 0, 0, 1))
    raw.close()
    await until(lambda: not a.state().peers)
