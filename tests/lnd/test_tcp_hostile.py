"""Hostile bytes in every state of a connection: nothing escapes, nothing grows, nobody else suffers."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from lnd.conftest import Addresses
from lnd.kit import (
    RawListener,
    RawPeer,
    Side,
    bench,
    connect,
    dial,
    hello_bytes,
    lnet_frame,
    put_header,
    turns,
    until,
)
from support.examples import examples
from ulnet.nid import Nid
from ulnet.wire.acceptor import ConnRequest
from ulnet.wire.socklnd import ConnType, FrameType, pack_frame_header

US, FOE, FRIEND = "127.59.0.1@tcp", "127.59.0.2@tcp", "127.59.0.3@tcp"
OPENING = ConnRequest.to(Nid.parse(US)).pack() + hello_bytes(Nid.parse(FOE), Nid.parse(US))
GOOD = [
    pack_frame_header(FrameType.NOOP, 0, 0, 1),
    lnet_frame(put_header(Nid.parse(US), Nid.parse(FOE), 0)),
    lnet_frame(put_header(Nid.parse(US), Nid.parse(FOE), 50), bytes(50)),
    lnet_frame(put_header(Nid.parse(US), Nid.parse(FOE), 9000), bytes(9000), cookie0=3),
    lnet_frame(put_header(Nid.parse(US), Nid.parse(FOE), 1 << 20)),
    lnet_frame(put_header(Nid.parse(US), Nid.parse(FOE), 0xFFFFFFFF)),
]


@st.composite
def stream(draw: st.DrawFn) -> bytes:
    """Frames that are right, nearly right, or noise; cut somewhere."""
    parts = draw(st.lists(st.one_of(st.sampled_from(GOOD), st.binary(max_size=120)), max_size=6))
    data = bytearray(b"".join(parts))
    for _ in range(draw(st.integers(0, 4)) if data else 0):
        data[draw(st.integers(0, min(len(data), 400) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))])


def run(scenario: Callable[[Side], object]) -> None:
    """A node with a friend connected; whatever happens, the friend's messages arrive afterwards."""

    async def main() -> None:
        faults: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: faults.append(context))
        async with bench() as make:
            side = make(US, accept_timeout=30, min_reconnectms=1)
            side.core.on_parse = lambda arrival: None
            friend = await connect(side, FRIEND)
            result = scenario(side)
            assert asyncio.iscoroutine(result)
            await result
            side.core.arrivals.clear()
            await friend.send(lnet_frame(put_header(Nid.parse(US), Nid.parse(FRIEND), 4), b"fine"))
            await until(lambda: any(one.memory == b"fine" for one in side.core.arrivals))
            side.core.arrivals.clear()
        assert not faults, "an exception reached the event loop"

    asyncio.run(main())


async def throw(raw: RawPeer, data: bytes, pieces: int) -> None:
    """Send in pieces what the other side takes, then hang up."""
    step = max(1, -(-len(data) // pieces))
    with suppress(ConnectionError):
        for at in range(0, len(data), step):
            await raw.send(data[at : at + step])
            await turns(3)
    raw.close()
    await turns(3)


@settings(max_examples=examples(60))
@given(
    data=st.one_of(st.binary(max_size=150), stream()),
    prefix=st.integers(0, len(OPENING)),
    pieces=st.integers(1, 5),
)
def test_an_inbound_connection_before_its_hello_is_through(data: bytes, prefix: int, pieces: int) -> None:
    async def scenario(side: Side) -> None:
        await throw(await dial(side, Nid.parse(FOE).ip), OPENING[:prefix] + data, pieces)

    run(scenario)


@settings(max_examples=examples(80))
@given(data=stream(), pieces=st.integers(1, 5), version=st.sampled_from([1, 2, 3, 4]), hold=st.booleans())
def test_an_established_connection(data: bytes, pieces: int, version: int, hold: bool) -> None:
    async def scenario(side: Side) -> None:
        raw = await connect(side, FOE, version=version)
        side.core.hold = hold
        await throw(raw, data, pieces)
        side.core.hold = False
        for held in list(side.core.held):
            side.core.held.remove(held)
            side.core.take(held)
        await turns(3)

    run(scenario)


@settings(max_examples=examples(60))
@given(
    data=st.one_of(
        st.binary(max_size=100),
        st.binary(max_size=60).map(lambda b: hello_bytes(Nid.parse(FOE), Nid.parse(US))[:20] + b),
    ),
    pieces=st.integers(1, 3),
)
def test_the_answer_to_our_call(data: bytes, pieces: int) -> None:
    async def scenario(side: Side) -> None:
        listener = RawListener(Nid.parse(FOE).ip, side.params.accept_port)
        try:
            msg = side.put(FOE, b"x")
            raw = await listener.accept()
            await throw(raw, data, pieces)
            await side.ended(msg)
        finally:
            listener.close()

    run(scenario)


@settings(max_examples=examples(40))
@given(data=stream(), pieces=st.integers(1, 5), size=st.integers(1, 300_000))
def test_while_we_send(data: bytes, pieces: int, size: int) -> None:
    async def scenario(side: Side) -> None:
        raw = await connect(side, FOE, ConnType.CONTROL)
        msgs = [side.put(FOE, bytes(size)) for _ in range(5)]
        await throw(raw, data, pieces)
        for msg in msgs:
            await side.ended(msg)

    run(scenario)


async def test_memory_stays_bounded_whatever_a_peer_announces(
    make: Callable[..., Side], at: Addresses
) -> None:
    """A huge announcement costs nothing, endless slop and endless keepalives cost nothing."""
    a = make(at.nid(1))
    a.core.truncate = 0
    raw = await connect(a, at.nid(2))
    huge = lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 1 << 20), bytes(1 << 20))
    noops = pack_frame_header(FrameType.NOOP, 0, 0, 1) * 40_000
    for _ in range(20):
        await raw.send(huge + noops)
    await until(lambda: len(a.core.arrivals) == 20)
    (conn,) = a.peer(at.nid(2)).conns
    assert len(conn.rx.saved) < 100
    raw2 = await connect(a, at.nid(3))
    await raw2.send(lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(3)), 0xFFFFFFFF)))
    assert await raw2.rest() == (b"", "EOF")


async def test_a_paused_connection_keeps_little(make: Callable[..., Side], at: Addresses) -> None:
    a = make(at.nid(1))
    a.core.hold = True
    raw = await connect(a, at.nid(2))
    frame = lnet_frame(put_header(a.ni.nid, Nid.parse(at.nid(2)), 10), bytes(10))
    sending = asyncio.ensure_future(raw.send(frame * 500_000))
    await until(lambda: a.core.held)
    await asyncio.sleep(0.1)
    (conn,) = a.peer(at.nid(2)).conns
    assert len(conn.rx.saved) <= 65536
    assert len(a.core.held) == 1
    sending.cancel()
    with suppress(asyncio.CancelledError):
        await sending


async def test_made_up_pids_cause_no_calls(make: Callable[..., Side], at: Addresses) -> None:
    a = make(at.nid(1))
    await connect(a, at.nid(2))
    for pid in range(1, 200):
        a.put(at.nid(2), b"answer", pid=pid)
    await until(lambda: not a.core.open)
    assert len(a.state().peers) == 1
    assert a.lnd.pending_handshakes == 0


async def test_callers_that_vanish_at_once(make: Callable[..., Side], at: Addresses) -> None:
    a = make(at.nid(1))
    for turn in range(200):
        sock = socket.create_connection((at.ip(1), a.params.accept_port), source_address=(at.ip(2), 0))
        if turn % 2:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if turn % 3:
            sock.send(OPENING[: turn % len(OPENING)])
        sock.close()
    await until(lambda: a.lnd.pending_handshakes == 0)
    assert a.lnd.open_connections == 0


async def test_a_caller_that_vanishes_with_its_hello(make: Callable[..., Side], at: Addresses) -> None:
    """Reset between its HELLO and our answer."""
    a = make(at.nid(1))
    request = ConnRequest.to(a.ni.nid).pack()
    for _ in range(50):
        raw = await dial(a, at.ip(2))
        await raw.send(request + hello_bytes(Nid.parse(at.nid(2)), a.ni.nid))
        raw.reset()
        await turns(2)
    await until(lambda: not a.state().peers)
    assert a.lnd.pending_handshakes == 0
