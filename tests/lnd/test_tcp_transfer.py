"""Messages between two drivers over loopback (spec wire-socklnd.md §4, §5)."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable

import pytest

from lnd.conftest import Addresses
from lnd.kit import Arrival, Outcome, Side, linked, put_header, turns, until
from ulnet.core.msg import Msg
from ulnet.core.status import HealthStatus
from ulnet.nid import Nid
from ulnet.wire.lnet import Header, MsgType
from ulnet.wire.socklnd import ConnType

Make = Callable[..., Side]
SIZES = [0, 1, 63, 1023, 1024, 4095, 4096, 65536, 65537, 1 << 20]


def pattern(size: int, seed: int = 0) -> bytes:
    return bytes((seed + at * 7) % 251 for at in range(min(size, 5021))) * (size // 5021 + 1) if size else b""


def body(size: int, seed: int = 0) -> bytes:
    return pattern(size, seed)[:size]


def pair(make: Make, at: Addresses, **params: object) -> tuple[Side, Side]:
    return make(at.nid(1), **params), make(at.nid(2), **params)


@pytest.mark.parametrize("size", SIZES)
async def test_every_size_arrives_whole(make: Make, at: Addresses, size: int) -> None:
    a, b = pair(make, at)
    sent = a.put(at.nid(2), body(size), tag=5)
    assert (await a.ended(sent)).status is HealthStatus.OK
    await until(b.core.complete(1))
    (arrival,) = b.core.arrivals
    assert arrival.memory == body(size)
    assert arrival.hdr == sent.hdr
    assert arrival.from_nid == a.ni.nid


async def test_all_message_types(make: Make, at: Addresses) -> None:
    a, b = pair(make, at)
    wmd = bytes(range(16))
    for kind, length in ((MsgType.ACK, 0), (MsgType.PUT, 10), (MsgType.GET, 0), (MsgType.REPLY, 3000)):
        hdr = Header(int(kind), b.ni.nid, a.ni.nid, 12345, 12345, length, wmd, match_bits=3)
        if kind is MsgType.REPLY:
            hdr.match_bits = 0
        a.send(hdr, bytes(length))
        # One by one: control and bulk connections keep no common order.
        await until(b.core.complete(len(a.core.outcomes) + len(a.core.open)))
        assert b.core.arrivals[-1].hdr == hdr


async def test_fragments_on_both_sides(make: Make, at: Addresses) -> None:
    a, b = pair(make, at)
    b.core.pieces = 7
    for turn, size in enumerate([10, 5000, 300_000, 1 << 20]):
        a.put(at.nid(2), body(size), pieces=5)
        await until(b.core.complete(turn + 1))
        assert b.core.arrivals[-1].memory == body(size)


async def test_one_connection_keeps_order(make: Make, at: Addresses) -> None:
    a, b = pair(make, at)
    sizes = [(tag * 37) % 900 for tag in range(3000)]
    for tag, size in enumerate(sizes):
        a.put(at.nid(2), body(size, tag), tag=tag)
    await until(b.core.complete(3000))
    assert [arrival.hdr.match_bits for arrival in b.core.arrivals] == list(range(3000))
    assert all(
        one.memory == body(size, tag)
        for tag, (one, size) in enumerate(zip(b.core.arrivals, sizes, strict=True))
    )


@pytest.mark.parametrize("buffers", [0, 4608])
async def test_mixed_sizes_both_ways_at_once(make: Make, at: Addresses, buffers: int) -> None:
    """Also with socket buffers so small that every message is cut many times."""
    a, b = pair(make, at, tx_buffer_size=buffers, rx_buffer_size=buffers)
    sizes = [0, 70_000, 1, 1023, 200_000, 4096, 300, 5000, 64, 131_072] * 6
    for tag, size in enumerate(sizes):
        a.put(at.nid(2), body(size, tag), tag=tag)
        b.put(at.nid(1), body(size, tag + 1), tag=tag + 1)
    await until(a.core.complete(len(sizes)))
    await until(b.core.complete(len(sizes)))
    for side, first in ((b, 0), (a, 1)):
        seen = sorted(side.core.arrivals, key=lambda one: one.hdr.match_bits)
        assert [one.hdr.match_bits for one in seen] == [first + at for at in range(len(sizes))]
        assert all(one.memory == body(one.hdr.payload_length, one.hdr.match_bits) for one in seen)


@pytest.mark.parametrize("take", [0, 1, 100, 65_000])
async def test_what_is_not_wanted_is_skipped(make: Make, at: Addresses, take: int) -> None:
    a, b = pair(make, at)
    b.core.truncate = take
    for tag, size in enumerate([50, 900, 70_000, 500_000]):
        a.put(at.nid(2), body(size), tag=tag)
    await until(lambda: len(b.core.arrivals) == 4 and not b.core.open)
    assert all(one.memory == body(one.hdr.payload_length)[:take] for one in b.core.arrivals)
    b.core.truncate = None
    a.put(at.nid(2), body(77), tag=9)
    await until(b.core.complete(5))
    assert b.core.arrivals[-1].memory == body(77)


@pytest.mark.parametrize("size", [10, 100_000])
async def test_a_payload_that_waits_stalls_its_connection_only(make: Make, at: Addresses, size: int) -> None:
    a, b = pair(make, at)
    a.put(at.nid(2), b"first")
    await until(b.core.complete(1))
    await linked(a, b)
    b.core.hold = True
    for tag in range(20):
        a.put(at.nid(2), body(size, tag), tag=tag)
    await until(lambda: b.core.held)
    b.core.hold = False
    other = 100_000 if size < 1024 else 10
    a.put(at.nid(2), body(other), tag=99)
    await until(lambda: len(b.core.arrivals) == 3 and b.core.arrivals[-1].hdr.match_bits == 99)
    assert len(b.core.held) == 1, "nothing more is read on that connection"
    held = b.core.held.pop()
    b.core.take(held)
    await until(b.core.complete(22))
    tags = [one.hdr.match_bits for one in b.core.arrivals[1:] if one.hdr.payload_length == size]
    assert tags == list(range(20))
    assert all(
        one.memory == body(size, one.hdr.match_bits) for one in b.core.arrivals[1:] if one.hdr.match_bits < 99
    )


async def test_payloads_may_wait_again_and_again(make: Make, at: Addresses) -> None:
    a, b = pair(make, at)
    b.core.hold = True
    for tag in range(30):
        a.put(at.nid(2), body(200, tag), tag=tag)
    for tag in range(30):
        await until(lambda: b.core.held)
        held = b.core.held.pop()
        assert held.hdr.match_bits == tag
        b.core.take(held)
    await until(b.core.complete(30))
    assert all(one.memory == body(200, one.hdr.match_bits) for one in b.core.arrivals)


async def test_a_waiting_payload_whose_connection_dies_is_forgotten(make: Make, at: Addresses) -> None:
    a, b = pair(make, at)
    b.core.hold = True
    a.put(at.nid(2), body(100))
    await until(lambda: b.core.held)
    rx = b.core.held[0].rx
    b.lnd.shutdown(b.nis.pop(b.ni.nid))
    assert b.core.forgotten == [rx]
    assert not b.core.held


async def test_memory_for_a_dead_connection_fails_the_message(make: Make, at: Addresses) -> None:
    a, b = pair(make, at)
    b.core.hold = True
    a.put(at.nid(2), body(100))
    await until(lambda: b.core.held)
    held = b.core.held[0]
    b.core.take(b.core.held.pop())
    b.lnd.shutdown(b.nis.pop(b.ni.nid))
    (outcome,) = b.core.outcomes
    assert (outcome.msg, outcome.status) == (held.msg, HealthStatus.REMOTE_ERROR)
    await turns()


async def test_messages_sent_from_finalize_go_out(make: Make, at: Addresses) -> None:
    """Handlers call back into the driver: no recursion, no loss."""
    a, b = pair(make, at)
    left = 2000

    def again(outcome: Outcome) -> None:
        nonlocal left
        if isinstance(outcome.msg, Msg) and left:
            left -= 1
            a.put(at.nid(2), body(left % 300), tag=left)

    a.core.on_finalize = again
    for _ in range(3):
        a.put(at.nid(2), b"start")
    await until(b.core.complete(2003))


async def test_shutdown_from_inside_a_handler(make: Make, at: Addresses) -> None:
    a, b = pair(make, at)

    def stop(outcome: Outcome) -> None:
        if b.nis:
            b.lnd.shutdown(b.nis.pop(b.ni.nid))

    b.core.on_finalize = stop
    for tag in range(50):
        a.put(at.nid(2), body(500), tag=tag)
    await until(lambda: not b.nis)
    await until(lambda: not a.core.open)


async def test_replies_from_inside_parse(make: Make, at: Addresses) -> None:
    a, b = pair(make, at)

    def reply(arrival: Arrival) -> None:
        b.put(arrival.hdr.src_nid, body(5000))

    b.core.on_parse = reply
    a.put(at.nid(2), b"?" * 100)
    await until(a.core.complete(1))
    assert a.core.arrivals[0].memory == body(5000)


async def test_a_header_that_does_not_fit_fails_alone(make: Make, at: Addresses) -> None:
    a, b = pair(make, at)
    good = [a.put(at.nid(2), body(10)) for _ in range(2)]
    bad = put_header(b.ni.nid, Nid.parse("fd00::1@tcp"), 10)
    sent = a.send(bad, bytes(10))
    good.append(a.put(at.nid(2), body(10)))
    outcome = await a.ended(sent)
    assert (outcome.status, outcome.errno) == (HealthStatus.OK, errno.EINVAL)  # nobody's health suffers
    assert "fd00::1@tcp" in outcome.reason
    await until(b.core.complete(3))
    assert all(one.memory == body(10) for one in b.core.arrivals)


async def test_a_node_reaches_itself(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    for size in (10, 100_000):
        a.put(at.nid(1), body(size))
    await until(a.core.complete(2))
    assert sorted(len(one.memory) for one in a.core.arrivals) == [10, 100_000]


async def test_small_messages_take_control_and_large_ones_bulk(make: Make, at: Addresses) -> None:
    a, b = pair(make, at)
    a.put(at.nid(2), b"go")
    await linked(a, b)
    b.core.arrivals.clear()
    edge = 1024 - 24 - 72
    for size in (0, edge - 1, edge, 100_000):
        a.put(at.nid(2), body(size))
    await until(b.core.complete(4))
    took = {one.hdr.payload_length: one.ctype for one in b.core.arrivals}
    assert took == {
        0: ConnType.CONTROL,
        edge - 1: ConnType.CONTROL,
        edge: ConnType.BULK_IN,
        100_000: ConnType.BULK_IN,
    }


async def test_several_bulk_connections_share_the_load(make: Make, at: Addresses) -> None:
    a, b = make(at.nid(1), tunables={"conns_per_peer": 3}), make(at.nid(2), tunables={"conns_per_peer": 3})
    a.put(at.nid(2), b"go")
    await linked(a, b, 7)
    for _ in range(60):
        a.put(at.nid(2), os.urandom(50_000))
    await until(b.core.complete(61))
    used = {one.rx for one in b.core.arrivals if one.ctype is ConnType.BULK_IN}
    assert len(used) == 3


async def test_socket_options(make: Make, at: Addresses) -> None:
    a, b = make(at.nid(1), tunables={"tos": 16}, congestion="reno"), make(at.nid(2), congestion="reno")
    a.put(at.nid(2), b"go")
    await until(b.core.complete(1))
    (conn,) = [one for one in a.peer(at.nid(2)).conns if one.ctype is ConnType.CONTROL]
    sock = conn.sock
    assert sock is not None
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 5
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 5
    assert sock.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) == 16
    for one in (conn, b.core.arrivals[0].rx):
        assert one.sock is not None
        name = one.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert name.rstrip(b"\0") == b"reno"
