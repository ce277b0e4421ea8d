"""Long payloads that come in small pieces: not every piece wakes us, and none is waited for in vain."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest

from lnd.conftest import Addresses
from lnd.kit import RawPeer, Side, connect, lnet_frame, put_header, turns, until
from ulnet.lnd.tcp.conn import Conn
from ulnet.nid import Nid
from ulnet.wire.socklnd import ConnType

Make = Callable[..., Side]
SIZE = 1 << 20
PIECE = 20_000


def of(side: Side, sender: str, payload: bytes) -> bytes:
    return lnet_frame(put_header(side.ni.nid, Nid.parse(sender), len(payload)), payload)


def conn_of(side: Side, nid: str) -> Conn:
    (conn,) = side.peer(nid).conns
    return conn


async def begun(side: Side, nid: str, frame: bytes) -> RawPeer:
    """A peer that has sent so much of a message that we wait for more of it before we look again."""
    raw = await connect(side, nid, ConnType.CONTROL)
    await raw.send(frame[:PIECE])
    await until(lambda: conn_of(side, nid).rx.left)
    await raw.send(frame[PIECE : 2 * PIECE])
    await until(lambda: conn_of(side, nid).rx.wake > 1)
    return raw


async def test_pieces_are_taken_together(make: Make, at: Addresses, monkeypatch: pytest.MonkeyPatch) -> None:
    a = make(at.nid(1))
    payload = os.urandom(SIZE)
    frame = of(a, at.nid(2), payload)
    raw = await begun(a, at.nid(2), frame)
    conn = conn_of(a, at.nid(2))
    left = conn.rx.left
    for start in range(2 * PIECE, 10 * PIECE, PIECE):
        await raw.send(frame[start : start + PIECE])
        await turns()
    assert conn.rx.left == left, "so little wakes nobody"
    await raw.send(frame[10 * PIECE :])
    await until(a.core.complete(1))
    assert a.core.arrivals[0].memory == payload
    assert conn.rx.wake == 1


async def test_a_small_message_behind_is_not_waited_for(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    frame = of(a, at.nid(2), os.urandom(SIZE))
    raw = await begun(a, at.nid(2), frame)
    await raw.send(frame[2 * PIECE :])
    await raw.send(of(a, at.nid(2), b"small"))
    await until(a.core.complete(2))
    assert a.core.arrivals[1].memory == b"small"


async def test_a_small_payload_that_waits_for_memory_comes_after(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    frame = of(a, at.nid(2), os.urandom(SIZE))
    raw = await begun(a, at.nid(2), frame)
    a.core.hold = True
    await raw.send(frame[2 * PIECE :] + of(a, at.nid(2), b"later")[:-2])
    await until(lambda: a.core.held)
    (held,) = a.core.held
    a.core.held.clear()
    a.core.take(held)
    await raw.send(b"er")
    await until(a.core.complete(2))
    assert a.core.arrivals[1].memory == b"later"


async def test_a_payload_that_is_abandoned(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    frame = of(a, at.nid(2), os.urandom(SIZE))
    raw = await begun(a, at.nid(2), frame)
    conn = conn_of(a, at.nid(2))
    msg = a.core.arrivals[0].msg
    assert conn.rx.abandon(msg)
    a.core.open.discard(msg)
    assert conn.rx.wake == 1
    await raw.send(frame[2 * PIECE :] + of(a, at.nid(2), b"next"))
    await until(a.core.complete(2))
    assert a.core.arrivals[1].memory == b"next"


async def test_a_peer_that_sends_a_little_is_not_quiet(make: Make, at: Addresses) -> None:
    """Too little to wake us within the time-out, and yet it gets on."""
    a = make(at.nid(1), tunables={"timeout": 0}, sweep_interval=0.01, sock_timeout=0.5)
    frame = of(a, at.nid(2), os.urandom(SIZE))
    raw = await begun(a, at.nid(2), frame)
    at_once = 1000
    for start in range(2 * PIECE, 2 * PIECE + 24 * at_once, at_once):
        await raw.send(frame[start : start + at_once])
        await asyncio.sleep(0.05)
    await raw.send(frame[2 * PIECE + 24 * at_once :])
    await until(a.core.complete(1))
    assert not a.core.outcomes[0].status


async def test_the_end_of_a_connection_wakes_at_once(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    raw = await begun(a, at.nid(2), of(a, at.nid(2), os.urandom(SIZE)))
    raw.close()
    await until(lambda: a.core.outcomes)
    assert a.core.outcomes[0].status
