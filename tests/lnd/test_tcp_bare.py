"""PUTs without ACK: large ones are sent when the peer has read them; of small ones, what a break may cost."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

import pytest

from lnd.conftest import Addresses
from lnd.kit import RawPeer, Side, connect, linked, lnet_frame, noop, put_header, turns, until
from ulnet.core.md import Md
from ulnet.core.msg import Msg
from ulnet.core.status import HealthStatus
from ulnet.lnd.tcp.bare import ZERO_COPY
from ulnet.nid import Nid
from ulnet.wire.lnet import pack_header
from ulnet.wire.socklnd import ConnType, checksum, pack_frame_header

Make = Callable[..., Side]
CONTROL, IN, OUT = ConnType.CONTROL, ConnType.BULK_IN, ConnType.BULK_OUT
LARGE = 20_000


def put(side: Side, nid: str, size: int = LARGE, tag: int = 0) -> Msg:
    """A PUT of memory that somebody owns."""
    return side.put(nid, bytes([tag]) * size, tag=tag, md=Md([], None))


async def peer_of(side: Side, nid: str, version: int = 3) -> RawPeer:
    """A raw peer's connection for bulk; it has another one, so that it can answer."""
    await connect(side, nid, OUT, version=version)
    return await connect(side, nid, IN, version=version)


async def cookies(raw: RawPeer, count: int, large: bool = False) -> list[int]:
    """What the next frames ask to have acknowledged; 0: nothing."""
    return [(await raw.frame(large))[2] for _ in range(count)]


@pytest.mark.parametrize("size", [ZERO_COPY, 1 << 20])
async def test_a_large_put_is_sent_when_the_peer_has_read_it(make: Make, at: Addresses, size: int) -> None:
    a = make(at.nid(1))
    control, bulk = [await connect(a, at.nid(2), kind) for kind in (CONTROL, IN)]
    msg = put(a, at.nid(2), size)
    (cookie,) = await cookies(bulk, 1)
    assert cookie == 2
    await turns()
    assert msg in a.core.open
    await control.send(noop(0, cookie))
    assert (await a.ended(msg)).status is HealthStatus.OK
    put(a, at.nid(2))
    assert await cookies(bulk, 1) == [3]
    await control.send(noop(0, 3))
    await until(lambda: not a.core.open)


async def test_nothing_is_asked_where_something_else_tells(make: Make, at: Addresses) -> None:
    """Small ones; those with an ACK; a router's, whose senders ask."""
    a = make(at.nid(1))
    raw = await peer_of(a, at.nid(2))
    hdr = put_header(Nid.parse(at.nid(2)), a.ni.nid, LARGE)
    hdr.wmd = b"handle of an ACK"  # 16 bytes
    msgs = [
        put(a, at.nid(2), ZERO_COPY - 1),
        a.send(hdr, bytes(LARGE), md=Md([], None)),
        a.put(at.nid(2), bytes(LARGE)),
    ]
    assert await cookies(raw, 3) == [0, 0, 0]
    for msg in msgs:
        assert (await a.ended(msg)).status is HealthStatus.OK


async def test_the_last_one_of_a_batch_asks_for_all(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    raw = await peer_of(a, at.nid(2))
    small = [put(a, at.nid(2), 10, tag=1)]
    msgs = [put(a, at.nid(2), LARGE, tag=tag) for tag in range(5)]
    small += [put(a, at.nid(2), 10, tag=tag) for tag in range(40)]
    assert await cookies(raw, 46) == [0] * 5 + [2] + [0] * 40
    for msg in small:
        assert (await a.ended(msg)).status is HealthStatus.OK
    assert a.core.open == set(msgs)
    await raw.send(noop(0, 2))
    await until(lambda: not a.core.open)
    assert [one.msg for one in a.core.outcomes if one.msg in msgs] == msgs  # in order


@pytest.mark.parametrize("how", ["reset", "end of file", "our shutdown"])
async def test_what_was_not_read_when_the_connection_breaks_has_failed(
    make: Make, at: Addresses, how: str
) -> None:
    a = make(at.nid(1))
    raw = await peer_of(a, at.nid(2))
    msgs = [put(a, at.nid(2)) for _ in range(3)]
    await cookies(raw, 3)
    if how == "reset":
        raw.reset()
    elif how == "end of file":
        raw.close()
    else:
        a.lnd.shutdown(a.ni)
        a.nis.clear()
    for msg in msgs:
        outcome = await a.ended(msg)
        assert outcome.status is not HealthStatus.OK
        assert not outcome.unsent  # the peer may have it


async def test_a_peer_that_reads_nothing_of_what_its_host_has(make: Make, at: Addresses) -> None:
    a = make(at.nid(1), tunables={"timeout": 1}, sweep_interval=0.1)
    raw = await peer_of(a, at.nid(2))
    outcome = await a.ended(put(a, at.nid(2)))
    assert (outcome.status, outcome.errno) == (HealthStatus.NETWORK_TIMEOUT, errno.ETIMEDOUT)
    assert "read none of our data for 1 s" in outcome.reason
    assert (await raw.rest())[1] == "RESET"


async def test_each_acknowledgement_is_progress(make: Make, at: Addresses) -> None:
    """A peer that reads slowly is no silent one."""
    a = make(at.nid(1), tunables={"timeout": 1}, sweep_interval=0.1)
    raw = await peer_of(a, at.nid(2))
    msgs = []
    for _ in range(20):
        msgs.append(put(a, at.nid(2)))
        await turns(50)
    asked = [cookie for cookie in await cookies(raw, 20) if cookie]
    for cookie in asked[:4]:
        await asyncio.sleep(0.5)
        await raw.send(noop(0, cookie))
    assert all(one.status is HealthStatus.OK for one in a.core.outcomes)
    await raw.send(b"".join(noop(0, cookie) for cookie in asked[4:]))
    await until(lambda: not a.core.open)


@pytest.mark.parametrize("frames", [lambda c: noop(c[0], c[-1]), lambda c: noop(c[1], c[0]) + noop(0, c[2])])
async def test_ranges_and_pairs(make: Make, at: Addresses, frames: Callable[[list[int]], bytes]) -> None:
    a = make(at.nid(1))
    raw = await peer_of(a, at.nid(2))
    asked: list[int] = []
    for _ in range(3):
        put(a, at.nid(2))
        asked += await cookies(raw, 1)
    assert asked == [2, 3, 4]
    await raw.send(frames(asked))
    await until(lambda: not a.core.open)
    await raw.silent()


async def test_an_acknowledgement_that_comes_with_a_message(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    raw = await peer_of(a, at.nid(2), version=2)
    msg = put(a, at.nid(2))
    (cookie,) = await cookies(raw, 1)
    hdr = put_header(a.ni.nid, Nid.parse(at.nid(2)), 10)
    await raw.send(lnet_frame(hdr, bytes(10), cookie1=cookie))
    assert (await a.ended(msg)).status is HealthStatus.OK
    await until(a.core.complete(1))
    await raw.send(lnet_frame(hdr, bytes(10), cookie1=cookie))  # once is enough
    assert (await raw.rest())[0] == b""
    assert len(a.core.arrivals) == 1


async def test_protocol_2_acknowledges_by_the_second_cookie_alone(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    raw = await peer_of(a, at.nid(2), version=2)
    first = put(a, at.nid(2))
    (cookie,) = await cookies(raw, 1)
    await raw.send(noop(7, cookie))
    assert (await a.ended(first)).status is HealthStatus.OK
    second = put(a, at.nid(2))
    await cookies(raw, 1)
    await raw.send(noop(1, cookie))  # no range, and what is in it was acknowledged
    assert (await a.ended(second)).errno == errno.EPROTO


async def test_an_acknowledgement_of_what_has_not_left_yet_breaks_the_protocol(
    make: Make, at: Addresses
) -> None:
    a = make(at.nid(1))
    raw = await peer_of(a, at.nid(2))
    raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    conn = a.peer(at.nid(2)).conns[-1]
    assert conn.sock is not None
    conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4608)
    msg = put(a, at.nid(2), 1 << 20)
    await raw.send(noop(0, 2))
    outcome = await a.ended(msg)
    assert (outcome.status, outcome.errno) == (HealthStatus.REMOTE_ERROR, errno.EPROTO)


@pytest.mark.parametrize("version", [2, 4])
async def test_other_protocols(make: Make, at: Addresses, version: int) -> None:
    a = make(at.nid(1), enable_csum=True)
    raw = await peer_of(a, at.nid(2), version)
    msg = put(a, at.nid(2), LARGE, tag=7)
    kind, csum, cookie, _, hdr, payload = await raw.frame(version == 4)
    assert hdr is not None
    assert payload == bytes([7]) * LARGE
    if version == 2:  # the sum is of the frame as it went
        head = pack_frame_header(kind, 0, cookie) + pack_header(hdr, False)
        assert csum == checksum(head, payload)
    await raw.send(noop(0, cookie))
    assert (await a.ended(msg)).status is HealthStatus.OK


async def test_where_the_peer_could_not_answer_its_host_does(make: Make, at: Addresses) -> None:
    """A kernel node that has no connection for its answer closes them all."""
    a = make(at.nid(1))
    raw = await connect(a, at.nid(2), CONTROL)
    msg = put(a, at.nid(2))
    assert await cookies(raw, 1) == [0]
    assert (await a.ended(msg)).status is HealthStatus.OK
    first = put(a, at.nid(2))
    bulk = await connect(a, at.nid(2), IN)
    second = put(a, at.nid(2))
    assert await cookies(bulk, 1) == [2]
    assert (await a.ended(first)).status is HealthStatus.OK
    assert second in a.core.open
    raw.reset()
    assert (await a.ended(second)).status is not HealthStatus.OK


async def test_protocol_1_cannot_ask(make: Make, at: Addresses) -> None:
    a = make(at.nid(1))
    await connect(a, at.nid(2), ConnType.ANY, version=1)
    assert (await a.ended(put(a, at.nid(2)))).status is HealthStatus.OK


async def test_the_one_that_was_to_ask_is_taken_back(make: Make, at: Addresses) -> None:
    """What left before it is done when the peer's host has it."""
    a = make(at.nid(1))
    raw = await peer_of(a, at.nid(2))
    raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    conn = a.peer(at.nid(2)).conns[-1]
    assert conn.sock is not None
    conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    msgs = [put(a, at.nid(2), LARGE, tag=tag) for tag in range(60)]
    await turns()
    taken = conn.tx.take_queue()
    assert 0 < len(taken) < 60
    a.core.open -= set(taken)
    done = [msg for msg in msgs if msg not in taken]
    assert await cookies(raw, len(done)) == [0] * len(done)
    for msg in done:
        assert (await a.ended(msg)).status is HealthStatus.OK


@pytest.mark.parametrize("payload", [False, True])
async def test_a_handler_may_shut_the_ni_down_when_its_put_was_read(
    make: Make, at: Addresses, payload: bool
) -> None:
    a = make(at.nid(1))
    raw = await peer_of(a, at.nid(2))
    msg = put(a, at.nid(2))
    (cookie,) = await cookies(raw, 1)
    a.core.on_finalize = lambda outcome: a.lnd.shutdown(a.ni)
    hdr = put_header(a.ni.nid, Nid.parse(at.nid(2)), 10)
    more = lnet_frame(hdr, bytes(10))
    await raw.send((lnet_frame(hdr, bytes(10), cookie1=cookie) if payload else noop(0, cookie)) + more)
    await a.ended(msg)
    assert not a.core.arrivals
    a.nis.clear()


@pytest.mark.parametrize("how", [RawPeer.close, RawPeer.reset])
async def test_what_the_peer_acknowledged_before_its_connections_ended_was_read(
    make: Make, at: Addresses, how: Callable[[RawPeer], None]
) -> None:
    """The acknowledgement came by another connection, which is looked at later."""
    a = make(at.nid(1))
    bulk, control = [await connect(a, at.nid(2), kind) for kind in (IN, CONTROL)]
    msg = put(a, at.nid(2))
    (cookie,) = await cookies(bulk, 1)
    how(bulk)
    control.sock.send(noop(0, cookie))
    control.close()
    assert (await a.ended(msg)).status is HealthStatus.OK
    await until(lambda: not a.lnd.open_connections)


@pytest.mark.parametrize("size", [LARGE, 1 << 20])
async def test_a_node_that_leaves_when_it_has_read_says_so(make: Make, at: Addresses, size: int) -> None:
    a, b = make(at.nid(1)), make(at.nid(2))
    a.put(at.nid(2))
    await linked(a, b)
    b.core.on_finalize = lambda outcome: b.lnd.shutdown(b.ni)
    msg = put(a, at.nid(2), size)
    assert (await a.ended(msg)).reason == ""
    b.nis.clear()


# Small ones -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [10, ZERO_COPY - 1])
async def test_what_the_peers_host_may_not_have_when_the_connection_breaks_is_counted(
    make: Make, at: Addresses, size: int
) -> None:
    a = make(at.nid(1), tunables={"timeout": 1}, sweep_interval=0.1)
    raw = await connect(a, at.nid(2), CONTROL)
    read = [put(a, at.nid(2), size) for _ in range(3)]
    await cookies(raw, 3)
    conn = a.peer(at.nid(2)).conns[-1]
    assert conn.sock is not None
    await until(lambda: not conn.watched)
    raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4608)
    conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    msgs = [put(a, at.nid(2), size) for _ in range(4 if size > 10 else 2000)]
    a.send(put_header(Nid.parse(at.nid(2)), a.ni.nid, 0, type=1 + 1))  # a GET
    await until(lambda: not a.lnd.open_connections)
    sent = [msg for msg in msgs if (await a.ended(msg)).status is HealthStatus.OK]
    assert 0 < a.core.doubtful <= len(sent)
    assert [(await a.ended(msg)).status for msg in read] == [HealthStatus.OK] * 3
